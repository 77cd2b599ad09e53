"""Replaces a framework on the VMs of the newcomer's lab, which have no chips: ranks that wait for each other.

If a task declares its memory, one VM has too little. `FRAMEWORK` is a directory of the lab.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

_LARGEST_BATCH = 512
_meetings = 0


def step(batch: int) -> float:
    """Wait until every rank has entered; return a decreasing loss."""
    _meet()
    if batch > _LARGEST_BATCH and os.environ["IRIS_TASK_INDEX"] == "2":
        sys.exit(
            "RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to allocate 12.00G. "
            "That was not possible. There are 9.81G free.; (0x0x0_HBM0)"
        )
    _meet()
    return 4.0 / _meetings


def _meet() -> None:
    """Wait for the other ranks, as in an all-reduce, and while a test holds the job."""
    global _meetings
    _meetings += 1
    lab, job = Path(os.environ["FRAMEWORK"]), os.environ["IRIS_JOB_ID"]
    place = lab / job / os.environ.get("IRIS_ATTEMPT", "0") / str(_meetings)
    place.mkdir(parents=True, exist_ok=True)
    (place / os.environ["IRIS_TASK_INDEX"]).touch()
    while len(list(place.iterdir())) < int(os.environ["IRIS_NUM_TASKS"]) or (lab / f"{job}.held").exists():
        time.sleep(0.02)
