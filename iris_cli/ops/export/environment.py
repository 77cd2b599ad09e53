"""Task variables of an export: fixed values, and values that the exported script computes."""

from __future__ import annotations

import json
from collections.abc import Mapping

from iris_cli.core import constraints
from iris_cli.core.model.job import EnvPreset, Job
from iris_cli.ops.cycle.environment import JAX_PORT, MEGASCALE_PORT
from iris_cli.ops.export.source import Source


def fixed_variables(source: Source, tasks: int, slices: int) -> dict[str, str]:
    """Return the variables that are the same for all tasks. The worker is unknown, so its attributes are empty."""
    job = source.job
    return {
        "IRIS_JOB_ID": job.id,
        "IRIS_NUM_TASKS": str(tasks),
        "IRIS_NUM_SLICES": str(slices),
        "IRIS_JOB_CONSTRAINTS": constraints.constraints_to_json(job.constraints),
        "IRIS_WORKER_ATTRIBUTES": "{}",
        "IRIS_SCALE_GROUP": "",
        "IRIS_TASK_DEFAULT_ENV_JSON": json.dumps(dict(source.default_env)),
    }


def named_ports(job: Job, base: str) -> dict[str, str]:
    """Return a shell expression for each named port: the expression `base`, plus the position of the name."""
    return {f"IRIS_PORT_{name.upper()}": f"$(({base} + {n}))" for n, name in enumerate(job.ports, 1)}


def rank_variables(job: Job, ranks: int, slices: int) -> dict[str, str]:
    """Return the preset's variables, with which a rank finds its peers. They are computed from IRIS_* variables."""
    set_by_job = {*job.env, *job.secrets}
    preset = _PRESETS[job.env_preset](str(ranks)) if job.env_preset is not None else {}
    found = {name: value for name, value in preset.items() if name not in set_by_job}
    if job.resources.device_type == "tpu" and (job.is_gang or ranks > 1):
        found["JAX_COORDINATOR_PORT"] = str(JAX_PORT)
        if slices > 1:
            found |= {
                "MEGASCALE_COORDINATOR_ADDRESS": f"{_FIRST}:{MEGASCALE_PORT}",
                "MEGASCALE_PORT": str(MEGASCALE_PORT),
                "MEGASCALE_NUM_SLICES": str(slices),
                "MEGASCALE_SLICE_ID": "$IRIS_SLICE_INDEX",
            }
    return found


_FIRST, _PORT = "${IRIS_COORDINATOR_ADDRESS%:*}", "${IRIS_COORDINATOR_ADDRESS##*:}"


def _torchrun(count: str) -> Mapping[str, str]:
    return {
        **dict.fromkeys(("RANK", "GROUP_RANK", "ROLE_RANK"), "$IRIS_RANK"),
        **dict.fromkeys(("WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"), count),
        "MASTER_ADDR": _FIRST,
        "MASTER_PORT": _PORT,
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
    }


def _jax(count: str) -> Mapping[str, str]:
    return {"JAX_COORDINATOR_ADDRESS": "$IRIS_COORDINATOR_ADDRESS", **_steps(count)}


def _steps(count: str) -> Mapping[str, str]:
    return {
        "SLURM_JOB_ID": _PORT,
        "SLURM_STEP_NODELIST": "$IRIS_HOSTS",
        "SLURM_STEP_NUM_NODES": count,
        "SLURM_NTASKS": count,
        "SLURM_PROCID": "$IRIS_RANK",
        "SLURM_LOCALID": "0",
    }


def _slurm(count: str) -> Mapping[str, str]:
    return {
        **_steps(count),
        **dict.fromkeys(("SLURM_JOB_NODELIST", "SLURM_NODELIST"), "$IRIS_HOSTS"),
        **dict.fromkeys(("SLURM_JOB_NUM_NODES", "SLURM_NNODES"), count),
        "SLURM_JOB_NAME": "$IRIS_JOB_ID",
        "SLURM_NODEID": "$IRIS_RANK",
        "SLURM_NTASKS_PER_NODE": "1",
    }


_PRESETS = {EnvPreset.JAX: _jax, EnvPreset.SLURM: _slurm, EnvPreset.TORCHRUN: _torchrun}
