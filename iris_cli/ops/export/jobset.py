"""JobSet for Kubernetes and Kueue: one replicated job, with a Kubernetes Job for each slice of a gang.

Kubernetes 1.29, JobSet (`jobset.x-k8s.io/v1alpha2`), Kueue and GKE define the names of labels, annotations and fields.
"""

import json
import re
from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any

from msgspec import Struct

from iris_cli.core import MAX_STRING, Job, constraints, count, describe, pattern
from iris_cli.core.resources import AUTO
from iris_cli.errors import UsageError
from iris_cli.ops.export import counterparts, pod_script
from iris_cli.ops.export.gke_tpu import GkeTpu, gke_tpu
from iris_cli.ops.export.pod_script import dns_label, is_label_value
from iris_cli.ops.export.shell import fixed_variables
from iris_cli.ops.export.source import Source

Fields = dict[str, Any]

NO_IMAGE = "IMAGE"
"""Placeholder for a missing image. It is an invalid name, so that no pod starts by mistake."""

_QUEUE = pattern(r"[a-z0-9](?:[-.a-z0-9]{0,61}[a-z0-9])?")
_LABELS: Mapping[str, str] = {
    constraints.REGION_ATTRIBUTE_KEY: "topology.kubernetes.io/region",
    constraints.ZONE_ATTRIBUTE_KEY: "topology.kubernetes.io/zone",
}
_SPOT = "cloud.google.com/gke-spot"
_OPERATORS = {
    constraints.ConstraintOp.EQ: "In",
    constraints.ConstraintOp.IN: "In",
    constraints.ConstraintOp.NE: "NotIn",
}
_NODE_POOL = "cloud.google.com/gke-nodepool"
_DISRUPTED = {"type": "DisruptionTarget", "status": "True"}


class Shape(Struct, frozen=True, kw_only=True):
    """Number of Kubernetes Jobs (`slices`), and number of pods in each. `tpu` is None for a job without TPUs."""

    slices: int
    pods: int
    tpu: GkeTpu | None

    @property
    def tasks(self) -> int:
        return self.slices * self.pods


def job_set(source: Source, queue: str | None) -> tuple[Fields, list[counterparts.ExportNote]]:
    """Return the JobSet, and notes for the user. `queue`: the Kueue queue. Raises UsageError."""
    if queue is not None and _QUEUE.fullmatch(queue) is None:
        raise UsageError(
            f"--queue {queue[:80]!r} is not the name of a LocalQueue", hint="kubectl get localqueues"
        )
    job, shape = source.job, _shape(source)
    name = dns_label(job.id)
    document = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": name,
            "labels": _labels(job, queue),
            "annotations": _annotations(source, shape),
        },
        "spec": {
            "network": {"enableDNSHostnames": True, "subdomain": name},
            **_failure_policy(source),
            "replicatedJobs": [
                {
                    "name": pod_script.replicated_job(source),
                    "replicas": shape.slices,
                    "template": {"spec": _job_spec(source, shape)},
                }
            ],
        },
    }
    lost_notes = counterparts.lost_constraints(each for each in job.constraints if not _is_exported(each))
    notes = [*counterparts.lost_fields(job, counterparts.Engine.JOBSET), *_notes(source, shape), *lost_notes]
    return _without_empty(document), notes


def _shape(source: Source) -> Shape:
    job, device = source.job, source.job.resources.device
    tpu = None
    if device is not None and device.kind == "tpu":
        if device.variant == AUTO:
            raise UsageError("a JobSet needs a TPU type, not auto", hint="write tpu: TYPE into a job file")
        tpu = gke_tpu(device.variant)
    if tpu is not None and tpu.vms > 1 and not source.starts_together:
        raise UsageError(
            f"{job.id} can't be exported: its tasks are independent, but each needs a slice of {tpu.vms} VMs",
            hint="export a job with one task",
        )
    if tpu is not None and source.starts_together:
        return Shape(slices=job.slices, pods=tpu.vms, tpu=tpu)
    slices = job.slices if source.starts_together else 1
    return Shape(slices=slices, pods=job.replicas // slices, tpu=tpu)


def _labels(job: Job, queue: str | None) -> Fields:
    """Return the label for the queue, and the job's labels that are valid in Kubernetes."""
    valid = {
        name: value
        for name, value in job.labels.items()
        if name and is_label_value(name) and is_label_value(value)
    }
    return {**valid, **({"kueue.x-k8s.io/queue-name": queue} if queue is not None else {})}


def _annotations(source: Source, shape: Shape) -> Fields:
    job = source.job
    found = {"iris/job": str(job.id)}
    if job.labels:
        found["iris/labels"] = json.dumps(dict(job.labels))
    if source.starts_together and shape.tpu is not None:
        found["alpha.jobset.sigs.k8s.io/exclusive-topology"] = _NODE_POOL
    return found


def _failure_policy(source: Source) -> Fields:
    """Return the policy for restarts of a gang. A timeout causes no restart. Restarts after a lost node don't count."""
    if not source.starts_together:
        return {"failurePolicy": {"maxRestarts": 0}}
    rules = [{"name": "timelimit", "action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]}]
    if source.job.max_retries_preemption:
        action, reasons = "RestartJobSetAndIgnoreMaxRestarts", ["PodFailurePolicy"]
        rules.append({"name": "disruption", "action": action, "onJobFailureReasons": reasons})
    return {"failurePolicy": {"maxRestarts": source.job.max_retries_failure, "rules": rules}}


def _job_spec(source: Source, shape: Shape) -> Fields:
    job = source.job
    parallelism = min(job.max_running or shape.pods, shape.pods)
    return {
        "completionMode": "Indexed",
        "parallelism": parallelism,
        "completions": shape.pods,
        **_retries(source, shape),
        "template": {"spec": _pod(source, shape)},
    }


def _retries(source: Source, shape: Shape) -> Fields:
    """Return the fields for retries. A failed pod is replaced alone, except in a gang."""
    job = source.job
    if source.starts_together:
        found: Fields = {"backoffLimit": 0}
        if job.timeout:
            found["activeDeadlineSeconds"] = ceil(job.timeout)
    else:
        found = {"backoffLimitPerIndex": job.max_retries_failure}
        if not job.keep_going:
            found["maxFailedIndexes"] = min(job.max_task_failures, shape.pods)
    if job.max_retries_preemption:
        action = "FailJob" if source.starts_together else "Ignore"
        found["podFailurePolicy"] = {"rules": [{"action": action, "onPodConditions": [_DISRUPTED]}]}
    return found


def _pod(source: Source, shape: Shape) -> Fields:
    job = source.job
    deadline = job.timeout and not source.starts_together
    selector = {}
    if shape.tpu is not None:
        selector["cloud.google.com/gke-tpu-accelerator"] = shape.tpu.accelerator
        selector["cloud.google.com/gke-tpu-topology"] = shape.tpu.topology
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": ceil(job.grace),
        **({"activeDeadlineSeconds": ceil(job.timeout)} if deadline else {}),
        "nodeSelector": selector,
        "affinity": _affinity(job),
        "tolerations": [{"key": taint, "operator": "Exists"} for taint in job.tolerations],
        "containers": [_container(source, shape)],
        "volumes": [{"name": "iris", "emptyDir": {}}],
    }


def _affinity(job: Job) -> dict[str, Any]:
    """Return the node affinity for required constraints on region, zone and preemptible; {} without constraints."""
    terms = [*_affinity_terms(job)]
    if not terms:
        return {}
    required = {"nodeSelectorTerms": [{"matchExpressions": terms}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def _affinity_terms(job: Job) -> Iterator[dict[str, Any]]:
    for each in filter(_is_exported, job.constraints):
        if each.key in _LABELS:
            values = [str(value.value) for value in each.operands]
            yield {"key": _LABELS[each.key], "operator": _OPERATORS[each.op], "values": values}
    spot = constraints.preemptible_preference_from_constraints(job.constraints)
    if spot is not None:
        yield {"key": _SPOT, "operator": "In" if spot else "NotIn", "values": ["true"]}


def _is_exported(constraint: constraints.Constraint) -> bool:
    if not constraint.required:
        return False
    if constraint.key == constraints.PREEMPTIBLE_ATTRIBUTE_KEY:
        return True
    has_counterpart = constraint.key in _LABELS and constraint.op in _OPERATORS
    return has_counterpart and all(is_label_value(str(value.value)) for value in constraint.operands)


def _container(source: Source, shape: Shape) -> Fields:
    job = source.job
    script = _literal(pod_script.script(source, shape.slices, shape.pods))
    if (size := len(script.encode())) > MAX_STRING:
        raise UsageError(
            f"the script with the lines of --each-line takes {size} bytes, more than {MAX_STRING}",
            hint="put the lines into the image, and use --array",
        )
    setup = [job.setup] if job.setup else []
    return {
        "name": "task",
        "image": source.image or NO_IMAGE,
        "command": ["/bin/sh", "-c", script, "iris"],
        "args": [_literal(word) for word in (*setup, *job.command)],
        "env": [*_env(source, shape)],
        "resources": _resources(job, shape.tpu),
        "volumeMounts": [{"name": "iris", "mountPath": pod_script.TASK_DIR}],
    }


def _env(source: Source, shape: Shape) -> Iterator[Fields]:
    job = source.job
    fixed = fixed_variables(source, shape.tasks, shape.slices)
    for name, value in {**source.default_env, **job.env, **fixed}.items():
        if name not in job.secrets:
            yield {"name": name, "value": _literal(value)}
    for name in job.secrets:
        yield {"name": name, "valueFrom": {"secretKeyRef": {"name": _secret_name(job), "key": name}}}
    for name, field in pod_script.pod_fields(source).items():
        yield {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}}


def _secret_name(job: Job) -> str:
    return f"{dns_label(job.id)}-secrets"


def _literal(text: str) -> str:
    """Return the text escaped for fields in which Kubernetes expands `$(NAME)` and replaces `$$` with `$`."""
    return re.sub(r"\$(?=[$(])", "$$", text)


def _resources(job: Job, tpu: GkeTpu | None) -> Fields:
    limits: Fields = {}
    if tpu is not None:
        limits["google.com/tpu"] = tpu.chips_per_vm
    device = job.resources.device
    if device is not None and device.kind == "gpu":
        limits["nvidia.com/gpu"] = device.count
    return {
        "requests": {"cpu": f"{job.resources.cpu_millis}m", "memory": str(job.resources.memory), **limits},
        "limits": limits,
    }


def _without_empty(value: Any) -> Any:
    """Return the value without empty mappings and lists, except `emptyDir: {}`."""
    if isinstance(value, Mapping):
        pairs = ((key, each if key == "emptyDir" else _without_empty(each)) for key, each in value.items())
        return {key: each for key, each in pairs if key == "emptyDir" or each not in ({}, [])}
    return [_without_empty(each) for each in value] if isinstance(value, list) else value


def _notes(source: Source, shape: Shape) -> Iterator[counterparts.ExportNote]:
    job = source.job
    if not source.image:
        yield counterparts.lost_note(
            "image", f"a pod needs an image: pass --image NAME, or replace {NO_IMAGE} in the output"
        )
    yield from _shape_notes(source, shape)
    if source.workdir or job.workspace is not None:
        yield counterparts.lost_note("workdir", "no counterpart; the image must contain it")
    device = job.resources.device
    if device is not None and device.kind == "gpu" and device.variant != AUTO:
        yield counterparts.lost_note(
            "gpu", f"no counterpart for {device.variant!r}; add your cluster's node selector"
        )
    gang = job.coscheduling
    if gang is not None and not (
        job.resources.device_type == "tpu" and gang.group_by == constraints.TPU_NAME_ATTRIBUTE_KEY
    ):
        yield counterparts.lost_note(
            "coscheduling", f"the pods may be on nodes that do not share {gang.group_by}"
        )
    if job.timeout and not source.starts_together and job.max_retries_failure:
        yield counterparts.lost_note("timeout", "a task that reached its time limit is tried again")
    if job.max_task_failures and job.keep_going:
        yield counterparts.lost_note(
            "max_task_failures", "with keep_going, one failed task fails the JobSet in the end"
        )
    if job.max_retries_preemption not in (0, counterparts.UNLIMITED):
        yield counterparts.lost_note("max_retries_preemption", "restarts after a disruption are not counted")
    if job.secrets:
        yield counterparts.to_do_note(
            "secrets", f"kubectl create secret generic {_secret_name(job)}, with {', '.join(job.secrets)}"
        )


def _shape_notes(source: Source, shape: Shape) -> Iterator[counterparts.ExportNote]:
    job = source.job
    if shape.tpu is not None and shape.tasks != job.replicas:
        tpu_type = describe(shape.tpu.name, job.replicas // job.slices if job.is_gang else 1)
        pods = f"{count(shape.pods, 'pod')} with {count(shape.tpu.chips_per_vm, 'chip')} each"
        yield counterparts.lost_note(
            "tpu", f"{tpu_type} is {pods} on GKE: IRIS_NUM_TASKS is {shape.tasks}, not {job.replicas}"
        )
    if pod_script.hosts_length(source, shape.slices, shape.pods) > MAX_STRING:
        yield counterparts.lost_note(
            "name", "the names of all pods take more than a variable can hold: IRIS_HOSTS is empty"
        )
