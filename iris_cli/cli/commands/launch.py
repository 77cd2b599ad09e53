"""`iris launch`: submit a job, run one cycle, print its id."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from iris_cli.cli.command_types import CommandAfterOptionalDashes, argument, command_words, flag, option
from iris_cli.cli.context import Context
from iris_cli.cli.job_options import add_job_options, parse_request
from iris_cli.core.model.job_fields import INSIDE, OUTPUT
from iris_cli.core.text import pattern
from iris_cli.errors import ConfigError, ExitCode, UsageError

if TYPE_CHECKING:
    from iris_cli.core import JobId, JobRequest, WorkerId
    from iris_cli.ops.cycle.cycle import CycleResult
    from iris_cli.ops.session import Session


CLS = CommandAfterOptionalDashes
EXAMPLES = """
iris launch --tpu v5e-16 --workdir . -- python3 train.py  # a gang
iris launch --cpu 4 --replicas 10 --workdir . -- ./shard.sh  # ten tasks
iris launch job.yaml --name second-try  # or job.sh
iris launch --array 0-99%8 --workdir . -- ./simulate  # 8 at a time
"""


@add_job_options
def launch(
    iris: Context,
    jobfile: Annotated[
        list[str] | None,
        argument("[JOBFILE]", "Job file (YAML), or script with #IRIS lines; options override it."),
    ] = None,
    wait: Annotated[
        bool,
        flag("--wait", "Wait until the job ends; the exit code shows its result.", rich_help_panel=OUTPUT),
    ] = False,
    follow: Annotated[
        bool, flag("--follow", "Print the logs until the job ends.", rich_help_panel=OUTPUT)
    ] = False,
    dry_run: Annotated[
        bool, flag("--dry-run", "Show where the job would be placed; submit nothing.", rich_help_panel=OUTPUT)
    ] = False,
    no_schedule: Annotated[
        bool, flag("--no-schedule", "Submit only; run no cycle.", rich_help_panel=OUTPUT)
    ] = False,
    no_inherit_constraints: Annotated[
        bool,
        flag(
            "--no-inherit-constraints",
            "Do not inherit the constraints of the parent job.",
            rich_help_panel=INSIDE,
        ),
    ] = False,
    request_id: Annotated[
        str | None,
        option("ID", "Submit no second job if the same id was used before.", rich_help_panel=INSIDE),
    ] = None,
    **fields: Any,
) -> int:
    """Submit a job, place it and start it; print its id.

    Starts the background loop if nothing else runs cycles. The loop ends with the last job.
    """
    if no_inherit_constraints and not iris.is_in_task:
        raise UsageError(
            "--no-inherit-constraints is only available inside a task",
            hint="drop it: only jobs that a task submits inherit constraints",
        )
    request = _request(iris, fields, request_id, jobfile or [])
    if dry_run:
        return _show_plan(iris, request)
    if iris.is_in_task:
        from iris_cli.cli import inside

        inherit = not no_inherit_constraints
        return inside.launch(iris, request, request_id=request_id, inherit=inherit, wait=wait, follow=follow)
    session = iris.session("iris launch")
    iris.starts_loop = not no_schedule or wait or follow
    job_id = _submit(iris, session, request, schedule=not no_schedule, keeps_running=wait or follow)
    return _wait_or_follow(iris, session, job_id, wait=wait, follow=follow)


def _request(
    iris: Context, fields: Mapping[str, Any], request_id: str | None, words: Sequence[str]
) -> "JobRequest":
    command = command_words(iris)
    path = _job_file(words)
    if request_id is not None and not iris.is_in_task:
        raise UsageError("--request-id is only available inside a task", hint="use --name")
    given = parse_request(fields, command)
    if given.failed and given.again is None:
        raise UsageError("--failed needs --again", hint="iris launch --again JOB --failed")
    if path is not None and given.again is not None:
        raise UsageError(f"--again and {words[0][:80]} can't be combined", hint="drop one of the two")
    return given if path is None else _merge_file(given, path)


def _job_file(words: Sequence[str]) -> Path | None:
    """Return the named job file or job script; None without arguments. Raises UsageError."""
    if not words:
        return None
    from iris_cli.config.job_script import is_script

    name, path = words[0][:80], Path(words[0])
    if path.suffix not in _YAML and not is_script(path):
        prefix = "a job script begins with #!/bin/sh; " if path.is_file() else ""
        hint = f"{prefix}put -- before the command: -- {name} ..."
        is_missing = bool(path.suffix) and not path.exists()
        raise UsageError(f"{name!r} is not a job file{': no such file' if is_missing else ''}", hint=hint)
    if len(words) > 1:
        arguments = f"-- before the arguments of a script: {name} -- {words[1][:80]}"
        raise UsageError(f"unexpected argument: {words[1][:80]}", hint=f"put {arguments}")
    return path


_YAML = (".yaml", ".yml")
_WORKDIR = pattern(r"workdir\s*:|#IRIS\s(?:.*\s)?--workdir\b")


def _merge_file(given: "JobRequest", path: Path) -> "JobRequest":
    """Add the fields of a job file or job script to a request. The words after `--` become the script's arguments."""
    from iris_cli.config.job_file import load_job_file, require_command
    from iris_cli.config.job_script import load_job_script
    from iris_cli.core.lifecycle.request_fields import merge_requests

    is_yaml = path.suffix in _YAML
    loaded = load_job_file(path) if is_yaml else load_job_script(path)
    if given.workdir is None and loaded.workdir is not None and not os.path.isdir(loaded.workdir):
        raise ConfigError(
            f"{path}{_workdir_line(path)}: workdir: {loaded.workdir} is not a directory",
            hint="a relative path begins at the directory of this file",
        )
    merged = merge_requests(given, loaded)
    if is_yaml:
        return require_command(merged, path)
    from msgspec.structs import replace

    from iris_cli.ops.workspace.pack import name_of_script

    return replace(merged, command=(f"./{name_of_script(merged)}", *(given.command or ())))


def _workdir_line(path: Path) -> str:
    """Return `:LINE` for the line of a job file or job script that sets workdir; '' if no line begins with the key."""
    lines = path.read_text("utf-8", "replace").split("\n")
    return next((f":{number}" for number, line in enumerate(lines, start=1) if _WORKDIR.match(line)), "")


def _submit(
    iris: Context, session: "Session", request: "JobRequest", *, schedule: bool, keeps_running: bool
) -> "JobId":
    """Submit a job, run a cycle if `schedule`, and return the job's id.

    `keeps_running`: this command runs cycles until the job ends. With --json, it then prints only the job's result.
    """
    from iris_cli.ops.jobs.launch import launch as submit
    from iris_cli.ops.jobs.launch import unreachable_workers
    from iris_cli.render import jobs as render

    job_id = submit(session, request)
    prints_job = not (iris.output.as_json and keeps_running)

    def show(result: "CycleResult | None", keeps_running: bool = keeps_running) -> None:
        silent: Mapping[WorkerId, str] = {}
        why, cycles = "", None
        try:
            if not (keeps_running or session.cluster.job_state(job_id).terminal):
                why = iris.why_no_cycles()
            silent = unreachable_workers(session, job_id, has_next_cycle=not why)
            cycles = iris.cycles_for_json(session)
        finally:  # the job is submitted, so print its id even if interrupted
            has_ended = session.cluster.job_state(job_id).terminal
            if not (has_ended and keeps_running):  # otherwise the wait prints the end
                render.show_launched(iris.output, session.cluster, job_id, result, silent, why, cycles)
        if why and not iris.output.as_json:
            iris.has_printed_no_cycles = True

    # Print the id before the slow work, so that the user knows it even if the command is interrupted.
    try:
        if not iris.output.as_json:
            iris.output.line(job_id)
            iris.output.flush()
    finally:  # start the submitted job even if stdout is closed
        if schedule:
            _run_cycle(session, job_id, show, prints_job=prints_job)
        elif prints_job:
            show(None)
    return job_id


def _run_cycle(session: "Session", job_id: "JobId", show: Callable[..., None], *, prints_job: bool) -> None:
    from iris_cli.ops.cycle.cycle import run
    from iris_cli.ops.jobs.launch import wait_for_set_up

    result = None
    try:
        result = run(session, job=job_id)
        wait_for_set_up(session, job_id)
    except BaseException:  # print the job's id and state even if interrupted
        show(result, keeps_running=False)
        raise
    if prints_job:
        show(result)


def _wait_or_follow(iris: Context, session: "Session", job_id: "JobId", *, wait: bool, follow: bool) -> int:
    if follow:
        from iris_cli.cli.commands.logs import follow_job

        if follow_job(iris, session, job_id) == ExitCode.INTERRUPTED:
            return ExitCode.INTERRUPTED
    if wait or follow:
        from iris_cli.cli.commands.wait import wait_and_print

        return wait_and_print(iris, session, [job_id])
    return ExitCode.OK


def _show_plan(iris: Context, request: "JobRequest") -> int:
    from iris_cli.ops.jobs.launch import dry_run
    from iris_cli.ops.workspace.pack import files_to_ship
    from iris_cli.render import plans as render

    session = iris.session("iris launch --dry-run")
    plan, cluster, job_id = dry_run(session, request)
    iris.output.warnings(session.messages)
    render.show_plan(iris.output, plan, cluster, job_id, shipped=files_to_ship(session, request))
    return ExitCode.OK
