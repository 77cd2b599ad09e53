"""The transitions of attempts: one table from phase and event to the next phase.

The table and diagram in `docs/task-states.md` are generated from it.
"""

from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct

from iris_cli.core import Attempt, Cluster, End, Ended, EndReason, Stopping
from iris_cli.core.events import events as ev
from iris_cli.core.model.task import Assigned, Phase, Running, StopOrder

E = TypeVar("E", bound=ev.Event)
From = TypeVar("From", Assigned, Running, Stopping, Ended)
To = TypeVar("To", Assigned, Running, Stopping, Ended)
Live = Assigned | Running | Stopping


class EventContext(Struct, frozen=True):
    """The attempt of an event, its cluster, and the event's time."""

    cluster: Cluster
    attempt: Attempt
    at: float


class Transition(Struct, frozen=True):
    """A row of the table. `apply(phase, event, context)` returns the next phase; None if the event is not possible."""

    before: type[Phase]
    event: type[ev.Event]
    after: type[Phase]
    apply: Callable[..., Phase | None]


def row(
    before: type[From], event: type[E], after: type[To], apply: Callable[[From, E, EventContext], To | None]
) -> Transition:
    """Return a row of the table. The type checker compares the function with the two phases and the event."""
    return Transition(before, event, after, apply)


def next_phase(phase: Phase, event: ev.Event, context: EventContext) -> Phase | None:
    """Return the phase after an event, or None if the event is not possible in this phase."""
    found = _ROWS.get((type(phase), type(event)))
    return found.apply(phase, event, context) if found is not None else None


def _keep_phase(phase: From, _event: ev.Event, _context: EventContext) -> From:
    return phase


def _take_over(phase: Assigned, _event: ev.DispatchTakenOver, _context: EventContext) -> Assigned:
    return Assigned(acknowledged=phase.acknowledged, taken_over=True, held_up=phase.held_up)


def _acknowledge(phase: Assigned, _event: ev.TaskDispatched, _context: EventContext) -> Assigned:
    return Assigned(acknowledged=True, taken_over=phase.taken_over, held_up=phase.held_up)


def _hold_up(phase: Assigned, event: ev.AttemptHeldUp, _context: EventContext) -> Assigned:
    return Assigned(acknowledged=phase.acknowledged, taken_over=phase.taken_over, held_up=event.error)


def _start(_phase: Assigned, event: ev.TaskRunning, _context: EventContext) -> Running:
    return Running(started_at=event.started_at)


def _orphan(phase: Running, _event: ev.AttemptOrphaned, _context: EventContext) -> Running:
    return Running(
        started_at=phase.started_at, orphaned=True, quiet_since=phase.quiet_since, quiet_in=phase.quiet_in
    )


def _set_quiet(phase: Running, event: ev.TaskQuiet, _context: EventContext) -> Running:
    return Running(
        started_at=phase.started_at, orphaned=phase.orphaned, quiet_since=event.since, quiet_in=event.place
    )


def _stop(phase: Assigned | Running, event: ev.AttemptStopRequested, context: EventContext) -> Stopping:
    skew = context.cluster.workers[context.attempt.worker].skew
    order = StopOrder(reason=event.reason, at=context.at, trigger=event.trigger, skew=skew)
    return Stopping(order=order, before=phase)


def _change_phase_before_stop(phase: Stopping, event: ev.Event, context: EventContext) -> Stopping | None:
    """Apply the event to the phase before the stop order. The attempt stays STOPPING."""
    before = next_phase(phase.before, event, context)
    if type(before) is not Assigned and type(before) is not Running:
        return None
    return Stopping(order=phase.order, before=before, unkillable=phase.unkillable)


def _mark_unkillable(phase: Stopping, _event: ev.AttemptUnkillable, _context: EventContext) -> Stopping:
    return Stopping(order=phase.order, before=phase.before, unkillable=True)


def _end_unstarted(
    phase: Assigned | Stopping, event: ev.TaskDispatchFailed, context: EventContext
) -> Ended | None:
    if type(phase) is Stopping and type(phase.before) is Running:
        return None
    end = End(reason=EndReason.DISPATCH_FAILED, at=context.at, error=event.error)
    return _end(phase, end, context, refused=event.refused)


def _end_as_reported(phase: Live, event: ev.AttemptEnded, context: EventContext) -> Ended:
    return _end(phase, event.end, context)


def _end_stopped(phase: Stopping, event: ev.AttemptStopped, context: EventContext) -> Ended:
    held_up = phase.before.held_up if type(phase.before) is Assigned else ""
    end = End(
        reason=phase.order.reason,
        at=context.at,
        exit_code=event.exit_code,
        trigger=phase.order.trigger,
        error=held_up,
        log_tail=event.log_tail,
        ran=event.ran,
    )
    return _end(phase, end, context, refused=bool(held_up))


def _end(phase: Live, end: End, context: EventContext, *, refused: bool = False) -> Ended:
    ghosts = context.cluster.ghosts.get(context.attempt.worker, ())
    presumed = any(ghost.token == context.attempt.token for ghost in ghosts)
    return Ended(end=end, at=context.at, before=phase, refused=refused, presumed=presumed)


def _mark_reaped(phase: Ended, _event: ev.AttemptsReaped, context: EventContext) -> Ended:
    return Ended(
        end=phase.end,
        at=phase.at,
        before=phase.before,
        refused=phase.refused,
        presumed=phase.presumed,
        reaped_at=context.at,
    )


TRANSITIONS = (
    row(Assigned, ev.DispatchTakenOver, Assigned, _take_over),
    row(Assigned, ev.TaskDispatched, Assigned, _acknowledge),
    row(Assigned, ev.AttemptHeldUp, Assigned, _hold_up),
    row(Assigned, ev.TaskRunning, Running, _start),
    row(Assigned, ev.AttemptStopRequested, Stopping, _stop),
    row(Assigned, ev.AttemptPresumedGone, Assigned, _keep_phase),
    row(Assigned, ev.TaskDispatchFailed, Ended, _end_unstarted),
    row(Assigned, ev.AttemptEnded, Ended, _end_as_reported),
    row(Assigned, ev.EndpointRegistered, Assigned, _keep_phase),
    row(Assigned, ev.EndpointRemoved, Assigned, _keep_phase),
    row(Running, ev.AttemptOrphaned, Running, _orphan),
    row(Running, ev.TaskQuiet, Running, _set_quiet),
    row(Running, ev.AttemptStopRequested, Stopping, _stop),
    row(Running, ev.AttemptPresumedGone, Running, _keep_phase),
    row(Running, ev.AttemptEnded, Ended, _end_as_reported),
    row(Running, ev.EndpointRegistered, Running, _keep_phase),
    row(Running, ev.EndpointRemoved, Running, _keep_phase),
    row(Stopping, ev.DispatchTakenOver, Stopping, _change_phase_before_stop),
    row(Stopping, ev.TaskDispatched, Stopping, _change_phase_before_stop),
    row(Stopping, ev.AttemptHeldUp, Stopping, _change_phase_before_stop),
    row(Stopping, ev.TaskRunning, Stopping, _change_phase_before_stop),
    row(Stopping, ev.AttemptOrphaned, Stopping, _change_phase_before_stop),
    row(Stopping, ev.AttemptUnkillable, Stopping, _mark_unkillable),
    row(Stopping, ev.AttemptPresumedGone, Stopping, _keep_phase),
    row(Stopping, ev.AttemptStopped, Ended, _end_stopped),
    row(Stopping, ev.TaskDispatchFailed, Ended, _end_unstarted),
    row(Stopping, ev.AttemptEnded, Ended, _end_as_reported),
    row(Stopping, ev.EndpointRegistered, Stopping, _keep_phase),
    row(Stopping, ev.EndpointRemoved, Stopping, _keep_phase),
    row(Ended, ev.AttemptProvenGone, Ended, _keep_phase),
    row(Ended, ev.AttemptsReaped, Ended, _mark_reaped),
)
"""All legal events of an attempt by phase. An event without a row is illegal in that phase."""

_ROWS = {(each.before, each.event): each for each in TRANSITIONS}
