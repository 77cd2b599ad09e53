"""From a probe to what the log says of a worker: the configuration's words lie over what was found."""

from __future__ import annotations

from iris_cli.config.schema import HostConfig
from iris_cli.core.constraints import (
    DEVICE_TYPE_ATTRIBUTE_KEY,
    DEVICE_VARIANT_ATTRIBUTE_KEY,
    PREEMPTIBLE_ATTRIBUTE_KEY,
    TPU_TOPOLOGY_ATTRIBUTE_KEY,
    build_worker_attributes,
)
from iris_cli.core.events.events import WorkerUpdated
from iris_cli.core.messages.observations import ProbeReport
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.worker import Worker
from iris_cli.core.topology import lookup
from iris_cli.core.units import count
from iris_cli.ops.session import Session
from iris_cli.ops.set_up_token import token_of


def facts_of(session: Session, cluster: Cluster, report: ProbeReport) -> WorkerUpdated:
    """What is to be recorded of a worker that answered a probe."""
    worker = cluster.workers[report.worker]
    host = session.hosts.get(worker.id)
    declared = dict(host.attributes) if host is not None else worker.own_attributes
    built = build_worker_attributes(_found(report), declared)
    refusal = _refusal(cluster, worker, report, built.errors)
    return WorkerUpdated(
        worker=worker.id,
        connection=host.connection if host is not None else worker.connection,
        attributes=dict(built),
        cpu=_first(host.cpu if host is not None else None, float(report.cpus)),
        memory=int(_first(host.memory if host is not None else None, report.memory)),
        chips=report.chips or _chips_by_type(built.get(TPU_TOPOLOGY_ATTRIBUTE_KEY)),
        gpus=_gpus(host, report),
        boot_id=report.boot_id,
        incarnation=report.incarnation,
        declared=host.fingerprint if host is not None else worker.declared,
        containment=report.containment,
        vm=dict(report.metadata).get("instance-id", ""),
        refusal=refusal,
    )


def _found(report: ProbeReport) -> dict[str, object]:
    found: dict[str, object] = dict(report.metadata)
    if report.gpus:
        found[DEVICE_TYPE_ATTRIBUTE_KEY] = "gpu"
        found[DEVICE_VARIANT_ATTRIBUTE_KEY] = report.gpu_variant or "unknown"
    found.setdefault(PREEMPTIBLE_ATTRIBUTE_KEY, "false")
    return found


def _refusal(cluster: Cluster, worker: Worker, report: ProbeReport, errors: tuple[str, ...]) -> str:
    """Why the worker can't be used, or ""."""
    refused = [text.removeprefix("refused: ") for text in report.warnings if text.startswith("refused: ")]
    twin = next(
        (
            other.id
            for other in cluster.workers.values()
            if other.id != worker.id and other.incarnation and other.incarnation == report.incarnation
        ),
        None,
    )
    if twin is not None:
        refused.append(f"it is the same host as {twin}: two workers share one iris directory")
    foreign = cluster.foreign(
        token for token in report.tokens if token != token_of(worker.id, report.incarnation)
    )
    if foreign:
        refused.append(
            f"{count(len(foreign), 'attempt')} there that the log never saw: was the state directory restored? "
            f"iris worker unwedge {worker.id} stops them"
        )
    return "; ".join((*errors, *refused))


def _chips_by_type(accelerator_type: object) -> int:
    known = lookup(str(getattr(accelerator_type, "value", "")))
    return known.chips_per_vm if known is not None else 0


def _gpus(host: HostConfig | None, report: ProbeReport) -> int:
    declared = host.device if host is not None else None
    return declared.count if declared is not None and declared.kind == "gpu" else report.gpus


def _first(said: float | None, found: float) -> float:
    return found if said is None else said
