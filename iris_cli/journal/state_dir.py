"""The state directory: the one door to the log, its lock, and the files beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from msgspec import Struct
from msgspec.structs import replace

from iris_cli.core import Cluster, JobId, clip, format_duration
from iris_cli.core.events.event import IllegalTransitionError
from iris_cli.errors import ConfigError, LogDamagedError, LogReplacedError, NotFoundError
from iris_cli.journal import layout
from iris_cli.journal.access import check_readable, check_writable, network_file_system, told_before
from iris_cli.journal.durable import DISK, PRIVATE_DIRECTORY, Disk, make_directory, not_readable, refusing
from iris_cli.journal.files.heartbeat import forget_runner, read_heartbeat, write_heartbeat
from iris_cli.journal.holder import Holder, read_holder
from iris_cli.journal.log.file_store import FileStore, Fold, Keep, Loaded
from iris_cli.journal.log.position import Header, Position
from iris_cli.journal.log.recovery import Damage, damage_of, repair
from iris_cli.journal.log.timestamps import iso_time
from iris_cli.journal.snapshot import EVERY_LINES, SnapshotCache

if TYPE_CHECKING:
    from iris_cli.core.events.events import Transaction
    from iris_cli.core.model.slice import Keeper
    from iris_cli.journal.files.notices import NoticeFile
    from iris_cli.journal.files.pulled_logs import LogsDue, PulledLogs
    from iris_cli.journal.files.runners import Clients, Runners
    from iris_cli.journal.files.workspaces import Workspaces
    from iris_cli.journal.lock import StateLock
    from iris_cli.journal.log.compact import Compacted
    from iris_cli.journal.log.reading import Reading, Which
    from iris_cli.journal.log.scan import HowMuch
    from iris_cli.journal.log.writer import Writer
    from iris_cli.journal.spans import Spans

LOCK_TIMEOUT = 10.0
"""Seconds to wait for the lock where nothing else is said."""

_CLOCK_STEP = 300.0  # seconds that the clock may stand behind the last transaction without a word
_READS = 3  # a log that looks damaged may only have been replaced while it was read
_NOT_YET_STATE = frozenset({"README.md", ".gitignore", layout.LOCK, layout.HOLDER})


class LogView(Struct, frozen=True, kw_only=True):
    """What a reader sees: the transactions behind the `after_seq` it asked for, up to the damage if any.

    `header` is None where there is no log yet; `seq` is the last transaction. `committed`: all of it is known
    to be on the disk, so that one may act on it; else only the holder of the lock can tell. `cluster`: what all
    of the log comes to, if that was asked for.
    """

    transactions: tuple[Transaction, ...]
    seq: int
    header: Header | None
    committed: bool = False
    damage: Damage | None = None
    warnings: tuple[str, ...] = ()
    cluster: Cluster | None = None


class StateDir:
    """One state directory.

    `now` gives seconds since the epoch, `actor` is `user@host`. A log of a cluster other than `cluster_name`
    is refused, if that is given. `snapshot_every` so many lines the state is written as a snapshot.
    """

    def __init__(
        self,
        path: Path,
        *,
        now: Callable[[], float],
        actor: str,
        cluster_name: str | None = None,
        disk: Disk = DISK,
        snapshot_every: int = EVERY_LINES,
    ) -> None:
        self.path = path
        self.known_hosts = path / layout.KNOWN_HOSTS
        self.host = actor.rpartition("@")[2]
        self._log = path / layout.LOG
        self._now = now
        self.actor = actor
        self._cluster_name = cluster_name
        self._disk = disk
        self._store = FileStore(path, disk)
        self._snapshots = SnapshotCache(path, disk, every_lines=snapshot_every)

    @cached_property
    def task_logs(self) -> PulledLogs:
        """What was fetched of the output of tasks."""
        from iris_cli.journal.files.pulled_logs import PulledLogs

        return PulledLogs(self.path / layout.TASK_LOGS, self._disk)

    @cached_property
    def logs_due(self) -> LogsDue:
        """The ended attempts whose output is still to be copied."""
        from iris_cli.journal.files.pulled_logs import LogsDue

        return LogsDue(self.path / layout.LOGS_DUE, self._disk)

    @cached_property
    def notices(self) -> NoticeFile:
        """What was told to whom."""
        from iris_cli.journal.files.notices import NoticeFile

        return NoticeFile(self.path, self._disk)

    @cached_property
    def workspaces(self) -> Workspaces:
        """The packed directories of jobs."""
        return self._packed(layout.WORKSPACES)

    @cached_property
    def lines(self) -> Workspaces:
        """The lines of `--each-line`, kept in the same way."""
        return self._packed(layout.LINES)

    def _packed(self, name: str) -> Workspaces:
        from iris_cli.journal.files.workspaces import Workspaces  # what it needs is slow to import

        return Workspaces(self.path / name, self._disk)

    def read(self, after_seq: int = 0) -> LogView:
        """What the log says, without lock and without repair.

        Reads only what is new if the caller has all that was read before. Raises LogDamagedError if nothing
        of it can be shown, LogReplacedError if what the caller has read is gone, ConfigError for another
        cluster's log, NotWritableError if it can't be read.
        """
        return self._view(after_seq)

    def load(self, told: int | None = None) -> LogView:
        """As `read`, and the `cluster` that the whole log comes to. Of the transactions those behind `told`, if any.

        Begins with the snapshot, so that only what came after it is read. Raises IllegalTransitionError.
        """
        if (known := self._snapshots.read(self._store.resume, self._replayed)) is not None:
            with suppress(LogReplacedError, IllegalTransitionError):
                return self._folded(known[1], told)
            self._snapshots.refuse()
        return self._folded(Cluster(), told)

    def _folded(self, start: Cluster, told: int | None) -> LogView:
        fold = Fold(start, told, every=self._snapshots.moment_lines, keep=self._keep_moment)
        return replace(self._view(start.seq, fold), cluster=fold.cluster)

    def _replayed(self, position: Position) -> Cluster:
        """The cluster as of that position, without the snapshot. Raises LogDamagedError, NotWritableError."""
        fold = Fold(Cluster(), None, until=position.seq)
        try:
            FileStore(self.path).load(keep=fold)
        except OSError as error:
            raise not_readable(self._log, error) from error
        if fold.cluster.seq != position.seq:
            raise LogDamagedError(
                f"{self._log} is no longer readable up to seq {position.seq}", hint="run: iris log verify"
            )
        return fold.cluster

    @property
    def how_far(self) -> HowMuch:
        """How much of archive or log has been read by now. May be asked from any thread."""
        return self._store.scan.how_far if self._store.scan is not None else (0, 0, "bytes")

    @property
    def has_snapshot(self) -> bool:
        """Return whether there is a snapshot, of use or not."""
        return self._snapshots.exist

    def keep(self, cluster: Cluster, *, always: bool = False) -> Cluster:
        """Write a snapshot if it is due, or `always`; return the cluster with less of it in memory. No OSError."""
        end = self._store.end
        return self._kept(cluster, end, always=always) if cluster.seq == end.seq else cluster

    def _keep_moment(self, cluster: Cluster) -> Cluster:
        return self._kept(cluster, self._store.reached)

    def _kept(self, cluster: Cluster, position: Position, *, always: bool = True) -> Cluster:
        done = self._store.forget_earliest
        return self._snapshots.keep(cluster, position, self._replayed, done, always=always)

    def _view(self, after_seq: int, keep: Keep = tuple) -> LogView:
        try:
            warning = check_readable(self.path)
            for _ in range(_READS):
                loaded = self._store.load(after_seq, keep)
                if (damage := damage_of(self._log, loaded)) is None:
                    break
        except OSError as error:
            raise not_readable(self._log, error) from error
        if damage is not None and not damage.readable:
            raise damage.error()
        self._check_cluster(loaded.end.header, self._cluster_name)
        return LogView(
            transactions=loaded.records,
            seq=loaded.end.seq,
            header=loaded.end.header,
            committed=damage is None and loaded.head is not None and loaded.head.seq == loaded.end.seq,
            damage=damage,
            warnings=(warning,) if warning else (),
        )

    def past(self, *, archive: bool) -> Reading:
        """All that the log says, with its archive or without: one transaction after the other, without the lock.

        Raises NotWritableError, and ConfigError for another cluster's log.
        """
        return self._reading(archive=archive)

    def before(self, moment: float) -> tuple[Cluster, Reading]:
        """What had happened by that time as far as the snapshot has it, and all that came then. Raises as `past`."""
        cluster, span = self._spans.before(moment)
        return cluster, self._reading(archive=True, start=span.start, until=span.until)

    def since(self, moment: float) -> tuple[Cluster, Reading]:
        """The cluster as of some time before that moment, and all that came then. Raises as `past`."""
        cluster, span = self._spans.before(moment)
        return cluster, self._reading(archive=True, start=span.start)

    def about(self, job: JobId, *, archive: bool) -> Iterator[Reading]:
        """All that concerns a job, and other lines; raises as `past`. What is damaged elsewhere does not show."""
        for span in self._spans.about(job):
            yield self._reading(archive=archive, start=span.start, until=span.until, about=job)

    def newest(self, lines: int, *, archive: bool) -> Reading:
        """The last so many lines, or more; raises as `past`. What is damaged before them does not show."""
        return self._reading(archive=archive, start=self._spans.newest(lines).start)

    @property
    def _spans(self) -> Spans:
        from iris_cli.journal.spans import Spans

        return Spans(self.path, self._snapshots, self._store.resume, self._replayed)

    def _reading(self, **which: Unpack[Which]) -> Reading:
        from iris_cli.journal.log.reading import Reading

        with refusing(self.path):
            warning = check_readable(self.path)
            self._check_cluster(self._store.header(), self._cluster_name)
        return Reading(self.path, warnings=(warning,) if warning else (), **which)

    def create(
        self,
        cluster_name: str,
        *,
        command: str = "iris init",
        timeout: float = LOCK_TIMEOUT,
        accept_loss: bool = False,
    ) -> tuple[str, ...]:
        """Make the directory and begin its log, if there is none; messages come back. Raises as `locked`."""
        with refusing(self.path):
            make_directory(self._disk, self.path)
            if _NOT_YET_STATE.issuperset(os.listdir(self.path)):
                self.path.chmod(PRIVATE_DIRECTORY)  # in a clone of the repository it is open to all
            if (header := self._store.header()) is not None:
                self._check_cluster(header, cluster_name)
                return ()
        with self._open(command, timeout, accept_loss=accept_loss, begun=False) as writer:
            self._check_cluster(writer.header, cluster_name)
            if writer.header is None:
                from iris_cli.core.events.events import ClusterCreated

                writer.append([ClusterCreated(name=cluster_name)], at=self._now())
            return writer.messages

    def locked(
        self, command: str, timeout: float = LOCK_TIMEOUT, *, after_seq: int = 0, accept_loss: bool = False
    ) -> AbstractContextManager[Writer]:
        """Hold the lock and write. `accept_loss`: go on although committed lines are missing at the end.

        Raises LockedError after `timeout` seconds, NotWritableError, LogDamagedError, LogReplacedError if what the
        caller has read is gone, ConfigError for another cluster's log, NotFoundError if there is no log.
        """
        return self._open(command, timeout, after_seq=after_seq, accept_loss=accept_loss, begun=True)

    def compact(
        self, command: str, timeout: float = LOCK_TIMEOUT, *, after_seq: int = 0
    ) -> tuple[Compacted | None, tuple[str, ...]]:
        """Move the log to the archive; messages come back, and None if it is as short as can be. Raises as `locked`."""
        with self.locked(command, timeout, after_seq=after_seq) as writer:
            return writer.compact(at=self._now()), writer.messages

    @cached_property
    def _lock(self) -> StateLock:
        from iris_cli.journal.lock import StateLock  # filelock is slow to import, and readers don't need it

        return StateLock(self.path)

    @contextmanager
    def _open(
        self, command: str, timeout: float, *, after_seq: int = 0, accept_loss: bool = False, begun: bool
    ) -> Iterator[Writer]:
        from iris_cli.journal.log.writer import Writer

        with refusing(self.path):
            check_writable(self.path)
        holder = Holder(pid=os.getpid(), actor=self.actor, command=command, since=iso_time(self._now()))
        with self._lock.hold(holder, timeout) as lock:
            if self._on_network:
                lock.prove()
            loaded, messages = self._recover(after_seq, accept_loss=accept_loss)
            if begun and loaded.end.header is None:
                raise NotFoundError(f"no event log in {self.path}", hint="create it: iris init")
            actor = f"{self.actor} {command}"
            writer = Writer(self._store, lock, loaded, (*messages, *self._warnings(loaded.end.at)), actor)
            try:
                yield writer
            finally:
                writer.close()

    def _recover(self, after_seq: int, *, accept_loss: bool) -> tuple[Loaded, list[str]]:
        with refusing(self._log):
            loaded = self._store.load(after_seq)
            damage = damage_of(self._log, loaded)
            if damage is not None and not (accept_loss and damage.forgivable):
                raise damage.error()
            self._check_cluster(loaded.end.header, self._cluster_name)
            return loaded, repair(self.path, loaded, self._disk, self._now())

    def _check_cluster(self, header: Header | None, expected: str | None) -> None:
        if header is not None and expected is not None and header.cluster_name != expected:
            raise ConfigError(
                f"{self._log} belongs to cluster {clip(header.cluster_name)!r}, not to {clip(expected)!r}",
                hint="name the right directory with --state-dir, or correct cluster.name in cluster.yaml",
            )

    def _warnings(self, last: float) -> Iterator[str]:
        if self._on_network and not told_before(self.path, self._on_network):
            what = f"{self.path} is on {self._on_network}, where locks are unreliable"
            yield f"{what}: use a local directory with --state-dir (see iris doctor)"
        if (behind := last - self._now()) > _CLOCK_STEP:
            yield f"the clock of this machine is {format_duration(behind)} behind the last event"

    @cached_property
    def _on_network(self) -> str:
        return network_file_system(self.path)

    @cached_property
    def keeper(self) -> Keeper:
        """This very directory, as one that looks after slices. Raises NotWritableError."""
        from iris_cli.journal.place import keeper_in

        with refusing(self.path):
            return keeper_in(self.path, host=self.host, shared=bool(self._on_network))

    def lock_holder(self) -> Holder | None:
        """Who holds the lock, if anybody says so; for messages."""
        return read_holder(self.path, self.host)

    def write_heartbeat(
        self, heartbeat: Mapping[str, object], runner: str = "", said: Mapping[str, object] | None = None
    ) -> None:
        """Keep a JSON object that says when the last cycle ran and how it ended, and `said` for its kind of runner.

        Raises NotWritableError.
        """
        with refusing(self.path / layout.HEARTBEAT):
            write_heartbeat(self.path, self._disk, heartbeat, runner, said or {})

    def read_heartbeat(self) -> dict[str, Any] | None:
        """What the last cycle wrote; None if there was none, or if it can't be read."""
        return read_heartbeat(self.path)

    def forget_runner(self, runner: str) -> None:
        """Remove the time of a kind of runner of which there is none any more. Raises NotWritableError."""
        with refusing(self.path / layout.HEARTBEAT):
            forget_runner(self.path, self._disk, runner)

    @cached_property
    def runners(self) -> Runners:
        """The processes that run cycles."""
        from iris_cli.journal.files.runners import Runners

        return Runners(self.path, self.actor)

    @cached_property
    def clients(self) -> Clients:
        """The clients on whose terminals jobs run."""
        from iris_cli.journal.files.runners import Clients

        return Clients(self.path)
