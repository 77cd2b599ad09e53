"""The tree of commands for typer: global options, and one module per command or group."""

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, cast

import typer
from msgspec import Struct
from typer.core import TyperCommand

from iris_cli import __version__
from iris_cli.cli import command_types, failures
from iris_cli.cli.context import Context
from iris_cli.clock import SYSTEM_CLOCK, Clock
from iris_cli.errors import ExitCode, NotFoundError, NotWritableError
from iris_cli.render.console import Output

_EXAMPLES = """
iris  # suggest what to do next
iris launch --tpu v5litepod-16 -- python3 train.py
iris status
iris logs train-1 --follow
"""


class Root(command_types.Group):
    """The root group. Its help lists the commands in sections."""

    sections: ClassVar[Mapping[str, Sequence[str]]] = {
        "Jobs": (
            *("launch", "run", "status", "logs", "why", "wait", "cancel", "retry", "hold", "release", "set"),
            *("pull", "history", "report", "export"),
        ),
        "Running jobs": ("exec", "ssh", "forward", "stacks", "register-endpoint"),
        "Cycles": ("loop", "schedule", "watch", "cron", "autoscale"),
        "Cluster": ("workers", "worker", "metrics", "doctor", "gc", "log"),
        "Set-up": ("init", "cluster", "config", "demo"),
    }

    def invoke(self, ctx: Any) -> Any:
        """Run the command. Raises CommandInterruptedError on Ctrl-C; typer would exit without a message."""
        try:
            try:
                return super().invoke(ctx)
            except (NotFoundError, NotWritableError) as error:
                if isinstance(ctx.obj, Context):
                    ctx.obj.prepare_error(error)
                raise
            finally:
                if isinstance(ctx.obj, Context):  # false if a global option was invalid
                    ctx.obj.leave()
        except KeyboardInterrupt:
            raise failures.CommandInterruptedError("interrupted") from None

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the commands before the global options, which are rarely looked up."""
        self.format_commands(ctx, formatter)
        TyperCommand.format_options(cast(TyperCommand, self), ctx, formatter)


COMMANDS = tuple(name for names in Root.sections.values() for name in names)
"""All commands.

Each module `cli/commands/NAME.py` has EXAMPLES and a function NAME, or `NAME_` if Python uses the name. The function
gets the Context and the options. CLS is the class of the command. The module of a group has HELP, EXAMPLES, COMMANDS
with their examples, and HIDDEN commands.
"""


def run(words: Sequence[str], commands: Sequence[str], clock: Clock = SYSTEM_CLOCK) -> int:
    """Run a command line with these commands; return the exit code. Raises UsageError if the line is invalid."""
    try:
        code = parser(tuple(commands))(args=words, prog_name="iris", standalone_mode=False, obj=clock)
        return int(code or ExitCode.OK)
    except typer.TyperException as error:
        invalid = command_types.usage_error(error)
        if tuple(commands) == ("run",):  # its other exit codes are those of the program
            invalid.exit_code = ExitCode.NOT_RUN
        raise invalid from None


@cache
def parser(commands: tuple[str, ...]) -> Any:
    """Return a parser with only these commands, because importing a command takes time.

    A process that runs many lines makes each parser once.
    """
    app = command_types.Commands(
        name="iris",
        cls=Root,
        help="Run jobs on the TPU slices (or any SSH hosts) you already have.",
        epilog=_EXAMPLES,
        add_completion=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_global_options)
    for name in commands:
        module = import_module(f"iris_cli.cli.commands.{name.replace('-', '_')}")
        if hasattr(module, "COMMANDS"):
            app.add_typer(_group(name, module))
        else:
            cls = getattr(module, "CLS", command_types.Command)
            app.command(name, epilog=module.EXAMPLES, cls=cls)(_function(module, name))
    return typer.main.get_command(app)


def _group(name: str, module: Any) -> typer.Typer:
    group = command_types.Commands(name=name, help=module.HELP, epilog=module.EXAMPLES)
    for each, examples in module.COMMANDS.items():
        group.command(each, epilog=examples)(_function(module, each))
    for each, function in getattr(module, "HIDDEN", {}).items():
        group.command(each, hidden=True)(_callback(function))
    return group


def _function(module: Any, name: str) -> Callable[..., Any]:
    word = name.replace("-", "_")
    return _callback(getattr(module, f"{word}_", None) or getattr(module, word))


@cache  # an alias has the function of its command
def _callback(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function for typer, which passes its own context in place of the first argument, `iris`."""

    @wraps(command)
    def call(context: typer.Context, **options: Any) -> Any:
        context.obj.words_after_dashes = context.meta.get(command_types.WORDS_AFTER_DASHES, ())
        return command(context.obj, **options)

    signature = inspect.signature(command, eval_str=True)
    _, *options = signature.parameters.values()
    first = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    call.__signature__ = signature.replace(parameters=[first, *options])  # type: ignore[attr-defined]  # as in job_options
    return call


class VersionDocument(Struct, frozen=True):
    """The result of `iris --version`."""

    version: str


def _global_options(
    context: typer.Context,
    config: Annotated[
        Path | None,
        command_types.option(
            "FILE",
            "cluster.yaml to use (default: IRIS_CONFIG, ./cluster.yaml or ~/.config/iris/cluster.yaml).",
        ),
    ] = None,
    state_dir: Annotated[
        Path | None,
        command_types.option(
            "DIR", "State directory (default: IRIS_STATE_DIR, or state/ next to cluster.yaml)."
        ),
    ] = None,
    lock_timeout: Annotated[
        float | None,
        command_types.option(
            "SECONDS",
            "Longest wait for another iris command's lock (default: 10).",
            min=0,
            callback=command_types.check_seconds,
        ),
    ] = None,
    as_json: Annotated[bool, command_types.flag("--json", "Print JSON.")] = False,
    quiet: Annotated[
        bool, command_types.flag("--quiet -q", "Print only results, warnings and errors.")
    ] = False,
    no_color: Annotated[bool, command_types.flag("--no-color", "No colours.")] = False,
    _verbose: Annotated[
        bool, command_types.flag("--verbose -v", "Show tracebacks.")
    ] = False,  # read by `app.run`
    version: Annotated[bool, command_types.flag("--version", "Show the version.")] = False,
) -> int:
    iris = context.obj = Context(
        config_path=config,
        state_path=state_dir,
        lock_timeout=lock_timeout,
        clock=context.obj,
        output=Output(as_json=as_json, quiet=quiet, color=not no_color),
    )
    if version:
        if as_json:
            iris.output.document(VersionDocument(__version__))
        else:
            iris.output.line(f"iris {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        from iris_cli.ops.setup.next_steps import next_steps
        from iris_cli.render.setup import show_next_steps

        iris.starts_loop = False
        show_next_steps(iris.output, next_steps(iris, os.environ, Path.home()))
    return ExitCode.OK
