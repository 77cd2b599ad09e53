"""The log while its lock is held: read transactions, decide, commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from iris_cli.core.events.events import Event, Transaction
from iris_cli.errors import NotWritableError
from iris_cli.journal.log.file_store import FileStore, Loaded
from iris_cli.journal.log.record import FORMAT, Conflict

if TYPE_CHECKING:
    from iris_cli.journal.lock import HeldLock
    from iris_cli.journal.log.compact import Compacted


class Writer:
    """The log while its lock is held.

    `transactions` are the transactions after the requested `after_seq`. `messages` report repairs and warnings.
    """

    def __init__(
        self, store: FileStore, lock: HeldLock, loaded: Loaded, messages: tuple[str, ...], actor: str
    ) -> None:
        self.transactions: tuple[Transaction, ...] = loaded.records
        self.header = loaded.end.header
        self.messages = messages
        self.seq = loaded.end.seq
        self._store = store
        self._lock: HeldLock | None = lock
        self._actor = actor

    def append(self, events: Sequence[Event], *, at: float) -> Transaction:
        """Commit events together at time `at`. On return they are durable, and only then may the caller act on them.

        Raises NotWritableError or LockedError if nothing was committed, ValueError for events that can't be stored.
        """
        if self._lock is None:
            raise ValueError("the lock was released before this append")
        self._lock.check()
        at = round(at, 3)
        if self.header is not None and self.header.format < FORMAT:
            self._begin_file(self._lock, at)
        result = self._store.append(self.seq, events, at=at, actor=self._actor)
        if isinstance(result, Conflict):
            raise NotWritableError(
                f"the event log grew to seq {result.seq} despite the lock", hint="run the command again"
            )
        self.seq = result
        return Transaction(seq=result, at=at, actor=self._actor, events=tuple(events))

    def compact(self, *, at: float) -> Compacted | None:
        """Move the lines of the log to the archive at time `at`. Return None if the log has only the header.

        Raises NotWritableError, LockedError and LogDamagedError; nothing is lost then.
        """
        if self._lock is None:
            raise ValueError("the lock was released before this compaction")
        self._lock.check()
        if self._store.lines <= 1:
            return None
        return self._begin_file(self._lock, round(at, 3))

    def _begin_file(self, lock: HeldLock, at: float) -> Compacted:
        done = self._store.compact(lock.check, at=at, actor=self._actor)
        self.seq, self.header = done.end.seq, done.end.header
        return done

    def close(self) -> None:
        """Reject further appends, because the lock will be released."""
        self._lock = None
