"""The tables of a cluster that was read from a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from iris_cli.core.cluster import Cluster
from iris_cli.core.ids import JobId, TaskId, Token, WorkerId
from iris_cli.core.job import Job
from iris_cli.core.outputs import Outputs
from iris_cli.core.past import Table
from iris_cli.core.task import Task
from iris_cli.journal.position import Position
from iris_cli.journal.snapshot.entries import Now, Whole
from iris_cli.journal.snapshot.form import DamagedSnapshotError, Header
from iris_cli.journal.snapshot.reading import FromFile, FromLog, SnapshotFile

T = TypeVar("T")
Source = FromFile | FromLog
UNUSABLE = (OSError, DamagedSnapshotError)
"""What reading a snapshot raises if it isn't what we wrote."""


def read_snapshot(
    path: Path, program: str, replayed: Callable[[Position], Cluster]
) -> tuple[Position, Cluster]:
    """A log up to one of its lines: where that is, and the cluster then. Raises what is in `UNUSABLE`.

    `replayed` gives the same cluster from the log; it is asked should a part of the file turn out to be damaged later.
    """
    file = SnapshotFile(path)
    if file.header.program != program:
        raise DamagedSnapshotError("program")
    now = file.now()
    position = _position(file.header, now)
    opened = [each.whole() for each in now.jobs]
    source = FromFile(file, {each.job.id: each for each in opened})
    past = Snapshot(source, now.last, lambda: replayed(position))
    return position, _cluster(past, now.fleet(), opened, outputs=now.outputs)


def _position(header: Header, now: Now) -> Position:
    return Position(
        line=header.line,
        offset=header.offset,
        seq=header.seq,
        crc=header.log_crc,
        at=header.at,
        program=now.program,
        header=now.log,
    )


def _cluster(past: Snapshot, fleet: Cluster, opened: Sequence[Whole], *, outputs: int) -> Cluster:
    header = past.header
    fleet.seq, fleet.at = header.seq, header.at
    fleet.jobs = Table({each.job.id: each.job for each in opened}, _Jobs(past, header.jobs))
    fleet.tasks = Table({task.id: task for each in opened for task in each.tasks}, _Tasks(past, header.tasks))
    parents = {each.job.id: each.children for each in opened if each.children}
    fleet.children = Table(parents, _Children(past, header.parents))
    fleet.outputs = Table({}, _Outputs(past, outputs))
    fleet.past = past
    return fleet


class Snapshot:
    """What was over when the snapshot was written: in its file, or in the log if that is damaged."""

    def __init__(self, source: FromFile, last: Sequence[JobId], replayed: Callable[[], Cluster]) -> None:
        self.header = source.file.header
        self._source: Source = source
        self._last = last
        self._replayed = replayed

    @property
    def file(self) -> FromFile | None:
        """The file, unless it is known to be damaged."""
        return self._source if isinstance(self._source, FromFile) else None

    def ask(self, question: Callable[[Source], T]) -> T:
        """Ask the file, or the log if the file is damaged. Raises LogDamagedError if that is, too."""
        if isinstance(self._source, FromFile):
            try:
                return question(self._source)
            except UNUSABLE:
                self._source = FromLog(self._replayed())
        return question(self._source)

    def over(self, job: JobId) -> Whole:
        """A job that was over. Raises KeyError."""
        return self.ask(lambda source: source.over(job))

    def last_ended(self, most: int) -> Sequence[JobId]:
        if most <= len(self._last) or len(self._last) == self.header.jobs:
            return self._last[:most]
        return self.ask(lambda source: source.all_over())

    def foreign(self, tokens: Iterable[Token]) -> tuple[Token, ...]:
        return self.ask(lambda source: source.foreign(tokens))


class _Kept:
    """One table. `count`: how many of its entries are only there."""

    def __init__(self, snapshot: Snapshot, count: int) -> None:
        self._snapshot = snapshot
        self._count = count

    def __len__(self) -> int:
        return self._count

    def find_all(self) -> None:
        self._snapshot.ask(lambda source: source.find_all())

    def _over(self, job: JobId, key: object) -> Whole:
        if not isinstance(job, str):
            raise KeyError(key)
        return self._snapshot.over(job)

    def _listed(self) -> list[tuple[JobId, int, bool]]:
        return self._snapshot.ask(lambda source: source.listed())


class _Jobs(_Kept):
    def __iter__(self) -> Iterator[JobId]:
        return (job for job, _, _ in self._listed())

    def find(self, key: JobId) -> Job:
        return self._over(key, key).job


class _Tasks(_Kept):
    def __iter__(self) -> Iterator[TaskId]:
        return (TaskId(job, index) for job, replicas, _ in self._listed() for index in range(replicas))

    def find(self, key: TaskId) -> Task:
        if not isinstance(key, TaskId):  # None, mostly
            raise KeyError(key)
        tasks = self._over(key.job, key).tasks
        if not 0 <= key.index < len(tasks):
            raise KeyError(key)
        return tasks[key.index]


class _Children(_Kept):
    def __iter__(self) -> Iterator[JobId]:
        return (job for job, _, is_parent in self._listed() if is_parent)

    def find(self, key: JobId) -> tuple[JobId, ...]:
        if children := self._over(key, key).children:
            return children
        raise KeyError(key)


class _Outputs(_Kept):
    def __iter__(self) -> Iterator[WorkerId]:
        return map(WorkerId, self._snapshot.ask(lambda source: list(source.outputs())))

    def find(self, key: WorkerId) -> Outputs:
        return self._snapshot.ask(lambda source: source.output(key))

    def find_all(self) -> None:
        """Each is read when it is asked for."""
