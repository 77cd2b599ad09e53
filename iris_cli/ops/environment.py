"""The environment of a task: what `iris` tells a program about its place in the world."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from iris_cli.core.cluster import Cluster
from iris_cli.core.constraints import (
    DEVICE_TYPE_ATTRIBUTE_KEY,
    SCALE_GROUP_ATTRIBUTE_KEY,
    TPU_NAME_ATTRIBUTE_KEY,
    constraints_to_json,
)
from iris_cli.core.dataclass import dataclass, field
from iris_cli.core.ids import AttemptId
from iris_cli.core.job import EnvPreset, Job
from iris_cli.core.task import Attempt
from iris_cli.core.worker import Worker

JAX_PORT = 8476  # open in the default TPU firewall; JAX's own default moved to a port that isn't
_FIRST_PORT = 20_000
_PORTS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a task stands: its attempt, its worker, and all ranks of its round in order."""

    attempt_id: AttemptId
    attempt: Attempt
    job: Job
    worker: Worker
    ranks: tuple[Worker, ...] = field(default_factory=tuple)

    @property
    def index(self) -> int:
        return self.attempt_id.task.index

    @property
    def on_tpu(self) -> bool:
        device = self.job.resources.device
        return device is not None and device.kind == "tpu"


def place_of(cluster: Cluster, attempt_id: AttemptId) -> Place:
    """Look up everything the environment of an attempt is made of. Raises KeyError."""
    attempt = cluster.attempt(attempt_id)
    job = cluster.jobs[attempt_id.task.job]
    worker = cluster.workers[attempt.worker]
    ranks: tuple[Worker, ...] = ()
    if job.is_gang:
        ranks = tuple(cluster.workers[task.attempts[-1].worker] for task in cluster.tasks_of(job.id))
    return Place(attempt_id=attempt_id, attempt=attempt, job=job, worker=worker, ranks=ranks)


def environment(place: Place, default_env: Mapping[str, str], secrets: Mapping[str, str]) -> dict[str, str]:
    """All variables of a task, lowest precedence first: defaults, the job's own, then what iris says."""
    job = place.job
    env = {**default_env, **job.env, **secrets, **_identity(place)}
    env["IRIS_TASK_DEFAULT_ENV_JSON"] = json.dumps(dict(default_env))
    if job.is_gang:
        env |= _gang(place)
    return env | _device(place)


def _identity(place: Place) -> dict[str, str]:
    worker = place.worker
    group = worker.attributes.get(SCALE_GROUP_ATTRIBUTE_KEY)
    env = {
        "IRIS_JOB_ID": place.job.id,
        "IRIS_TASK_ID": str(place.attempt_id.task),
        "IRIS_TASK_INDEX": str(place.index),
        "IRIS_NUM_TASKS": str(place.job.replicas),
        "IRIS_ATTEMPT": str(place.attempt_id.number),
        "IRIS_WORKER_ID": worker.id,
        "IRIS_WORKER_ATTRIBUTES": json.dumps({key: each.value for key, each in worker.attributes.items()}),
        "IRIS_JOB_CONSTRAINTS": constraints_to_json(place.job.constraints),
    }
    if group is not None:
        env["IRIS_SCALE_GROUP"] = str(group.value)
    return env


def _gang(place: Place) -> dict[str, str]:
    job = place.job
    hosts = [worker.connection.host for worker in place.ranks]
    port = coordinator_port(place)
    per_slice = job.replicas // job.slices
    slice_name = place.worker.attributes.get(TPU_NAME_ATTRIBUTE_KEY)
    env = {
        "IRIS_HOSTS": ",".join(hosts),
        "IRIS_COORDINATOR_ADDRESS": f"{hosts[0]}:{port}",
        "IRIS_NUM_SLICES": str(job.slices),
        "IRIS_SLICE_INDEX": str(place.index // per_slice),
    }
    if slice_name is not None:
        env["IRIS_SLICE"] = str(slice_name.value)
    if place.on_tpu:
        env["JAX_COORDINATOR_PORT"] = str(JAX_PORT)
        if job.slices > 1:
            env |= {
                "MEGASCALE_COORDINATOR_ADDRESS": hosts[0],
                "MEGASCALE_NUM_SLICES": str(job.slices),
                "MEGASCALE_SLICE_ID": str(place.index // per_slice),
            }
    if job.env_preset is not None:
        env |= _PRESETS[job.env_preset](place, hosts, port)
    return env


def coordinator_port(place: Place) -> int:
    """Where the first rank of a gang listens. Off TPUs another one for each round, for the old one may linger."""
    if place.on_tpu:
        return JAX_PORT
    return _FIRST_PORT + (place.job.order * 97 + place.attempt.round * 7) % _PORTS


def _slurm(place: Place, hosts: list[str], port: int) -> dict[str, str]:
    # JAX reads these for a plain initialize(), and derives its port from the job id: keep that one apart too.
    return {
        "SLURM_JOB_ID": str(port),
        "SLURM_STEP_NODELIST": ",".join(hosts),
        "SLURM_STEP_NUM_NODES": str(len(hosts)),
        "SLURM_NTASKS": str(len(hosts)),
        "SLURM_PROCID": str(place.index),
        "SLURM_LOCALID": "0",
    }


def _jax(place: Place, hosts: list[str], port: int) -> dict[str, str]:
    # Number and index of processes are not read from JAX_*: the SLURM_* variables carry them.
    return {**_slurm(place, hosts, port), "JAX_COORDINATOR_ADDRESS": f"{hosts[0]}:{port}"}


def _torchrun(place: Place, hosts: list[str], port: int) -> dict[str, str]:
    return {
        "MASTER_ADDR": hosts[0],
        "MASTER_PORT": str(port),
        "RANK": str(place.index),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(len(hosts)),
        "LOCAL_WORLD_SIZE": "1",
    }


_PRESETS: dict[EnvPreset, Callable[[Place, list[str], int], dict[str, str]]] = {
    EnvPreset.JAX: _jax,
    EnvPreset.SLURM: _slurm,
    EnvPreset.TORCHRUN: _torchrun,
}


def _device(place: Place) -> dict[str, str]:
    """What keeps a task on its own devices: a CPU task must not grab the chips of its host."""
    device = place.job.resources.device
    host = place.worker.attributes.get(DEVICE_TYPE_ATTRIBUTE_KEY)
    if device is not None and device.kind == "gpu":
        return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, place.attempt.gpus))}
    if place.on_tpu or host is None or host.value == "cpu":
        return {}
    return {
        "JAX_PLATFORMS": "cpu",
        "PJRT_DEVICE": "CPU",
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_VISIBLE_CHIPS": "",
        "CUDA_VISIBLE_DEVICES": "",
    }
