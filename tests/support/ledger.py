"""Tasks that record their start and hold a lock while one of their processes lives, to find tasks that run twice."""

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
    """A line of the ledger."""

    job: str
    index: int
    attempt: int
    worker: str
    pid: int


class Ledger:
    """Makes scripts for tasks and reads their records. Of `tenants` only one may run on a worker at a time."""

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
        """Return a command that records its start and then runs a script."""
        return ("sh", "-c", self._begin + then)

    def waiting(self, gate: str = "gate", then: str = "") -> tuple[str, ...]:
        """Return a command that waits for the end of `closed(gate)`."""
        return self.task(f"{self.at(gate)}\n{then}")

    def at(self, gate: str) -> str:
        """Return the line of a script that waits at a gate."""
        return f'flock -s "{self.directory}/{gate}.gate" true'

    @contextmanager
    def closed(self, gate: str = "gate") -> Iterator[None]:
        """Let tasks wait at the gate during the block, without using CPU time."""
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
        """Return tasks of which two copies ran at once, and workers with two tenants at once."""
        return set((self.directory / "overlaps").read_text().split())

    def check(self, *, overlaps: Iterable[str] = ()) -> None:
        """Check that no attempt was started twice, and no task ran twice at once, except those the operator gave up."""
        keys = [(start.job, start.index, start.attempt) for start in self.starts]
        assert len(keys) == len(set(keys)), sorted(keys)
        assert self.overlaps == set(overlaps)
