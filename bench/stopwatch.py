"""How long things take: medians of several runs, of what is compared in turns."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

Clock = Callable[[], float]
K = TypeVar("K")

cpu: Clock = time.process_time
wall: Clock = time.perf_counter


def seconds(act: Callable[[], Any], clock: Clock) -> float:
    """How long one run takes."""
    start = clock()
    act()
    return clock() - start


def median(act: Callable[[], Any], *, repeat: int, clock: Clock) -> float:
    """The median of several runs, after one that warms up."""
    act()
    return statistics.median(seconds(act, clock) for _ in range(repeat))


def in_turns(acts: Mapping[K, Callable[[], float]], repeat: int) -> dict[K, float]:
    """The median of what each gives. One of each at a time, so that what else the machine does hits all alike."""
    for act in acts.values():
        act()
    rounds = [{name: act() for name, act in acts.items()} for _ in range(repeat)]
    return {name: statistics.median(each[name] for each in rounds) for name in acts}


def cpu_of_command(command: Sequence[str], env: Mapping[str, str]) -> float:
    """CPU seconds of a command and of all that it waited for. Raises RuntimeError if it fails."""
    process = subprocess.Popen(
        command, env=dict(env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdout is not None
    with process.stdout:
        said = process.stdout.read()
    _, ended, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(ended)
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {said.decode()[-2000:]}")
    return usage.ru_utime + usage.ru_stime
