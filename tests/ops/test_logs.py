"""What tasks wrote, fetched once: of whom, how much, and what is said where there is nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from iris_cli.core.ids import AttemptId, JobId, TaskId
from iris_cli.core.messages.observations import AttemptReport, RemoteState
from iris_cli.errors import NotFoundError, UsageError
from iris_cli.ops.logs.follow import Follower
from iris_cli.ops.logs.log_reading import PIECE, Query
from iris_cli.ops.logs.logs import LogFetch, TaskLog, fetch
from tests.ops.world import World
from tests.support.lab import Lab


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A gang of two that runs."""
    lab = Lab().slice("a", "v4-16").job("train", tpu="v4-16").schedule().reports("train/* running")
    return World(lab, tmp_path / "state")


def texts(log: TaskLog) -> list[str]:
    return [line.text for line in log.lines]


def test_every_rank_is_asked_once_for_each_stream(world: World) -> None:
    world.says("train/task-0", "step 1\nstep 2\n")
    world.says("train/task-1", "warning\n", "err")
    logs = fetch(world.session(), "train", Query())
    assert [texts(log) for log in logs] == [["step 1", "step 2"], ["warning"]]
    assert sorted(world.hosts.asked) == [("a-0", "err"), ("a-0", "out"), ("a-1", "err"), ("a-1", "out")]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (Query(tail=1), ["out 2", "err 2"]),
        (Query(tail=0), []),
        (Query(tail=None), ["out 1", "out 2", "err 1", "err 2"]),
        (Query(streams=("err",)), ["err 1", "err 2"]),
    ],
)
def test_the_end_of_each_stream_is_shown(world: World, query: Query, expected: list[str]) -> None:
    world.says("train/task-0", "out 1\nout 2\n")
    world.says("train/task-0", "err 1\nerr 2\n", "err")
    assert texts(fetch(world.session(), "train/task-0", query)[0]) == expected


def test_an_unfinished_last_line_counts_as_a_line(world: World) -> None:
    world.says("train/task-0", "one\ntwo\nthree")
    assert texts(fetch(world.session(), "train/task-0", Query(tail=2))[0]) == ["two", "three"]


def test_all_of_very_much_comes_piece_by_piece(world: World) -> None:
    said = {rank: "".join(f"{rank} {number:_>90}\n" for number in range(30_000)) for rank in range(2)}
    for rank, text in said.items():
        world.says(f"train/task-{rank}", text + "unfinished")
    fetching = LogFetch(world.session(), "train", Query(tail=None))
    came = {0: "", 1: ""}
    for turn in fetching.turns():
        assert sum(len(text.text) for text in turn) <= fetching.tasks * PIECE + 100
        for piece in turn:
            came[piece.rank] += piece.text
    assert came == said
    assert [texts(log) for log in fetching.logs({})] == [["unfinished"]] * 2


def test_who_falls_silent_in_the_middle_has_begun(world: World) -> None:
    world.says("train/task-0", "x" * 99 + "\n" + "y\n" * PIECE)
    fetching = LogFetch(world.session(), "train/task-0", Query(tail=None))
    turns = fetching.turns()
    assert next(turns)[0].text.startswith("x" * 99)
    world.hosts.silent.add("a-0")
    assert [text for turn in turns for text in turn] == []
    (log,) = fetching.logs({})
    assert (log.lines, log.silence is None) == ((), False)
    assert log.note.endswith("the end of its output is missing")


def test_ranks_can_be_chosen(world: World) -> None:
    assert [log.task.index for log in fetch(world.session(), "train", Query(ranks=(1,)))] == [1]
    assert {worker for worker, _ in world.hosts.asked} == {"a-1"}


@pytest.mark.parametrize(
    ("what", "query", "error", "hint"),
    [
        ("trian", Query(), "no job or task 'trian'", "did you mean 'train'?"),
        ("train/task-2", Query(), "train has no task-2", "the last task is train/task-1"),
        ("eval/task-0", Query(), "no job or task 'eval/task-0'", "`iris status` lists the jobs"),
        ("train", Query(ranks=(5,)), "train has no rank 5", "the ranks are 0 to 1"),
        ("train", Query(attempt=3), "train has no attempt 3", "the last attempt is 0"),
        ("train/task-1", Query(ranks=(0,)), "train/task-1 has no rank 0", "the only rank is 1"),
        ("train/task-0/attempt-1", Query(), "train/task-0 has no attempt 1", "the last attempt is 0"),
    ],
)
def test_what_does_not_exist_is_named(world: World, what: str, query: Query, error: str, hint: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        fetch(world.session(), what, query)
    assert (caught.value.message, caught.value.hint) == (error, hint)


def test_an_attempt_is_not_named_twice(world: World) -> None:
    with pytest.raises(UsageError, match="contradict"):
        fetch(world.session(), "train/task-0/attempt-0", Query(attempt=1))


def test_an_earlier_attempt_can_be_chosen(tmp_path: Path) -> None:
    lab = Lab().worker("w").job("flaky", max_retries_failure=1).schedule().reports("flaky/* running")
    lab.reports("flaky/* exited 1").schedule()
    world = World(lab, tmp_path / "state")
    world.says("flaky/task-0", "first\n", number=0)
    world.says("flaky/task-0", "second\n")
    session = world.session()
    assert texts(fetch(session, "flaky", Query())[0]) == ["second"]
    assert texts(fetch(session, "flaky", Query(attempt=0))[0]) == ["first"]
    assert texts(fetch(session, "flaky/task-0/attempt-0", Query())[0]) == ["first"]


def test_a_task_that_waits_says_why(tmp_path: Path) -> None:
    lab = Lab().slice("a", "v4-16").job("train", tpu="v4-16").job("next", tpu="v4-16").schedule()
    logs = fetch(World(lab, tmp_path / "state").session(), "next", Query())
    assert [log.note.split(":")[0] for log in logs] == ["has not started"] * 2
    assert "a" in logs[0].note.split(":", 1)[1]


def test_a_task_that_never_ran_says_how_it_ended(tmp_path: Path) -> None:
    lab = Lab().job("train", cpu=1.0).cancel("train", "wrong data")
    assert "wrong data" in fetch(World(lab, tmp_path / "state").session(), "train", Query())[0].note


def test_a_task_on_its_way_says_where_it_is(tmp_path: Path) -> None:
    lab = Lab().worker("w").job("side").schedule()
    note = fetch(World(lab, tmp_path / "state").session(), "side", Query())[0].note
    assert note == "has not started: is being sent on worker w"


def test_a_silent_worker_hides_only_its_own_ranks(world: World) -> None:
    world.says("train/task-0", "alive\n")
    world.hosts.silent.add("a-1")
    heard, unheard = fetch(world.session(), "train", Query())
    assert (texts(heard), heard.note, heard.silence) == (["alive"], "", None)
    assert unheard.note == "no answer from worker a-1 (connect: no route)"
    assert unheard.silence is not None


def failed(tmp_path: Path) -> World:
    """A task that failed; the log keeps the end of its output."""
    lab = Lab().worker("w").job("side").schedule().reports("side/* running")
    attempt = lab.attempt("side")
    report = AttemptReport(
        token=attempt.token, state=RemoteState.EXITED, exit_code=1, log_tail="Traceback\nValueError\n"
    )
    lab.answers(lab.answer_of("w", report))
    return World(lab, tmp_path / "state")


def test_the_log_keeps_the_end_for_when_the_worker_is_silent(tmp_path: Path) -> None:
    world = failed(tmp_path)
    world.hosts.silent.add("w")
    log = fetch(world.session(), "side", Query())[0]
    assert (texts(log), log.kept, log.silence is not None) == (["Traceback", "ValueError"], True, True)
    assert (
        log.note
        == "no answer from worker w (connect: no route); showing the last lines that iris saved when it ended"
    )


REMOVED = "output removed from worker w 14d after the end (iris gc or limits.reap_after)"


def test_removed_output_is_not_asked_for_and_its_end_is_in_the_log(tmp_path: Path) -> None:
    world = failed(tmp_path)
    world.lab.advance("14d").reap("w")
    log = fetch(world.session(), "side", Query())[0]
    assert (texts(log), log.kept, log.silence) == (["Traceback", "ValueError"], True, None)
    assert log.note == f"{REMOVED}; showing the last lines that iris saved when it ended"
    steps = list(Follower(world.session(), "side", Query()).steps())
    assert [line.text for step in steps for line in step.lines] == ["Traceback", "ValueError"]
    assert [note for step in steps for _, note in step.notes] == [log.note]
    assert world.hosts.asked == []


def test_removed_output_of_which_nothing_was_kept_is_said_to_be_that(tmp_path: Path) -> None:
    lab = Lab().worker("w").job("side").schedule().reports("side/* running").reports("side/* exited 0")
    world = World(lab.advance("14d").reap("w"), tmp_path / "state")
    log = fetch(world.session(), "side", Query())[0]
    assert (log.lines, log.note) == ((), REMOVED)


def test_what_never_started_has_no_output_that_was_removed(tmp_path: Path) -> None:
    lab = Lab().worker("w").job("side").schedule().reports("side/* nostart setup")
    world = World(lab.advance("14d").reap("w"), tmp_path / "state")
    log = fetch(world.session(), "side", Query())[0]
    assert lab.attempt("side").reaped_at is not None
    assert log.note.startswith("attempt 0 never started: ")


def test_the_log_keeps_the_end_for_when_the_files_are_gone(tmp_path: Path) -> None:
    log = fetch(failed(tmp_path).session(), "side", Query(tail=1))[0]
    assert (texts(log), log.silence) == (["ValueError"], None)
    assert log.note == "no files left on worker w; showing the last lines that iris saved when it ended"


def test_files_that_are_gone_are_not_told_as_no_output(tmp_path: Path) -> None:
    lab = Lab().worker("w").job("side").schedule().reports("side/* running").reports("side/* exited 0")
    log = fetch(World(lab, tmp_path / "state").session(), "side", Query())[0]
    assert (log.lines, log.note) == ((), "no files left on worker w")


@pytest.mark.parametrize("stream", ["out", "err"])
def test_the_end_that_the_log_keeps_is_shown_whichever_stream_is_wanted(tmp_path: Path, stream: str) -> None:
    world = failed(tmp_path)
    world.hosts.silent.add("w")
    log = fetch(world.session(), "side", Query(streams=(stream,)))[0]
    assert (texts(log), log.kept) == (["Traceback", "ValueError"], True)


def test_the_log_keeps_the_end_for_when_the_worker_was_forgotten(tmp_path: Path) -> None:
    world = failed(tmp_path)
    world.lab.forget_dead("w")
    log = fetch(world.session(), "side", Query())[0]
    assert (texts(log), world.hosts.asked) == (["Traceback", "ValueError"], [])
    assert log.note.startswith("worker w is no longer in the cluster")


def pulled_world(tmp_path: Path, *, ended: bool, bytes_pulled: int | None = None) -> World:
    lab = Lab().worker("w").job("side").schedule().reports("side/* running")
    world = World(lab, tmp_path / "state")
    world.says("side/task-0", "one\ntwo\nthree\n")
    world.says("side/task-0", "warning\n", "err")
    if ended:
        attempt = lab.attempt("side")
        report = AttemptReport(
            token=attempt.token, state=RemoteState.EXITED, exit_code=1, log_tail="three\nwarning\n"
        )
        lab.advance("1h").answers(lab.answer_of("w", report))
    world.write()
    world.clock.time = lab.now
    world.pulls("side/task-0", bytes=bytes_pulled, after=0.0 if bytes_pulled is None else -7200.0)
    return world


def test_what_was_pulled_outlives_the_worker(tmp_path: Path) -> None:
    world = pulled_world(tmp_path, ended=True)
    world.lab.advance("14d").reap("w")
    world.clock.time = world.lab.now
    log = fetch(world.session(), "side", Query(tail=2))[0]
    assert (texts(log), log.pulled, log.kept) == (["two", "three", "warning"], True, False)
    assert log.note == f"{REMOVED}; showing what was pulled 14d ago"
    assert texts(fetch(world.session(), "side", Query(tail=None))[0]) == ["one", "two", "three", "warning"]
    assert texts(fetch(world.session(), "side", Query(streams=("err",)))[0]) == ["warning"]
    steps = list(Follower(world.session(), "side", Query(tail=2)).steps())
    assert [line.text for step in steps for line in step.lines] == ["two", "three", "warning"]
    assert [note for step in steps for _, note in step.notes] == [log.note]
    assert world.hosts.calls == []


def test_what_was_pulled_is_shown_while_the_worker_is_silent(tmp_path: Path) -> None:
    world = pulled_world(tmp_path, ended=False, bytes_pulled=6)
    world.hosts.silent.add("w")
    log = fetch(world.session(), "side", Query())[0]
    assert (texts(log), log.pulled) == (["one", "tw", "warnin"], True)
    assert log.note == "no answer from worker w (connect: no route); showing what was pulled 2h ago"
    assert log.silence is not None


def test_what_was_pulled_before_the_end_is_named_beside_the_end_that_the_log_keeps(tmp_path: Path) -> None:
    world = pulled_world(tmp_path, ended=True, bytes_pulled=6)
    world.hosts.silent.add("w")
    log = fetch(world.session(), "side", Query())[0]
    assert (texts(log), log.kept, log.pulled) == (["three", "warning"], True, False)
    assert log.note.endswith(
        "showing the last lines that iris saved when it ended; earlier output was pulled to "
        f"{tmp_path / 'state/logs/side/task-0/attempt-0'}"
    )


def test_what_was_pulled_reaches_the_end_if_it_ends_alike_whatever_the_clocks_say(tmp_path: Path) -> None:
    world = pulled_world(tmp_path, ended=True, bytes_pulled=100)
    world.hosts.silent.add("w")
    log = fetch(world.session(), "side", Query(tail=None))[0]
    assert (texts(log), log.pulled) == (["one", "two", "three", "warning"], True)


def test_what_was_pulled_is_shown_when_the_files_are_gone_from_the_worker(tmp_path: Path) -> None:
    world = pulled_world(tmp_path, ended=True)
    world.hosts.files.clear()
    log = fetch(world.session(), "side", Query(tail=1))[0]
    assert (texts(log), log.silence) == (["three", "warning"], None)
    assert log.note == "no files left on worker w; showing what was pulled 0s ago"
    steps = list(Follower(world.session(), "side", Query(tail=1)).steps())
    assert [line.text for step in steps for line in step.lines] == ["three", "warning"]


def test_all_that_was_pulled_is_handed_on_piece_by_piece(tmp_path: Path) -> None:
    """It may be as long as the disk is large."""
    world = pulled_world(tmp_path, ended=True)
    written = "".join(f"step {number}\n" for number in range(200_000))
    world.session().state.task_logs.put(AttemptId(TaskId(JobId("side"), 0), 0), "out", 0, written.encode())
    world.lab.advance("14d").reap("w")
    fetching = LogFetch(world.session(), "side", Query(tail=None, streams=("out",)))
    pieces = [text.text for turn in fetching.turns() for text in turn]
    assert "".join(pieces) == written
    assert max(map(len, pieces)) <= PIECE + len("step 200000\n")
    [log] = fetching.logs({})
    assert (log.lines, log.pulled) == ((), True)
    assert log.note.startswith(f"{REMOVED}; showing what was pulled")


def test_a_worker_that_answers_is_asked_whatever_was_pulled(tmp_path: Path) -> None:
    world = pulled_world(tmp_path, ended=True, bytes_pulled=6)
    log = fetch(world.session(), "side", Query(tail=None))[0]
    assert (texts(log), log.note) == (["one", "two", "three", "warning"], "")
