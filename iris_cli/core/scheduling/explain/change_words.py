"""The text of the change with which a pending task or gang would fit."""

from __future__ import annotations

from iris_cli.core import WorkerId, format_duration
from iris_cli.core.ids import clip
from iris_cli.core.model.worker import Amounts
from iris_cli.core.scheduling.explain.explanation import Change, ChangeKind
from iris_cli.core.scheduling.explain.wording import format_amount
from iris_cli.core.scheduling.fleet import Fleet
from iris_cli.core.scheduling.sets import AMOUNT_KINDS


def change_text(
    fleet: Fleet, need: Amounts, change: Change, names: str, *, several: bool, stopping: bool
) -> str:
    """Return the text for a change: `drop region=eu: slice v4b fits`.

    `names` are the workers or groups on which the tasks would be placed; `several`: more than one. `stopping`: they are
    still stopping attempts of the job that the change is about.
    """
    subject, verb = change.subject, "fit" if several else "fits"
    match change.kind:
        case ChangeKind.DROP | ChangeKind.TOLERATE:
            return f"{change.kind} {clip(subject)}: {names} {verb}"
        case ChangeKind.SPREAD:
            return f"add --spread: {names} {verb}"
        case ChangeKind.PRIORITY:
            return f"set --priority {subject}: {names} {verb}"
        case ChangeKind.LESS_CPU | ChangeKind.LESS_MEMORY | ChangeKind.FEWER_GPUS:
            number = (ChangeKind.LESS_CPU, ChangeKind.LESS_MEMORY, ChangeKind.FEWER_GPUS).index(change.kind)
            smaller, current = (
                format_amount(AMOUNT_KINDS[number], each) for each in (change.amount, need[number])
            )
            return f"request {smaller} instead of {current}: {names} {verb}"
        case ChangeKind.JOB_ENDS | ChangeKind.TASK_ENDS:
            prefix = "job " if change.kind is ChangeKind.JOB_ENDS else ""
            event = "has stopped" if stopping else "ends"
            return f"{names} {'have' if several else 'has'} room when {prefix}{subject} {event}"
        case ChangeKind.UNCORDON:
            return f"{names} {verb} after `iris worker uncordon {subject}`"
        case ChangeKind.COMPLETES:
            return f"{names} {verb} when all VMs of its slice are healthy and set up"
    worker = fleet.workers[fleet.ids.index(WorkerId(subject))]
    if change.kind is ChangeKind.RESTS:
        remaining_time = format_duration(worker.cooldown_until - fleet.now)
        return f"{names} {verb} in {remaining_time}, after the cool-down of {subject}"
    if worker.unschedulable:
        return f"{names} {verb} when {subject} is repaired ({worker.reason})"
    return f"{names} {verb} when {subject} ({worker.condition}) is healthy again"
