"""The options that describe a job, one for each field of a job file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from iris_cli.cli import complete

RESOURCES = "Resources and tasks"
FILES = "Files and environment"
OUTPUT = "Submission, waiting and output"
NAMES = "Name and order"
RETRIES = "Failures and retries"
TIMES = "Time limits"
PLACEMENT = "Placement"
INSIDE = "Inside a task"


def _option(*names: str, group: str, value: str, text: str, offer: complete.Callback | None = None) -> Any:
    return typer.Option(
        *names, rich_help_panel=group, metavar=value, help=text, show_default=False, autocompletion=offer
    )


def _flag(*names: str, group: str, text: str) -> Any:
    return typer.Option(*names, rich_help_panel=group, help=text, show_default=False)


Texts = list[str] | None

Tpu = Annotated[
    str | None,
    _option(
        "--tpu",
        group=RESOURCES,
        value="TYPE",
        text="TPU type, such as v5litepod-16, or auto.",
        offer=complete.TPU,
    ),
]
Gpu = Annotated[
    str | None,
    _option("--gpu", group=RESOURCES, value="MODEL", text="GPU model or auto, with :N for N of them."),
]
Cpu = Annotated[float | None, _option("--cpu", group=RESOURCES, value="CORES", text="Cores for each task.")]
Memory = Annotated[
    str | None, _option("--memory", group=RESOURCES, value="SIZE", text="Memory for each task: 512MiB, 8GB.")
]
Replicas = Annotated[int | None, _option("--replicas", group=RESOURCES, value="N", text="Number of tasks.")]
Slices = Annotated[
    int | None,
    _option("--slices", group=RESOURCES, value="N", text="Number of slices, or groups, of a gang."),
]
Array = Annotated[
    str | None,
    _option(
        "--array",
        group=RESOURCES,
        value="INDICES",
        text="A task for each index: 0-9,20 or 0-99%4, four at a time.",
    ),
]
EachLine = Annotated[
    Path | None,
    _option("--each-line", group=RESOURCES, value="FILE", text="A task for each line of this file."),
]

Workdir = Annotated[
    Path | None,
    _option(
        "--workdir",
        group=FILES,
        value="DIR",
        text="Directory to ship: what git doesn't ignore, less .irisignore.",
    ),
]
Env = Annotated[
    Texts,
    _option(
        "--env",
        "-e",
        group=FILES,
        value="NAME[=VALUE]",
        text="Set a variable; NAME alone copies its value from this shell.",
    ),
]
EnvFile = Annotated[
    Path | None, _option("--env-file", group=FILES, value="FILE", text="Variables, NAME=VALUE on each line.")
]
Secret = Annotated[
    Texts,
    _option(
        "--secret",
        group=FILES,
        value="NAME[=@FILE]",
        text="A variable that is read at each start only, from here or a file.",
    ),
]
Setup = Annotated[
    str | None, _option("--setup", group=FILES, value="COMMAND", text="Shell command to run before the task.")
]
Preset = Annotated[
    str | None,
    _option(
        "--env-preset",
        group=FILES,
        value="NAME",
        text="Variables for jax, torchrun or slurm programs.",
        offer=complete.PRESET,
    ),
]
Ports = Annotated[
    Texts,
    _option(
        "--ports",
        group=FILES,
        value="NAMES",
        text="Names of ports, such as http,metrics: IRIS_PORT_HTTP has a free number.",
    ),
]

Wait = Annotated[bool, _flag("--wait", group=OUTPUT, text="Wait for the end; the exit code tells how.")]
Follow = Annotated[bool, _flag("--follow", group=OUTPUT, text="Print the logs until the end.")]
DryRun = Annotated[bool, _flag("--dry-run", group=OUTPUT, text="Show what would be placed where.")]
NoSchedule = Annotated[bool, _flag("--no-schedule", group=OUTPUT, text="Submit only.")]
Force = Annotated[
    bool,
    _flag(
        "--force",
        group=OUTPUT,
        text="Submit the job even if nothing here can run it: no such worker, secret or program.",
    ),
]

Name = Annotated[
    str | None,
    _option("--name", group=NAMES, value="NAME", text="Name of the job (default: derived from the command)."),
]
Label = Annotated[Texts, _option("--label", group=NAMES, value="NAME=VALUE", text="Label to filter by.")]
PriorityName = Annotated[
    str | None,
    _option("--priority", group=NAMES, value="NAME", text="high, normal or low.", offer=complete.PRIORITY),
]
After = Annotated[
    Texts,
    _option(
        "--after", group=NAMES, value="JOB", text="Start when this job has succeeded.", offer=complete.JOB
    ),
]

RetriesFailure = Annotated[
    int | None,
    _option("--max-retries-failure", group=RETRIES, value="N", text="Retries after a failure (default: 0)."),
]
RetriesPreemption = Annotated[
    int | None,
    _option(
        "--max-retries-preemption", group=RETRIES, value="N", text="Retries after a lost host (default: 100)."
    ),
]
TaskFailures = Annotated[
    int | None,
    _option("--max-task-failures", group=RETRIES, value="N", text="Failed tasks that the job survives."),
]
KeepGoing = Annotated[
    bool | None,
    _flag(
        "--keep-going/--fail-fast",
        group=RETRIES,
        text="Whether the other tasks go on after one failed (default: only those of an array).",
    ),
]
ReplaceLost = Annotated[
    str | None,
    _option(
        "--replace-lost",
        group=RETRIES,
        value="WHEN",
        text="Reschedule tasks of unreachable workers: never, preemptible or always.",
        offer=complete.REPLACE_LOST,
    ),
]

Timeout = Annotated[
    str | None, _option("--timeout", group=TIMES, value="TIME", text="Time limit of each task: 90s, 10m, 2h.")
]
SchedulingTimeout = Annotated[
    str | None,
    _option("--scheduling-timeout", group=TIMES, value="TIME", text="Give up if not placed by then."),
]
SetupTimeout = Annotated[
    str | None, _option("--setup-timeout", group=TIMES, value="TIME", text="Time limit of --setup.")
]
Grace = Annotated[
    str | None,
    _option("--grace", group=TIMES, value="TIME", text="Time between SIGTERM and SIGKILL (default: 30s)."),
]
Signal = Annotated[
    str | None,
    _option(
        "--signal",
        group=TIMES,
        value="NAME@SECONDS",
        text="USR1@120: this signal, 120 s before --timeout; a stop sends SIGTERM only.",
    ),
]
Lease = Annotated[
    str | None,
    _option(
        "--lease",
        group=TIMES,
        value="TIME",
        text="Stop the task if iris has not reached its worker for this long.",
    ),
]

Constraints = Annotated[
    Texts,
    _option(
        "--constraint",
        "-c",
        group=PLACEMENT,
        value="TEXT",
        text="Only workers with pool=a, !spot or rack>=2.",
    ),
]
Prefer = Annotated[
    Texts,
    _option("--prefer", group=PLACEMENT, value="TEXT", text="Soft constraint: prefer matching workers."),
]
Tolerate = Annotated[
    Texts, _option("--tolerate", group=PLACEMENT, value="TAINT", text="Also workers with this taint.")
]
GroupBy = Annotated[
    str | None,
    _option(
        "--group-by",
        group=PLACEMENT,
        value="ATTRIBUTE",
        text="Make a gang on workers that share this attribute.",
        offer=complete.ATTRIBUTE,
    ),
]
Spread = Annotated[
    bool, _flag("--spread", group=PLACEMENT, text="Let the slices of a gang be in several regions.")
]

NoInherit = Annotated[
    bool,
    _flag(
        "--no-inherit-constraints", group=INSIDE, text="Submit the child without the constraints of its job."
    ),
]
RequestId = Annotated[
    str | None,
    _option(
        "--request-id", group=INSIDE, value="ID", text="Submit no second job if the same id was used before."
    ),
]
