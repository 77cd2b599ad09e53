"""The `iris` command: from the words of a command line to its exit code."""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, NoReturn, TextIO

from iris_cli.cli import failures, tree
from iris_cli.clock import SYSTEM_CLOCK, Clock
from iris_cli.errors import ExitCode, IrisError, OutputError, UsageError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


FLAGS = frozenset({"--json", "--quiet", "-q", "--no-color", "--verbose", "-v"})
VALUED = frozenset({"--config", "--state-dir", "--lock-timeout"})
_HELP = frozenset({"--help", "-h"})

# In the order of --help: each module `cli/commands/NAME.py` has a function NAME and EXAMPLES, or `register(app)`.
COMMANDS = (
    *("launch", "run", "status", "schedule", "autoscale", "watch", "cancel", "retry"),
    *("hold", "release", "set"),
    *("logs", "pull", "wait", "why"),
    *("history", "report", "metrics", "workers", "exec", "stacks", "ssh", "forward", "register-endpoint"),
    "export",
)
SETUP_COMMANDS = ("worker", "init", "cluster", "config", "cron", "loop", "doctor", "log", "gc", "demo")


def main() -> None:
    """Run the `iris` command.

    SIGTERM and SIGHUP end it as Ctrl-C does: with the terminal in order, and a loop for the jobs that it leaves.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup has it ignored
        signal.signal(signal.SIGHUP, _hang_up)
    sys.unraisablehook = failures.unraised
    open_streams()
    code = run(sys.argv[1:])
    gc.freeze()  # no look for garbage at the end
    if code == ExitCode.INTERRUPTED or _leaves_threads():
        leave(code)
    sys.exit(code)


def _hang_up(*_: object) -> NoReturn:
    """Raise KeyboardInterrupt once: the kernel and the shell both send a SIGHUP when a terminal closes."""
    signal.signal(signal.SIGHUP, lambda *_: None)
    raise KeyboardInterrupt


def leave(code: int) -> NoReturn:
    """End at once, without the interpreter's own end.

    That aborts the process where a thread is inside the library for cryptography, and makes a death by SIGINT of a
    Ctrl-C that was pressed while a module was being made.
    """
    sys.stderr.flush()  # what was printed is out
    os._exit(code)


def _leaves_threads() -> bool:
    """Whether threads still run: of hosts that nobody waits for any more."""
    threading = sys.modules.get("threading")
    return threading is not None and threading.active_count() > 1


def run(arguments: Sequence[str], clock: Clock = SYSTEM_CLOCK) -> int:
    """Run one command line; returns its exit code."""
    flags = set(arguments[: arguments.index("--")] if "--" in arguments else arguments)
    code_of = partial(_code_of, verbose=bool(flags & {"--verbose", "-v"}), as_json="--json" in flags)
    code = code_of(lambda: _run(arguments, clock))
    unsaid = code_of(sys.stdout.flush)
    untold = code_of(lambda: _finish_telling(at_once=code == ExitCode.INTERRUPTED))
    return code or unsaid or untold


def _finish_telling(*, at_once: bool) -> None:
    """See to their end the notices that a cycle has begun to tell, if one has."""
    teller = sys.modules.get("iris_cli.ops.notify.channels")
    if teller is not None:
        teller.finish(at_once=at_once)


def _code_of(act: Callable[[], int | None], *, verbose: bool, as_json: bool) -> int:
    """What an act comes to, as an exit code; what went wrong has been told."""
    try:
        return int(act() or ExitCode.OK)
    except (BrokenPipeError, SystemExit) as ended:
        # The libraries for tables and command lines make a failure of a broken pipe.
        if isinstance(ended, SystemExit) and not isinstance(ended.__context__, BrokenPipeError):
            raise
        # Whoever read us has gone (`iris history | head`): nothing is wrong, and nobody is there to be told.
        drop_output()
        return ExitCode.OK
    except (KeyboardInterrupt, failures.CommandInterruptedError):
        return failures.interrupted(as_json=as_json)
    except IrisError as error:
        if isinstance(error, OutputError):
            drop_output()
        return failures.report(error, verbose=verbose, as_json=as_json)
    except Exception as error:
        return failures.report(failures.unexpected(error), verbose=verbose, as_json=as_json)


def _run(arguments: Sequence[str], clock: Clock) -> int:
    try:
        return _act(hoist(arguments), clock)
    finally:
        progress = sys.modules.get("iris_cli.render.progress")
        if progress is not None:
            progress.LINE.end()  # before anything is said of how it ended


def _act(words: Sequence[str], clock: Clock) -> int:
    """Run a line, with no more of the tree of commands than is needed for what was typed."""
    if "_IRIS_COMPLETE" not in os.environ:
        return tree.run(words, _commands_of(words), clock)
    from iris_cli.cli import complete  # the shell asks what could come next; the library finds the words

    with complete.asked(os.environ) as typed:
        return tree.run(words, _commands_of(typed) or (*COMMANDS, *SETUP_COMMANDS), clock)


def _commands_of(words: Sequence[str]) -> tuple[str, ...]:
    """Return the command that is named; all for help or an unknown name; none for global options alone."""
    named, every = _command_of(words), (*COMMANDS, *SETUP_COMMANDS)
    if named in every:
        return (named,)
    return every if named or not _HELP.isdisjoint(words) else ()


def hoist(arguments: Sequence[str]) -> list[str]:
    """The command line with global options first: they may stand anywhere before `--`.

    Raises UsageError for one without a value, or with an empty one: a path of no letters would be the directory that
    one happens to be in.
    """
    front: list[str] = []
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word in FLAGS:
            front.append(word)
        elif word.partition("=")[0] in VALUED:
            name, sign, value = word.partition("=")
            value = value if sign else next(words, "")
            if not value:
                raise UsageError(f"{name} needs a value", hint="iris --help")
            front += [name, value]
        else:
            rest.append(word)
    return front + rest


def _command_of(words: Sequence[str]) -> str:
    """The first word that is neither a global option nor its value, if there is one."""
    rest = iter(words)
    for word in rest:
        if word in VALUED:
            next(rest, None)
        elif not word.startswith("-"):
            return word
    return ""


# The three streams of the process, also where they are closed, broken, full or borrowed.


def open_streams() -> None:
    """Take the streams over: what becomes of what they can't take is decided here, for every library that prints.

    What was closed for us (`>&-`) goes nowhere: else its number would be that of the next file, the log say.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - open to the end
        elif mode == "w":
            setattr(sys, name, _taken_over(stream, _Results if name == "stdout" else _Messages))


def drop_output() -> None:
    """What is still to be written goes nowhere: the interpreter would try it again at the end, and fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


class _Patient(io.BufferedWriter):
    """Waits for room, also where somebody who shares the file with us made it one that doesn't.

    The raw file below it is Python's own: in one of ours a Ctrl-C may come between the system call and its count,
    and the same text would be written again.
    """

    def write(self, data: ReadableBuffer, /) -> int:
        whole = memoryview(data)
        written = 0
        while True:
            try:
                return written + super().write(whole[written:])
            except BlockingIOError as full:
                written += full.characters_written
                self._wait()

    def flush(self) -> None:
        while True:
            try:
                return super().flush()
            except BlockingIOError:
                self._wait()

    def _wait(self) -> None:
        import select  # hardly ever needed

        select.select((), (self,), ())


class _Results(_Patient):
    """Standard output: who asked for a result and can't have it is told so. Raises OutputError or BrokenPipeError."""

    def write(self, data: ReadableBuffer, /) -> int:
        with _told():
            return super().write(data)

    def flush(self) -> None:
        with _told():
            super().flush()


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"the output could not be written: {error.strerror}") from error


class _Messages(_Patient):
    """Standard error: what can't be said there can't be said at all, and is no reason to do less."""

    def write(self, data: ReadableBuffer, /) -> int:
        with suppress(OSError):
            super().write(data)
        return memoryview(data).nbytes

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


def _taken_over(stream: TextIO, kind: type[io.BufferedWriter]) -> TextIO:
    assert isinstance(stream, io.TextIOWrapper)
    return io.TextIOWrapper(
        kind(io.FileIO(stream.fileno(), "w", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering or stream.write_through,
    )
