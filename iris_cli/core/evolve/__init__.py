"""The only interpreter of the log: it applies events, in order, to the tables, and makes no decisions.

Commands and replays use the same functions, so later rules never change the meaning of an older log.
"""

from collections.abc import Iterable

from iris_cli.core import Cluster, TaskId, gc_paused
from iris_cli.core.events import IllegalTransitionError
from iris_cli.core.events import events as ev
from iris_cli.core.events.events import Event, Transaction
from iris_cli.core.evolve import attempts, fleet
from iris_cli.core.evolve.edit import Edit, ImpossibleHistoryError, lines_about, not_found_error

__all__ = ["Draft", "IllegalTransitionError", "ImpossibleHistoryError", "evolve", "replay"]

CHANGES = dict([*fleet.CHANGES, *attempts.CHANGES])
"""The function that applies each type of event."""


class Draft:
    """A cluster with events that are applied but not committed yet."""

    def __init__(self, cluster: Cluster, at: float) -> None:
        self._start = cluster
        self._edit = Edit(cluster.copy())
        self.at = at
        self.events: list[Event] = []

    @property
    def cluster(self) -> Cluster:
        return self._edit.cluster

    def record(self, *events: Event) -> None:
        """Apply events in order, each to copies of the records. Raises IllegalTransitionError."""
        for event in events:
            self._edit.publish()
            try:
                try:
                    CHANGES[type(event)](self._edit, event, self.at)
                except KeyError as error:
                    raise not_found_error(event, error, self.cluster) from error
            except IllegalTransitionError as error:
                if error.task is not None:
                    error.attach(error.task, earlier=lines_about(error.task, self.events, "not committed"))
                raise
            self.events.append(event)

    def roll_back(self, count: int) -> None:
        """Discard all recorded events after the first `count`. Allowed also after `record` has failed."""
        fresh = Draft(self._start, self.at)
        fresh.record(*self.events[:count])
        self.events, self._edit = fresh.events, fresh._edit

    @property
    def tasks_to_kill(self) -> tuple[TaskId, ...]:
        """The tasks whose live attempts the recorded events stop, in the order of these events."""
        return tuple(event.task for event in self.events if isinstance(event, ev.AttemptStopRequested))


def evolve(cluster: Cluster, events: Iterable[Event], at: float) -> Cluster:
    """Return a copy of the cluster after `events` at time `at`. Raises IllegalTransitionError."""
    draft = Draft(cluster, at)
    draft.record(*events)
    return draft.cluster


@gc_paused
def replay(transactions: Iterable[Transaction], start: Cluster | None = None) -> Cluster:
    """Return the cluster after the transactions that follow `start`. Raises ImpossibleHistoryError.

    No other code sees the cluster before the end, so a record is copied at most once.
    """
    edit = Edit(start.copy() if start is not None else Cluster())
    cluster = edit.cluster
    for transaction in transactions:
        at = transaction.at
        try:
            for event in transaction.events:
                CHANGES[type(event)](edit, event, at)
        except KeyError as error:
            raise ImpossibleHistoryError(transaction.seq, not_found_error(event, error, cluster)) from error
        except IllegalTransitionError as error:
            raise ImpossibleHistoryError(transaction.seq, error) from error
        cluster.seq, cluster.at = transaction.seq, at
    return cluster
