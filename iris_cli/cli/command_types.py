"""Typer classes for commands and groups, constructors of options, and usage errors."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from iris_cli.cli import complete
from iris_cli.cli.context import Context as Context  # each command needs it, too
from iris_cli.core import check_utf8, clip, did_you_mean, nearest
from iris_cli.core.model.job_fields import OPTIONS_OF_OTHER_TOOLS
from iris_cli.core.units import parse_duration, parse_index, parse_number, parse_whole
from iris_cli.errors import ExitCode, UsageError

T = TypeVar("T", bound=Callable[..., Any])
N = TypeVar("N", int, float)

_MAX_ALIGNED = 60  # the comments of longer examples are not aligned
_MIN_INTERVAL = 0.1  # seconds
_MAX_SECONDS = 1e9  # about thirty years; system calls accept this timeout


def check_seconds(value: float | None) -> float | None:
    """Return a number of seconds to wait. Raises BadParameter if it is too large or not a number."""
    if value is not None and not value <= _MAX_SECONDS:  # also true for nan
        raise typer.BadParameter(f"{value} is not a number of seconds to wait")
    return value


def _parser(parse: Callable[[str], N]) -> Callable[[str], N]:
    """Return `parse` as a parser of options that raises BadParameter."""

    def parse_option(text: str) -> N:
        try:
            return parse(text)
        except UsageError as error:
            raise typer.BadParameter(error.message) from error

    return parse_option


whole_number, whole_index, number = _parser(parse_whole), _parser(parse_index), _parser(parse_number)


def parse_path(text: str) -> Path:
    """Parse a path. Raises BadParameter for empty text, often an unset shell variable: it would name this directory."""
    if not text:
        raise typer.BadParameter("must not be blank")
    return Path(text)


def parse_interval(text: str) -> float:
    """Parse a duration, such as `10s` or `10`, between repetitions. Raises BadParameter."""
    seconds = _parser(parse_duration)(text)
    if seconds < _MIN_INTERVAL:
        raise typer.BadParameter(f"{clip(text)} is less than {_MIN_INTERVAL}s")
    check_seconds(seconds)
    return seconds


def example_lines(epilog: str | None) -> Iterator[str]:
    """Yield the examples of a command as lines with aligned comments: `COMMAND # COMMENT`."""
    pairs = [line.strip().partition("  # ") for line in (epilog or "").splitlines() if line.strip()]
    lengths = [len(command) for command, _, comment in pairs if comment]
    width = max((length for length in lengths if length <= _MAX_ALIGNED), default=0)
    for command, _, comment in pairs:
        yield f"{command:<{width}}  # {comment}" if comment else command


def panel_of(param: Any) -> str:
    """Return the heading under which the help lists an option; '' if the command has no headings."""
    return str(getattr(param, "rich_help_panel", None) or "")


class Command(TyperCommand):
    """Command with aligned examples in its help. Its usage line shows metavars unchanged."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except typer.TyperException as error:
            if getattr(error, "ctx", None) is None:  # typer omits the context if an option lacks its value
                error.ctx = ctx  # type: ignore[attr-defined]  # only usage errors have one
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        words = [
            str(each.metavar or each.name) for each in self.get_params(ctx) if isinstance(each, TyperArgument)
        ]
        return ["[OPTIONS]", *words]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and then the options, each heading with its options, aligned in one column."""
        params = self.get_params(ctx)
        if not any(panel_of(each) for each in params):
            super().format_options(ctx, formatter)
            return
        sections: dict[str, list[tuple[str, str]]] = {}
        for each in params:
            if (record := each.get_help_record(ctx)) is not None:
                kind = "Arguments" if isinstance(each, TyperArgument) else "Options"
                sections.setdefault(panel_of(each) or kind, []).append(record)
        width = max(len(name) for name, _ in chain(*sections.values()))
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{width}}", words) for name, words in records], col_max=width)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - the library passes it
        _write_examples(self.epilog, formatter)


class Group(TyperGroup):
    """Group of commands. `sections`: headings of the help and their commands. If empty, all have one heading."""

    sections: ClassVar[Mapping[str, Sequence[str]]] = {}

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - the library passes it
        _write_examples(self.epilog, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not self.invoke_without_command and not ctx.resilient_parsing:
            if ctx.obj.output.as_json:
                raise UsageError(f"`{ctx.command_path}` needs a command", hint=f"{ctx.command_path} --help")
            typer.echo(ctx.get_help(), err=True)
            ctx.exit(ExitCode.USAGE)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and not ctx.resilient_parsing:
            raise unknown_command_error(ctx.command_path, args[0], dict(self.commands))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - the library passes it
        width = max(map(len, self.commands), default=0)
        for title, names in (self.sections or {"Commands": tuple(self.commands)}).items():
            shown = [name for name in names if name in self.commands and not self.commands[name].hidden]
            rows = [
                (f"{name:<{width}}", self.commands[name].get_short_help_str(limit=1_000)) for name in shown
            ]
            with formatter.section(title):
                formatter.write_dl(rows, col_max=width)


class Commands(typer.Typer):
    """Typer application that registers Command and Group classes."""

    def __init__(self, *, cls: type[TyperGroup] = Group, **settings: Any) -> None:
        super().__init__(cls=cls, **settings)
        self.callback()(lambda: None)  # otherwise typer replaces a group of one command by the command

    def command(
        self, name: str | None = None, *, cls: type[TyperCommand] | None = Command, **settings: Any
    ) -> Callable[[T], T]:
        return super().command(name, cls=cls, **settings)


def _write_examples(epilog: str | None, formatter: Any) -> None:
    lines = list(example_lines(epilog))
    if lines:
        with formatter.section("Examples"):
            for line in lines:  # write each on one line: a wrapped command can't be pasted
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")


WORDS_AFTER_DASHES = "iris.words_after_dashes"
"""Key of the words in typer's context."""


class CommandAfterDashes(Command):
    """Command that takes the words after `--` as a program's command line, without parsing them."""

    command_metavar = "-- COMMAND..."

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), self.command_metavar]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            dashes = args.index("--")
            ctx.meta[WORDS_AFTER_DASHES] = tuple(args[dashes + 1 :])
            args = args[:dashes]
        return super().parse_args(ctx, args)


class CommandAfterOptionalDashes(CommandAfterDashes):
    """Command that accepts an optional program's command line after `--`."""

    command_metavar = "[-- COMMAND...]"


def command_words(iris: Context) -> tuple[str, ...]:
    """Return the words after `--`, or an empty tuple. Raises UsageError for a word that is not UTF-8."""
    for index, word in enumerate(iris.words_after_dashes):
        check_utf8(f"argument {index}", word)
    return iris.words_after_dashes


# Constructors of arguments and options. Options that several commands share.


def argument(metavar: str, text: str, offer: complete.Callback | None = None, **settings: Any) -> Any:
    """Return an argument. `text`: help. `offer`: shell completion."""
    return option(metavar, text, offer=offer, kind=typer.Argument, **settings)


def flag(names: str, text: str, **settings: Any) -> Any:
    """Return an option without a value. `names`: separated by blanks. `text`: help."""
    return typer.Option(*names.split(), help=text, **settings)


def option(
    value: str | None,
    text: str,
    *names: str,
    offer: complete.Callback | None = None,
    kind: Callable[..., Any] = typer.Option,
    show_default: bool = False,
    **settings: Any,
) -> Any:
    """Return an option. `value`: metavar. `text`: help. `names`: default from the parameter. `offer`: completion."""
    return kind(*names, metavar=value, help=text, autocompletion=offer, show_default=show_default, **settings)


WorkerName = Annotated[str, argument("WORKER", "Worker id.", complete.WORKER)]
Ranks = Annotated[list[int] | None, option("N", "Only this rank; may be repeated.", parser=whole_index)]
Labels = Annotated[
    list[str] | None,
    option("NAME[=VALUE]", "Only jobs with this label; may be repeated.", offer=complete.LABEL),
]
States = Annotated[
    list[str] | None,
    option(
        "STATE",
        "Only jobs in this state, such as running or retrying; may be repeated.",
        offer=complete.STATE,
    ),
]


# Usage errors of typer in the words of iris, with a suggestion.


_BEFORE_THE_COMMAND = ("version", "install-completion", "show-completion")
"""Global options that `move_global_options` does not move."""


def usage_error(error: typer.TyperException) -> UsageError:
    """Convert an error of typer to a UsageError with a hint."""
    context: Any = getattr(error, "ctx", None)  # only usage errors have one
    path = "iris" if context is None else context.command_path
    message, hint = error.format_message().rstrip("."), f"{path} --help"
    option: str = getattr(error, "option_name", "")
    if option and hasattr(error, "possibilities"):
        message = f"no such option: {clip(option)}"
        near = nearest(clip(option).strip("-"), _options(context))  # compare without the leading dashes
        can_follow = near and (context.parent is None or near not in _BEFORE_THE_COMMAND)
        suggested = _options_of_other_tools(option, _options(context)) or (
            [f"--{near}"] if can_follow else []
        )
        hint = f"did you mean {' or '.join(map(repr, suggested))}?" if suggested else hint
        # True for a global option that `move_global_options` does not move, such as --version.
        if option == f"--{near}":
            hint = f"it goes before the command: iris {option}"
    elif message.startswith(_EXTRA_ARGUMENT):
        words = message.rpartition(" (")[2].rstrip(")")
        message = f"unexpected argument for `{path}`: {clip(words)}"
        if getattr(context.command, "command_metavar", ""):
            hint = f"put -- before the command: -- {clip(words)}"
    for theirs, ours in _REPLACED_WORDS.items():
        message = message.replace(theirs, ours)
    return UsageError(message[:1].lower() + message[1:], hint=hint)


_COMMANDS_OF_OTHER_TOOLS = {
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
"""Names of commands in other tools (Slurm, PBS, LSF, kubectl, docker, SkyPilot), by command of iris."""


def unknown_command_error(path: str, name: str, commands: dict[str, Any]) -> UsageError:
    """Return the error for an unknown command of a group, with the closest command as a hint."""
    word = name.casefold()
    suggested = (
        next((ours for ours, words in _COMMANDS_OF_OTHER_TOOLS.items() if word in words.split()), "")
        if path == "iris"
        else ""
    )
    if path == "iris log" and not nearest(name, commands):
        suggested = f"iris logs {clip(name)}"
    hint = f"did you mean '{suggested}'?" if suggested else did_you_mean(clip(name), commands)
    return UsageError(f"no such command: {path} {clip(name)}", hint=hint or f"{path} --help")


_REPLACED_WORDS = {"a valid float": "a number", "a valid int": "a whole number", "number range": "number"}
_EXTRA_ARGUMENT = "Got unexpected extra argument"


def _options_of_other_tools(option: str, known: Sequence[str]) -> list[str]:
    """Return the options in `known` that other tools call `option`. `known`: the options of this command."""
    return [
        ours
        for ours, words in OPTIONS_OF_OTHER_TOOLS.items()
        if ours.removeprefix("--") in known and option.partition("=")[0] in words.split()
    ]


def _options(context: Any) -> list[str]:
    """Return the options of the command and the global options, without dashes."""
    return [
        name.removeprefix("--")
        for each in (context, context.find_root())
        for option in each.command.get_params(each)
        if isinstance(option, TyperOption)
        for name in option.opts
        if name.startswith("--")
    ]
