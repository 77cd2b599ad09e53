"""Questions before a change that can't be undone. `--yes` answers all of them.

iris asks before overwriting cluster.yaml (`cluster import`), trusting another host key (`worker probe --accept-key`),
stopping processes or deleting files on hosts (`worker unwedge`, `gc`), managing slices of another state directory
(`autoscale --adopt`), and writing a file for other people (`doctor --bundle`). `cluster import` asks one question about
the file and the old VMs to forget. No other command asks.
"""

from __future__ import annotations

import select
import sys
from typing import TYPE_CHECKING, TextIO

from iris_cli.errors import IrisError, UsageError
from iris_cli.render.layout import clean_line

if TYPE_CHECKING:
    from iris_cli.cli.context import Context

_POLL_INTERVAL = 0.2  # seconds


def require(iris: Context, question: str, *, yes: bool, action: str, refusal: str) -> None:
    """Ask `question` unless `yes`. `action`: verb for the error message without a terminal.

    Raises UsageError without a terminal. Raises IrisError with the message `refusal` if the user answers no.
    """
    answer = True if yes else ask(iris, question)
    if answer is None:
        raise UsageError(f"not a terminal: pass --yes to {action}")
    if not answer:
        raise IrisError(refusal)


def is_given(iris: Context, question: str, *, yes: bool, action: str) -> bool:
    """Return whether the user consents. Without a terminal, warn and return False, so that the command continues."""
    answer = True if yes else ask(iris, question)
    if answer is None:
        iris.output.warning(f"{question} not a terminal: pass --yes to {action}")
    return bool(answer)


def ask(iris: Context, question: str) -> bool | None:
    """Ask on the terminal; return the answer. Return None without a terminal or with --json.

    If standard input is a pipe, read the answer from /dev/tty. End of file (Ctrl-D) means no. Raises KeyboardInterrupt.
    """
    if iris.output.as_json or not sys.stderr.isatty():
        return None
    if sys.stdin.isatty():
        return _answer(question, sys.stdin)
    try:
        with open("/dev/tty", encoding="utf-8", errors="replace") as terminal:
            return _answer(question, terminal)
    except OSError:
        return None


def _answer(question: str, terminal: TextIO) -> bool:
    while True:
        try:
            sys.stderr.write(f"{clean_line(question)} [y/N]: ")
            sys.stderr.flush()
            # If Ctrl-C comes just before a system call, Python handles it after the call. So wait in short calls.
            while not select.select((terminal,), (), (), _POLL_INTERVAL)[0]:
                pass
            line = terminal.readline()
        except KeyboardInterrupt:
            sys.stderr.write("\n")  # the next message begins on a new line
            raise
        word = line.strip().lower()
        if not line:
            sys.stderr.write("\n")
        if word in ("", "n", "no", "y", "yes"):
            return word in ("y", "yes")
