"""The options that describe a job, one for each field of a job file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def _option(*names: str, text: str) -> Any:
    return typer.Option(*names, help=text, show_default=False)


Texts = list[str] | None

Name = Annotated[str | None, _option("--name", text="Name of the job; made from the command if left out.")]
Tpu = Annotated[str | None, _option("--tpu", text="TPU type, such as v5litepod-16, or auto.")]
Gpu = Annotated[str | None, _option("--gpu", text="GPU model or auto, with :N for N of them.")]
Cpu = Annotated[float | None, _option("--cpu", text="Cores for each task.")]
Memory = Annotated[str | None, _option("--memory", text="Memory for each task: 512MiB, 8GB.")]
Replicas = Annotated[int | None, _option("--replicas", text="Number of tasks.")]
Slices = Annotated[int | None, _option("--slices", text="Number of slices, or groups, of a gang.")]
Constraints = Annotated[
    Texts, _option("--constraint", "-c", text="region=us-west4, pool, !pool, tpu-worker-id>=1")
]
Prefer = Annotated[Texts, _option("--prefer", text="A constraint that ranks and never excludes.")]
Tolerate = Annotated[Texts, _option("--tolerate", text="A taint that doesn't matter.")]
GroupBy = Annotated[
    str | None, _option("--group-by", text="Make a gang on workers that share this attribute.")
]
Env = Annotated[Texts, _option("--env", "-e", text="NAME=VALUE, or NAME to take it from here.")]
EnvFile = Annotated[Path | None, _option("--env-file", text="File of NAME=VALUE lines.")]
Secret = Annotated[
    Texts, _option("--secret", text="NAME of a variable, or NAME=@FILE: read at each start only.")
]
Workdir = Annotated[
    Path | None, _option("--workdir", text="Directory to ship: what git doesn't ignore, less .irisignore.")
]
Setup = Annotated[str | None, _option("--setup", text="Shell command to run before the task.")]
Preset = Annotated[str | None, _option("--env-preset", text="Variables for jax, torchrun or slurm programs.")]
PriorityName = Annotated[str | None, _option("--priority", text="high, normal or low.")]
RetriesFailure = Annotated[int | None, _option("--max-retries-failure", text="Tries after a failure.")]
RetriesPreemption = Annotated[
    int | None, _option("--max-retries-preemption", text="Tries after a lost host.")
]
TaskFailures = Annotated[
    int | None, _option("--max-task-failures", text="Failed tasks that the job survives.")
]
SchedulingTimeout = Annotated[
    str | None, _option("--scheduling-timeout", text="Give up if not placed by then.")
]
Timeout = Annotated[str | None, _option("--timeout", text="Time limit of each task: 90s, 10m, 2h.")]
SetupTimeout = Annotated[str | None, _option("--setup-timeout", text="Time limit of --setup.")]
Grace = Annotated[str | None, _option("--grace", text="Time between SIGTERM and SIGKILL.")]
Lease = Annotated[str | None, _option("--lease", text="Stop a task that nobody could ask about for so long.")]
ReplaceLost = Annotated[
    str | None, _option("--replace-lost", text="Whose long silence is death: never, preemptible or always.")
]
Label = Annotated[Texts, _option("--label", text="NAME=VALUE, to find the job by.")]
After = Annotated[Texts, _option("--after", text="Start when this job has succeeded.")]
Ports = Annotated[
    Texts, _option("--ports", text="Names of ports, such as http,metrics: IRIS_PORT_HTTP has a free number.")
]
Signal = Annotated[
    str | None,
    _option("--signal", text="USR1@120: this signal, 120 s before --timeout; a stop sends SIGTERM only."),
]
Array = Annotated[
    str | None, _option("--array", text="A task for each index: 0-9,20 or 0-99%4, four at a time.")
]
EachLine = Annotated[Path | None, _option("--each-line", text="A task for each line of this file.")]
Force = Annotated[bool, typer.Option("--force", help="Queue it even if no worker could run it now.")]
NoInherit = Annotated[
    bool,
    typer.Option("--no-inherit-constraints", help="Inside a task: without the constraints of its job."),
]
RequestId = Annotated[
    str | None, _option("--request-id", text="Inside a task: the same id is answered the same, ever again.")
]
