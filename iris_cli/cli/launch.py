"""`iris launch`: submit a job, run one cycle, print its id."""

from __future__ import annotations

from typing import Annotated

import typer

from iris_cli.cli import job_options as job
from iris_cli.cli import launching
from iris_cli.cli.after_dashes import CommandMayFollow, command_of
from iris_cli.cli.commands import Commands

_EXAMPLES = """
iris launch --tpu v5e-16 --workdir . -- python3 train.py  # a gang
iris launch --cpu 4 --replicas 10 --workdir . -- ./shard.sh  # ten tasks
iris launch job.yaml --name second-try  # a job file
iris launch --array 0-99%8 --workdir . -- ./simulate  # 8 at a time
"""


def register(app: Commands) -> None:
    app.command(epilog=_EXAMPLES, cls=CommandMayFollow)(launch)


def launch(
    context: typer.Context,
    jobfile: Annotated[
        list[str] | None,
        typer.Argument(metavar="[JOBFILE]", show_default=False, help="Job file; options win."),
    ] = None,
    tpu: job.Tpu = None,
    gpu: job.Gpu = None,
    cpu: job.Cpu = None,
    memory: job.Memory = None,
    replicas: job.Replicas = None,
    slices: job.Slices = None,
    array: job.Array = None,
    each_line: job.EachLine = None,
    workdir: job.Workdir = None,
    env: job.Env = None,
    env_file: job.EnvFile = None,
    secret: job.Secret = None,
    setup: job.Setup = None,
    env_preset: job.Preset = None,
    ports: job.Ports = None,
    wait: job.Wait = False,
    follow: job.Follow = False,
    dry_run: job.DryRun = False,
    no_schedule: job.NoSchedule = False,
    force: job.Force = False,
    name: job.Name = None,
    label: job.Label = None,
    priority: job.PriorityName = None,
    after: job.After = None,
    max_retries_failure: job.RetriesFailure = None,
    max_retries_preemption: job.RetriesPreemption = None,
    max_task_failures: job.TaskFailures = None,
    keep_going: job.KeepGoing = None,
    replace_lost: job.ReplaceLost = None,
    timeout: job.Timeout = None,
    scheduling_timeout: job.SchedulingTimeout = None,
    setup_timeout: job.SetupTimeout = None,
    grace: job.Grace = None,
    signal: job.Signal = None,
    lease: job.Lease = None,
    constraint: job.Constraints = None,
    prefer: job.Prefer = None,
    tolerate: job.Tolerate = None,
    group_by: job.GroupBy = None,
    spread: job.Spread = False,
    no_inherit_constraints: job.NoInherit = False,
    request_id: job.RequestId = None,
) -> int:
    """Submit a job, place it, start it; prints its id.

    Starts the background loop if nobody else runs cycles. The loop ends with the last job.
    """
    return launching.launch(context.obj, context.params, jobfile or [], command_of(context))
