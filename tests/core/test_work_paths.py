"""Paths below a work directory, as they are shown."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_cli.core.ids import Token
from iris_cli.core.work_paths import relative_paths

TOKEN = Token("0123456789abcdef0123456789abcdef")
OTHER = "f" * 32
TAIL = f"a/{TOKEN}/work"
WORK = f"/home/me/.iris/c1/w0/{TAIL}"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (f'  File "{WORK}/train.py", line 3, in <module>', '  File "train.py", line 3, in <module>'),
        (f"{WORK}/src/data.c:3:1: error", "src/data.c:3:1: error"),
        (f"/private/var/iris/c/w/{TAIL}/x.py", "x.py"),
        (f"/{TAIL}/x.py", "x.py"),
        (f"PYTHONPATH={WORK}/lib:{WORK}:/usr/lib", "PYTHONPATH=lib:.:/usr/lib"),
        (f"cd '{WORK}'", "cd '.'"),
        (f"cd {WORK}/\nls {WORK}", "cd ./\nls ."),
        (f"{WORK}//a//b", "a//b"),
        (f"{WORK}/../output/x", "../output/x"),
        (f"\x1b[1;31m{WORK}/x.py\x1b[0m", "\x1b[1;31mx.py\x1b[0m"),
        (f"\x1b[m{WORK}/x.py", "\x1b[mx.py"),
        (f"in function ‘{WORK}/x.c’", "in function ‘x.c’"),
        (f"saved\t({WORK}/x)", "saved\t(x)"),
        (f"{WORK[:-4]}run: 2: exec: pyhton3: not found", "run: 2: exec: pyhton3: not found"),
    ],
)
def test_a_path_below_the_work_directory_is_relative_to_it(written: str, shown: str) -> None:
    assert relative_paths(written, TOKEN) == shown


@pytest.mark.parametrize(
    "written",
    [
        "",
        "no path",
        f"{WORK}space/x.py",
        f"{WORK}.bak/x.py",
        f"c1/w0/{TAIL}/x.py",
        f"/home/my name/c1/w0/{TAIL}/x.py",
        f"file:/{WORK}/x.py",
        f"~/.iris/c1/w0/{TAIL}/x.py",
        f"/home/me/.iris/c1/w0/a/{OTHER}/work/x.py",
        f"/home/me/.iris/c1/w0/a/{TOKEN}/output/x.py",
        f"/home/me/.iris/c1/w0/b{TAIL}/x.py",
        f"{WORK[:-4]}runs: 2",
        f"3m{WORK}/x.py",
        f"/{'x' * 5000}/{TAIL}/x.py",
    ],
)
def test_everything_else_stays_as_it_is(written: str) -> None:
    assert relative_paths(written, TOKEN) == written


PIECES = st.sampled_from(
    [WORK, f"/{TAIL}", "/", "x.py", " ", "\x1b[", "1", "m", ":", '"', "\n", "/a/", TOKEN, "é"]
)


@given(st.lists(PIECES, max_size=30).map("".join))
def test_only_prefixes_are_removed(written: str) -> None:
    """The result is the text without some of its characters, except for a `.` in the place of the directory."""
    left = iter(written)
    assert all(char == "." or char in left for char in relative_paths(written, TOKEN))


@given(st.lists(PIECES, max_size=10).map("".join), st.lists(PIECES, max_size=10).map("".join))
def test_lines_do_not_change_each_other(first: str, second: str) -> None:
    together = relative_paths(f"{first}\n{second}", TOKEN)
    assert together == f"{relative_paths(first, TOKEN)}\n{relative_paths(second, TOKEN)}"


def steps_of(text: str) -> int:
    """The number of lines of code that run for a text."""
    count = 0

    def trace(*_: object) -> object:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type] # the tracer returns itself
    try:
        relative_paths(text, TOKEN)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize(
    "piece",
    [f"/{TAIL}", f"/{TAIL}space", f"1/{TAIL}/", "/" * 50, f":;1/{TAIL}", f"/{TAIL}{'/' * 40}", f"/x/{TAIL} "],
)
def test_hostile_text_takes_linear_time(piece: str) -> None:
    assert steps_of(piece * 400) <= 2.1 * steps_of(piece * 200) + 100
