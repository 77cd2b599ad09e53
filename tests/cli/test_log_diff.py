"""`iris logs --diff`: of many ranks those that say something else."""

from __future__ import annotations

import json
import random

import pytest
from msgspec.structs import replace

from iris_cli.core.ids import AttemptId, JobId, TaskId
from iris_cli.ops.logs.log_diff import MAX_GROUPS, diff, mask
from iris_cli.ops.logs.log_reading import LogLine
from iris_cli.ops.logs.logs import TaskLog
from iris_cli.render.console import Output
from iris_cli.render.logs import log_lines


def logs(said: dict[int, list[str]], stream: str = "out") -> list[TaskLog]:
    found = []
    for rank, lines in said.items():
        task = TaskId(JobId("train"), rank)
        texts = tuple(LogLine(AttemptId(task, 0), stream, line) for line in lines)
        found.append(TaskLog(task=task, state="RUNNING", attempt=0, lines=texts))
    return found


def shown(found: list[TaskLog], capsys: pytest.CaptureFixture[str], tail: int | None = None) -> str:
    log_lines.show_diff(Output(), diff(found, tail), found)
    return capsys.readouterr().out


def steps(rank: int, last: int, first: int = 0) -> list[str]:
    return [
        f"2026-01-01 10:00:{rank % 60:02} rank {rank} at 0x7f{rank:04x}: step {n}" for n in range(first, last)
    ]


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("2026-01-02T03:04:05.678Z up", "2026-02-03T04:05:06.7Z up", True),
        ("rank 3: ready", "rank 17: ready", True),
        ("[3] ready", "[17] ready", True),
        ("connected to 10.0.0.1:8476", "connected to 10.0.0.22:40000", True),
        ("I0101 10:00:00.1 pid=77", "W0203 11:00:00.2 pid=8", True),
        ("\x1b[32mgood\x1b[0m", "good", True),
        ("step 3", "step 4", False),
        ("loss nan", "loss 1.5", False),
    ],
)
def test_what_only_tells_ranks_apart_counts_for_nothing(one: str, other: str, alike: bool) -> None:
    assert (mask(one) == mask(other)) is alike


@pytest.mark.parametrize("ranks", [64, 300])
def test_the_odd_rank_is_found_among_many(ranks: int, capsys: pytest.CaptureFixture[str]) -> None:
    said = {rank: steps(rank, 30) for rank in range(ranks)}
    said[7][20] = "rank 7: RuntimeError: \x1b]0;evil\x07 out of memory"
    last = ranks - 1
    assert shown(logs(said), capsys) == (
        f"[0-6,8-{last}] identical: 30 lines of stdout\n"
        f"[7] differs in stdout (+) from [0-6,8-{last}] (-):\n"
        "  -2026-01-01 10:00:00 rank 0 at 0x7f0000: step 20\n"
        "  +rank 7: RuntimeError: \\x1b]0;evil\\x07 out of memory\n"
    )


@pytest.mark.parametrize("tail", [None, 50])
def test_ranks_behind_or_ahead_are_reported_in_lines(
    tail: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = dict.fromkeys(range(8), 100) | {3: 60, 5: 102}
    said = {rank: steps(rank, end)[-tail if tail else 0 :] for rank, end in ends.items()}
    assert shown(logs(said), capsys, tail) == (
        f"[0-2,4,6-7] identical: {tail or 100} lines of stdout\n"
        "[3] is 40 lines behind in stdout\n[5] is 2 lines ahead in stdout\n"
    )


def test_very_long_logs_that_say_the_same_again_and_again_are_compared_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = {rank: ["waiting", "working"] * 10_000 for rank in range(5)}
    said[1] = said[1][:19_000]
    said[2] = [*said[2][:7_000], "Killed", *said[2][7_000:]]
    out = shown(logs(said), capsys)
    assert "[1] is 1000 lines behind in stdout\n" in out
    assert out.endswith("(-):\n  +Killed\n")


def test_where_every_rank_has_its_own_numbers_these_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    chance = random.Random(1)
    said = {rank: [f"loss {chance.random():.4f}" for _ in range(5)] for rank in range(8)}
    said[2][3] = "loss nan"
    out = shown(logs(said), capsys)
    assert out.startswith("[0-1,3-7] identical: 5 lines of stdout, except numbers\n[2] differs in stdout (+)")
    assert "+loss nan" in out


def test_very_many_kinds_are_counted_and_long_differences_cut(capsys: pytest.CaptureFixture[str]) -> None:
    said = {rank: ["same"] for rank in range(60)}
    said |= {
        rank: [f"own {'x' * rank} {'abcdefghij'[n % 10] * n}" for n in range(50)] for rank in range(60, 80)
    }
    out = shown(logs(said), capsys)
    assert out.count(" differs in stdout") == MAX_GROUPS
    assert "and 31 more lines" in out
    assert "[68-79] also differ; compare them with --rank" in out


def test_streams_are_compared_each_for_itself_and_the_silent_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = logs({rank: ["ready"] for rank in range(3)}) + logs({3: ["ready"]}, "err")
    lost = TaskLog(task=TaskId(JobId("train"), 4), state="RUNNING", note="its worker is silent")
    log_lines.show_diff(Output(), diff([*found, lost], None), [*found, lost])
    said = capsys.readouterr()
    assert said.out == (
        "[0-2] identical: 1 line of stdout\n[3] differs in stdout (+) from [0-2] (-):\n  -ready\n"
        "[0-2] nothing in stderr\n[3] differs in stderr (+) from [0-2] (-):\n  +ready\n"
    )
    assert "train/task-4: its worker is silent" in said.err
    log_lines.show_diff(Output(as_json=True), diff(found, None), found)
    (out, _) = json.loads(capsys.readouterr().out)["streams"]
    assert (out["majority"], out["deviations"][0]["ranks"]) == ([0, 1, 2], [3])


def test_a_silent_rank_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    said = {rank: steps(rank, 60 if rank in (3, 7) else 100) for rank in range(8)}
    idle = dict.fromkeys(range(8), 2.0) | {3: 400.0, 7: 360.0}
    found = [replace(log, idle={"out": idle[log.task.index]}) for log in logs(said)]
    assert shown(found, capsys) == (
        "[0-2,4-6] identical: 100 lines of stdout, last line 2s ago\n"
        "[3,7] are 40 lines behind in stdout, last line 6m ago\n"
    )
