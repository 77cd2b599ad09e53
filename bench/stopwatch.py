"""Measure durations: medians of several runs, alternating between the things compared."""

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
    """Return the duration of one run."""
    start = clock()
    act()
    return clock() - start


def median(act: Callable[[], Any], *, repeat: int, clock: Clock) -> float:
    """Return the median of several runs after a warm-up run."""
    act()
    return statistics.median(seconds(act, clock) for _ in range(repeat))


def medians(acts: Mapping[K, Callable[[], float]], repeat: int) -> dict[K, float]:
    """Return the median result of each act. Runs alternate, so that other load affects all alike."""
    for act in acts.values():
        act()
    rounds = [{name: act() for name, act in acts.items()} for _ in range(repeat)]
    return {name: statistics.median(each[name] for each in rounds) for name in acts}


def cpu_of_command(command: Sequence[str], env: Mapping[str, str]) -> float:
    """Return the CPU seconds of a command and its awaited children. Raises RuntimeError if it fails."""
    process = subprocess.Popen(
        command, env=dict(env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdout is not None
    with process.stdout:
        output = process.stdout.read()
    _, ended, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(ended)
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {output.decode()[-2000:]}")
    return usage.ru_utime + usage.ru_stime
