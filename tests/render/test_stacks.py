"""`iris stacks` on the terminal: each place once, and why some ranks have none."""

from __future__ import annotations

import json

import pytest

from iris_cli.core.ids import JobId, TaskId, Token, WorkerId
from iris_cli.core.messages.observations import RemoteState, Silence, SilenceKind
from iris_cli.core.messages.stacks import Frame, KernelThread, Thread
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
        "ranks 1-3 in main (train.py:12); rank 0 in main (train.py:9)\n"
        "\n"
        "[1-3] main thread\n"
        "    wait (threading.py:327)\n"
        "    main (train.py:12)\n"
        "\n"
        "[0] main thread\n"
        "    read (data/files.py:3)\n"
        "    main (train.py:9)\n"
        "\n"
        "[1-3] 3 more processes\n"
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
            "`python3 train.py` has a handler for SIGUSR1; if it is faulthandler's: "
            "iris stacks train --signal USR1; py-spy: Permission denied",
        ),
        ({"how": "deaf"}, "`python3 train.py` printed no stack after the signal"),
        (
            {"how": "deaf", "state": "T"},
            "`python3 train.py` is stopped (SIGSTOP) and printed no stack after the signal",
        ),
        (
            {"how": "silent"},
            "no stack of `python3 train.py`; py-spy is not installed\n"
            "for full stacks: `pip install py-spy` on the worker, or add to the program:\n"
            "    import faulthandler, os, signal\n"
            '    stacks = os.path.join(os.environ["IRIS_TASK_DIR"], "stacks.USR1")\n'
            '    faulthandler.register(signal.SIGUSR1, file=open(stacks, "a"))',
        ),
        ({"how": "late"}, "`python3 train.py` was not inspected: out of time"),
        ({"how": "other", "command": "sleep 1000"}, "not a Python program: `sleep 1000`"),
        (
            {"how": "other", "command": f"\x1b[2J{'x' * 99}"},
            f"not a Python program: `\\x1b[2J{'x' * 56}…`",
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
    ended = RankStacks(task=TaskId(JobId("train"), 1), note="not running (SUCCEEDED)")
    assert shown([silent, ended], capsys)[1].splitlines() == [
        "train/task-0: no answer: timed out",
        "train/task-1: not running (SUCCEEDED)",
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


def kernel_thread(state: str, cpu: float | None, channel: str = "", *, number: int = 1) -> KernelThread:
    return KernelThread(id=number, name="x", state=state, wait_channel=channel, cpu_seconds=2.0, cpu=cpu)


def test_ranks_without_a_stack_are_compared_by_what_their_threads_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    waits = [kernel_thread("S", 0.0, "futex_wait", number=number) for number in range(2, 5)]
    spinning = [
        rank(
            index,
            (),
            how="other",
            threads=(kernel_thread("S", 0.0, "futex_wait"), kernel_thread("R", 0.98), *waits),
        )
        for index in (0, 1, 3)
    ]
    asleep = rank(
        2, (), how="other", command="\x1b[2Jtrain", threads=(kernel_thread("S", 0.0, "\x1b[2Jpipe"),)
    )
    assert shown([*spinning, asleep], capsys)[0] == (
        "no stacks, only thread states: ranks 0-1,3 spin; rank 2 sleeps in \\x1b[2Jpipe\n"
        "\n"
        "[0-1,3] threads of rank 0; ranks 1,3 have the same\n"
        "    python3 train.py\n"
        "        1 thread spins: 98 % CPU, 2.0s CPU time\n"
        "        4 threads sleep in futex_wait: 0 % CPU, 8.0s CPU time\n"
        "\n"
        "[2] threads of rank 2\n"
        "    \\x1b[2Jtrain\n"
        "        1 thread sleeps in \\x1b[2Jpipe: 0 % CPU, 2.0s CPU time\n"
    )


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("S", "sleeps"),
        ("D", "waits for a device or a disk"),
        ("T", "is stopped"),
        ("R", "runs"),
        ("?", "is in an unknown state"),
    ],
)
def test_a_thread_that_uses_little_cpu_is_named_by_its_state(
    state: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also if it was not there at the first reading."""
    out, _ = shown([rank(7, (), how="other", threads=(kernel_thread(state, None),))], capsys)
    assert out.splitlines()[0] == f"no stacks, only thread states: rank 7 {words}"


def test_the_program_of_a_rank_is_its_python_not_the_shell_around_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shell = Program(
        pid=1, state="S", how="other", command="sh", threads=(kernel_thread("S", 0.0, "do_wait"),)
    )
    python = Program(
        pid=2, state="S", how="silent", command="x", threads=(kernel_thread("S", 0.0, "pipe_read"),)
    )
    answer = Programs(token=Token("0" * 32), state=RemoteState.RUNNING, count=2, programs=(shell, python))
    result = RankStacks(task=TaskId(JobId("train"), 0), worker=WorkerId("w"), answer=answer, threads=((), ()))
    assert shown([result], capsys)[0].startswith(
        "no stacks, only thread states: rank 0 sleeps in pipe_read\n"
    )


SPY_WAIT = (Frame("Condition.wait", "threading.py", 331), Frame("Event.wait", "threading.py", 629))
ARRAY = Frame("block_until_ready", "jax/_src/array.py", 655)


@pytest.mark.parametrize(
    ("odd", "most", "words"),
    [
        (READS, WAITS, "ranks 0-1 in main (train.py:12); rank 2 in main (train.py:9)"),
        # py-spy names the files of Python and of packages without their directories
        (
            (*SPY_WAIT, Frame("load", "data.py", 3)),
            (*SPY_WAIT, Frame("reduce", "train.py", 5)),
            "ranks 0-1 in reduce (train.py:5); rank 2 in load (data.py:3)",
        ),
        (
            (ARRAY, Frame("evaluate", "train.py", 8)),
            (ARRAY, Frame("step", "train.py", 5)),
            "ranks 0-1 in step (train.py:5); rank 2 in evaluate (train.py:8)",
        ),
        ((), SPY_WAIT, "ranks 0-1 in Condition.wait (threading.py:331); rank 2 in no Python frame"),
        (WAITS[1:], WAITS, "ranks 0-1 in wait (threading.py:327); rank 2 in main (train.py:12)"),
    ],
)
def test_each_place_is_named_by_the_innermost_call_of_the_program_that_no_other_place_has(
    odd: tuple[Frame, ...], most: tuple[Frame, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    results = [rank(index, (main(*(odd if index == 2 else most)),)) for index in range(3)]
    assert shown(results, capsys)[0].partition("\n\n")[0] == words
