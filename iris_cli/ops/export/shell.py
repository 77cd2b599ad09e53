"""Shell scripts of an exported job: words and comments in printable characters, and the variables of its tasks.

Variables that only the scripts use begin with `IRIS_`, because a job can't set variables with this prefix.
"""

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from iris_cli.core import Job, constraints
from iris_cli.ops.cycle.environment import JAX_PORT, multislice_variables, preset_variables
from iris_cli.ops.export.source import Source

_FIRST_HOST = "${IRIS_COORDINATOR_ADDRESS%:*}"


def quoted(text: str) -> str:
    """Return the text as one word of a POSIX shell. Control characters except tab and line feed are escaped."""
    if text.replace("\t", "").replace("\n", "").isprintable():
        return shlex.quote(text)
    return "".join(_pieces(text))


def _pieces(text: str) -> Iterator[str]:
    for is_shown, letters in groupby(text, lambda letter: letter.isprintable() or letter in "\t\n"):
        piece = "".join(letters)
        octal = "".join(f"\\{byte:03o}" for byte in piece.encode())
        yield shlex.quote(piece) if is_shown else f"\"$(printf '{octal}')\""


def comment(text: str) -> str:
    """Return a one-line comment for shell scripts and YAML."""
    return "# " + "".join(letter if letter.isprintable() else "?" for letter in text)


def exports(variables: Mapping[str, str]) -> Iterator[str]:
    """Yield lines that set variables to fixed values."""
    return (f"export {name}={quoted(value)}" for name, value in variables.items())


def computed_exports(variables: Mapping[str, str]) -> Iterator[str]:
    """Yield lines that set variables to shell expressions. The lines add no single quotes to the expressions."""
    return (f'export {name}="{value}"' for name, value in variables.items())


def task_index_lines(indexes: Iterable[int]) -> Iterator[str]:
    """Yield lines that set IRIS_TASK_INDEX to the position of Slurm's array index SLURM_ARRAY_TASK_ID in `indexes`."""
    yield "IRIS_TASK_INDEX=0"
    yield f"for IRIS_INDEX in {' '.join(map(str, indexes))}; do"
    yield '    [ "$IRIS_INDEX" != "$SLURM_ARRAY_TASK_ID" ] || break'
    yield "    IRIS_TASK_INDEX=$((IRIS_TASK_INDEX + 1))"
    yield "done"


def array_index_lines(indexes: Iterable[int]) -> Iterator[str]:
    """Yield lines that set IRIS_ARRAY_INDEX to the element of `indexes` at the position IRIS_TASK_INDEX."""
    yield "IRIS_AT=$IRIS_TASK_INDEX"
    yield f"for IRIS_ARRAY_INDEX in {' '.join(map(str, indexes))}; do"
    yield '    [ "$IRIS_AT" != 0 ] || break'
    yield "    IRIS_AT=$((IRIS_AT - 1))"
    yield "done"
    yield "export IRIS_ARRAY_INDEX"


def each_line_lines(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines that set IRIS_EACH_LINE to the line of the task IRIS_TASK_INDEX."""
    yield "case $IRIS_TASK_INDEX in"
    yield from (f"{task}) IRIS_EACH_LINE={quoted(line)} ;;" for task, line in enumerate(lines))
    yield from ("esac", "export IRIS_EACH_LINE")


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
