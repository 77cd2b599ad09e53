"""What can't be read on a command line, in our words: what is wrong, and what was probably meant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperOption

from iris_cli.core.ids import clip
from iris_cli.core.model.job_fields import OPTIONS_ELSEWHERE
from iris_cli.core.text import did_you_mean, nearest
from iris_cli.errors import UsageError


def told(error: typer.TyperException) -> UsageError:
    """An error of the library for command lines as one of ours."""
    context: Any = getattr(error, "ctx", None)  # only errors of usage have one
    path = "iris" if context is None else context.command_path
    message, hint = error.format_message().rstrip("."), f"{path} --help"
    option: str = getattr(error, "option_name", "")
    if option and hasattr(error, "possibilities"):
        message = f"no such option: {clip(option)}"
        near = nearest(clip(option).strip("-"), _options(context))  # all of them begin with dashes
        meant = _meant(option, _options(context)) or ([f"--{near}"] if near else [])
        hint = f"did you mean {' or '.join(map(repr, meant))}?" if meant else hint
        if option == f"--{near}":  # it is one that isn't moved to the front, such as --version
            hint = f"it goes before the command: iris {option}"
    elif message.startswith(_TOO_MANY):
        words = message.rpartition(" (")[2].rstrip(")")
        message = f"unexpected argument for `{path}`: {clip(words)}"
        if getattr(context.command, "command_metavar", ""):
            hint = f"put -- before the command: -- {clip(words)}"
    for theirs, ours in _WORDS.items():
        message = message.replace(theirs, ours)
    return UsageError(message[:1].lower() + message[1:], hint=hint)


_ELSEWHERE = {
    "launch": "sbatch srun salloc start submit qsub bsub up create apply rerun resubmit",
    "status": "ls ps list queue squeue qstat bjobs job jobs show get describe info kubectl scontrol",
    "cancel": "kill scancel stop delete del rm qdel bkill down abort",
    "retry": "requeue restart bounce brequeue qrerun",
    "hold": "suspend pause uhold bstop qhold",
    "release": "resume unhold qrls bresume",
    "set": "update modify alter edit qalter bmod",
    "logs": "tail cat attach sattach bpeek output",
    "why": "explain sprio",
    "workers": "nodes sinfo bhosts hosts slices",
    "watch": "top monitor",
    "history": "events sacct bhist audit",
    "ssh": "shell login connect",
    "forward": "port-forward tunnel expose proxy",
    "pull": "cp scp download fetch sync rsync",
    "export": "convert translate kompose",
    "doctor": "check diagnose",
    "worker drain": "drain cordon",
    "worker uncordon": "uncordon",
    "worker taint": "taint",
    "cluster import": "import",
    "config validate": "validate lint",
    "init": "setup configure",
}
"""Commands, and the words that other tools have for them: Slurm, PBS, LSF, kubectl, docker, SkyPilot."""


def no_such_command(path: str, name: str, commands: dict[str, Any]) -> UsageError:
    """Return the error for a name that is no command of the group, with the command that was probably meant."""
    word = name.casefold()
    meant = (
        next((ours for ours, words in _ELSEWHERE.items() if word in words.split()), "")
        if path == "iris"
        else ""
    )
    hint = f"did you mean '{meant}'?" if meant else did_you_mean(clip(name), commands)
    return UsageError(f"no such command: {path} {clip(name)}", hint=hint or f"{path} --help")


_WORDS = {"a valid float": "a number", "a valid int": "a whole number", "number range": "number"}
_TOO_MANY = "Got unexpected extra argument"


def _meant(option: str, there: Sequence[str]) -> list[str]:
    """The options of this command that have that name in other tools."""
    return [
        ours
        for ours, words in OPTIONS_ELSEWHERE.items()
        if ours.removeprefix("--") in there and option.partition("=")[0] in words.split()
    ]


def _options(context: Any) -> list[str]:
    """The options that may stand here, without dashes: those of the command, and those that may stand anywhere."""
    return [
        name.removeprefix("--")
        for each in (context, context.find_root())
        for option in each.command.get_params(each)
        if isinstance(option, TyperOption)
        for name in option.opts
        if name.startswith("--")
    ]
