"""Target 16: the cost of one task for its worker, from the launch to the poll that reports its end."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bench.result import Row, Scale
from bench.ssh_hosts import directory
from bench.stopwatch import medians
from iris_cli.core.messages.observations import RemoteState
from tests.support.local_transport import SHELLS, tools_of
from tests.support.process_count import ProcessCount, can_count
from tests.support.worker_host import WorkerHost

MOST_FORKS = 20
MOST_CPU = 0.030
_PR_SET_CHILD_SUBREAPER = 36


def rows(scale: Scale) -> Iterator[Row]:
    """Measure with the program `true`; without strace processes are not counted."""
    for shell in filter(shutil.which, SHELLS):
        with directory() as place:
            host = _probed(place, tools_of(shell, place / "tools"))
            found = medians({"cpu": partial(_cpu_of_a_task, host)}, scale.repeat)
            name = f"launch and end of a task, {shell}, s CPU"
            yield Row(target=16, name=name, value=found["cpu"], reference=MOST_CPU, limit=1)
            if can_count():
                forks = medians({"forks": partial(_forks_of_a_task, place, shell)}, scale.repeat)["forks"]
                name = f"launch and end of a task, {shell}, forks"
                yield Row(target=16, name=name, value=forks, reference=MOST_FORKS, limit=1)


def _probed(place: Path, tools: Path) -> WorkerHost:
    host = WorkerHost(place / "host", tools)
    host.probe()
    return host


def _run(host: WorkerHost, until_ended: Callable[[], object]) -> None:
    token = host.launch("true")
    until_ended()
    (report,) = host.poll(token)
    assert report.state is RemoteState.EXITED, report


def _cpu_of_a_task(host: WorkerHost) -> float:
    """Return the CPU seconds of all processes on the worker, and of the shells of both calls."""
    with _adopting_orphans():
        before = _cpu_of_children()
        _run(host, _wait_for_all)
        return _cpu_of_children() - before


def _forks_of_a_task(place: Path, shell: str) -> float:
    where = place / "counted"
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir()
    count = ProcessCount(shell, where)
    host = _probed(where, count.tools)
    count.clear()
    _run(host, lambda: None)  # a traced call returns when all processes have ended
    return count.forks


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _wait_for_all() -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


@contextlib.contextmanager
def _adopting_orphans() -> Iterator[None]:
    """Make orphans children of this process until the end of the block (Linux only)."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
