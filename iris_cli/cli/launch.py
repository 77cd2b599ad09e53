"""`iris launch`: submit a job, run one cycle, print its id."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from iris_cli.cli import job_options as job
from iris_cli.cli.after_dashes import CommandAfterDashes, command_of
from iris_cli.cli.context import Context
from iris_cli.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from iris_cli.core.ids import JobId
    from iris_cli.core.job import JobRequest
    from iris_cli.ops.session import Session

_EXAMPLES = """Examples:

  iris launch --tpu v5litepod-16 -- python3 train.py

  iris launch --cpu 4 --memory 8GiB --replicas 10 -- ./shard.sh

  iris launch --workdir . --setup "pip install -r requirements.txt" -- python3 train.py

  iris launch job.yaml --name second-try

  iris launch --each-line inputs.txt -- sh -c './convert.sh "$IRIS_EACH_LINE"'

  iris launch --array 0-99%8 --timeout 2h --signal USR1@120 -- ./simulate
"""


def register(app: typer.Typer) -> None:
    app.command(epilog=_EXAMPLES, cls=CommandAfterDashes, options_metavar="[OPTIONS] [-- COMMAND...]")(launch)


def launch(
    context: typer.Context,
    jobfile: Annotated[
        list[str] | None, typer.Argument(show_default=False, help="Job file; options win.")
    ] = None,
    name: job.Name = None,
    tpu: job.Tpu = None,
    gpu: job.Gpu = None,
    cpu: job.Cpu = None,
    memory: job.Memory = None,
    replicas: job.Replicas = None,
    slices: job.Slices = None,
    constraint: job.Constraints = None,
    prefer: job.Prefer = None,
    tolerate: job.Tolerate = None,
    group_by: job.GroupBy = None,
    env: job.Env = None,
    env_file: job.EnvFile = None,
    secret: job.Secret = None,
    workdir: job.Workdir = None,
    setup: job.Setup = None,
    env_preset: job.Preset = None,
    priority: job.PriorityName = None,
    max_retries_failure: job.RetriesFailure = None,
    max_retries_preemption: job.RetriesPreemption = None,
    max_task_failures: job.TaskFailures = None,
    scheduling_timeout: job.SchedulingTimeout = None,
    timeout: job.Timeout = None,
    setup_timeout: job.SetupTimeout = None,
    grace: job.Grace = None,
    lease: job.Lease = None,
    replace_lost: job.ReplaceLost = None,
    label: job.Label = None,
    after: job.After = None,
    ports: job.Ports = None,
    signal: job.Signal = None,
    array: job.Array = None,
    each_line: job.EachLine = None,
    force: job.Force = False,
    no_inherit_constraints: job.NoInherit = False,
    request_id: job.RequestId = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be placed where.")] = False,
    no_schedule: Annotated[bool, typer.Option("--no-schedule", help="Submit only.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end; the exit code tells how.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Print the logs until the end.")] = False,
) -> int:
    """Submit a job, place it, start it; prints its id."""
    iris: Context = context.obj
    wanted = _request(context, jobfile or [])
    if dry_run:
        return _show_plan(iris, wanted)
    if iris.is_inside:
        return _ask(iris, wanted, context.params)
    session = iris.session("iris launch")
    # With --wait the last word is how it ended: one document, not two.
    launched = _submit(
        iris, session, wanted, schedule=not no_schedule, tell=not (iris.output.as_json and (wait or follow))
    )
    return _stay(iris, session, launched, wait=wait, follow=follow)


def _request(context: typer.Context, words: list[str]) -> JobRequest:
    command = command_of(context)
    if len(words) > 1 or (words and not words[0].endswith((".yaml", ".yml"))):
        raise UsageError(
            f"{words[0][:80]!r} is not a job file", hint=f"put -- before the command: -- {words[0][:80]} ..."
        )
    if context.params["request_id"] is not None and not context.obj.is_inside:
        raise UsageError("--request-id is for the inside of a task", hint="give the job a --name")
    said = job.request(context.params, command)
    if not words:
        return said
    from iris_cli.config.job_file import load_job_file
    from iris_cli.core.lifecycle.submit import over

    return over(said, load_job_file(Path(words[0])))


def _ask(iris: Context, wanted: JobRequest, options: Mapping[str, Any]) -> int:
    from iris_cli.cli import inside

    return inside.launch(
        iris,
        wanted,
        request_id=options["request_id"],
        inherit=not options["no_inherit_constraints"],
        wait=options["wait"],
        follow=options["follow"],
    )


def _submit(iris: Context, session: Session, wanted: JobRequest, *, schedule: bool, tell: bool) -> JobId:
    from iris_cli.ops import cycle
    from iris_cli.ops.launch import launch as submit
    from iris_cli.render import launched

    job_id = submit(session, wanted)
    # The id is out before anything slow begins: whoever is cut off knows what to look for.
    try:
        if not iris.output.as_json:
            iris.output.line(job_id)
            iris.output.flush()
    finally:  # nobody may be there to be told: it is submitted, so it is started, too
        result = cycle.run(session) if schedule else None
    if tell:
        launched.show(iris.output, session.cluster, job_id, result)
    return job_id


def _stay(iris: Context, session: Session, job_id: JobId, *, wait: bool, follow: bool) -> int:
    if follow:
        from iris_cli.cli.logs import follow_job

        follow_job(iris, session, job_id)
    if wait or follow:
        from iris_cli.cli.wait import wait_and_tell

        return wait_and_tell(iris, session, [job_id])
    return ExitCode.OK


def _show_plan(iris: Context, wanted: JobRequest) -> int:
    from iris_cli.ops.launch import dry_run, shipped
    from iris_cli.render import plans

    session = iris.session("iris launch --dry-run")
    made, cluster, job_id = dry_run(session, wanted)
    plans.show_plan(iris.output, made, cluster, job_id, shipped=shipped(session, wanted))
    return ExitCode.OK
