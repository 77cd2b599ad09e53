"""Run Slurm's commands, and classify their errors."""

import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from iris_cli.capacity.provider import ProviderError
from iris_cli.core import clip
from iris_cli.core.messages.cloud import Refusal
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
