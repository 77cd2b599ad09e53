"""What py-spy and faulthandler print, read; and what is neither of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_cli.core.messages.stacks import Frame, Thread, threads_of

SPY = """Process 8762: /usr/bin/python3 train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 8762 (idle): "MainThread"
    Condition.wait (threading.py:327)
    <lambda> (train.py:6)
    <module> (train.py)
Thread 8788 (active+gil): "loader
of data"
    0x7f3c (libc.so.6)
"""

HANDLER = """chatter before
Thread 0x00007f8171bfc6c0 [loader] (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait
2026-11-22 a line of the log between two frames
  File "/home/me/.iris/c1/w0/a/0123456789abcdef0123456789abcdef/work/data.py", line 3 in <lambda>

Current thread 0x00007f8172670b80 (most recent call first):
  File "/home/me/.iris/c1/w0/a/0123456789abcdef0123456789abcdef/work/train.py", line ??? in main
"""


def test_threads_of_py_spy() -> None:
    assert threads_of(SPY) == (
        Thread(
            id="8762",
            name="MainThread",
            state="idle",
            is_main=True,
            frames=(
                Frame("Condition.wait", "threading.py", 327),
                Frame("<lambda>", "train.py", 6),
                Frame("<module>", "train.py"),
            ),
        ),
        Thread(id="8788", name="loader", state="active+gil", frames=(Frame("0x7f3c", "libc.so.6"),)),
    )


def test_threads_of_faulthandler_between_lines_of_a_log_with_files_as_the_task_names_them() -> None:
    other, main = threads_of(HANDLER)
    assert other == Thread(
        id="0x00007f8171bfc6c0",
        name="loader",
        frames=(Frame("wait", "/usr/lib/python3.11/threading.py", 327), Frame("<lambda>", "data.py", 3)),
    )
    assert main == Thread(id="0x00007f8172670b80", is_main=True, frames=(Frame("main", "train.py"),))


def test_of_two_dumps_the_first_is_taken() -> None:
    assert threads_of(HANDLER + HANDLER) == threads_of(HANDLER)


@pytest.mark.parametrize(
    ("text", "frames"),
    [
        ("", None),
        ("\n \n", None),
        ("what a later version says\n  in main\n", (Frame("what a later version says"), Frame("in main"))),
        ("Thread 1 (idle)\n", ()),
        ("Thread 0x1 (most recent call first):\n  <no Python frame>\n", ()),
    ],
)
def test_what_is_not_known_is_shown_as_it_is(text: str, frames: tuple[Frame, ...] | None) -> None:
    assert [thread.frames for thread in threads_of(text)] == ([] if frames is None else [frames])


LINES = st.sampled_from([*SPY.splitlines(), *HANDLER.splitlines(), "    " + " (a" * 200, '  File "' * 200])


@given(st.lists(st.one_of(LINES, st.text()), max_size=30))
def test_whatever_a_program_says_is_read(lines: list[str]) -> None:
    found = threads_of("\n".join(lines))
    assert sum(thread.is_main for thread in found) == bool(found)
