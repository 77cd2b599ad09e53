"""SSH servers of this machine that play VMs: begun, told what to be, ended. See `remote/local_host.py`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

MODULE = "iris_cli.remote.local_host"


def begin() -> subprocess.Popen[str]:
    """Start a process that will be a host once it was told so; untold, it ends with whoever started it."""
    return subprocess.Popen(  # noqa: S603 - our own interpreter and module
        [sys.executable, "-m", MODULE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def tell(process: subprocess.Popen[str], settings: dict[str, object], *, stay: bool) -> None:
    """Say what it is to be. It outlives us if it is to `stay`, and ends when our end of its stdin does otherwise."""
    assert process.stdin is not None
    process.stdin.write(json.dumps({**settings, "stay": stay}) + "\n")
    process.stdin.flush()
    if stay:
        process.stdin.close()


def answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait until it serves: its `pid`, its `port` and its `key`. Raises ValueError if it ended instead."""
    assert process.stdout is not None
    with process.stdout:
        said: dict[str, Any] = json.loads(process.stdout.readline())
    return {"pid": process.pid, "port": said["port"], "key": f"ssh-ed25519 {said['key']}"}


def vm_metadata(
    accelerator_type: str, zone: str, slice_name: str, index: int, vms: int, *, preemptible: bool
) -> dict[str, str]:
    """What the metadata server of a TPU VM says, by path."""
    return {
        "instance/attributes/accelerator-type": accelerator_type,
        "instance/attributes/agent-worker-number": str(index),
        "instance/attributes/instance-id": slice_name,
        "instance/attributes/worker-network-endpoints": ",".join(["127.0.0.1"] * vms),
        "instance/zone": f"projects/1/zones/{zone}",
        "instance/scheduling/preemptible": str(preemptible).upper(),
    }


def still_hosts(pids: Sequence[int]) -> list[int]:
    """Those that are still servers of ours: pids are used again."""
    if not pids:
        return []
    shown = subprocess.run(  # noqa: S603 - fixed program, the pids are integers
        ["ps", "-o", "pid=,stat=,command=", "-p", ",".join(map(str, pids))],  # noqa: S607 - ps is where PATH says
        capture_output=True,
        text=True,
        check=False,
    )
    rows = [line.split() for line in shown.stdout.splitlines()]
    return [int(row[0]) for row in rows if not row[1].startswith("Z") and MODULE in row]
