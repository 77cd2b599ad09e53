"""The table of transitions is what the interpreter does: nothing else, and nothing less."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from iris_cli.core import AttemptId, End, EndReason, TaskId, WorkerId
from iris_cli.core.events import events as ev
from iris_cli.core.events.events import Event
from iris_cli.core.evolve import IllegalTransitionError, evolve
from iris_cli.core.evolve.transitions import TRANSITIONS
from iris_cli.core.ids import JobId, RequestId
from iris_cli.core.model.task import Assigned, Ended, Phase, Running, Stopping
from iris_cli.journal.log.record import EVENT_TYPES
from tests.support.lab import Lab

TASK = TaskId(JobId("train"), 0)
ATTEMPT = AttemptId(TASK, 0)
REQUEST = RequestId("r")
EVENTS: tuple[Event, ...] = (
    ev.DispatchTakenOver(task=TASK, attempt=0),
    ev.TaskDispatched(task=TASK, attempt=0),
    ev.TaskDispatchFailed(task=TASK, attempt=0, error="no"),
    ev.TaskRunning(task=TASK, attempt=0, started_at=5.0),
    ev.AttemptHeldUp(task=TASK, attempt=0, error="late"),
    ev.AttemptOrphaned(task=TASK, attempt=0),
    ev.TaskQuiet(task=TASK, attempt=0, since=5.0),
    ev.AttemptStopRequested(task=TASK, attempt=0, reason=EndReason.CANCELLED),
    ev.AttemptUnkillable(task=TASK, attempt=0),
    ev.AttemptPresumedGone(task=TASK, attempt=0),
    ev.AttemptStopped(task=TASK, attempt=0),
    ev.AttemptEnded(task=TASK, attempt=0, end=End(reason=EndReason.OK)),
    ev.AttemptProvenGone(task=TASK, attempt=0),
    ev.AttemptsReaped(worker=WorkerId("w"), attempts=(ATTEMPT,)),
    ev.EndpointRegistered(task=TASK, attempt=0, name="y", port=2, request=RequestId("s")),
    ev.EndpointRemoved(task=TASK, attempt=0, name="x", request=RequestId("s")),
)


def assigned() -> Lab:
    lab = Lab().worker("w").job("train").schedule()
    return lab.records(ev.EndpointRegistered(task=TASK, attempt=0, name="x", port=1, request=REQUEST))


def running() -> Lab:
    return assigned().reports("train/* running")


def stopping_before_its_start() -> Lab:
    return assigned().cancel("train")


def stopping() -> Lab:
    return running().cancel("train")


def ended() -> Lab:
    return running().reports("train/* exited 0")


def presumed() -> Lab:
    lost = EndReason.WORKER_FAILED
    end = ev.AttemptEnded(task=TASK, attempt=0, end=End(reason=lost))
    gone = ev.AttemptPresumedGone(task=TASK, attempt=0)
    return running().records(gone, end, ev.TaskRequeued(task=TASK, reason=lost))


def test_every_event_of_an_attempt_has_a_row() -> None:
    about_attempts = {kind for kind in EVENT_TYPES.values() if issubclass(kind, ev.AttemptEvent)}
    assert {type(event) for event in EVENTS} == {row.event for row in TRANSITIONS}
    assert about_attempts - {row.event for row in TRANSITIONS} == {ev.TaskAssigned}
    assert len({(row.before, row.event) for row in TRANSITIONS}) == len(TRANSITIONS)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("start", [assigned, running, stopping_before_its_start, stopping, ended])
def test_an_event_leads_where_its_row_says_and_is_refused_without_one(
    start: Callable[[], Lab], event: Event
) -> None:
    if isinstance(event, ev.AttemptProvenGone) and start is ended:
        start = presumed
    cluster = start().cluster
    after = {row.before: row.after for row in TRANSITIONS if row.event is type(event)}
    phase = cluster.attempt(ATTEMPT).phase
    if not fits(phase, set(after)):
        with pytest.raises(IllegalTransitionError):
            evolve(cluster, [event], at=9.0)
        return
    found = evolve(cluster, [event], at=9.0).attempt(ATTEMPT)
    assert type(found.phase) is after[type(phase)]


def fits(phase: Phase, known: set[type[Phase]]) -> bool:
    """What fits only before the start, or only after it, fits an attempt that is being stopped only then, too."""
    once = known & {Assigned, Running}
    if isinstance(phase, Stopping) and len(once) == 1 and type(phase.before) not in once:
        return False
    return type(phase) in known


def test_what_an_attempt_was_is_kept_when_it_is_stopped_and_when_it_ends() -> None:
    """A stop that comes before the start is overtaken by the start; neither is forgotten at the end."""
    events: tuple[Event, ...] = (
        ev.AttemptHeldUp(task=TASK, attempt=0, error="late"),
        ev.AttemptStopRequested(task=TASK, attempt=0, reason=EndReason.DISPATCH_FAILED),
    )
    held_up = evolve(assigned().cluster, events, at=9.0)
    assert isinstance(held_up.attempt(ATTEMPT).phase, Stopping)
    assert (held_up.attempt(ATTEMPT).held_up, held_up.attempt(ATTEMPT).started_at) == ("late", None)
    events = (ev.TaskRunning(task=TASK, attempt=0, started_at=5.0), ev.AttemptOrphaned(task=TASK, attempt=0))
    started = evolve(held_up, events, at=10.0).attempt(ATTEMPT)
    assert (started.state, started.started_at, started.orphaned) == ("STOPPING", 5.0, True)
    assert started.stop == held_up.attempt(ATTEMPT).stop
    over = evolve(held_up, [ev.AttemptStopped(task=TASK, attempt=0)], at=11.0).attempt(ATTEMPT)
    assert isinstance(over.phase, Ended)
    assert (over.refused, over.stop, over.phase.end.error) == (True, started.stop, "late")
