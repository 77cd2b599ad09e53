"""Run Slurm's commands, classify their errors, and read the output of squeue, sacct, scontrol and sinfo.

Sources of the formats: the manual pages of Slurm 22.05 (https://slurm.schedmd.com/archive/slurm-22.05.9/), and its
`slurm.h` for the names of states. Names and reasons can contain any character, so only a line feed ends a line, and
the last field of a line may contain the separator. Lines in another format are skipped.
"""

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from iris_cli.capacity.provider import ProviderError
from iris_cli.core import SliceHost, clip
from iris_cli.core.messages.cloud import CloudState, Refusal
from iris_cli.core.model.slice import SLURM_VARIABLES

TIMEOUT = 60.0
"""Seconds after which a command is killed. The command may have taken effect."""
ENVIRONMENT: Mapping[str, str] = {"LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}
"""Variables for Slurm's commands: English messages, and times in seconds since the epoch."""
_MAX_TEXT = 400  # characters of Slurm's text


class CommandOutput(NamedTuple):
    """The exit status and output of a command that has exited."""

    status: int
    stdout: str
    stderr: str


Run: TypeAlias = Callable[[Sequence[str]], CommandOutput]
"""Function that runs one command of Slurm. Raises ProviderError (UNANSWERED) if the command did not exit."""


def run_here(command: Sequence[str]) -> CommandOutput:
    """Run a command of Slurm on this machine. A missing command has exit status 127, as in a shell."""
    names = (*SLURM_VARIABLES, "SLURM_JWT")  # SLURM_JWT is the user's token for slurmctld
    env = {name: os.environ[name] for name in names if name in os.environ}
    try:
        result = subprocess.run(  # noqa: S603 - Slurm's programs, and arguments that were checked
            list(command),
            env={**env, **ENVIRONMENT},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ProviderError(Refusal.UNANSWERED, f"{command[0]}: no answer after {TIMEOUT:g}s") from error
    except OSError as error:
        return CommandOutput(127, "", f"{error.strerror} (is Slurm installed on this machine?)")
    return CommandOutput(result.returncode, result.stdout, result.stderr)


# Words of Slurm's error messages. Source: `slurm_errno.c` of Slurm 22.05. Later releases use the same words.

_REFUSALS = (
    (
        Refusal.UNANSWERED,
        r"contact slurm controller|socket timed out|connection refused|zero bytes|temporarily unable"
        r"|communications? |resource temporarily|timed out|is not ready|host is down|unable to resolve",
    ),
    (Refusal.DENIED, r"permission|authentication|credential|not permitted|protocol authentication|munge"),
    (Refusal.QUOTA, r"limit|qos policy|accounting/qos"),
    (
        Refusal.INVALID,
        r"node configuration is not available|invalid|unrecognized|unknown|more processors|can ?not|does not exist",
    ),
)


def convert_error(command: str, result: CommandOutput) -> ProviderError:
    """Convert the result of a failed command. After an unknown error the command may have taken effect."""
    words = one_line(result.stderr) or f"exit status {result.status} without a message"
    if result.status in (126, 127):
        return ProviderError(Refusal.DENIED, f"{command}: {words}")
    kind = next(
        (kind for kind, text in _REFUSALS if re.search(text, words, re.IGNORECASE)), Refusal.UNANSWERED
    )
    return ProviderError(kind, f"{command}: {words}")


def one_line(text: str) -> str:
    """Return Slurm's message as one line of bounded length, without the name of the program."""
    lines = (re.sub(r"^\w+: (error: )?", "", line.strip()) for line in text.splitlines())
    return printable("; ".join(dict.fromkeys(line for line in lines if line)))


def printable(text: str) -> str:
    """Return Slurm's text with `?` for control characters, and of bounded length."""
    return clip("".join(char if char.isprintable() else "?" for char in text), _MAX_TEXT)


SEPARATOR = "\x1f"  # separates the fields of a line
SQUEUE_FORMAT = SEPARATOR.join(("%A", "%V", "%e", "%U", "%T", "%N", "%j", "%k", "%r"))
SACCT_FORMAT = "JobIDRaw,Submit,State,NodeList,Reason"
SINFO_FORMAT = SEPARATOR.join(("%N", "%T", "%E"))

# All other states, such as PENDING and REQUEUED, count as CREATING.
_STATE_NAMES = {
    # STOPPED means stopped by a signal: the processes of the job exist.
    CloudState.READY: "RUNNING RESIZING SIGNALING STOPPED SUSPENDED",
    CloudState.DELETING: "COMPLETING STAGE_OUT",
    CloudState.ENDED: """
BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED LAUNCH_FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED RECONFIG_FAIL REVOKED
TIMEOUT
""",
}
_STATES = {name: state for state, names in _STATE_NAMES.items() for name in names.split()}
_NODES_MAY_BE_DOWN = frozenset({"NODE_FAIL", "BOOT_FAIL", "REVOKED", "LAUNCH_FAILED"})
_ABSENT = frozenset({"", "None", "(null)", "None assigned"})  # texts for an absent reason or node list
_GRANT = re.compile(r"(?:^|\s)Nodes=(\S+) CPU_IDs=(\S+) Mem=(\d+) GRES=(\S*)")
_GPU_INDEXES = re.compile(r"gpu[^(,]*\(IDX:([0-9,-]*)\)")
_WORKING = re.compile(r"(idle|mixed|allocated|completing|reserved|planned|blocked)[~#%$@^!+-]*")


class SlurmJob(Struct, frozen=True, kw_only=True):
    """A job of Slurm. Times are seconds since the epoch, None if unknown. `nodes` is a host list such as `n[0-3]`."""

    id: int
    state: str
    name: str = ""
    comment: str = ""
    uid: str = ""
    reason: str = ""
    nodes: str = ""
    submitted: int = 0
    ends_at: int | None = None

    @property
    def order(self) -> tuple[int, int]:
        """A sort key: the order of submission."""
        return self.submitted, self.id

    @property
    def incarnation(self) -> str:
        """The id and the time of submission, because ids start again if a site resets its Slurm."""
        return f"{self.id} {self.submitted}"

    @property
    def cloud_state(self) -> CloudState:
        """The state of the slice. An unknown state counts as CREATING, because it does not prove an end."""
        return _STATES.get(self.state, CloudState.CREATING)

    @property
    def has_ended(self) -> bool:
        return self.cloud_state is CloudState.ENDED

    @property
    def processes_may_be_gone(self) -> bool:
        """True if Slurm may have killed all processes of the job: it ended, and its nodes answered Slurm."""
        return self.has_ended and self.state not in _NODES_MAY_BE_DOWN

    def describe(self) -> str:
        """Return the job's state and Slurm's reason: `Slurm job 12: TIMEOUT (TimeLimit)`."""
        reason = "" if self.reason in _ABSENT else f" ({self.reason})"
        return f"Slurm job {self.id}: {self.state}{reason}"


def parse_squeue(text: str) -> list[SlurmJob]:
    """Return the jobs in the output of `squeue --format=SQUEUE_FORMAT`."""
    rows = _rows(text, SEPARATOR, SQUEUE_FORMAT.count(SEPARATOR))
    return [
        SlurmJob(
            id=int(job),
            state=state,
            name=name,
            comment=comment,
            uid=uid,
            reason=reason,
            nodes=_node_list(nodes),
            submitted=_seconds(submitted) or 0,
            ends_at=_seconds(ends),
        )
        for job, submitted, ends, uid, state, nodes, name, comment, reason in rows
        if job.isdecimal()
    ]


def _rows(text: str, separator: str, separators: int) -> Iterator[list[str]]:
    """Yield the fields of each line with at least this many separators. The last field may contain separators."""
    return (
        line.split(separator, separators) for line in text.split("\n") if line.count(separator) >= separators
    )


def parse_sacct(text: str, job: str) -> SlurmJob | None:
    """Return the job with this id in the output of `sacct --parsable2 --format=SACCT_FORMAT`."""
    for number, submitted, state, nodes, reason in _rows(text, "|", SACCT_FORMAT.count(",")):
        if number == job:
            return SlurmJob(
                id=int(job),
                state=state.partition(" ")[0],  # "CANCELLED by 1000"
                reason=reason,
                nodes=_node_list(nodes),
                submitted=_seconds(submitted) or 0,
            )
    return None


def parse_grants(text: str) -> list[SliceHost]:
    """Return the resources granted on each node in the output of `scontrol --details show job`.

    The `host` of a result is a host list such as `n[0-3]`, whose nodes have the same resources.
    """
    return [
        SliceHost(
            host=nodes,
            cpus=len(list(_indexes(cpus))),
            memory=int(memory) << 20,
            gpus=tuple(index for numbers in _GPU_INDEXES.findall(gres) for index in _indexes(numbers)),
        )
        for nodes, cpus, memory, gres in _GRANT.findall(text)
    ]


def node_troubles(text: str) -> dict[str, str]:
    """Return the trouble of each node, such as `down* (reason)`, in the output of `sinfo --format=SINFO_FORMAT`.

    The trouble of a working node is "". If a node has several lines, return the first trouble.
    """
    found: dict[str, str] = {}
    for node, state, reason in _rows(text, SEPARATOR, SINFO_FORMAT.count(SEPARATOR)):
        words = "" if reason.lower() in ("none", "") else f" ({reason})"
        found[node] = found.get(node) or ("" if _WORKING.fullmatch(state) else f"{state}{words}")
    return found


def tracks_by_cgroup(text: str) -> bool:
    """Return whether Slurm tracks processes by cgroup, according to the output of `scontrol show config`."""
    return re.search(r"^ProctrackType\s*=\s*proctrack/cgroup\s*$", text, re.MULTILINE) is not None


def _indexes(text: str) -> Iterator[int]:
    """Yield the numbers of a list such as `0-3,8`."""
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            yield from range(int(first), int(last or first) + 1)


def _node_list(text: str) -> str:
    return "" if text in _ABSENT else text


def _seconds(text: str) -> int | None:
    return int(text) if text.isdecimal() and text != "0" else None
