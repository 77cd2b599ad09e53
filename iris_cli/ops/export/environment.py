"""Variables of the tasks of an exported job: fixed values, and values that the exported script computes."""

from __future__ import annotations

import json
from collections.abc import Mapping

from iris_cli.core import constraints
from iris_cli.core.model.job import Job
from iris_cli.ops.cycle.environment import JAX_PORT, multislice_variables, preset_variables
from iris_cli.ops.export.source import Source


def fixed_variables(source: Source, tasks: int, slices: int) -> dict[str, str]:
    """Return the variables that are the same for all tasks. Variables about the worker are empty."""
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
    """Return a shell expression for each named port: the expression `base` plus the position of the name, from 1."""
    return {
        f"IRIS_PORT_{name.upper()}": f"$(({base} + {position}))" for position, name in enumerate(job.ports, 1)
    }


def rank_variables(job: Job, ranks: int, slices: int) -> dict[str, str]:
    """Return the variables by which libraries find the peers of a rank, as shell expressions with IRIS_* variables."""
    set_by_job = {*job.env, *job.secrets}
    preset: Mapping[str, str] = {}
    if job.env_preset is not None:
        preset = preset_variables(
            job.env_preset,
            job="$IRIS_JOB_ID",
            rank="$IRIS_RANK",
            count=str(ranks),
            hosts="$IRIS_HOSTS",
            address="$IRIS_COORDINATOR_ADDRESS",
            first_host=_FIRST_HOST,
            port="${IRIS_COORDINATOR_ADDRESS##*:}",
        )
    variables = {name: value for name, value in preset.items() if name not in set_by_job}
    if job.resources.device_type == "tpu" and (job.is_gang or ranks > 1):
        variables["JAX_COORDINATOR_PORT"] = str(JAX_PORT)
        if slices > 1:
            variables |= multislice_variables(_FIRST_HOST, str(slices), "$IRIS_SLICE_INDEX")
    return variables


_FIRST_HOST = "${IRIS_COORDINATOR_ADDRESS%:*}"
