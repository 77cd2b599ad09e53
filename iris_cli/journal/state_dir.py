"""The interface to the state directory: the log, its lock, and the other files."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from iris_cli.clock import iso_time
from iris_cli.core import Cluster, JobId, clip, format_duration
from iris_cli.core.events import IllegalTransitionError
from iris_cli.errors import ConfigError, LogDamagedError, LogReplacedError, NotFoundError
from iris_cli.files import DISK, PRIVATE_DIRECTORY, Disk, make_directory, reading, writing
from iris_cli.journal import access, layout
from iris_cli.journal.access import LockHolder
from iris_cli.journal.files.pulled_logs import LogsDue, PulledLogs
from iris_cli.journal.files.runners import Clients, Runners, forget_runner, read_heartbeat, write_heartbeat
from iris_cli.journal.log.file_store import FileStore, Fold, Keep
from iris_cli.journal.log.position import Header, Position
from iris_cli.journal.log.recovery import Damage, damage_of, repair
from iris_cli.journal.snapshot.cache import EVERY_LINES, SnapshotCache

if TYPE_CHECKING:
    from iris_cli.core.events.events import Transaction
    from iris_cli.core.model.slice import SliceOwner
    from iris_cli.journal.files.notices import NoticeFile
    from iris_cli.journal.files.workspaces import Workspaces
    from iris_cli.journal.history import LineRange, LineRanges, Reading
    from iris_cli.journal.log.archive import Compacted
    from iris_cli.journal.log.scan import ReadProgress
    from iris_cli.journal.log.writer import Writer

LOCK_TIMEOUT = 10.0
"""Default timeout for the lock in seconds."""

_CLOCK_STEP = 300.0  # seconds by which the clock may be behind the last transaction without a warning
_READS = 3  # maximum number of reads of a damaged log, because it may have been replaced during a read
_ALLOWED_BEFORE_INIT = frozenset({"README.md", ".gitignore", layout.LOCK, layout.HOLDER})


class LogView(Struct, frozen=True, kw_only=True):
    """The result of reading the log. `transactions` are the transactions after `after_seq`, up to the first damage.

    `header` is None if there is no log yet. `seq` is the number of the last transaction. `committed`: all transactions
    are durable, so the reader may act on them. `cluster` is the state after all transactions, if it was requested.
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

    `now` returns seconds since the epoch, `actor` is `user@host`. If `cluster_name` is given, a log of a cluster with
    another name is rejected. A snapshot is written every `snapshot_every` lines.
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
        return PulledLogs(self.path / layout.TASK_LOGS, self._disk)

    @cached_property
    def logs_due(self) -> LogsDue:
        """The ended attempts whose output must still be copied."""
        return LogsDue(self.path / layout.LOGS_DUE, self._disk)

    @cached_property
    def notices(self) -> NoticeFile:
        from iris_cli.journal.files.notices import NoticeFile

        return NoticeFile(self.path, self._disk)

    @cached_property
    def workspaces(self) -> Workspaces:
        return self._packed_files(layout.WORKSPACES)

    @cached_property
    def lines(self) -> Workspaces:
        """The lines of `--each-line`, stored like workspaces."""
        return self._packed_files(layout.LINES)

    def _packed_files(self, name: str) -> Workspaces:
        from iris_cli.journal.files.workspaces import Workspaces  # its imports are slow

        return Workspaces(self.path / name, self._disk)

    def read(self, after_seq: int = 0, keep: Keep = tuple) -> LogView:
        """Read the log, without taking the lock and without repairs. `keep` selects the transactions of the result.

        Reads only new lines if the caller has all earlier lines. Raises LogDamagedError if no line is valid,
        LogReplacedError if lines that the caller has read do not exist any more, ConfigError for the log of another
        cluster, and NotWritableError if the log can't be read.
        """
        with reading(self._log):
            warnings = access.check_readable(self.path)
            for _ in range(_READS):
                loaded = self._store.load(after_seq, keep)
                if (damage := damage_of(self._log, loaded)) is None:
                    break
        if damage is not None and not damage.readable:
            raise damage.error()
        self._check_cluster(loaded.end.header, self._cluster_name)
        return LogView(
            transactions=loaded.records,
            seq=loaded.end.seq,
            header=loaded.end.header,
            committed=damage is None and loaded.head is not None and loaded.head.seq == loaded.end.seq,
            damage=damage,
            warnings=warnings,
        )

    def load(self, kept_after: int | None = None) -> LogView:
        """Read and replay the log. Return the state as `cluster`, and the transactions after `kept_after` if given.

        Starts from the snapshot and reads only later lines. Raises IllegalTransitionError, and the errors of `read`.
        """
        if (snapshot := self._snapshots.read(self._store.resume, self._replay_to)) is not None:
            with suppress(LogReplacedError, IllegalTransitionError):
                return self._load_from(snapshot[1], kept_after)
            self._snapshots.reject()
        return self._load_from(Cluster(), kept_after)

    def _load_from(self, start: Cluster, kept_after: int | None) -> LogView:
        fold = Fold(
            start,
            kept_after,
            every=self._snapshots.archive_every,
            keep=lambda cluster: self._write_snapshot(cluster, self._store.reached),
        )
        return replace(self.read(start.seq, fold), cluster=fold.cluster)

    def _replay_to(self, position: Position) -> Cluster:
        """Replay the log up to a position, without a snapshot. Raises LogDamagedError, NotWritableError."""
        fold = Fold(Cluster(), None, until=position.seq)
        with reading(self._log):
            FileStore(self.path).load(keep=fold)
        if fold.cluster.seq != position.seq:
            raise LogDamagedError(
                f"{self._log} is no longer readable up to seq {position.seq}", hint="run: iris log verify"
            )
        return fold.cluster

    @property
    def progress(self) -> ReadProgress:
        """Progress of the current read of archive or log. Safe to call from any thread."""
        return self._store.scan.progress if self._store.scan is not None else (0, 0, "bytes")

    @property
    def has_snapshot(self) -> bool:
        """True if there is a snapshot, even a damaged one."""
        return self._snapshots.exists

    def save_snapshot(self, cluster: Cluster, *, always: bool = False) -> Cluster:
        """Write a snapshot if it is due, or if `always`. Return an equal cluster that may use less memory."""
        end = self._store.end
        return self._write_snapshot(cluster, end, always=always) if cluster.seq == end.seq else cluster

    def _write_snapshot(self, cluster: Cluster, position: Position, *, always: bool = True) -> Cluster:
        on_archived = self._store.forget_earliest
        return self._snapshots.keep(cluster, position, self._replay_to, on_archived, always=always)

    def read_history(self, *, archive: bool) -> Reading:
        """Return all transactions of the log, with or without its archive, in order. Takes no lock.

        Raises ConfigError for the log of another cluster. Iteration raises NotWritableError for an unreadable log.
        """
        return self._reading(archive=archive)

    def history_before(self, time: float) -> tuple[Cluster, Reading]:
        """Return a cluster before `time`, and later transactions at least up to `time`. Raises like `read_history`."""
        cluster, lines = self._line_ranges.range_before(time)
        return cluster, self._reading(lines, archive=True)

    def history_since(self, time: float) -> tuple[Cluster, Reading]:
        """Return a cluster at a time before `time`, and all later transactions. Raises like `read_history`."""
        cluster, lines = self._line_ranges.range_before(time)
        return cluster, self._reading(replace(lines, until=sys.maxsize), archive=True)

    def history_of_job(self, job: JobId, *, archive: bool) -> Iterator[Reading]:
        """Yield readings of the parts of the log that may contain lines about a job, which also yield other lines.

        Damage in the rest of the log is not reported.
        """
        for lines in self._line_ranges.ranges_of_job(job):
            yield self._reading(lines, archive=archive, containing=job)

    def last_lines(self, lines: int, *, archive: bool) -> Reading:
        """Return a reading of at least the last `lines` lines, ignoring earlier damage. Raises like `read_history`."""
        return self._reading(self._line_ranges.range_of_last(lines), archive=archive)

    @property
    def _line_ranges(self) -> LineRanges:
        from iris_cli.journal.history import LineRanges

        return LineRanges(self.path, self._snapshots, self._store.resume, self._replay_to)

    def _reading(self, lines: LineRange | None = None, *, archive: bool, containing: str = "") -> Reading:
        from iris_cli.journal.history import ALL, Reading

        with writing(self.path):
            warnings = access.check_readable(self.path)
            self._check_cluster(self._store.header(), self._cluster_name)
        return Reading(self.path, lines or ALL, archive=archive, containing=containing, warnings=warnings)

    def has_log(self) -> bool:
        """Return True if there is a log. Raises ConfigError for the log of another cluster, and NotWritableError."""
        with writing(self.path):
            access.check_readable(self.path)
            header = self._store.header()
            self._check_cluster(header, self._cluster_name)
            return header is not None

    def create(
        self,
        cluster_name: str,
        *,
        command: str = "iris init",
        timeout: float = LOCK_TIMEOUT,
        accept_loss: bool = False,
    ) -> tuple[str, ...]:
        """Create the directory and its log if missing. Return messages for the user. Raises like `locked`."""
        with writing(self.path):
            make_directory(self._disk, self.path)
            if _ALLOWED_BEFORE_INIT.issuperset(os.listdir(self.path)):
                self.path.chmod(PRIVATE_DIRECTORY)  # `git clone` makes it readable by other users
            if (header := self._store.header()) is not None:
                self._check_cluster(header, cluster_name)
                return ()
        with self.locked(command, timeout, accept_loss=accept_loss, must_exist=False) as writer:
            self._check_cluster(writer.header, cluster_name)
            if writer.header is None:
                from iris_cli.core.events.events import ClusterCreated

                writer.append([ClusterCreated(name=cluster_name)], at=self._now())
            return writer.messages

    @contextmanager
    def locked(
        self,
        command: str,
        timeout: float = LOCK_TIMEOUT,
        *,
        after_seq: int = 0,
        accept_loss: bool = False,
        must_exist: bool = True,
    ) -> Iterator[Writer]:
        """Hold the lock, and yield the writer. `accept_loss`: continue even if committed lines are missing.

        Raises LockedError after `timeout` seconds, NotWritableError, LogDamagedError, ConfigError for the log of
        another cluster, NotFoundError without a log (if `must_exist`), and LogReplacedError if lines that the caller
        has read are gone.
        """
        # filelock is slow to import, and readers don't need it
        from iris_cli.journal.log.writer import Writer, hold_lock

        with writing(self.path):
            access.check_writable(self.path)
        holder = LockHolder(pid=os.getpid(), actor=self.actor, command=command, since=iso_time(self._now()))
        with hold_lock(self.path, holder, timeout) as lock:
            if self._network_type:
                lock.check_exclusive()
            with writing(self._log):
                loaded = self._store.load(after_seq)
                damage = damage_of(self._log, loaded)
                if damage is not None and not (accept_loss and damage.forgivable):
                    raise damage.error()
                self._check_cluster(loaded.end.header, self._cluster_name)
                messages = repair(self.path, loaded, self._disk, self._now())
            if must_exist and loaded.end.header is None:
                raise NotFoundError(f"no event log in {self.path}", hint="iris init creates it")
            actor = f"{self.actor} {command}"
            writer = Writer(self._store, lock, loaded, (*messages, *self._warnings(loaded.end.at)), actor)
            try:
                yield writer
            finally:
                writer.close()

    def compact(
        self, command: str, timeout: float = LOCK_TIMEOUT, *, after_seq: int = 0
    ) -> tuple[Compacted | None, tuple[str, ...]]:
        """Move the log to the archive. Return the result (None: nothing to move) and messages. Raises like `locked`."""
        with self.locked(command, timeout, after_seq=after_seq) as writer:
            return writer.compact(at=self._now()), writer.messages

    def _check_cluster(self, header: Header | None, expected: str | None) -> None:
        if header is not None and expected is not None and header.cluster_name != expected:
            raise ConfigError(
                f"{self._log} belongs to cluster {clip(header.cluster_name)!r}, not to {clip(expected)!r}",
                hint="name the right directory with --state-dir, or correct cluster.name in cluster.yaml",
            )

    def _warnings(self, last: float) -> Iterator[str]:
        if self._network_type and not access.record_warning(self.path, self._network_type):
            what = f"{self.path} is on {self._network_type}, where locks are unreliable"
            yield f"{what}: use a local directory with --state-dir (see iris doctor)"
        if (behind := last - self._now()) > _CLOCK_STEP:
            yield f"the clock of this machine is {format_duration(behind)} behind the last event"

    @cached_property
    def _network_type(self) -> str:
        return access.network_file_system(self.path)

    @cached_property
    def slice_owner(self) -> SliceOwner:
        """Identity of this directory as an owner of slices. Raises NotWritableError."""
        with writing(self.path):
            return access.slice_owner_of(self.path, host=self.host, shared=bool(self._network_type))

    def lock_holder(self) -> LockHolder | None:
        """Return the recorded holder of the lock, for messages; None if unknown."""
        return access.read_holder(self.path, self.host)

    def write_heartbeat(
        self, heartbeat: Mapping[str, object], runner: str = "", entry: Mapping[str, object] | None = None
    ) -> None:
        """Write the result of the last cycle. `entry`: details of its kind of runner. Raises NotWritableError."""
        with writing(self.path / layout.HEARTBEAT):
            write_heartbeat(self.path, self._disk, heartbeat, runner, entry or {})

    def read_heartbeat(self) -> dict[str, Any] | None:
        return read_heartbeat(self.path)

    def forget_runner(self, runner: str) -> None:
        """Delete the entry of a kind of runner that no longer exists. Raises NotWritableError."""
        with writing(self.path / layout.HEARTBEAT):
            forget_runner(self.path, self._disk, runner)

    @cached_property
    def runners(self) -> Runners:
        return Runners(self.path, self.actor)

    @cached_property
    def clients(self) -> Clients:
        return Clients(self.path)
