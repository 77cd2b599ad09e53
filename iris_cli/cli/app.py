"""Entry point of the `iris` command: parse global options, run a command, return its exit code."""

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


_GLOBAL_FLAGS = frozenset({"--json", "--quiet", "-q", "--no-color", "--verbose", "-v"})
_GLOBAL_OPTIONS = frozenset({"--config", "--state-dir", "--lock-timeout"})
_HELP = frozenset({"--help", "-h"})


def main() -> None:
    """Run the `iris` command.

    SIGTERM and SIGHUP end the command like Ctrl-C: iris restores the terminal, and starts the background
    loop if jobs are open.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup makes the process ignore SIGHUP
        signal.signal(signal.SIGHUP, _handle_hangup)
    sys.unraisablehook = failures.raise_dropped_interrupt
    open_streams()
    code = run(sys.argv[1:])
    gc.freeze()  # exit without a garbage collection
    if code == ExitCode.INTERRUPTED or _has_running_threads():
        leave(code)
    sys.exit(code)


def _handle_hangup(*_: object) -> NoReturn:
    """Raise KeyboardInterrupt, and ignore further SIGHUPs: kernel and shell both send it when a terminal closes."""
    signal.signal(signal.SIGHUP, lambda *_: None)
    raise KeyboardInterrupt


def leave(code: int) -> NoReturn:
    """Exit at once, without the interpreter's shutdown.

    The shutdown would abort the process if a thread is inside the cryptography library. After a Ctrl-C during an
    import, the shutdown would end the process by SIGINT, but iris must exit with 130.
    """
    sys.stderr.flush()  # `run` has flushed stdout
    os._exit(code)


def _has_running_threads() -> bool:
    """Return whether threads still run, such as calls to hosts that timed out."""
    threading = sys.modules.get("threading")
    return threading is not None and threading.active_count() > 1


def run(arguments: Sequence[str], clock: Clock = SYSTEM_CLOCK) -> int:
    """Run one command line; return its exit code."""
    flags = set(arguments[: arguments.index("--")] if "--" in arguments else arguments)
    call = partial(_call_and_report, verbose=bool(flags & {"--verbose", "-v"}), as_json="--json" in flags)
    code = call(lambda: _run(arguments, clock))
    flush_code = call(sys.stdout.flush)
    notify_code = call(lambda: _finish_notifications(at_once=code == ExitCode.INTERRUPTED))
    return code or flush_code or notify_code


def _finish_notifications(*, at_once: bool) -> None:
    """Wait until the notifications of a cycle are sent. `at_once`: send no more of them."""
    notify = sys.modules.get("iris_cli.ops.notify")
    if notify is not None:
        notify.finish(at_once=at_once)


def _call_and_report(action: Callable[[], int | None], *, verbose: bool, as_json: bool) -> int:
    """Run `action`, print its errors, and return the exit code."""
    try:
        return int(action() or ExitCode.OK)
    except (BrokenPipeError, SystemExit) as ended:
        # rich and typer turn a broken pipe into SystemExit.
        if isinstance(ended, SystemExit) and not isinstance(ended.__context__, BrokenPipeError):
            raise
        # The reader of the pipe has exited (`iris history | head`). This is not a failure.
        drop_output()
        return ExitCode.OK
    except KeyboardInterrupt:
        return failures.report_interrupt("interrupted", as_json=as_json)
    except failures.CommandInterruptedError as error:
        return failures.report_interrupt(error.message, as_json=as_json)
    except IrisError as error:
        if isinstance(error, OutputError):
            drop_output()
        return failures.report(error, verbose=verbose, as_json=as_json)
    except Exception as error:
        return failures.report(failures.internal_error(error), verbose=verbose, as_json=as_json)


def _run(arguments: Sequence[str], clock: Clock) -> int:
    """Run a command line. Import only the commands that the line names."""
    try:
        words = move_global_options(arguments)
        if "_IRIS_COMPLETE" not in os.environ:
            return tree.run(words, _commands_to_build(words), clock)
        from iris_cli.cli import complete

        with complete.completion_request(os.environ) as typed:  # typer reads the line from the environment
            return tree.run(words, _commands_to_build(typed) or tree.COMMANDS, clock)
    finally:
        progress = sys.modules.get("iris_cli.render.progress")
        if progress is not None:
            progress.LINE.end()  # clear the progress line before an error is printed


def _commands_to_build(words: Sequence[str]) -> tuple[str, ...]:
    """Return the named command; all for an unknown name, or for --help without a name; otherwise none."""
    named = _find_command(words)
    if named in tree.COMMANDS:
        return (named,)
    return tree.COMMANDS if named or not _HELP.isdisjoint(words) else ()


def move_global_options(arguments: Sequence[str]) -> list[str]:
    """Return the command line with the global options moved to its start. Users may write them anywhere before `--`.

    Raises UsageError if a value is missing or empty. An empty path would be the current directory.
    """
    front: list[str] = []
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word in _GLOBAL_FLAGS:
            front.append(word)
        elif word.partition("=")[0] in _GLOBAL_OPTIONS:
            name, sign, value = word.partition("=")
            value = value if sign else next(words, "")
            if not value:
                raise UsageError(f"{name} needs a value", hint="iris --help")
            front += [name, value]
        else:
            rest.append(word)
    return front + rest


def _find_command(words: Sequence[str]) -> str:
    """Return the first word that is neither an option nor the value of a global option; '' if all words are."""
    rest = iter(words)
    for word in rest:
        if word in _GLOBAL_OPTIONS:
            next(rest, None)
        elif not word.startswith("-"):
            return word
    return ""


# Standard streams. They may be closed, broken, full or non-blocking.


def open_streams() -> None:
    """Replace stdout and stderr by streams that handle write errors, for every library that prints.

    Characters that the encoding of the locale lacks are printed as escapes. A closed stream (`>&-`) becomes /dev/null.
    Otherwise the next opened file, such as the log, would get its number.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - open to the end
        elif mode == "w":
            setattr(
                sys, name, _replace_writer(stream, _StandardOutput if name == "stdout" else _StandardError)
            )


def drop_output() -> None:
    """Send buffered output to /dev/null. Otherwise the interpreter would try to write it again at exit, and fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


class _WaitingWriter(io.BufferedWriter):
    """Writer that waits until the file accepts output, even if another process made the file non-blocking.

    The raw file must be `io.FileIO`, which is written in C. With a class in Python, a Ctrl-C after the system call
    could write the same text twice.
    """

    def write(self, data: ReadableBuffer, /) -> int:
        view = memoryview(data)
        written = 0
        while True:
            try:
                return written + super().write(view[written:])
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
        import select  # rarely needed

        select.select((), (self,), ())


class _StandardOutput(_WaitingWriter):
    """Standard output. A failed write raises OutputError or BrokenPipeError, because the command's result is lost."""

    def write(self, data: ReadableBuffer, /) -> int:
        with _as_output_error():
            return super().write(data)

    def flush(self) -> None:
        with _as_output_error():
            super().flush()


@contextmanager
def _as_output_error() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"the output could not be written: {error.strerror}") from error


class _StandardError(_WaitingWriter):
    """Standard error. Write errors are ignored: a lost message must not fail the command."""

    def write(self, data: ReadableBuffer, /) -> int:
        with suppress(OSError):
            super().write(data)
        return memoryview(data).nbytes

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


def _replace_writer(stream: TextIO, kind: type[io.BufferedWriter]) -> TextIO:
    assert isinstance(stream, io.TextIOWrapper)
    return io.TextIOWrapper(
        kind(io.FileIO(stream.fileno(), "w", closefd=False)),
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=stream.line_buffering or stream.write_through,
    )
