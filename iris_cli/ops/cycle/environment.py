"""Environment variables of a task.

A task outside a gang is a group of one: its own host is the only host. Every `IRIS_*` variable is always set,
if need be to "", so that programs work under `set -u`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from msgspec import Struct, structs

from iris_cli.core import Attempt, AttemptId, Cluster, Job, JobRequest, Worker, constraints
from iris_cli.core.model.job import EnvPreset, Lines
from iris_cli.errors import IrisError
from iris_cli.journal.state_dir import StateDir

JAX_PORT = 8476  # open in the default TPU firewall; JAX's newer default is not
MEGASCALE_PORT = 8081  # also the default of Ray and of manual multislice launches
_FIRST_PORT = 20_000
_PORTS = 10_000


class Place(Struct, frozen=True, kw_only=True):
    """Placement of a task: its attempt, its worker, and the workers of all ranks of its round in order."""

    attempt_id: AttemptId
    attempt: Attempt
    job: Job
    worker: Worker
    ranks: tuple[Worker, ...]

    @property
    def index(self) -> int:
        return self.attempt_id.task.index

    @property
    def rank(self) -> int:
        return self.index if self.job.is_gang else 0

    @property
    def slice_index(self) -> int:
        return self.rank // max(1, self.job.replicas // self.job.slices)

    @property
    def on_tpu(self) -> bool:
        return self.job.resources.device_type == "tpu"


def place_of(cluster: Cluster, attempt_id: AttemptId) -> Place:
    """Return the placement of an attempt, as input for its environment. Raises KeyError."""
    attempt = cluster.attempt(attempt_id)
    job = cluster.jobs[attempt_id.task.job]
    worker = cluster.workers[attempt.worker]
    ranks: tuple[Worker, ...] = (worker,)
    if job.is_gang:
        ranks = tuple(cluster.workers[task.attempts[-1].worker] for task in cluster.tasks_of(job.id))
    return Place(attempt_id=attempt_id, attempt=attempt, job=job, worker=worker, ranks=ranks)


def environment(place: Place, default_env: Mapping[str, str], secrets: Mapping[str, str]) -> dict[str, str]:
    """Return all variables of a task. Precedence, lowest first: defaults, preset, the job's variables, iris."""
    job, env = place.job, dict(default_env)
    if job.env_preset is not None:
        env |= _PRESETS[job.env_preset](place, [_in_url(worker) for worker in place.ranks])
    env |= {**job.env, **secrets}
    env["IRIS_TASK_DEFAULT_ENV_JSON"] = json.dumps(dict(default_env))
    ports = zip(job.ports, place.attempt.ports, strict=False)
    env |= {f"IRIS_PORT_{name.upper()}": str(port) for name, port in ports}
    return env | _identity(place) | _group(place) | _device(place)


def array_variables(place: Place, line: str | None) -> dict[str, str]:
    """Return the array variables of a task: its index, and its line of the file if there is one."""
    if not place.job.indexes:
        return {}
    index = {"IRIS_ARRAY_INDEX": str(place.job.indexes[place.index])}
    return index if line is None else {**index, "IRIS_EACH_LINE": line}


def _identity(place: Place) -> dict[str, str]:
    worker = place.worker
    return {
        "IRIS_JOB_ID": place.job.id,
        "IRIS_TASK_ID": str(place.attempt_id.task),
        "IRIS_TASK_INDEX": str(place.index),
        "IRIS_NUM_TASKS": str(place.job.replicas),
        "IRIS_ATTEMPT": str(place.attempt_id.number),
        "IRIS_WORKER_ID": worker.id,
        "IRIS_WORKER_ATTRIBUTES": json.dumps({key: each.value for key, each in worker.attributes.items()}),
        "IRIS_JOB_CONSTRAINTS": constraints.constraints_to_json(place.job.constraints),
        "IRIS_SCALE_GROUP": _attribute(worker, constraints.SCALE_GROUP_ATTRIBUTE_KEY),
        "IRIS_SLICE": _attribute(worker, constraints.TPU_NAME_ATTRIBUTE_KEY),
    }


def _attribute(worker: Worker, key: str) -> str:
    value = worker.attributes.get(key)
    return "" if value is None else str(value.value)


def _group(place: Place) -> dict[str, str]:
    """Return the variables that name the peers and the coordinator."""
    job, first = place.job, _in_url(place.ranks[0])
    slices, index = str(job.slices), str(place.slice_index)
    env = {
        "IRIS_HOSTS": ",".join(worker.connection.host for worker in place.ranks),
        "IRIS_COORDINATOR_ADDRESS": f"{first}:{coordinator_port(place)}",
        "IRIS_NUM_SLICES": slices,
        "IRIS_SLICE_INDEX": index,
    }
    if place.on_tpu and job.is_gang:
        # Slice peers come from the metadata server: these variables must not contradict it.
        env["JAX_COORDINATOR_PORT"] = str(JAX_PORT)
        if job.slices > 1:
            env |= {
                "MEGASCALE_COORDINATOR_ADDRESS": f"{first}:{MEGASCALE_PORT}",
                "MEGASCALE_PORT": str(MEGASCALE_PORT),
                "MEGASCALE_NUM_SLICES": slices,
                "MEGASCALE_SLICE_ID": index,
            }
    return env


def _in_url(worker: Worker) -> str:
    """Return a host for use before `:port`: an IPv6 address gets brackets."""
    host = worker.connection.host
    return f"[{host}]" if ":" in host else host


def coordinator_port(place: Place) -> int:
    """Return the port of the first rank's coordinator. Off TPU it changes per attempt: the old port may linger."""
    if place.on_tpu:
        return JAX_PORT
    turn = place.attempt.round if place.job.is_gang else place.attempt_id.number
    alone = 0 if place.job.is_gang else place.index  # its siblings may be on the same host
    return _FIRST_PORT + (place.job.order * 97 + turn * 7 + alone) % _PORTS


def listens(place: Place) -> bool:
    """Return True if this task's host needs the coordinator port free."""
    return place.rank == 0 and (place.job.is_gang or place.job.env_preset is not None)


def _jax(place: Place, hosts: list[str]) -> dict[str, str]:
    # JAX reads process count and index only from SLURM_*, and derives the port from the job id if no address
    # is set: set both.
    port, count = str(coordinator_port(place)), str(len(hosts))
    return {
        "SLURM_JOB_ID": port,
        "SLURM_STEP_NODELIST": ",".join(hosts),
        "SLURM_STEP_NUM_NODES": count,
        "SLURM_NTASKS": count,
        "SLURM_PROCID": str(place.rank),
        "SLURM_LOCALID": "0",
        "JAX_COORDINATOR_ADDRESS": f"{hosts[0]}:{port}",
    }


def _slurm(place: Place, hosts: list[str]) -> dict[str, str]:
    env = _jax(place, hosts)
    del env["JAX_COORDINATOR_ADDRESS"]
    nodes = dict.fromkeys(("SLURM_JOB_NODELIST", "SLURM_NODELIST"), ",".join(hosts))
    counts = dict.fromkeys(("SLURM_JOB_NUM_NODES", "SLURM_NNODES"), str(len(hosts)))
    return {
        **env,
        **nodes,
        **counts,
        "SLURM_JOB_NAME": place.job.id,
        "SLURM_NODEID": str(place.rank),
        "SLURM_NTASKS_PER_NODE": "1",
    }


def _torchrun(place: Place, hosts: list[str]) -> dict[str, str]:
    rank, count = str(place.rank), str(len(hosts))
    ranks = dict.fromkeys(("RANK", "GROUP_RANK", "ROLE_RANK"), rank)
    sizes = dict.fromkeys(("WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"), count)
    return {
        **ranks,
        **sizes,
        "MASTER_ADDR": place.ranks[0].connection.host,
        "MASTER_PORT": str(coordinator_port(place)),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
    }


_PRESETS: dict[EnvPreset, Callable[[Place, list[str]], dict[str, str]]] = {
    EnvPreset.JAX: _jax,
    EnvPreset.SLURM: _slurm,
    EnvPreset.TORCHRUN: _torchrun,
}


def _device(place: Place) -> dict[str, str]:
    """Return the variables that restrict a task to its devices: a CPU task must not take its host's chips."""
    device = place.job.resources.device
    if device is not None and device.kind == "gpu":
        return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, place.attempt.gpus))}
    return {} if place.on_tpu else device_guards(place.worker)


def device_guards(worker: Worker) -> dict[str, str]:
    """Return the variables that hide a host's accelerators from a program; empty if it has none."""
    host = worker.attributes.get(constraints.DEVICE_TYPE_ATTRIBUTE_KEY)
    if host is None or host.value == "cpu":
        return {}
    return {
        "JAX_PLATFORMS": "cpu",
        "PJRT_DEVICE": "CPU",
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_VISIBLE_CHIPS": "",
        "CUDA_VISIBLE_DEVICES": "",
    }


def text_of(lines: Sequence[str]) -> bytes:
    """Return the lines as stored: one per line, UTF-8."""
    return "".join(f"{line}\n" for line in lines).encode()


def with_lines(request: JobRequest) -> JobRequest:
    """Return the request with the hash, count and size of its lines, as the log records them."""
    if request.each_line is None:
        return request
    from hashlib import sha256

    text = text_of(request.each_line)
    return structs.replace(
        request, lines=Lines(hash=sha256(text).hexdigest(), count=len(request.each_line), size=len(text))
    )


def line_of(state: StateDir, job: Job, index: int) -> str | None:
    """Return the line of the task with this index, or None. Raises ValueError if the stored file is gone."""
    if job.each_line is None:
        return None
    try:
        return _lines(state, job.each_line.hash)[job.indexes[index]]
    except IrisError as error:
        raise ValueError(f"its --each-line file is gone: {error.message}") from error


@lru_cache(maxsize=4)
def _lines(state: StateDir, digest: str) -> tuple[str, ...]:
    """Return the stored lines, cached: the hash fixes the content."""
    import gzip  # slow to load, and few jobs need it

    with state.lines.open(digest) as file:
        return tuple(gzip.decompress(file.read()).decode().split("\n"))
