"""Following logs: to the end, through retries and silences, nothing twice and nothing left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from iris_cli.core.messages.observations import AttemptReport, RemoteState
from iris_cli.ops.cycle.cycle import Cycles
from iris_cli.ops.logs import follow as follow_module
from iris_cli.ops.logs import log_reading
from iris_cli.ops.logs.follow import Follower, Step
from iris_cli.ops.logs.log_reading import Query
from tests.ops.world import World
from tests.support.lab import START, Lab


@pytest.fixture(autouse=True)
def answers_come_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow this machine is: the world's clock stands still meanwhile."""
    monkeypatch.setattr(follow_module, "STEP_TIME", 60.0)
    monkeypatch.setattr(follow_module, "_SHORT_WAIT", 60.0)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A gang of two that runs; somebody else runs the cycles."""
    lab = Lab().slice("a", "v4-16").job("train", tpu="v4-16", max_retries_failure=1)
    world = World(lab.schedule().reports("train/* running"), tmp_path / "state")
    with world.scheduler():
        yield world


def follow(
    world: World, story: list[Callable[[], object]], what: str = "train", tail: int | None = 20
) -> list[Step]:
    """Every step while the story happens, one part of it between two looks."""
    parts = iter(story)

    def go_on() -> None:
        next(parts, lambda: None)()
        world.write()

    world.clock.then = go_on
    return list(Follower(world.session(), what, Query(tail=tail)).steps())


def lines(steps: list[Step]) -> list[str]:
    return [
        f"{line.attempt.task.index}.{line.attempt.number} {line.text}"
        for step in steps
        for line in step.lines
    ]


def notes(steps: list[Step]) -> list[str]:
    return [f"{task}: {text}" for step in steps for task, text in step.notes]


def test_cycles_come_no_more_often_than_workers_are_asked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_module, "CALLS_A_SECOND", 0.2)
    cycles: list[float] = []

    run = Cycles.run

    def cycle(each: Cycles) -> None:
        cycles.append(each.session.clock.monotonic())
        run(each)

    monkeypatch.setattr(Cycles, "run", cycle)
    begun = world.clock.monotonic()

    def go_on() -> None:
        if world.clock.monotonic() > begun + 60:
            world.lab.reports("train/* exited 0")
        world.write()

    world.clock.then = go_on
    list(Follower(world.session(), "train", Query(tail=20)).steps())
    pauses = [after - before for before, after in pairwise(cycles)]
    assert len(pauses) > 3
    assert min(pauses[1:-1]) >= 2 / 0.2


def exited(world: World, rank: int) -> AttemptReport:
    return AttemptReport(token=world.lab.attempt("train", rank).token, state=RemoteState.EXITED, exit_code=0)


def test_lines_come_as_they_are_written_until_the_end(world: World) -> None:
    world.says("train/task-0", "old 1\nold 2\nnew")
    steps = follow(
        world,
        [
            lambda: world.says("train/task-0", " 1\n"),
            lambda: world.says("train/task-1", "hello\n", "err"),
            lambda: world.says("train/task-0", "last words"),
            lambda: world.lab.reports("train/* exited 0"),
        ],
        tail=1,
    )
    assert lines(steps) == ["0.0 old 2", "0.0 new 1", "1.0 hello", "0.0 last words"]
    assert notes(steps) == []


def test_what_is_written_between_our_reading_and_the_end_is_read(tmp_path: Path) -> None:
    lab = Lab().worker("w").job("side").schedule().reports("side/* running")
    world = World(lab, tmp_path / "state")
    readings = count()

    def end() -> None:
        if next(readings) == 3:
            world.says("side/task-0", "last words\n")
            lab.reports("side/* exited 0")
            world.write()

    world.hosts.afterwards = end
    with world.scheduler():
        assert lines(follow(world, [], what="side")) == ["0.0 last words"]


def test_a_job_that_is_over_shows_its_end_and_is_done(world: World) -> None:
    world.says("train/task-0", "bye\n")
    world.lab.reports("train/* exited 0")
    world.write()
    assert lines(follow(world, [])) == ["0.0 bye"]
    assert world.clock.naps == 0


def test_a_retried_gang_is_followed_into_its_next_round(world: World) -> None:
    def fail() -> None:
        world.says("train/task-1", "boom\n")
        world.lab.reports("train/task-1 exited 1")

    def again() -> None:
        world.lab.schedule().reports("train/* running")
        world.says("train/task-0", "first\nsecond\n")

    steps = follow(
        world,
        [
            fail,
            lambda: world.lab.reports("train/task-0 stopped"),
            again,
            lambda: world.lab.reports("train/* exited 0"),
        ],
        tail=1,
    )
    assert lines(steps) == ["1.0 boom", "0.1 first", "0.1 second"]
    assert notes(steps) == [f"train/task-{rank}: attempt 1 on worker a-{rank}" for rank in (0, 1)]


def test_one_attempt_is_followed_to_its_own_end_only(world: World) -> None:
    world.says("train/task-1", "boom\n")
    steps = follow(world, [lambda: world.lab.reports("train/task-1 exited 1")], what="train/task-1/attempt-0")
    assert lines(steps) == ["1.0 boom"]


def test_a_silent_worker_is_named_once_and_its_lines_come_later(world: World) -> None:
    def back() -> None:
        world.hosts.silent.clear()

    world.says("train/task-0", "a\n")
    world.says("train/task-1", "b\n")
    world.hosts.silent.add("a-1")
    rest = [lambda: None] * 20
    steps = follow(world, [*rest, back, *rest, lambda: world.lab.reports("train/* exited 0")])
    assert lines(steps) == ["0.0 a", "1.0 b"]
    assert notes(steps) == [
        "train/task-1: no answer from worker a-1 (connect: no route); trying again",
        "train/task-1: worker a-1 answers again",
    ]


def test_a_silent_worker_is_not_asked_at_every_look(world: World) -> None:
    world.hosts.silent.add("a-1")
    rest = [lambda: None] * 60
    follow(world, [*rest, lambda: world.lab.reports("train/* exited 0")])
    assert world.hosts.calls.count("a-0") > 50
    assert world.hosts.calls.count("a-1") < 10


def test_a_failure_on_a_silent_worker_is_told_from_the_log(tmp_path: Path) -> None:
    lab = Lab().slice("a", "v4-16").job("train", tpu="v4-16").schedule().reports("train/* running")
    world = World(lab, tmp_path / "silent")

    def end() -> None:
        world.hosts.silent.add("a-1")
        said = replace(exited(world, 1), exit_code=1, log_tail="kept 1\nkept 2\n")
        world.lab.answers(world.lab.answer_of("a-1", said)).reports("train/task-0 exited 0")
        world.write()

    world.clock.then = end
    with world.scheduler():
        follower = Follower(world.session(), "train", Query())
        steps = list(follower.steps())
    assert lines(steps) == ["1.0 kept 1", "1.0 kept 2"]
    assert notes(steps)[-1].endswith("showing the last lines that iris saved when it ended")
    assert follower.cut_short


def test_what_was_shown_is_not_shown_again_from_the_log(world: World) -> None:
    def end() -> None:
        world.hosts.silent.add("a-0")
        said = replace(exited(world, 0), log_tail="shown\n")
        world.lab.answers(world.lab.answer_of("a-0", said)).reports("train/task-1 exited 0")

    world.says("train/task-0", "shown\n")
    steps = follow(world, [end])
    assert lines(steps) == ["0.0 shown"]
    assert notes(steps)[-1].endswith("the end of its output is missing")


def test_a_cancelled_job_on_a_silent_worker_does_not_hold_us(world: World) -> None:
    world.hosts.silent.add("a-1")
    steps = follow(
        world,
        [lambda: world.lab.cancel("train"), lambda: world.lab.reports("train/task-0 stopped")],
    )
    assert lines(steps) == []


def test_what_waits_says_why_and_is_followed_once_it_runs(tmp_path: Path) -> None:
    lab = Lab().job("side")
    world = World(lab, tmp_path / "state")

    def start() -> None:
        lab.worker("w").schedule().reports("side/* running")
        world.says("side/task-0", "hi\n")

    with world.scheduler():
        steps = follow(world, [start, lambda: lab.reports("side/* exited 0")], what="side")
    assert lines(steps) == ["0.0 hi"]
    assert notes(steps)[0].startswith("side/task-0: has not started: ")


def test_a_flood_gives_way_to_others(world: World) -> None:
    world.says("train/task-0", "x" * 99 + "\n")
    world.says("train/task-0", ("x" * 99 + "\n") * 40_000)
    world.says("train/task-1", "hello\n")
    world.lab.reports("train/* exited 0")
    world.write()
    steps = [step for step in follow(world, [], tail=None) if step.texts]
    assert [line.text for line in steps[0].lines if line.attempt.task.index == 1] == ["hello"]
    assert all(len(text.text) <= log_reading.PIECE + 100 for step in steps for text in step.texts)
    assert len(lines(steps)) == 40_002
    assert world.clock.time == START  # who is behind is asked again at once
    assert world.hosts.calls.count("a-1") == 1


def test_all_ranks_of_a_worker_are_asked_in_one_call(tmp_path: Path) -> None:
    lab = (
        Lab()
        .worker("w", cpu=100, memory=1 << 40)
        .job("many", replicas=70)
        .schedule()
        .reports("many/* running")
    )
    world = World(lab, tmp_path / "state")
    for index in range(70):
        world.says(f"many/task-{index}", f"hello from {index}\n")
    lab.reports("many/* exited 0")
    world.write()
    with world.scheduler():
        steps = follow(world, [], what="many", tail=1)
    assert lines(steps) == [f"{index}.0 hello from {index}" for index in range(70)]
    assert world.hosts.calls == ["w", "w"]  # of 64 and of 6


def test_many_workers_are_asked_less_often(tmp_path: Path) -> None:
    lab = Lab().slice("a", "v4-512").job("train", tpu="v4-512").schedule().reports("train/* running")
    world = World(lab, tmp_path / "state")
    with world.scheduler():
        follow(world, [lambda: None] * 30 + [lambda: lab.reports("train/* exited 0")])
    passed = world.clock.time - START
    assert len(world.hosts.calls) / 64 <= passed / 2 + 2


def test_a_file_that_was_replaced_is_told_and_read_from_its_beginning(world: World) -> None:
    def replace_it() -> None:
        token = world.lab.attempt("train", 0).token
        world.hosts.files[token, "out"] = b"anew\n"
        world.hosts.inodes[token, "out"] = 2
        world.hosts.afterwards = lambda: world.hosts.silent.add("a-0")

    def back() -> None:
        world.hosts.afterwards = lambda: None
        world.hosts.silent.clear()

    world.says("train/task-0", "old 1\nold 2\nhal")
    rest = [lambda: None] * 3
    end = [lambda: None] * 20 + [lambda: world.lab.reports("train/* exited 0")]
    steps = follow(world, [replace_it, *rest, back, *end])
    assert lines(steps) == ["0.0 old 1", "0.0 old 2", "0.0 hal", "0.0 anew"]
    assert [note for note in notes(steps) if "replaced" in note] == [
        "train/task-0: out was replaced or truncated on worker a-0; printing it from the start"
    ]


def test_what_was_pulled_goes_on_where_the_worker_fell_silent(world: World) -> None:
    def end() -> None:
        world.says("train/task-0", "ree\nfour\nfi")
        world.hosts.silent.add("a-0")
        said = replace(exited(world, 0), log_tail="four\nfi")
        world.lab.answers(world.lab.answer_of("a-0", said)).reports("train/task-1 exited 0")
        world.write()
        world.pulls("train/task-0", after=60.0)

    world.says("train/task-0", "one\ntwo\nth")
    story = iter([end])
    world.clock.then = lambda: next(story, lambda: None)()
    follower = Follower(world.session(), "train", Query())
    steps = list(follower.steps())
    assert lines(steps) == [f"0.0 {text}" for text in ("one", "two", "three", "four", "fi")]
    assert notes(steps)[-1].endswith("no route); showing what was pulled 0s ago")
    assert not follower.cut_short


def test_what_was_pulled_comes_a_piece_at_a_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be more than fits into memory."""
    monkeypatch.setattr(log_reading, "PIECE", 1000)
    said = [f"line {number}" for number in range(1000)]

    def end() -> None:
        world.says("train/task-0", "".join(f"{text}\n" for text in said))
        world.hosts.silent.add("a-0")
        ended = replace(exited(world, 0), log_tail=f"{said[-1]}\n")
        world.lab.answers(world.lab.answer_of("a-0", ended)).reports("train/task-1 exited 0")
        world.write()
        world.pulls("train/task-0", after=60.0)

    world.says("train/task-0", "begun\n")
    story = iter([end])
    world.clock.then = lambda: next(story, lambda: None)()
    follower = Follower(world.session(), "train", Query())
    steps = list(follower.steps())
    assert lines(steps) == [f"0.0 {text}" for text in ("begun", *said)]
    assert max(sum(len(text.text) for text in step.texts) for step in steps) <= 2000
    assert not follower.cut_short


def test_the_end_of_an_output_is_asked_for_again_before_it_is_given_up(world: World) -> None:
    def end() -> None:
        world.says("train/task-0", "last words\n")
        world.hosts.silent.add("a-0")
        world.lab.reports("train/* exited 0")

    steps = follow(world, [end, world.hosts.silent.clear])
    assert lines(steps) == ["0.0 last words"]
    assert notes(steps) == ["train/task-0: worker a-0 answers again"]
