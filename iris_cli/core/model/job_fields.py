"""The table of job fields, with one row for each field.

It defines the options of `iris launch`, the keys of job files and of requests from inside tasks, the keywords of the
Python client, and the page on job files. A new field needs a row here, an attribute of `JobRequest` and of `Job`
(`core/model/job.py`), and a keyword of `JobFields` (`client/fields.py`) for type checkers. Tests enforce this.
"""

from collections.abc import Mapping
from enum import Enum, StrEnum, unique
from typing import Any, NamedTuple

from iris_cli.core.constraints import Constraint, ConstraintMode
from iris_cli.core.model.job import EnvPreset, JobRequest, Priority, ReplaceLost


@unique
class Kind(Enum):
    """Notation of a field's value. The texts appear on the page on job files."""

    NAME = "a name"
    TEXT = "text"
    COMMAND = "a list of words, or one line that is split into words"
    SCRIPT = "shell text"
    TPU = "a TPU type, or `auto`"
    GPU = "`MODEL`, `MODEL:COUNT`, `auto`, or a count"
    CORES = "a number"
    SIZE = "bytes, or a size such as `512MiB`, `8GB`"
    POSITIVE = "a whole number, at least 1"
    COUNT = "a whole number"
    FLAG = "`true` or `false`"
    CHOICE = "a word"
    DURATION = "seconds, or a duration such as `90s`, `10m`, `2h`"
    SIGNAL = "`NAME@TIME`"
    ARRAY = "indexes, such as `0-9,20` or `0-99%4`"
    CONSTRAINTS = "a list of constraints"
    TAINTS = "a list of names of taints"
    JOB = "a name of a job"
    JOBS = "a list of names of jobs"
    PORTS = "a list of names of ports"
    SECRETS = "a list of `NAME` or `NAME=@FILE`"
    VARIABLES = "a mapping of names to values"
    LABELS = "a mapping of names to texts"
    GROUP = "`{group_by: ATTRIBUTE}`"
    DIRECTORY = "a directory"
    VARIABLE_FILE = "a file, or a list of files"
    LINES = "a file"
    WORKSPACE = "a packed directory"


RESOURCES = "Resources and tasks"
FILES = "Files and environment"
OUTPUT = "Submission, waiting and output"
NAMES = "Name and order"
RETRIES = "Failures and retries"
TIMES = "Time limits"
PLACEMENT = "Placement"
INSIDE = "Inside a task"


class JobField(NamedTuple):
    """One row. `name` is an attribute of `JobRequest`, a keyword of the client, and the key unless `key` is given."""

    name: str
    kind: Kind
    option: str  # names and placeholder: "--env, -e NAME[=VALUE]"; '': no option
    help: str
    group: str = ""  # its group in `iris launch --help`
    choices: type[StrEnum] | None = None  # the words of a CHOICE
    key: str = ""  # its key in job files, if the key differs from the name
    job_file: bool = True  # allowed in a job file
    defaults: bool = False  # allowed in `defaults:` of cluster.yaml
    client: bool = True  # a keyword of the Python client
    not_inside: str = ""  # the hint if it is refused inside a task; '': it is allowed
    inherited: bool = False  # a child job inherits it unless its request overrides it
    into: str = ""  # the name of the field that it sets, if it is another notation of that field

    @property
    def file_key(self) -> str:
        return self.key or self.name

    @property
    def flags(self) -> tuple[str, ...]:
        """The spellings of its option: `--env` and `-e`, or `--keep-going/--fail-fast`."""
        return tuple(word.rstrip(",") for word in self.option.split() if word.startswith("-"))

    @property
    def metavar(self) -> str:
        """The placeholder for the value of its option; '' for a flag."""
        return " ".join(word for word in self.option.split() if not word.startswith("-"))


_OPERATOR_ONLY = "submit a child job with the same command"  # `again` gives access to the fields of any job

# A row has one or two lines; the formatter would use up to ten.
# fmt: off
_COMMAND = (
    JobField("command", Kind.COMMAND, "", "Program to run, and its arguments.", client=False),
    JobField("script", Kind.SCRIPT, "", "Shell text to run in place of a command.", into="command", client=False),
)

_RESOURCES = (
    JobField("tpu", Kind.TPU, "--tpu TYPE", "TPU type, such as v5litepod-16; auto for any type."),
    JobField("gpu", Kind.GPU, "--gpu MODEL", "GPU model, or auto for any model; MODEL:N or N for N GPUs."),
    JobField("cpu", Kind.CORES, "--cpu CORES", "Cores for each task.", defaults=True),
    JobField("memory", Kind.SIZE, "--memory SIZE", "Memory for each task, such as 8GB; also its limit.", defaults=True),
    JobField("replicas", Kind.POSITIVE, "--replicas N", "Number of tasks."),
    JobField("slices", Kind.POSITIVE, "--slices N", "Number of slices, or groups, of a gang."),
    JobField("array", Kind.ARRAY, "--array INDICES",
             "One task per index: 0-9,20 or 0-99%4 (four at a time)."),
    JobField("each_line", Kind.LINES, "--each-line FILE", "One task per line of this file."),
)

_FILES = (
    JobField("workdir", Kind.DIRECTORY, "--workdir DIR",
             "Directory to ship, without files that git or .irisignore ignores.",
             not_inside="pack it inside the task and pass `workspace`"),
    JobField("env", Kind.VARIABLES, "--env, -e NAME[=VALUE]",
             "Variable of the task; -e NAME copies its value from this shell.",
             defaults=True, inherited=True),
    JobField("env_file", Kind.VARIABLE_FILE, "--env-file FILE", "Read variables from FILE, one NAME=VALUE per line.",
             into="env", client=False, not_inside="use `env`"),
    JobField("secrets", Kind.SECRETS, "--secret NAME[=@FILE]",
             "Secret variable, read from this shell or FILE at each start; never stored."),
    JobField("setup", Kind.TEXT, "--setup COMMAND", "Shell command to run before the task.", inherited=True),
    JobField("env_preset", Kind.CHOICE, "--env-preset NAME", "Variables for jax, torchrun or slurm programs.",
             choices=EnvPreset),
    JobField("ports", Kind.PORTS, "--ports NAMES",
             "Names of ports, such as http,metrics; IRIS_PORT_HTTP is set to a free port."),
    JobField("image", Kind.TEXT, "--image IMAGE", "Container image to run the task in, by docker or podman."),
)

_OUTPUT = (
    JobField("again", Kind.JOB, "--again JOB", "Submit an ended job again; options override its fields.",
             job_file=False, client=False, not_inside=_OPERATOR_ONLY),
    JobField("failed", Kind.FLAG, "--failed", "With --again: only the tasks of an array that did not succeed.",
             job_file=False, client=False, not_inside=_OPERATOR_ONLY),
    JobField("client", Kind.TEXT, "", "The client of `iris run`, on whose terminal the program runs.",
             job_file=False, client=False, not_inside="a task has no terminal"),
    JobField("job_script", Kind.TEXT, "", "The job script, which is shipped and run.",
             job_file=False, client=False, not_inside="pack it inside the task and pass `workspace`"),
    JobField("force", Kind.FLAG, "--force",
             "Submit the job even if no worker can run it, or a secret or program is missing."),
)

_NAMES = (
    JobField("name", Kind.NAME, "--name NAME", "Name of the job (default: derived from the command)."),
    JobField("labels", Kind.LABELS, "--label NAME=VALUE", "Label to filter by."),
    JobField("priority", Kind.CHOICE, "--priority NAME", "high, normal or low.",
             choices=Priority, defaults=True, inherited=True),
    JobField("after", Kind.JOBS, "--after JOB", "Job that must succeed before this one starts."),
)

_RETRIES = (
    JobField("max_retries_failure", Kind.COUNT, "--max-retries-failure N",
             "Retries after a failure (default: 0).", defaults=True),
    JobField("max_retries_preemption", Kind.COUNT, "--max-retries-preemption N",
             "Retries after a lost host (default: 100).", defaults=True),
    JobField("max_task_failures", Kind.COUNT, "--max-task-failures N",
             "Number of failed tasks to tolerate.", defaults=True),
    JobField("keep_going", Kind.FLAG, "--keep-going/--fail-fast",
             "Continue or stop the other tasks after one failed (default: continue only in arrays)."),
    JobField("replace_lost", Kind.CHOICE, "--replace-lost WHEN",
             "Reschedule tasks of unreachable workers: never, preemptible or always.", choices=ReplaceLost),
)

_TIMES = (
    JobField("timeout", Kind.DURATION, "--timeout TIME", "Time limit of each task: 90s, 10m, 2h.", defaults=True),
    JobField("scheduling_timeout", Kind.DURATION, "--scheduling-timeout TIME",
             "Give up if not placed within this time.", defaults=True),
    JobField("setup_timeout", Kind.DURATION, "--setup-timeout TIME", "Time limit of --setup (default: 30m).",
             defaults=True),
    JobField("grace", Kind.DURATION, "--grace TIME", "Time between SIGTERM and SIGKILL (default: 30s).",
             defaults=True),
    JobField("signal", Kind.SIGNAL, "--signal NAME@SECONDS",
             "Signal to send before --timeout: USR1@120 is 120 s before it."),
    JobField("lease", Kind.DURATION, "--lease TIME",
             "Stop the task if iris has not reached its worker for this long."),
    JobField("silent_after", Kind.DURATION, "--silent-after TIME",
             "Mark a task quiet after this long without output (default: 30m; 0: never)."),
)

_PLACEMENT = (
    JobField("constraints", Kind.CONSTRAINTS, "--constraint, -c TEXT",
             "Only workers that match: pool=a, !spot, rack>=2.", client=False, inherited=True),
    JobField("prefer", Kind.CONSTRAINTS, "--prefer TEXT", "Soft constraint: prefer matching workers.",
             into="constraints"),
    JobField("tolerate", Kind.TAINTS, "--tolerate TAINT", "Allow workers with this taint."),
    JobField("group_by", Kind.GROUP, "--group-by ATTRIBUTE",
             "Run as a gang on workers that share this attribute.", key="coscheduling"),
    JobField("spread", Kind.FLAG, "--spread", "Allow the slices of a gang to be in several regions."),
)

_INSIDE = (
    JobField("workspace", Kind.WORKSPACE, "", "Directory that was packed inside the task.",
             job_file=False, client=False, inherited=True),
    JobField("inherit_constraints", Kind.FLAG, "", "Whether the child has the constraints of its parent.",
             job_file=False, client=False),
)

_GROUPS = (
    ("", _COMMAND), (RESOURCES, _RESOURCES), (FILES, _FILES), (OUTPUT, _OUTPUT), (NAMES, _NAMES),
    (RETRIES, _RETRIES), (TIMES, _TIMES), (PLACEMENT, _PLACEMENT), (INSIDE, _INSIDE),
)
# fmt: on

JOB_FIELDS = tuple(row._replace(group=group) for group, rows in _GROUPS for row in rows)
"""All rows, in the order of `iris launch --help`."""


OPTIONS_OF_OTHER_TOOLS = {
    "--replicas": "-n --ntasks --tasks -N --nodes --num-nodes",
    "--slices": "-N --nodes --num-nodes",
    "--gpu": "-G --gpus --gres --accelerators --gpus-per-task --gpus-per-node",
    "--cpu": "--cpus-per-task",
    "--timeout": "-t --time",
    "--max-retries-failure": "--retries --max-retries --restarts",
    "--constraint": "-p -C --partition --queue --nodelist --node-selector",
    "--after": "-d --dependency",
    "--name": "-J --job-name",
}
"""Names of options in other tools, by option of iris. A name may be listed for several options."""


def request_of(given: Mapping[str, Any]) -> JobRequest:
    """Return the request with these fields. `prefer`, `env_file` and `script` are merged into other fields."""
    fields = dict(given)
    script, prefer, variables = (fields.pop(name, None) for name in ("script", "prefer", "env_file"))
    if script is not None and fields.get("command") is None:
        fields["command"] = script
    if prefer:
        soft = (
            Constraint(each.key, each.op, each.value, each.values, ConstraintMode.PREFERRED)
            for each in prefer
        )
        required = fields.get("constraints")
        if required is not None and not required:
            fields["inherit_constraints"] = False  # the list is no longer empty, but still inherits nothing
        fields["constraints"] = (*(required or ()), *soft)
    if variables is not None:
        fields["env"] = {**variables, **(fields.get("env") or {})}
    return JobRequest(**fields)
