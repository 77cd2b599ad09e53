"""`iris stacks` on the terminal: each place once, and why some ranks have none."""

from __future__ import annotations

import json

import pytest

from iris_cli.core.ids import JobId, TaskId, Token, WorkerId
from iris_cli.core.messages.observations import RemoteState, Silence, SilenceKind
from iris_cli.core.messages.stacks import Frame, Thread
from iris_cli.ops.logs.stacks import RankStacks
from iris_cli.remote.stack_calls import Program, Programs
from iris_cli.render.console import Output
from iris_cli.render.logs.stacks import show_stacks

WAITS = (Frame("wait", "/usr/lib/python3.11/threading.py", 327), Frame("main", "train.py", 12))
READS = (Frame("read", "/venv/lib/python3.11/site-packages/data/files.py", 3), Frame("main", "train.py", 9))
SERVES = (Frame("serve", "metrics.py", 22),)


def rank(index: int, *threads: tuple[Thread, ...], **program: object) -> RankStacks:
    """A rank with a process for each of `threads`."""
    fields = {"pid": 7, "state": "S", "how": "spy", "command": "python3 train.py"} | program
    answer = Programs(
        token=Token(f"{index:032x}"),
        state=RemoteState.RUNNING,
        count=len(threads),
        programs=tuple(Program(**fields) for _ in threads),  # type: ignore[arg-type]  # tests may name any field
    )
    task = TaskId(JobId("train"), index)
    return RankStacks(task=task, worker=WorkerId(f"w{index}"), answer=answer, threads=threads)


def main(*frames: Frame) -> Thread:
    return Thread(id="1", is_main=True, frames=frames)


def other(*frames: Frame) -> Thread:
    return Thread(id="2", frames=frames)


def shown(results: list[RankStacks], capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    show_stacks(Output(), results, "train")
    said = capsys.readouterr()
    return said.out, said.err


def test_each_place_is_shown_once_and_the_odd_rank_ends_the_main_threads(
    capsys: pytest.CaptureFixture[str],
) -> None:
    odd = rank(0, (main(*READS), other(*SERVES)))
    rest = [rank(index, (other(*SERVES), main(*WAITS)), (main(*SERVES),)) for index in (1, 2, 3)]
    assert shown([odd, *rest], capsys)[0] == (
        "[1-3] main thread\n"
        "    wait (threading.py:327)\n"
        "    main (train.py:12)\n"
        "\n"
        "[0] main thread\n"
        "    read (data/files.py:3)\n"
        "    main (train.py:9)\n"
        "\n"
        "[1-3] 3 further processes\n"
        "    serve (metrics.py:22)\n"
        "\n"
        "[0-3] 4 other threads\n"
        "    serve (metrics.py:22)\n"
    )


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (
            {"how": "catches.USR1", "trouble": "Permission denied"},
            "`python3 train.py` has a handler for SIGUSR1; if that is faulthandler's, ask with: "
            "iris stacks train --signal USR1; py-spy: Permission denied",
        ),
        ({"how": "deaf"}, "`python3 train.py` was sent a signal and has printed no stack"),
        (
            {"how": "deaf", "state": "T"},
            "`python3 train.py` is stopped (SIGSTOP) and was sent a signal and has printed no stack",
        ),
        (
            {"how": "silent"},
            "`python3 train.py` says nothing of itself: no py-spy there, and faulthandler is not registered",
        ),
        ({"how": "late"}, "`python3 train.py` was not asked: the others took all the time"),
        ({"how": "other", "command": "sleep 1000"}, "no Python program, but `sleep 1000`"),
        (
            {"how": "other", "command": f"\x1b[2J{'x' * 99}"},
            f"no Python program, but `\\x1b[2J{'x' * 56}…`",
        ),
    ],
)
def test_why_a_rank_has_no_stack_is_said_once_for_all_of_them(
    program: dict[str, object], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out, err = shown([rank(index, (), **program) for index in (0, 1)], capsys)
    assert (out, err) == ("", f"train/task-[0-1]: {words}\n")


def test_who_could_not_be_asked_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    silence = Silence(worker=WorkerId("w0"), kind=SilenceKind.TIMEOUT, step="connect", detail="timed out")
    silent = RankStacks(task=TaskId(JobId("train"), 0), worker=WorkerId("w0"), silence=silence)
    ended = RankStacks(task=TaskId(JobId("train"), 1), note="it is not running (SUCCEEDED)")
    assert shown([silent, ended], capsys)[1].splitlines() == [
        "train/task-0: no answer: timed out",
        "train/task-1: it is not running (SUCCEEDED)",
    ]


def test_names_of_a_program_reach_no_terminal_as_instructions(capsys: pytest.CaptureFixture[str]) -> None:
    evil = Frame("\x1b[2J[red]\n\u202e", f"{'a' * 9000}/\x07.py", 3)
    out, _ = shown([rank(0, (main(evil, *(WAITS * 30)),))], capsys)
    lines = out.splitlines()
    assert lines[1].startswith("    \\x1b[2J[red]⏎\\u202e (aaa")
    assert lines[1].endswith("/\\x07.py:3)")
    assert max(map(len, lines)) < 300
    assert lines[-1] == "    … 21 more"


def test_as_json_there_is_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    show_stacks(Output(as_json=True), [rank(2, (main(*WAITS), other()), how="handler")], "train")
    document = json.loads(capsys.readouterr().out)
    frames = [{"function": each.function, "file": each.file, "line": each.line} for each in WAITS]
    assert document["schema_version"] == 1
    assert document["stacks"] == [
        {"kind": "main", "ranks": [2], "threads": 1, "frames": frames},
        {"kind": "thread", "ranks": [2], "threads": 1, "frames": []},
    ]
    [found] = document["ranks"]
    [process] = found.pop("processes")
    assert found == {"task": "train/task-2", "rank": 2, "worker": "w2", "answered": True, "note": ""}
    assert (process["pid"], process["state"], process["how"]) == (7, "S", "handler")
    assert [(each["main"], each["frames"]) for each in process["threads"]] == [(True, frames), (False, [])]
