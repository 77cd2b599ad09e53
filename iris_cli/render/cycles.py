"""What a cycle did, in a few lines: cron mails what is printed, so an idle cycle prints nothing."""

from __future__ import annotations

from collections.abc import Mapping

from iris_cli.core.cluster import Cluster
from iris_cli.ops.cycle import CycleResult
from iris_cli.render.console import Output


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
    for each in result.assigned:
        output.line(f"assigned {each.task} to {each.worker}")
    for key, reasons in plan.waiting.items() if plan else ():
        output.line(f"waiting {key}: {reasons[0].text if reasons else 'no reason known'}")
    for silence in result.silent:
        worker = cluster.workers.get(silence.worker)
        output.message(f"no answer from {silence.worker}: {silence.step}: {silence.detail}")
        if silence.hint and worker is not None:
            output.message(f"hint: {silence.hint}")
