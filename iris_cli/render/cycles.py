"""What a cycle did, in a few lines: cron mails what is printed, so an idle cycle prints nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING

from iris_cli.core.cluster import Cluster
from iris_cli.ops.cycle import CycleResult
from iris_cli.render.console import Output

if TYPE_CHECKING:
    from iris_cli.core.scheduling import Assignment, Plan


def show(
    output: Output, cluster: Cluster, result: CycleResult, scaling: Mapping[str, object] | None = None
) -> None:
    """Placements, what still waits and why, and who did not answer. `scaling`: a pass of the autoscaler, for JSON."""
    plan = result.plan
    if output.as_json:
        output.document(
            {
                "assigned": [{"task": str(each.task), "worker": each.worker} for each in result.assigned],
                "waiting": [
                    {"id": str(key), "reason": reasons[0].kind.value, "text": reasons[0].text}
                    for key, reasons in (plan.waiting.items() if plan else ())
                    if reasons
                ],
                "silent": [
                    {"worker": each.worker, "kind": each.kind.value, "detail": each.detail}
                    for each in result.silent
                ],
                "asked": result.asked,
                **({"scaling": scaling} if scaling is not None else {}),
            }
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
