"""What a cycle did, in a few lines: cron mails what is printed, so an idle cycle prints nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType

from iris_cli.core.ids import TaskId, WorkerId
from iris_cli.core.messages.observations import SilenceKind
from iris_cli.core.model.cluster import Cluster
from iris_cli.ops.cycle.cycle import CycleResult
from iris_cli.render.console import Output

if TYPE_CHECKING:
    from iris_cli.core.scheduling import Assignment, Plan, ReasonKind
    from iris_cli.render.slices.scaling import PassDocument


class Assigned(Struct, frozen=True):
    """A task that was assigned in a cycle, and its worker."""

    task: TaskId
    worker: WorkerId


class Waiting(Struct, frozen=True):
    """A task, or a gang by its job, that is still pending, and its first reason. `reason` is the kind of `text`."""

    id: str
    reason: ReasonKind
    text: str


class SilentWorker(Struct, frozen=True):
    """A worker that did not answer in a cycle, and why."""

    worker: WorkerId
    kind: SilenceKind
    detail: str


class CycleDocument(Struct, frozen=True):
    """The result of one cycle of `iris schedule`. `asked` counts the workers that were polled.

    `scaling` is the pass of the autoscaler before the cycle, absent without one.
    """

    assigned: Sequence[Assigned]
    waiting: Sequence[Waiting]
    silent: Sequence[SilentWorker]
    asked: int
    scaling: PassDocument | UnsetType = UNSET


def show(output: Output, cluster: Cluster, result: CycleResult, scaling: PassDocument | None = None) -> None:
    """Placements, what still waits and why, and who did not answer. `scaling`: a pass of the autoscaler, for JSON."""
    plan = result.plan
    if output.as_json:
        output.document(
            CycleDocument(
                [Assigned(each.task, each.worker) for each in result.assigned],
                [
                    Waiting(str(key), reasons[0].kind, reasons[0].text)
                    for key, reasons in (plan.waiting.items() if plan else ())
                    if reasons
                ],
                [SilentWorker(each.worker, each.kind, each.detail) for each in result.silent],
                result.asked,
                UNSET if scaling is None else scaling,
            )
        )
        return
    for line in placement_lines(result):
        output.done(line)
    for line in silence_lines(cluster, result):
        output.message(line)


def silence_lines(cluster: Cluster, result: CycleResult) -> Iterator[str]:
    """The workers that did not answer, each with what to do about it."""
    for silence in result.silent:
        yield f"no answer from {silence.worker}: {silence.step}: {silence.detail}"
        if silence.hint and silence.worker in cluster.workers:
            yield f"hint: {silence.hint}"


def placement_lines(result: CycleResult) -> Iterator[str]:
    """What was placed and what waits: a line for each job, and for each reason."""
    if not result.assigned and not (result.plan and result.plan.waiting):
        return
    from iris_cli.render.fold import fold

    for some in _by_job(result.assigned):
        where = fold(each.worker for each in some)
        yield f"assigned {fold(str(each.task) for each in some)} to {where}"
    for why, keys in _by_reason(result.plan).items():
        yield f"waiting {fold(keys)}: {why}"


def _by_job(assigned: Iterable[Assignment]) -> Iterator[list[Assignment]]:
    for _, some in groupby(assigned, key=lambda each: each.task.job):
        yield list(some)


def _by_reason(plan: Plan | None) -> dict[str, list[str]]:
    """What waits, by the first reason of each."""
    alike: dict[str, list[str]] = {}
    for key, reasons in plan.waiting.items() if plan else ():
        alike.setdefault(reasons[0].text if reasons else "no reason known", []).append(str(key))
    return alike
