"""Slurm batch script: options for `sbatch`, and an `srun` that sets every rank's environment.

The script uses only POSIX sh, and commands of Slurm and coreutils. It creates `iris-out/JOB-ID` in the directory from
which it is submitted. There it stores the outputs of the tasks and the exit code of the rank that failed first.
"""

from collections.abc import Iterator
from math import ceil

from iris_cli.core import TPU_NAME_ATTRIBUTE_KEY, Priority, count, format_duration, format_indexes, pattern
from iris_cli.core.model.job import SIGNALS, Job
from iris_cli.core.model.variables import is_reserved_by_shells
from iris_cli.core.resources import AUTO, DEFAULT_RESOURCES
from iris_cli.errors import UsageError
from iris_cli.ops.cycle.environment import JAX_PORT
from iris_cli.ops.export import shell
from iris_cli.ops.export.counterparts import (
    UNLIMITED,
    Engine,
    ExportNote,
    lost_constraints,
    lost_fields,
    lost_note,
    to_do_note,
)
from iris_cli.ops.export.source import Source

MAX_BYTES = 4 << 20  # maximum size of a script in bytes, which is Slurm's default `max_script_size`

_PARTITION = pattern(r"[A-Za-z0-9_][A-Za-z0-9_.,+-]{0,200}")
_MODEL = pattern(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,62}")
_DEFAULT_MAX_INDEX = 1000  # the largest array index that Slurm accepts by default (MaxArraySize)
_MAX_LEAD = 65535  # the longest time before the limit at which Slurm sends a signal, in seconds
_FIRST_PORT = "$((20000 + (SLURM_JOB_ID * 97 + ${SLURM_RESTART_COUNT:-0} * 7) % 10000))"


def batch_script(source: Source, queue: str | None) -> tuple[list[str], list[ExportNote]]:
    """Return the script's lines (without the header comments) and the notes. Raises UsageError. `queue`: the partition.

    The options come first, because `sbatch` reads no options after the first command.
    """
    if queue is not None and _PARTITION.fullmatch(queue) is None:
        raise UsageError(f"--queue {queue[:80]!r} is not the name of a partition", hint="`sinfo` lists them")
    options = [*_options(source), *([] if queue is None else [f"--partition={queue}"])]
    lines = [f"#SBATCH {option}" for option in options]
    lines += [*_first_lines(source), *_variable_lines(source), *_run_lines(source), *_last_lines(source)]
    if (size := sum(len(line.encode()) + 1 for line in lines)) > MAX_BYTES:
        raise UsageError(
            f"the script takes {size} bytes, and Slurm accepts {MAX_BYTES}", hint="put the data into a file"
        )
    return lines, [*lost_fields(source.job, Engine.SBATCH), *_notes(source)]


def _options(source: Source) -> Iterator[str]:
    job = source.job
    yield from (
        f"--job-name={job.id}",
        f"--nodes={job.replicas if job.is_gang else 1}",
        "--ntasks-per-node=1",
    )
    yield from _resource_options(job)
    if not source.starts_together:
        indexes = job.indexes or range(job.replicas)
        yield f"--array={format_indexes(indexes)}" + (f"%{job.max_running}" if job.max_running else "")
    if job.timeout:
        yield f"--time={ceil(job.timeout / 60)}"
    if job.signal is not None:
        sent = SIGNALS["WINCH"] if job.signal.name == "WINCH" else job.signal.name  # Slurm lacks this name
        yield f"--signal={sent}@{min(ceil(job.signal.lead), _MAX_LEAD)}"
    if job.after:
        yield "--kill-on-invalid-dep=yes"
    if job.priority is Priority.LOW:
        yield "--nice"
    yield "--requeue" if job.max_retries_preemption or job.max_retries_failure else "--no-requeue"
    yield "--open-mode=append"
    # As in iris, a task inherits no variables of the submitting shell except its secrets.
    yield f"--export={','.join(_secrets_from_shell(job)) or 'NONE'}"


def _resource_options(job: Job) -> Iterator[str]:
    """Yield the resource options. Values equal to iris's defaults are omitted, so that Slurm's defaults apply."""
    resources = job.resources
    yield from _core_options(job)
    if resources.memory != DEFAULT_RESOURCES.memory:
        yield f"--mem={ceil(resources.memory / (1 << 20))}M"
    device = resources.device
    if device is not None and device.kind == "gpu":
        model = f"{device.variant}:" if _is_model(device.variant) else ""
        yield f"--gres=gpu:{model}{device.count}"


def _core_options(job: Job) -> Iterator[str]:
    if job.resources.cpu != DEFAULT_RESOURCES.cpu:
        yield f"--cpus-per-task={ceil(job.resources.cpu)}"


def _is_model(variant: str) -> bool:
    return variant != AUTO and _MODEL.fullmatch(variant) is not None


def _secrets_from_shell(job: Job) -> list[str]:
    """Return the secrets that are read from the environment of `sbatch`."""
    return [name for name in job.secrets if name not in job.secret_files]


def _first_lines(source: Source) -> Iterator[str]:
    """Yield the lines that look up Slurm's commands, and other lines that need the shell's original PATH."""
    job = source.job
    yield from ("", "IRIS_STOPPING=", "trap IRIS_STOPPING=1 TERM")
    yield from (
        f"IRIS_{name.upper()}=$(command -v {name})" for name in ("srun", "scontrol", "squeue", "scancel")
    )
    if job.after:
        message = f"submit it with --dependency=afterok:ID: it runs after {', '.join(job.after)}"
        yield f'[ -n "${{SLURM_JOB_DEPENDENCY-}}" ] || {{ echo {shell.quoted(message)} >&2; exit 2; }}'
    if source.workdir:
        yield f"cd -- {shell.quoted(source.workdir)} || exit"
    yield f"IRIS_OUT=$SLURM_SUBMIT_DIR/iris-out/{job.id}-${{SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}}"
    yield 'mkdir -p "$IRIS_OUT" || exit'
    yield f"IRIS_SLURM_ID={'$SLURM_JOB_ID' if source.starts_together else '${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID'}"
    yield f"IRIS_FIRST_PORT={_FIRST_PORT}"
    yield 'IRIS_HOSTS=$("$IRIS_SCONTROL" show hostnames "$SLURM_JOB_NODELIST" | paste -s -d , -)'


def _variable_lines(source: Source) -> Iterator[str]:
    """Yield lines that set the variables that all ranks share. Later lines override earlier lines."""
    job = source.job
    yield from ("", "# The variables that all ranks have in common.")
    env = {**source.default_env, **job.env}
    yield from shell.exports({name: env[name] for name in env if not is_reserved_by_shells(name)})
    for name, file in job.secret_files.items():
        yield f"{name}=$(cat -- {shell.quoted(file)}) && export {name} || exit"
    yield from (f': "${{{name}:?export this secret before sbatch}}"' for name in _secrets_from_shell(job))
    yield from shell.exports(shell.fixed_variables(source, job.replicas, job.slices))
    port = str(JAX_PORT) if job.resources.device_type == "tpu" else "$IRIS_FIRST_PORT"
    yield from shell.computed_exports(
        {
            "IRIS_ATTEMPT": "${SLURM_RESTART_COUNT:-0}",
            "IRIS_WORKDIR": "$PWD",
            "IRIS_SLICE": "",
            "IRIS_HOSTS": "$IRIS_HOSTS",
            "IRIS_COORDINATOR_ADDRESS": f"${{IRIS_HOSTS%%,*}}:{port}",
            **shell.named_ports(job, "IRIS_FIRST_PORT"),
        }
    )
    if not source.starts_together:
        yield from shell.task_index_lines(job.indexes or range(job.replicas))
        yield "export IRIS_TASK_INDEX IRIS_SLICE_INDEX=0"
    if job.indexes:
        yield "export IRIS_ARRAY_INDEX=$SLURM_ARRAY_TASK_ID"
    if source.lines:
        yield from shell.each_line_lines(source.lines)


def _run_lines(source: Source) -> Iterator[str]:
    """Yield lines that define the program, and start the program on each node with `srun`."""
    job, env = source.job, {**source.default_env, **source.job.env}
    # A shell would treat these variables specially, so `env` sets them for the program.
    reserved = [f"{name}={value}" for name, value in env.items() if is_reserved_by_shells(name)]
    words = [*(("env", *reserved) if reserved else ()), *job.command]
    yield from ("", "# The program, and the script that each rank runs.")
    yield f"set -- {' '.join(map(shell.quoted, words))}"
    if job.setup:
        yield f"IRIS_SETUP={shell.quoted(job.setup)}"
    yield from (
        "IRIS_RECORD=$IRIS_OUT/failed-$IRIS_SLURM_ID-$IRIS_ATTEMPT",
        "IRIS_EACH_RANK='",
        *_each_rank(source),
        "'",
    )
    setup = '"$IRIS_SETUP" ' if job.setup else ""
    # Since Slurm 22.05, `srun` does not inherit --cpus-per-task from the options of the job.
    cores = "".join(f" {option}" for option in _core_options(job))
    yield f'"$IRIS_SRUN" --kill-on-bad-exit=1 --export=ALL{cores} \\'
    yield f'    /bin/sh -c "$IRIS_EACH_RANK" iris "$IRIS_RECORD" {setup}"$@"'
    yield "IRIS_CODE=$?"


def _each_rank(source: Source) -> Iterator[str]:
    """Yield the script that each rank runs, including the program. It contains no single quotes."""
    job = source.job
    yield "IRIS_RANK=$SLURM_PROCID IRIS_RECORD=$1 IRIS_CODE=0"
    if source.starts_together:
        per_slice = max(1, job.replicas // job.slices)
        yield f"export IRIS_TASK_INDEX=$IRIS_RANK IRIS_SLICE_INDEX=$((IRIS_RANK / {per_slice}))"
    yield from shell.computed_exports(
        {
            "IRIS_TASK_ID": "$IRIS_JOB_ID/task-$IRIS_TASK_INDEX",
            "IRIS_WORKER_ID": "$SLURMD_NODENAME",
            "IRIS_TASK_DIR": "${IRIS_RECORD%/*}/task-$IRIS_TASK_INDEX/attempt-$IRIS_ATTEMPT",
            "IRIS_OUTPUT_DIR": "$IRIS_TASK_DIR/output",
        }
    )
    variables = shell.rank_variables(job, job.replicas if job.is_gang else 1, job.slices)
    yield from shell.computed_exports(
        {name: value for name, value in variables.items() if not name.startswith("SLURM_")}
    )
    extra_signals = [job.signal.name] if job.signal is not None else []
    # The shell that waits for the program must survive signals to the program.
    yield f"trap : {' '.join(dict.fromkeys(('HUP', 'INT', 'QUIT', 'TERM', 'USR1', 'USR2', *extra_signals)))}"
    yield 'mkdir -p "$IRIS_OUTPUT_DIR" || exit'
    if source.starts_together:
        # `srun` ends the other ranks only once. On a node that has not started its rank yet, this has no effect.
        yield '[ ! -e "$IRIS_RECORD" ] || exit 1'
    yield "shift"
    if job.setup:
        yield from ('/bin/sh -c "$1" </dev/null || IRIS_CODE=$?', "shift")
    after_setup = '[ "$IRIS_CODE" != 0 ] || ' if job.setup else ""
    yield f'{after_setup}"$@" </dev/null || IRIS_CODE=$?'
    yield '[ "$IRIS_CODE" = 0 ] || (set -C; echo "$IRIS_CODE" >"$IRIS_RECORD") 2>/dev/null'
    yield 'exit "$IRIS_CODE"'


def _last_lines(source: Source) -> Iterator[str]:
    """Yield lines that retry the job, or exit with the code of the rank that failed first."""
    job = source.job
    yield from ("", "# The exit code of the rank that failed first.")
    yield from (
        '[ ! -s "$IRIS_RECORD" ] || read -r IRIS_CODE <"$IRIS_RECORD"',
        '[ "$IRIS_CODE" != 0 ] || exit 0',
    )
    if job.max_retries_failure or _fails_fast(source):
        yield '[ -z "$IRIS_STOPPING" ] || exit "$IRIS_CODE"'
    if job.max_retries_failure:
        yield "IRIS_FAILURES=$IRIS_OUT/failures-$IRIS_SLURM_ID"
        yield 'echo "$IRIS_CODE" >>"$IRIS_FAILURES"'
        yield f'if [ "$(wc -l <"$IRIS_FAILURES")" -le {job.max_retries_failure} ]; then'
        yield from ('    "$IRIS_SCONTROL" requeue "$IRIS_SLURM_ID" && exit "$IRIS_CODE"', "fi")
    if _fails_fast(source):
        yield 'for IRIS_OTHER in $("$IRIS_SQUEUE" --noheader --array --job="$SLURM_ARRAY_JOB_ID" --format=%i); do'
        yield '    [ "$IRIS_OTHER" = "$IRIS_SLURM_ID" ] || "$IRIS_SCANCEL" "$IRIS_OTHER"'
        yield "done"
    yield 'exit "$IRIS_CODE"'


def _fails_fast(source: Source) -> bool:
    """Return True if the failure of an independent task ends the other tasks."""
    return not (source.starts_together or source.job.keep_going)


def _notes(source: Source) -> Iterator[ExportNote]:
    job = source.job
    yield from _lost_resources(job)
    yield from lost_constraints(job.constraints)
    if source.image:
        yield lost_note("image", "no counterpart; at some sites `srun` has an option for images")
    if job.workspace is not None:
        yield lost_note(
            "workdir",
            f"the packed workspace {job.workspace.name!r} is not exported: submit from a directory with the same files",
        )
    if job.coscheduling is not None and job.coscheduling.group_by != TPU_NAME_ATTRIBUTE_KEY:
        group_by = job.coscheduling.group_by
        yield lost_note("coscheduling", f"Slurm chooses the nodes: they may not share {group_by}")
    if job.is_gang and job.slices > 1:
        yield lost_note("slices", f"Slurm chooses the nodes: they may not form {job.slices} slices")
    if job.priority is Priority.HIGH:
        yield lost_note("priority", "no counterpart for high")
    if job.timeout % 60:
        minutes = count(ceil(job.timeout / 60), "minute")
        yield lost_note("timeout", f"Slurm counts minutes: {format_duration(job.timeout)} becomes {minutes}")
    if job.signal is not None and job.signal.lead > _MAX_LEAD:
        yield lost_note("signal", f"Slurm sends it at most {_MAX_LEAD} s before the time limit")
    if job.max_retries_preemption != UNLIMITED and (job.max_retries_preemption or job.max_retries_failure):
        yield lost_note("max_retries_preemption", "restarts after a lost node are not counted")
    if job.ports:
        yield lost_note("ports", "the script does not check that the ports are free")
    if job.after:
        ids = ":".join(f"ID_OF_{name}" for name in job.after)
        yield to_do_note("after", f"submit with: sbatch --dependency=afterok:{ids}")
    if names := ", ".join(_secrets_from_shell(job)):
        yield to_do_note("secrets", f"export {names} in the shell of sbatch")
    if source.workdir:
        yield to_do_note("workdir", f"every node must see {source.workdir}")
    last_index = (job.indexes or range(job.replicas))[-1]
    if not source.starts_together and last_index > _DEFAULT_MAX_INDEX:
        yield to_do_note("array", f"index {last_index} needs a MaxArraySize above it (1001 by default)")


def _lost_resources(job: Job) -> Iterator[ExportNote]:
    device = job.resources.device
    if device is not None and device.kind == "tpu":
        yield lost_note(
            "tpu", f"no counterpart; request {device.variant} with your site's --gres or --constraint"
        )
    if (
        device is not None
        and device.kind == "gpu"
        and device.variant != AUTO
        and not _is_model(device.variant)
    ):
        yield lost_note("gpu", f"{device.variant!r} can't be the type of a gres")
    if job.resources.cpu % 1:
        yield lost_note(
            "cpu", f"Slurm counts whole cores: {job.resources.cpu:g} becomes {ceil(job.resources.cpu)}"
        )
