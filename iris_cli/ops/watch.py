"""Follow a cluster: one cycle after the other, and what each of them and everybody else wrote into the log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from iris_cli.core.cluster import Cluster
from iris_cli.errors import LockedError
from iris_cli.ops import cycle
from iris_cli.ops.history import Entry, entries_of
from iris_cli.ops.session import Session


@dataclass(frozen=True, slots=True)
class Step:
    """What is new after one cycle. `idle`: no job is left that isn't over, and nothing is being stopped."""

    news: tuple[Entry, ...]
    idle: bool
    busy: str = ""  # who held the state directory, if that kept the cycle from running


def watch(session: Session, *, interval: float, schedule: bool) -> Iterator[Step]:
    """Run cycles for ever, `interval` seconds apart, and yield what the log says after each."""
    seen = session.view().seq
    while True:
        busy = ""
        try:
            cycle.run(session, schedule=schedule)
        except LockedError as error:
            busy = error.message  # somebody else does the work; look at the log all the same
        log = session.state.read(seen)
        session.view()
        seen = max(seen, log.seq)
        yield Step(entries_of(log.transactions), _is_idle(session.cluster), busy)
        session.clock.sleep(interval)


def _is_idle(cluster: Cluster) -> bool:
    over = all(job.end is not None for job in cluster.jobs.values())
    return over and not any(worker.claims for worker in cluster.workers.values())
