"""The options that describe a job, one for each field of a job file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from iris_cli.cli import complete


def _option(*names: str, value: str, text: str, offer: complete.Callback | None = None) -> Any:
    return typer.Option(*names, metavar=value, help=text, show_default=False, autocompletion=offer)


Texts = list[str] | None

Name = Annotated[
    str | None, _option("--name", value="NAME", text="Name of the job; made from the command if left out.")
]
Tpu = Annotated[
    str | None,
    _option(
        "--tpu",
        value="TYPE",
        offer=complete.TPU,
        text="TPU type, such as v5litepod-16, or auto.",
    ),
]
Gpu = Annotated[str | None, _option("--gpu", value="MODEL", text="GPU model or auto, with :N for N of them.")]
Cpu = Annotated[float | None, _option("--cpu", value="CORES", text="Cores for each task.")]
Memory = Annotated[str | None, _option("--memory", value="SIZE", text="Memory for each task: 512MiB, 8GB.")]
Replicas = Annotated[int | None, _option("--replicas", value="N", text="Number of tasks.")]
Slices = Annotated[int | None, _option("--slices", value="N", text="Number of slices, or groups, of a gang.")]
Spread = Annotated[
    bool, typer.Option("--spread", help="Let the slices of a gang be in several regions.", show_default=False)
]
Constraints = Annotated[
    Texts,
    _option(
        "--constraint",
        "-c",
        value="TEXT",
        text="Only workers with region=us-west4, pool, !pool, tpu-worker-id>=1.",
    ),
]
Prefer = Annotated[
    Texts, _option("--prefer", value="TEXT", text="A constraint that ranks and never excludes.")
]
Tolerate = Annotated[Texts, _option("--tolerate", value="TAINT", text="Also workers with this taint.")]
GroupBy = Annotated[
    str | None,
    _option(
        "--group-by",
        value="ATTRIBUTE",
        offer=complete.ATTRIBUTE,
        text="Make a gang on workers that share this attribute.",
    ),
]
Env = Annotated[
    Texts,
    _option("--env", "-e", value="NAME[=VALUE]", text="A variable; without a value it is taken from here."),
]
EnvFile = Annotated[
    Path | None, _option("--env-file", value="FILE", text="Variables, NAME=VALUE on each line.")
]
Secret = Annotated[
    Texts,
    _option(
        "--secret",
        value="NAME[=@FILE]",
        text="A variable that is read at each start only, from here or a file.",
    ),
]
Workdir = Annotated[
    Path | None,
    _option("--workdir", value="DIR", text="Directory to ship: what git doesn't ignore, less .irisignore."),
]
Setup = Annotated[
    str | None, _option("--setup", value="COMMAND", text="Shell command to run before the task.")
]
Preset = Annotated[
    str | None,
    _option(
        "--env-preset",
        value="NAME",
        offer=complete.PRESET,
        text="Variables for jax, torchrun or slurm programs.",
    ),
]
PriorityName = Annotated[
    str | None,
    _option(
        "--priority",
        value="NAME",
        offer=complete.PRIORITY,
        text="high, normal or low.",
    ),
]
RetriesFailure = Annotated[
    int | None, _option("--max-retries-failure", value="N", text="More tries after a failure; usually none.")
]
RetriesPreemption = Annotated[
    int | None,
    _option("--max-retries-preemption", value="N", text="More tries after a lost host; usually 100."),
]
TaskFailures = Annotated[
    int | None, _option("--max-task-failures", value="N", text="Failed tasks that the job survives.")
]
KeepGoing = Annotated[
    bool | None,
    typer.Option(
        "--keep-going/--fail-fast",
        help="Whether the other tasks go on after one failed (default: only those of an array).",
        show_default=False,
    ),
]
SchedulingTimeout = Annotated[
    str | None, _option("--scheduling-timeout", value="TIME", text="Give up if not placed by then.")
]
Timeout = Annotated[
    str | None, _option("--timeout", value="TIME", text="Time limit of each task: 90s, 10m, 2h.")
]
SetupTimeout = Annotated[str | None, _option("--setup-timeout", value="TIME", text="Time limit of --setup.")]
Grace = Annotated[
    str | None, _option("--grace", value="TIME", text="Time between SIGTERM and SIGKILL; usually 30s.")
]
Lease = Annotated[
    str | None,
    _option(
        "--lease", value="TIME", text="Let a task stop itself when nothing has asked about it for so long."
    ),
]
ReplaceLost = Annotated[
    str | None,
    _option(
        "--replace-lost",
        value="WHEN",
        offer=complete.REPLACE_LOST,
        text="Start anew what long silent workers had: never, preemptible or always.",
    ),
]
Label = Annotated[Texts, _option("--label", value="NAME=VALUE", text="To find the job by.")]
After = Annotated[
    Texts,
    _option("--after", value="JOB", offer=complete.JOB, text="Start when this job has succeeded."),
]
Ports = Annotated[
    Texts,
    _option(
        "--ports",
        value="NAMES",
        text="Names of ports, such as http,metrics: IRIS_PORT_HTTP has a free number.",
    ),
]
Signal = Annotated[
    str | None,
    _option(
        "--signal",
        value="NAME@SECONDS",
        text="USR1@120: this signal, 120 s before --timeout; a stop sends SIGTERM only.",
    ),
]
Array = Annotated[
    str | None,
    _option("--array", value="INDICES", text="A task for each index: 0-9,20 or 0-99%4, four at a time."),
]
EachLine = Annotated[
    Path | None, _option("--each-line", value="FILE", text="A task for each line of this file.")
]
Force = Annotated[
    bool,
    typer.Option(
        "--force", help="Submit the job even if nothing here can run it: no such worker, secret or program."
    ),
]
NoInherit = Annotated[
    bool,
    typer.Option("--no-inherit-constraints", help="Inside a task: without the constraints of its job."),
]
RequestId = Annotated[
    str | None,
    _option(
        "--request-id", value="ID", text="Inside a task: to say the same id again submits no second job."
    ),
]
