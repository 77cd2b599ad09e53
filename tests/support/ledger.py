"""Tasks that write down that they run, and hold a lock while any of their processes lives: the truth about copies."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.worker_host import is_alive

_BEGIN = """
exec 9>>"{directory}/$IRIS_JOB_ID-$IRIS_TASK_INDEX.task"
flock -n 9 || echo "$IRIS_JOB_ID-$IRIS_TASK_INDEX" >>"{directory}/overlaps"
{tenant}
echo "$IRIS_JOB_ID $IRIS_TASK_INDEX $IRIS_ATTEMPT $IRIS_WORKER_ID $$" >>"{directory}/starts"
"""

_TENANT = """
exec 8>>"{directory}/$IRIS_WORKER_ID.chips"
flock -n 8 || echo "$IRIS_WORKER_ID" >>"{directory}/overlaps"
"""


@dataclass(frozen=True)
class Start:
    """One line of the ledger."""

    job: str
    index: int
    attempt: int
    worker: str
    pid: int


class Ledger:
    """Makes scripts for tasks, and reads what they wrote. Of `tenants` there is one on each worker at a time."""

    def __init__(self, directory: Path, *, tenants: bool = False) -> None:
        if shutil.which("flock") is None:
            pytest.skip("no flock command here (install util-linux)")
        self.directory = directory
        directory.mkdir()
        (directory / "starts").touch()
        (directory / "overlaps").touch()
        tenant = _TENANT.format(directory=directory) if tenants else ""
        self._begin = _BEGIN.format(directory=directory, tenant=tenant)

    def task(self, then: str = "") -> tuple[str, ...]:
        """A command that enters itself, and then does what it is told."""
        return ("sh", "-c", self._begin + then)

    def waiting(self, gate: str = "gate", then: str = "") -> tuple[str, ...]:
        """One that waits for `closed(gate)` to end."""
        return self.task(f"{self.at(gate)}\n{then}")

    def at(self, gate: str) -> str:
        """The line of a script that waits there."""
        return f'flock -s "{self.directory}/{gate}.gate" true'

    @contextmanager
    def closed(self, gate: str = "gate") -> Iterator[None]:
        """While this lasts, tasks wait at the gate; it costs them nothing."""
        with (self.directory / f"{gate}.gate").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @property
    def starts(self) -> list[Start]:
        found = []
        for line in (self.directory / "starts").read_text().splitlines():
            job, index, attempt, worker, pid = line.split()
            found.append(Start(job, int(index), int(attempt), worker, int(pid)))
        return found

    def of(self, job: str) -> list[Start]:
        return [start for start in self.starts if start.job == job]

    def living(self, job: str) -> list[Start]:
        return [start for start in self.of(job) if is_alive(start.pid)]

    @property
    def overlaps(self) -> set[str]:
        """Tasks of which two copies lived at the same time, and workers with two tenants."""
        return set((self.directory / "overlaps").read_text().split())

    def check(self, *, overlaps: Iterable[str] = ()) -> None:
        """No attempt was started twice, and but for what the operator gave up there was one copy at a time."""
        keys = [(start.job, start.index, start.attempt) for start in self.starts]
        assert len(keys) == len(set(keys)), sorted(keys)
        assert self.overlaps == set(overlaps)
