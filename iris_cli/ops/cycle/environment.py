"""Environment variables of a task.

A task that is not in a gang counts as a gang with one rank. Every `IRIS_*` variable is always set, to "" if it has no
value, so that programs work under `set -u`.
"""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache

from msgspec import Struct, structs

from iris_cli.core import Attempt, AttemptId, Cluster, Job, JobRequest, Worker, constraints
from iris_cli.core.attributes import GPU_INDEXES_ATTRIBUTE_KEY
from iris_cli.core.model.job import EnvPreset, Lines
from iris_cli.errors import IrisError
from iris_cli.journal.state_dir import StateDir

# JAX's old default port. The default firewall of TPUs opens it, but not JAX's new default port.
JAX_PORT = 8476
MEGASCALE_PORT = 8081  # also the default of Ray and of multislice launches without iris
_FIRST_PORT = 20_000  # first port of coordinators on hosts that are not TPU VMs
_PORTS = 10_000  # number of ports for such coordinators


class Placement(Struct, frozen=True, kw_only=True):
    """Placement of a task: its attempt and worker, and the workers of all ranks of its round, by rank."""

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
    def on_tpu(self) -> bool:
        return self.job.resources.device_type == "tpu"


def placement_of(cluster: Cluster, attempt_id: AttemptId) -> Placement:
    """Return the placement of an attempt. Raises KeyError."""
    attempt = cluster.attempt(attempt_id)
    job = cluster.jobs[attempt_id.task.job]
    worker = cluster.workers[attempt.worker]
    ranks: tuple[Worker, ...] = (worker,)
    if job.is_gang:
        ranks = tuple(cluster.workers[task.attempts[-1].worker] for task in cluster.tasks_of(job.id))
    return Placement(attempt_id=attempt_id, attempt=attempt, job=job, worker=worker, ranks=ranks)


def environment(
    placement: Placement, default_env: Mapping[str, str], secrets: Mapping[str, str]
) -> dict[str, str]:
    """Return all variables of a task.

    Variables of the preset override `default_env`. The job's variables override both. Secrets and the variables of iris
    override all others.
    """
    job, env = placement.job, dict(default_env)
    if job.env_preset is not None:
        hosts, port = [_host_in_url(worker) for worker in placement.ranks], str(coordinator_port(placement))
        env |= preset_variables(
            job.env_preset,
            job=job.id,
            rank=str(placement.rank),
            count=str(len(hosts)),
            hosts=",".join(hosts),
            address=f"{hosts[0]}:{port}",
            first_host=placement.ranks[0].connection.host,
            port=port,
        )
    env |= {**job.env, **secrets}
    env["IRIS_TASK_DEFAULT_ENV_JSON"] = json.dumps(dict(default_env))
    ports = zip(job.ports, placement.attempt.ports, strict=False)
    env |= {f"IRIS_PORT_{name.upper()}": str(port) for name, port in ports}
    return env | _identity_variables(placement) | _gang_variables(placement) | _device_variables(placement)


def array_variables(placement: Placement, line: str | None) -> dict[str, str]:
    """Return the variables of an array task: its index, and its `line` of the `--each-line` file (None: no file)."""
    if not placement.job.indexes:
        return {}
    index = {"IRIS_ARRAY_INDEX": str(placement.job.indexes[placement.index])}
    return index if line is None else {**index, "IRIS_EACH_LINE": line}


def _identity_variables(placement: Placement) -> dict[str, str]:
    worker = placement.worker
    return {
        "IRIS_JOB_ID": placement.job.id,
        "IRIS_TASK_ID": str(placement.attempt_id.task),
        "IRIS_TASK_INDEX": str(placement.index),
        "IRIS_NUM_TASKS": str(placement.job.replicas),
        "IRIS_ATTEMPT": str(placement.attempt_id.number),
        "IRIS_WORKER_ID": worker.id,
        "IRIS_WORKER_ATTRIBUTES": json.dumps({key: each.value for key, each in worker.attributes.items()}),
        "IRIS_JOB_CONSTRAINTS": constraints.constraints_to_json(placement.job.constraints),
        "IRIS_SCALE_GROUP": _attribute(worker, constraints.SCALE_GROUP_ATTRIBUTE_KEY),
        "IRIS_SLICE": _attribute(worker, constraints.TPU_NAME_ATTRIBUTE_KEY),
    }


def _attribute(worker: Worker, key: str) -> str:
    value = worker.attributes.get(key)
    return "" if value is None else str(value.value)


def _gang_variables(placement: Placement) -> dict[str, str]:
    """Return the variables that name the hosts of all ranks, the coordinator and the slices."""
    job, first = placement.job, _host_in_url(placement.ranks[0])
    slices, index = str(job.slices), str(placement.rank // max(1, job.replicas // job.slices))
    env = {
        "IRIS_HOSTS": ",".join(worker.connection.host for worker in placement.ranks),
        "IRIS_COORDINATOR_ADDRESS": f"{first}:{coordinator_port(placement)}",
        "IRIS_NUM_SLICES": slices,
        "IRIS_SLICE_INDEX": index,
    }
    if placement.on_tpu and job.is_gang:
        # Libraries read the peers of a slice from the metadata server. These variables must agree with its answer.
        env["JAX_COORDINATOR_PORT"] = str(JAX_PORT)
        if job.slices > 1:
            env |= multislice_variables(first, slices, index)
    return env


def multislice_variables(first_host: str, slices: str, slice_index: str) -> dict[str, str]:
    """Return the variables of a task in a gang on several TPU slices. The arguments are values or shell expressions."""
    return {
        "MEGASCALE_COORDINATOR_ADDRESS": f"{first_host}:{MEGASCALE_PORT}",
        "MEGASCALE_PORT": str(MEGASCALE_PORT),
        "MEGASCALE_NUM_SLICES": slices,
        "MEGASCALE_SLICE_ID": slice_index,
    }


def _host_in_url(worker: Worker) -> str:
    """Return a worker's host for use before `:port`. An IPv6 address gets brackets."""
    host = worker.connection.host
    return f"[{host}]" if ":" in host else host


def coordinator_port(placement: Placement) -> int:
    """Return the port of rank 0's coordinator.

    On hosts that are not TPU VMs, each attempt gets a different port, because the port of the previous attempt may
    still be in use.
    """
    if placement.on_tpu:
        return JAX_PORT
    number = placement.attempt.round if placement.job.is_gang else placement.attempt_id.number
    index = 0 if placement.job.is_gang else placement.index  # tasks of one job may be on the same host
    return _FIRST_PORT + (placement.job.order * 97 + number * 7 + index) % _PORTS


def needs_coordinator_port(placement: Placement) -> bool:
    """Return True if the coordinator may listen on this task's host, so that its port must be free on that host."""
    return placement.rank == 0 and (placement.job.is_gang or placement.job.env_preset is not None)


def preset_variables(
    preset: EnvPreset,
    *,
    job: str,
    rank: str,
    count: str,
    hosts: str,
    address: str,
    first_host: str,
    port: str,
) -> dict[str, str]:
    """Return the variables of a preset. The arguments are values, or shell expressions for an exported job.

    `count` is the number of ranks, `hosts` are their hosts separated by commas. `address` is the `host:port` of the
    coordinator on the first host.
    """
    if preset is EnvPreset.TORCHRUN:
        return {
            **dict.fromkeys(("RANK", "GROUP_RANK", "ROLE_RANK"), rank),
            **dict.fromkeys(("WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"), count),
            "MASTER_ADDR": first_host,
            "MASTER_PORT": port,
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
        }
    slurm_step = {
        "SLURM_JOB_ID": port,
        "SLURM_STEP_NODELIST": hosts,
        "SLURM_STEP_NUM_NODES": count,
        "SLURM_NTASKS": count,
        "SLURM_PROCID": rank,
        "SLURM_LOCALID": "0",
    }
    if preset is EnvPreset.JAX:
        # JAX reads the number of processes and the process's index only from SLURM_*. The coordinator's address is set,
        # too, because JAX would compute its port from the job id.
        return {**slurm_step, "JAX_COORDINATOR_ADDRESS": address}
    return {
        **slurm_step,
        **dict.fromkeys(("SLURM_JOB_NODELIST", "SLURM_NODELIST"), hosts),
        **dict.fromkeys(("SLURM_JOB_NUM_NODES", "SLURM_NNODES"), count),
        "SLURM_JOB_NAME": job,
        "SLURM_NODEID": rank,
        "SLURM_NTASKS_PER_NODE": "1",
    }


def _device_variables(placement: Placement) -> dict[str, str]:
    """Return the variables that restrict a task to its devices. A CPU task gets none of its host's chips."""
    device = placement.job.resources.device
    if device is not None and device.kind == "gpu":
        # If the worker may use only some GPUs of its host, an attribute lists them. Otherwise they are 0, 1, 2, ...
        granted = list(filter(None, _attribute(placement.worker, GPU_INDEXES_ATTRIBUTE_KEY).split(",")))
        has_list = len(granted) == placement.worker.gpus
        gpus = (granted[index] if has_list else str(index) for index in placement.attempt.gpus)
        return {"CUDA_VISIBLE_DEVICES": ",".join(gpus)}
    return {} if placement.on_tpu else device_hiding_variables(placement.worker)


def device_hiding_variables(worker: Worker) -> dict[str, str]:
    """Return the variables that hide a host's accelerators from a program; {} for a CPU host."""
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


def encode_lines(lines: Sequence[str]) -> bytes:
    """Return the content of a stored file with these lines, in UTF-8."""
    return "".join(f"{line}\n" for line in lines).encode()


def hash_lines(request: JobRequest) -> JobRequest:
    """Return the request with the hash, number and size of its lines. The log does not record the lines."""
    if request.each_line is None:
        return request
    from hashlib import sha256

    text = encode_lines(request.each_line)
    return structs.replace(
        request, lines=Lines(hash=sha256(text).hexdigest(), count=len(request.each_line), size=len(text))
    )


def read_line(state: StateDir, job: Job, index: int) -> str | None:
    """Return the task's line of the `--each-line` file, or None. Raises ValueError if the stored file is missing."""
    if job.each_line is None:
        return None
    try:
        return _read_lines(state, job.each_line.hash)[job.indexes[index]]
    except IrisError as error:
        raise ValueError(f"its --each-line file is gone: {error.message}") from error


@lru_cache(maxsize=4)
def _read_lines(state: StateDir, digest: str) -> tuple[str, ...]:
    """Return the stored lines with this hash. A cached result stays valid, because the hash determines the content."""
    import gzip  # slow to load, and few jobs need it

    with state.lines.open(digest) as file:
        return tuple(gzip.decompress(file.read()).decode().split("\n"))
