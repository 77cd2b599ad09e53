"""Sentences about events of the log."""

from collections.abc import Callable
from typing import Any

from iris_cli.core import TPU_NAME_ATTRIBUTE_KEY, EndReason, WorkerCondition, count, describe, format_memory
from iris_cli.core.events import events as ev
from iris_cli.core.lifecycle.display import DisplayWord
from iris_cli.core.units import format_cores, format_duration
from iris_cli.ops.outcomes.causes import end_words, reason_words, skew_words, stop_words


def event_words(event: ev.Event) -> str:
    """Return one sentence about the event. It may contain hostile text from users and workers."""
    words = _WORDS.get(type(event))
    return words(event) if words else type(event).__name__


def _reason(reason: str) -> str:
    return f": {reason}" if reason else ""


def _worker_updated(event: ev.WorkerUpdated) -> str:
    if event.refusal:
        return f"worker {event.worker} probed, unusable: {event.refusal}"
    parts = [format_cores(event.cpu), format_memory(event.memory)]
    if event.chips:
        parts.append(f"{event.chips} chips")
    if event.gpus:
        parts.append(f"{event.gpus} GPUs")
    return f"worker {event.worker} probed: {', '.join(parts)}"


def _worker_condition_changed(event: ev.WorkerConditionChanged) -> str:
    if event.condition is WorkerCondition.HEALTHY and not event.reason:
        return f"worker {event.worker} is healthy"
    reason = f" ({event.reason})" if event.reason else ""
    polls = f" after {event.failed_polls} failed polls" if event.failed_polls > 1 else ""
    return f"worker {event.worker} is {event.condition.replace('_', ' ')}{polls}{reason}"


def _silence_counted(event: ev.WorkerSilenceCounted) -> str:
    if event.anew:
        return f"silence of worker {event.worker} is counted from zero again: the worker answered, or no worker did"
    return (
        f"worker {event.worker} did not answer, but others did: its silence counts toward worker_lost_after"
    )


def _worker_forgotten(event: ev.WorkerForgotten) -> str:
    dead = ", declared dead by the operator" if event.dead else ""
    return f"worker {event.worker} forgotten{dead}{_reason(event.reason)}"


def _worker_unwedged(event: ev.WorkerUnwedged) -> str:
    processes = [f"process {each}" for each in event.processes]
    named = [*processes, *(f"attempt with token {token}" for token in event.attempts)]
    return f"stopping on worker {event.worker}: {', '.join(named)}"


def _job_submitted(event: ev.JobSubmitted) -> str:
    job = event.job
    tasks = count(job.replicas, "task")
    if job.coscheduling:
        tasks = f"a gang of {tasks}"
        if job.coscheduling.group_by != TPU_NAME_ATTRIBUTE_KEY:
            tasks += f" on workers with the same {job.coscheduling.group_by}"
    device = job.resources.device
    on = ""
    if device is not None:
        tpu = device.kind == "tpu" and device.variant != "auto"
        on = f", on {describe(device.variant) if tpu else device}"
    origin = f" (resubmission of {job.again})" if job.again else ""
    origin = f" by {event.origin.attempt}" if event.origin else origin
    return f"job {job.id} submitted{origin}: {tasks}{on}"


def _job_changed(event: ev.JobChanged) -> str:
    changes = [] if event.held is None else ["held" if event.held else "released"]
    if event.priority is not None:
        changes.append(f"set to priority {event.priority}")
    if event.scheduling_timeout is not None:
        limit = format_duration(event.scheduling_timeout) if event.scheduling_timeout else "none"
        changes.append(f"set to scheduling timeout {limit}")
    return f"job {event.job} {' and '.join(changes)}"


def _job_ended(event: ev.JobEnded) -> str:
    if event.end.reason == "ok":
        return f"job {event.job} succeeded{_reason(end_words(event.end))}"
    trigger = f" because of {event.end.trigger}" if event.end.trigger else ""
    return f"job {event.job} ended{trigger}{_reason(end_words(event.end))}"


def _gang_round_ended(event: ev.GangRoundEnded) -> str:
    has_failed = event.trigger and event.reason is not EndReason.RETRIED
    trigger = f": {event.trigger} failed first" if has_failed else ""
    reason = "" if trigger and event.reason is EndReason.USER_ERROR else f" ({reason_words(event.reason)})"
    return f"round {event.round} of {event.job} ended{trigger}{reason}"


def _task_assigned(event: ev.TaskAssigned) -> str:
    gpus = f", GPUs {','.join(map(str, event.gpus))}" if event.gpus else ""
    chosen = f" ({event.chosen})" if event.chosen else ""
    return f"{event.attempt_id} placed on {event.worker}{gpus}{chosen}"


def _attempt_ended(event: ev.AttemptEnded) -> str:
    words = end_words(event.end)
    return f"{event.attempt_id} ended: {words}" if words else f"{event.attempt_id} succeeded"


def _task_quiet(event: ev.TaskQuiet) -> str:
    if event.since is None:
        return f"{event.attempt_id} writes output again"
    return f"{event.attempt_id} is quiet" + (f" in {event.place}" if event.place else "")


def _stop_requested(event: ev.AttemptStopRequested) -> str:
    if event.trigger:
        return f"{event.attempt_id} is being stopped: {event.trigger} failed first"
    return f"{event.attempt_id} is {stop_words(event.reason)}"


def _attempts_reaped(event: ev.AttemptsReaped) -> str:
    parts = []
    if event.attempts:
        parts.append(f"output of {', '.join(map(str, event.attempts))} removed from worker {event.worker}")
    if event.left:
        left = ", ".join(map(str, event.left))
        parts.append(f"worker {event.worker} has not yet removed the output of {left}")
    return "; ".join(parts)


def _task_ended(event: ev.TaskEnded) -> str:
    if event.end.reason is EndReason.SIBLING:
        first = f" ({event.end.trigger} failed first)" if event.end.trigger else ""
        return f"final state of {event.task}: {DisplayWord.STOPPED}{first}"
    words = end_words(event.end)
    return f"final state of {event.task}: {event.state}" + (f" ({words})" if words else "")


def _worker_quarantined(event: ev.WorkerQuarantined) -> str:
    if event.lifted:
        return f"quarantine of worker {event.worker} lifted{_reason(event.reason)}"
    return f"worker {event.worker} quarantined{_reason(event.reason)}"


def _slice_set_up(event: ev.SliceSetUp) -> str:
    ended = f"could not be set up{_reason(event.error)}" if event.error else "is set up"
    return f"VM {event.vm} of slice {event.slice} {ended}"


def _backed_off(event: ev.ScaleGroupBackedOff) -> str:
    times = f" ({event.failures} failures in a row)" if event.failures > 1 else ""
    return f"scale group {event.group} is backing off{_reason(event.error)}{times}"


_WORDS: dict[type[ev.Event], Callable[[Any], str]] = {
    ev.ClusterCreated: lambda event: f"cluster {event.name} created",
    ev.LogCompacted: lambda event: f"events up to seq {event.through} moved to the archive",
    ev.WorkerRegistered: lambda event: f"worker {event.worker} registered, host {event.connection.host}",
    ev.WorkerUpdated: _worker_updated,
    ev.WorkerConditionChanged: _worker_condition_changed,
    ev.WorkerSilenceCounted: _silence_counted,
    ev.WorkerSkewChanged: lambda event: f"the clock of worker {event.worker} {skew_words(event.skew)}",
    ev.WorkerQuarantined: _worker_quarantined,
    ev.WorkerTainted: lambda event: (
        f"taint {event.taint} {'removed from' if event.removed else 'added to'} worker {event.worker}"
    ),
    ev.WorkerDrained: lambda event: f"worker {event.worker} is draining{_reason(event.reason)}",
    ev.WorkerUncordoned: lambda event: f"worker {event.worker} uncordoned",
    ev.WorkerUnwedged: _worker_unwedged,
    ev.WorkerForgotten: _worker_forgotten,
    ev.SliceRequested: lambda event: (
        f"slice {event.slice} requested: {event.template.describe()} of scale group {event.group}"
    ),
    ev.SliceCreated: lambda event: f"slice {event.slice} is being created",
    ev.SliceRefused: lambda event: f"slice {event.slice} was not created{_reason(event.error)}",
    ev.SliceStarted: lambda event: f"slice {event.slice} exists; probing its VMs",
    ev.SliceReported: lambda event: f"slice {event.slice}: {event.remark or 'no problem reported'}",
    ev.SliceSetUp: _slice_set_up,
    ev.SliceJoined: lambda event: f"slice {event.slice} is ready: its VMs are workers",
    ev.SliceDeletionRequested: lambda event: f"slice {event.slice} to be deleted{_reason(event.reason)}",
    ev.SliceDeleted: lambda event: f"slice {event.slice} is gone",
    ev.ScaleGroupBackedOff: _backed_off,
    ev.SlicesAdopted: lambda event: f"slices are managed from {event.where or event.place}",
    ev.JobSubmitted: _job_submitted,
    ev.JobAdopted: lambda event: (
        f"job {event.job} requested again by {event.origin.attempt}: already submitted"
    ),
    ev.JobCancelled: lambda event: f"job {event.job} cancelled{_reason(event.reason)}",
    ev.JobChanged: _job_changed,
    ev.JobEnded: _job_ended,
    ev.GangRoundEnded: _gang_round_ended,
    ev.TaskAssigned: _task_assigned,
    ev.DispatchTakenOver: lambda event: (
        f"{event.attempt_id} may be running: its worker has not confirmed the start"
    ),
    ev.TaskDispatched: lambda event: f"{event.attempt_id} acknowledged by its worker",
    ev.TaskDispatchFailed: lambda event: (
        f"{event.attempt_id} {'refused' if event.refused else 'did not start'}{_reason(event.error)}"
    ),
    ev.TaskRunning: lambda event: f"{event.attempt_id} is running",
    ev.AttemptHeldUp: lambda event: f"{event.attempt_id} can't start{_reason(event.error)}",
    ev.TaskQuiet: _task_quiet,
    ev.AttemptOrphaned: lambda event: (
        f"{event.attempt_id} is orphaned: still running, but its exit code can't be recorded"
    ),
    ev.AttemptUnkillable: lambda event: f"a process of {event.attempt_id} can't be killed",
    ev.AttemptPresumedGone: lambda event: (
        f"{event.attempt_id} presumed gone: its lease expired"
        if event.by_lease
        else f"{event.attempt_id} presumed gone and treated as ended, although it may still be running"
    ),
    ev.AttemptProvenGone: lambda event: f"{event.attempt_id} is proven gone",
    ev.AttemptEnded: _attempt_ended,
    ev.AttemptStopRequested: _stop_requested,
    ev.AttemptStopped: lambda event: (
        f"{event.attempt_id} stopped{f', exit {event.exit_code}' if event.exit_code is not None else ''}"
    ),
    ev.EndpointRegistered: lambda event: (
        f"{event.attempt_id} registered endpoint {event.name} on port {event.port}"
    ),
    ev.EndpointRemoved: lambda event: f"{event.attempt_id} removed endpoint {event.name}",
    ev.AttemptsReaped: _attempts_reaped,
    ev.TaskRequeued: lambda event: f"{event.task} requeued ({reason_words(event.reason)})",
    ev.TaskEnded: _task_ended,
}
