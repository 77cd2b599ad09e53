"""The `iris` command: global options, and one module for each command."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from iris_cli import __version__
from iris_cli.cli import failures
from iris_cli.cli.context import Context
from iris_cli.errors import ExitCode, IrisError, UsageError
from iris_cli.render.console import Output

_FLAGS = frozenset({"--json", "--quiet", "-q", "--no-color", "--verbose", "-v"})
_VALUED = frozenset({"--config", "--state-dir", "--lock-timeout"})

# In the order of --help: each module `cli/NAME.py` has `register(app)`.
COMMANDS = ("launch", "status", "schedule", "watch", "cancel", "logs", "wait", "why", "history", "workers")
SETUP_COMMANDS = ("worker", "init", "config", "doctor", "log", "demo")


def main() -> None:
    """The entry point of the `iris` command. SIGTERM ends it as Ctrl-C does, with the terminal in order."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns its exit code."""
    words = hoist(arguments) or ["--help"]
    verbose = "--verbose" in words or "-v" in words
    try:
        code = build(_command_of(words))(args=words, prog_name="iris", standalone_mode=False)
        sys.stdout.flush()
        return int(code or ExitCode.OK)
    except BrokenPipeError:
        # Whoever read us has gone (`iris history | head`): nothing is wrong, and nobody is there to be told.
        sys.stderr.close()
        return ExitCode.OK
    except IrisError as error:
        return failures.report(error, verbose=verbose)
    except typer.Abort:
        return ExitCode.INTERRUPTED
    except typer.TyperException as error:
        return failures.report(UsageError(error.format_message(), hint=_help_of(error)), verbose=verbose)
    except Exception as error:
        return failures.report(failures.unexpected(error), verbose=verbose)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return ExitCode.INTERRUPTED


def build(command: str = "") -> typer.Typer:
    """The command tree, or as much of it as one command needs: each takes time to build.

    Modules of commands import what they need when they run.
    """
    app = typer.Typer(
        name="iris",
        help="Run jobs on the TPU slices (or any SSH hosts) you already have.",
        no_args_is_help=True,
        add_completion=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_global_options)
    every = (*COMMANDS, *SETUP_COMMANDS)
    for name in (command,) if command in every else every:
        import_module(f"iris_cli.cli.{name}").register(app)
    return app


def hoist(arguments: Sequence[str]) -> list[str]:
    """The command line with global options first: they may stand anywhere before `--`."""
    front: list[str] = []
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word in _FLAGS or ("=" in word and word.partition("=")[0] in _VALUED):
            front.append(word)
        elif word in _VALUED:
            front += [word, *(next(words, None) or "",)]
        else:
            rest.append(word)
    return front + rest


def _command_of(words: Sequence[str]) -> str:
    """The first word that is neither a global option nor its value, if there is one."""
    rest = iter(words)
    for word in rest:
        if word in _VALUED:
            next(rest, None)
        elif not word.startswith("-"):
            return word
    return ""


def _help_of(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)  # only errors of usage have one
    return f"{context.command_path if context is not None else 'iris'} --help"


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"iris {__version__}")
        raise typer.Exit


def _global_options(
    context: typer.Context,
    config: Annotated[Path | None, typer.Option(help="cluster.yaml to use.", show_default=False)] = None,
    state_dir: Annotated[
        Path | None, typer.Option(help="State directory to use.", show_default=False)
    ] = None,
    lock_timeout: Annotated[
        float | None,
        typer.Option(help="Seconds to wait for another iris command.", show_default=False, min=0),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print results only.")] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="No colours.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show tracebacks.")] = False,
    _show_version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    context.obj = Context(
        config_path=config,
        state_path=state_dir,
        lock_timeout=lock_timeout,
        verbose=verbose,
        output=Output(as_json=as_json, quiet=quiet, color=not no_color),
    )
