"""Questions before something is lost: one way to ask, one word (`--yes`) to have answered, one way to be told no.

Asked is before: files are written over what is there (`cluster import`), another key is trusted (`worker probe
--accept-key`), work or files are taken away on hosts (`worker unwedge`, `gc`), slices change their owner (`autoscale
--adopt`), and a file is written that is meant for others (`doctor --bundle`). `cluster import` asks once about the file
and about what is forgotten of old machines.
Nothing else asks.
"""

from __future__ import annotations

import select
import sys
from typing import TYPE_CHECKING, TextIO

from iris_cli.errors import IrisError, UsageError
from iris_cli.render.layout import clean_line

if TYPE_CHECKING:
    from iris_cli.cli.context import Context

_DEAFEST = 0.2  # seconds


def require(iris: Context, question: str, *, yes: bool, to: str, undone: str) -> None:
    """Go on only with consent `to` do something. `undone` is what then has not happened: `nothing was written`.

    Raises IrisError for a no, UsageError where nobody can be asked.
    """
    answer = True if yes else ask(iris, question)
    if answer is None:
        raise UsageError(f"not a terminal: pass --yes to {to}")
    if not answer:
        raise IrisError(undone)


def given(iris: Context, question: str, *, yes: bool, to: str) -> bool:
    """Whether it is to be done, of what was shown first, which is worth something alone."""
    answer = True if yes else ask(iris, question)
    if answer is None:
        iris.output.warning(f"{question} not a terminal: pass --yes to {to}")
    return bool(answer)


def ask(iris: Context, question: str) -> bool | None:
    """Yes or no, from whoever sits at the terminal; None where nobody does, or a program reads what we say.

    What is piped in is no answer: then the terminal itself is asked. No answer at all (Ctrl-D) is a no. Raises
    KeyboardInterrupt.
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
            # Python sees a Ctrl-C that comes just before the system call only after it, so no call may last.
            while not select.select((terminal,), (), (), _DEAFEST)[0]:
                pass
            line = terminal.readline()
        except KeyboardInterrupt:
            sys.stderr.write("\n")  # what is said of it gets a line of its own
            raise
        word = line.strip().lower()
        if not line:
            sys.stderr.write("\n")
        if word in ("", "n", "no", "y", "yes"):
            return word in ("y", "yes")
