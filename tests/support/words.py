"""Events as the lines of a transcript: `TaskRequeued train/task-0..3 worker_failed`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from iris_cli.core.events import events as ev
from iris_cli.core.ids import TaskId
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.job import Job
from iris_cli.core.model.task import End
from iris_cli.core.model.worker import WorkerCondition
from iris_cli.core.units import format_duration

_NUMBERED = re.compile(r"(.*-)(\d+)")


def lines_of(events: Iterable[ev.Event], before: Cluster, after: Cluster, at: float) -> list[str]:
    """Return a line for each event. Events that differ only in their subject share the line of the first."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for event in events:
        subject, suffix = _subject(event)
        words = _words(event, before, after, at)
        found.setdefault((type(event).__name__, suffix, words), []).append(subject)
    return [
        f"{name} {_ranges(subjects, suffix)} {words}".rstrip()
        for (name, suffix, words), subjects in found.items()
    ]


def _subject(event: ev.Event) -> tuple[str, str]:
    if isinstance(event, ev.AttemptEvent):
        return str(event.task), f"/attempt-{event.attempt}"
    match event:
        case ev.JobSubmitted():
            return event.job.id, ""
        case ev.JobCancelled() | ev.JobEnded() | ev.GangRoundEnded() | ev.JobAdopted() | ev.JobChanged():
            return event.job, ""
        case ev.TaskRequeued() | ev.TaskEnded():
            return str(event.task), ""
        case ev.ClusterCreated():
            return event.name, ""
        case ev.ScaleGroupBackedOff():
            return event.group, ""
        case _ if type(event).__name__.startswith("Slice"):
            return str(getattr(event, "slice")), ""  # noqa: B009 - these events are about a slice
        case _:
            return str(getattr(event, "worker")), ""  # noqa: B009 - every other event is about a worker


def _words(event: ev.Event, before: Cluster, after: Cluster, at: float) -> str:
    match event:
        case ev.SliceRequested():
            return event.group
        case ev.SliceSetUp():
            return f"VM {event.vm}" + (f": {event.error}" if event.error else "")
        case ev.SliceRefused():
            return event.error
        case ev.SliceDeletionRequested():
            return event.reason
        case ev.ScaleGroupBackedOff():
            return f"for {format_duration(event.until - at)}: {event.error}"
        case ev.WorkerUpdated():
            return _updated(event, before)
        case ev.WorkerConditionChanged():
            return _condition(event, at)
        case ev.WorkerQuarantined():
            return "lifted" if event.lifted else event.reason
        case ev.WorkerSilenceCounted():
            return "anew" if event.anew else ""
        case ev.WorkerSkewChanged():
            return f"{event.skew:+g}s"
        case ev.WorkerTainted():
            return f"{event.taint} removed" if event.removed else event.taint
        case ev.AttemptsReaped():
            left = ", left " + " ".join(map(str, event.left)) if event.left else ""
            return " ".join(map(str, event.attempts)) + left
        case ev.WorkerForgotten():
            return " ".join(filter(None, ["dead" if event.dead else "", event.reason]))
        case ev.JobEnded():
            return f"{after.job_state(event.job)} {_end(event.end)}"
        case ev.GangRoundEnded():
            refused = ", refused" if event.refused else ""
            return f"round-{event.round} {event.reason}{_by(event.trigger)}{refused}"
        case ev.JobSubmitted():
            return _job(event.job)
        case ev.JobChanged():
            return _changed(event)
        case _:
            return _task(event)


def _job(job: Job) -> str:
    words = "1 task" if job.replicas == 1 else f"{job.replicas} tasks"
    if job.coscheduling is None:
        return words
    spread = f" over {job.slices}" if job.slices > 1 else ""
    return f"{words}, a gang by {job.coscheduling.group_by}{spread}"


def _changed(event: ev.JobChanged) -> str:
    words = [] if event.held is None else ["held" if event.held else "released"]
    words += [] if event.priority is None else [event.priority]
    timeout = event.scheduling_timeout
    return " ".join(
        [*words, *([] if timeout is None else [f"scheduling_timeout={format_duration(timeout)}"])]
    )


def _task(event: ev.Event) -> str:
    match event:
        case ev.TaskAssigned():
            gpus = f" gpus {','.join(map(str, event.gpus))}" if event.gpus else ""
            return f"on {event.worker}{gpus}" + (f", {event.chosen}" if event.chosen else "")
        case ev.TaskDispatchFailed():
            return f"{'refused: ' if event.refused else ''}{event.error}"
        case ev.AttemptEnded():
            return _end(event.end)
        case ev.AttemptStopRequested():
            return f"{event.reason}{_by(event.trigger)}"
        case ev.AttemptStopped():
            return "" if event.exit_code is None else f"exit {event.exit_code}"
        case ev.TaskRequeued():
            return event.reason
        case ev.TaskEnded():
            return f"{event.state} {_end(event.end)}"
        case _:
            return str(getattr(event, "reason", ""))


def _updated(event: ev.WorkerUpdated, before: Cluster) -> str:
    known = before.workers.get(event.worker)
    words = []
    if known is not None and known.boot_id:
        words += [event.boot_id] if event.boot_id != known.boot_id else []
        words += [event.incarnation] if event.incarnation != known.incarnation else []
    return " ".join([*words, f"refused: {event.refusal}" if event.refusal else ""]).rstrip()


def _condition(event: ev.WorkerConditionChanged, at: float) -> str:
    if event.condition is WorkerCondition.HEALTHY and not event.cooldown_until:
        return "healthy"
    left_alone = f"left alone for {format_duration(event.cooldown_until - at)}"
    then = left_alone if event.cooldown_until else "polled by the next cycle"
    return f"{event.condition}, {then}: {event.reason}"


def _end(end: End) -> str:
    code = f" exit {end.exit_code}" if end.exit_code is not None else ""
    trigger = "" if str(end.trigger) in end.error else _by(end.trigger)
    return f"{end.reason}{code}{trigger}{': ' if end.error else ''}{end.error}"


def _by(trigger: TaskId | None) -> str:
    return f", by {trigger}" if trigger is not None else ""


def _ranges(subjects: list[str], suffix: str) -> str:
    """Return `a-0..2 b` for `a-0 a-1 a-2 b`, with the suffix."""
    runs: list[tuple[str, int, int]] = []
    for subject in subjects:
        match = _NUMBERED.fullmatch(subject)
        head, number = (match[1], int(match[2])) if match else (subject, -1)
        if runs and match and runs[-1][0] == head and runs[-1][2] == number - 1:
            runs[-1] = (head, runs[-1][1], number)
        else:
            runs.append((head, number, number))
    return " ".join(_range(*run) + suffix for run in runs)


def _range(head: str, first: int, last: int) -> str:
    if first < 0:
        return head
    return f"{head}{first}" if first == last else f"{head}{first}..{last}"
