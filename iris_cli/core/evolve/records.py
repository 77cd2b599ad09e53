"""How records are changed: opened, assigned to, and closed again before anybody else sees them.

Records are frozen, because others may hold them: decisions compare what was with what is. So an event changes copies,
which stand in the tables from then on. They are closed when the event is over; but a replay shows nobody anything
before its end, and opens each record that it changes once.
"""

from __future__ import annotations

from typing import Any, TypeVar

from iris_cli.core.cluster import Cluster
from iris_cli.core.ids import WorkerId
from iris_cli.core.making import CLOSED, beginner, opener

K = TypeVar("K")
T = TypeVar("T")


class Records:
    """The records that are open.

    They have the fields of their classes, and no others; what they are assigned is what the log says, or follows from
    it, so that nothing of it is checked anew.
    """

    def __init__(self) -> None:
        self._open: list[Any] = []

    def new(self, cls: type) -> Any:
        """A new record, with defaults in its fields. Those that have none must be assigned to."""
        begun = beginner(cls)()
        self._open.append(begun)
        return begun

    def copy(self, record: Any) -> Any:
        """A copy to assign to, for the tables."""
        kind: type = type(record)
        copied = opener(kind)(record)
        self._open.append(copied)
        return copied

    def of(self, table: dict[K, T], key: K) -> Any:
        """The record of a table, to assign to. Raises KeyError."""
        record = table[key]
        if is_open(record):
            return record
        table[key] = copied = self.copy(record)
        return copied

    def worker(self, cluster: Cluster, worker_id: WorkerId) -> Any:
        """A worker, to assign to, and to change its claims. Raises KeyError."""
        worker = cluster.workers[worker_id]
        if is_open(worker):
            return worker
        cluster.workers[worker_id] = copied = self.copy(worker)
        copied.claims = dict(worker.claims)
        return copied

    def close(self) -> None:
        """The records are as frozen as any from now on."""
        for record in self._open:
            record.__class__ = getattr(record, CLOSED)
        self._open.clear()


def is_open(record: object) -> bool:
    """Whether the record may be assigned to."""
    return hasattr(record, CLOSED)
