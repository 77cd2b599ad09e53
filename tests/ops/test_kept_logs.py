"""A cycle copies the output of attempts that have ended, and looks there for the cause of a failure."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest
from msgspec.structs import replace

from iris_cli.core.ids import AttemptId, JobId, TaskId
from iris_cli.core.messages.observations import AttemptReport, RemoteState
from iris_cli.core.model.task import EndReason
from iris_cli.journal.files.pulled_logs import MAX_EXCERPT
from iris_cli.ops.cycle import cycle, kept_logs
from iris_cli.ops.logs.log_reading import Query
from iris_cli.ops.logs.logs import fetch
from iris_cli.ops.loop.foreground import wait_for
from iris_cli.ops.views.cycles import logs_to_copy
from iris_cli.ops.views.job_status import job_status
from iris_cli.ops.views.status import cluster_status
from iris_cli.ops.views.why import why
from tests.ops.world import World
from tests.support.lab import Lab

CAUSE = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
NOISE = "".join(f"  frame {number} of a long trace\n" for number in range(400))
KNOWN = "exit 1: the GPU is out of memory"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A task that runs, and may go again once."""
    lab = Lab().worker("w").job("train", max_retries_failure=1).schedule().reports("train/* running")
    return World(lab, tmp_path / "state")


def fails(world: World, *tasks: str, saying: str, exit_code: int = 1) -> None:
    """With the next poll these tasks turn out to have written that, and failed."""
    for task in tasks:
        world.says(task, saying, "err")
        job, _, index = task.rpartition("/task-")
        attempt = world.lab.attempt(job, int(index))
        tail = saying.encode()[-4096:].decode()
        report = AttemptReport(
            token=attempt.token,
            state=RemoteState.EXITED,
            exit_code=exit_code,
            ended_ago=5.0 - int(index) / 10,
            output_bytes=len(saying.encode()),
            log_tail=tail,
        )
        world.answers(attempt.worker)
        known = world.hosts.polls.get(attempt.worker) or world.lab.answer_of(attempt.worker)
        world.hosts.polls[attempt.worker] = replace(known, attempts=(*known.attempts, report))


def kept(world: World, task: str = "train/task-0") -> bytes:
    job, _, index = task.rpartition("/task-")
    return world.session().state.task_logs.excerpt(AttemptId(TaskId(JobId(job), int(index)), 0))


def test_status_why_and_wait_know_the_cause_without_asking_the_worker(world: World) -> None:
    fails(world, "train/task-0", saying=CAUSE + NOISE)
    session = world.session()
    cycle.run(session, schedule=False)
    retry = f"retry 1 of 1, after {KNOWN}"
    assert cluster_status(session).jobs[0].retry == retry
    assert job_status(session, "train").tasks[0].attempts[0].why == KNOWN
    assert why(session, "train").retry == retry
    assert world.hosts.asked == [("w", "out"), ("w", "err")]


def test_the_card_of_what_is_over_shows_it(tmp_path: Path) -> None:
    lab = Lab().worker("w").job("train").schedule().reports("train/* running")
    world = World(lab, tmp_path / "state")
    fails(world, "train/task-0", saying="loading\n" + CAUSE + NOISE)
    session = world.session()
    assert wait_for(session, [JobId("train")]).open == []
    failure = job_status(session, "train").failure
    assert failure is not None
    assert failure.known is not None
    assert (failure.known.name, failure.known.line) == ("cuda-memory", CAUSE.rstrip())
    assert failure.log_lines[-1] == "  frame 399 of a long trace"
    assert cluster_status(session).jobs[0].why == KNOWN
    assert job_status(session, "train", at="0s").failure != failure, "the past is told from the log alone"


def test_only_a_few_lines_around_it_are_kept(world: World) -> None:
    fails(world, "train/task-0", saying=NOISE + CAUSE + NOISE)
    cycle.run(world.session(), schedule=False)
    assert CAUSE.encode() in kept(world)
    assert len(kept(world)) <= MAX_EXCERPT


def test_lines_of_many_bytes_a_character_take_no_room_from_the_one_that_tells(world: World) -> None:
    fails(world, "train/task-0", saying="█" * 3000 + "\n" + CAUSE + NOISE)
    cycle.run(world.session(), schedule=False)
    assert CAUSE.encode() in kept(world)
    assert len(kept(world)) <= MAX_EXCERPT


@pytest.mark.parametrize(
    "said",
    [CAUSE, "short\n", NOISE + CAUSE, NOISE],
    ids=["all of it is kept", "nothing more was said", "the end told it", "a cause that nobody knows"],
)
def test_nothing_is_kept_where_there_is_nothing_more_to_tell(world: World, said: str) -> None:
    fails(world, "train/task-0", saying=said)
    cycle.run(world.session(), schedule=False)
    assert kept(world) == b""


def test_what_a_silent_worker_owes_is_copied_by_the_next_cycle(world: World) -> None:
    fails(world, "train/task-0", saying=CAUSE + NOISE)
    world.hosts.silent.add("w")
    session = world.session()
    cycle.run(session, schedule=False)
    assert job_status(session, "train").tasks[0].attempts[0].why == "exit 1"
    assert session.faults == []
    world.hosts.silent.clear()
    cycle.run(session, schedule=False)
    assert job_status(session, "train").tasks[0].attempts[0].why == KNOWN, "the next cycle copies it"


def test_a_fault_of_ours_there_does_not_end_the_cycle(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    fails(world, "train/task-0", saying=CAUSE + NOISE)
    monkeypatch.setattr(world.hosts, "pieces", lambda *_: 1 / 0)
    session = world.session()
    cycle.run(session, schedule=False)
    assert len(session.faults) == 1
    assert session.state.read_heartbeat() is not None


def test_a_worker_that_hangs_by_then_holds_up_the_cycle_no_longer_than_others_wait_for_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails(world, "train/task-0", saying=CAUSE + NOISE)
    over = Event()

    def hang() -> None:
        over.wait(60)

    world.hosts.afterwards = hang
    monkeypatch.setattr(kept_logs, "_PATIENCE", 0.01)
    session = world.session()
    cycle.run(session, schedule=False)
    given_up = kept(world) == b"" and session.state.read_heartbeat() is not None
    over.set()
    assert given_up
    assert session.faults == []


@pytest.mark.parametrize("retries", [0, 1])
@pytest.mark.parametrize("failing", [5, 20])
def test_of_a_job_that_fails_everywhere_a_few_are_read(tmp_path: Path, failing: int, retries: int) -> None:
    lab = Lab().worker("w", cpu=64)
    lab.job("sweep", replicas=21, max_task_failures=21, max_retries_failure=retries).schedule()
    world = World(lab.reports("sweep/* running"), tmp_path / "state")
    fails(world, *(f"sweep/task-{index}" for index in range(failing)), saying=CAUSE + NOISE)
    cycle.run(world.session(), schedule=False)
    assert sum(bool(kept(world, f"sweep/task-{index}")) for index in range(failing)) == 4
    assert len(world.hosts.calls) == -(-failing // 8), "eight attempts in a call"


def test_a_job_that_has_failed_again_and_again_is_read_no_more(tmp_path: Path) -> None:
    lab = Lab().worker("w", cpu=64).job("sweep", replicas=21, max_task_failures=21).schedule()
    lab.reports("sweep/* running").reports(*(f"sweep/task-{index} exited 1" for index in range(8)))
    world = World(lab, tmp_path / "state")
    fails(world, "sweep/task-8", saying=CAUSE + NOISE)
    cycle.run(world.session(), schedule=False)
    assert kept(world, "sweep/task-8") == b""


@pytest.mark.parametrize("rounds_before", [7, 8])
def test_a_gang_is_read_no_more_after_eight_failed_rounds(tmp_path: Path, rounds_before: int) -> None:
    lab = Lab().slice("a", "v4-16").job("train", tpu="v4-16", max_retries_failure=9)
    for _ in range(rounds_before):
        lab.schedule().reports("train/* running").reports("train/* exited 1").advance("1h")
    world = World(lab.schedule().reports("train/* running"), tmp_path / "state")
    fails(world, "train/task-0", "train/task-1", saying=CAUSE + NOISE)
    session = world.session()
    cycle.run(session, schedule=False)
    assert lab.attempt("train").round == rounds_before
    last = AttemptId(TaskId(JobId("train"), 0), rounds_before)
    assert (session.state.task_logs.excerpt(last) != b"") == (rounds_before < 8)


def test_a_rank_that_told_the_cause_spares_the_others(tmp_path: Path) -> None:
    lab = Lab().slice("a", "v4-16").job("train", tpu="v4-16").schedule().reports("train/* running")
    world = World(lab, tmp_path / "state")
    fails(world, "train/task-0", saying=NOISE)
    fails(world, "train/task-1", saying=NOISE + CAUSE)
    cycle.run(world.session(), schedule=False)
    assert kept(world, "train/task-0") == kept(world, "train/task-1") == b""


def output(world: World, stream: str, task: str = "train/task-0") -> bytes:
    job, _, index = task.rpartition("/task-")
    attempt = AttemptId(TaskId(JobId(job), int(index)), 0)
    return world.session().state.task_logs.read(attempt, stream, 0, 1 << 30)


@pytest.mark.parametrize("exit_code", [0, 1])
def test_the_output_of_an_attempt_outlives_its_worker(world: World, exit_code: int) -> None:
    world.says("train/task-0", "hello\n", "out")
    fails(world, "train/task-0", saying="a warning\n", exit_code=exit_code)
    session = world.session()
    cycle.run(session, schedule=False)
    assert (output(world, "out"), output(world, "err")) == (b"hello\n", b"a warning\n")
    assert session.state.logs_due.all() == {}
    world.hosts.silent.add("w")
    (log,) = fetch(world.session(), "train", Query(attempt=0))
    assert ([line.text for line in log.lines], log.pulled) == (["hello", "a warning"], True)


def test_the_event_log_keeps_the_last_lines_only_of_what_did_not_succeed(world: World) -> None:
    fails(world, "train/task-0", saying="a warning\n", exit_code=0)
    cycle.run(world.session(), schedule=False)
    end = world.session().view().attempt(AttemptId(TaskId(JobId("train"), 0), 0)).end
    assert end is not None
    assert (end.reason, end.log_tail) == (EndReason.OK, "")


def test_of_long_output_the_last_part_is_kept(world: World) -> None:
    saying = "".join(f"step {number}\n" for number in range(200_000))
    fails(world, "train/task-0", saying=saying)
    cycle.run(world.session(), schedule=False)
    attempt = AttemptId(TaskId(JobId("train"), 0), 0)
    found = world.session().state.task_logs.end(attempt, "err")
    assert found is not None
    offset, data = found
    assert (offset + len(data), len(data)) == (len(saying), 512 << 10)
    assert saying.encode().endswith(data)
    world.hosts.silent.add("w")
    (log,) = fetch(world.session(), "train", Query(attempt=0))
    assert [line.text for line in log.lines][-2:] == ["step 199998", "step 199999"]
    assert "the end of its output" in log.note


def test_output_below_the_limit_is_copied_whole_in_several_calls(world: World) -> None:
    saying = "x" * 699_999 + "\n"
    fails(world, "train/task-0", saying=saying)
    cycle.run(world.session(), schedule=False)
    assert output(world, "err") == saying.encode()


def test_nothing_is_copied_if_the_limit_is_zero(world: World) -> None:
    fails(world, "train/task-0", saying="a warning\n")
    session = world.session()
    limits = replace(session.config.limits, keep_logs=0)
    session.config = replace(session.config, limits=limits)
    cycle.run(session, schedule=False)
    assert (world.hosts.asked, output(world, "err")) == ([], b"")


def test_values_of_secrets_are_masked_in_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "s3cr3t-value")
    lab = Lab().worker("w").job("train", secrets=("TOKEN",)).schedule().reports("train/* running")
    world = World(lab, tmp_path / "state")
    fails(world, "train/task-0", saying="cr3t-value, then s3cr3t-value\n")
    session = world.session()
    cycle.run(session, schedule=False)
    end = session.cluster.attempt(AttemptId(TaskId(JobId("train"), 0), 0)).end
    assert end is not None
    hidden = f"{'*' * 10}, then {'*' * 12}\n"
    assert (end.log_tail, output(world, "err")) == (hidden, hidden.encode())
    for path in (tmp_path / "state").rglob("*"):
        assert path.is_dir() or b"s3cr3t-value" not in path.read_bytes(), path


def test_output_due_keeps_the_loop_and_damaged_entries_do_not(world: World) -> None:
    fails(world, "train/task-0", saying="a warning\n")
    world.hosts.silent.add("w")
    session = world.session()
    cycle.run(session, schedule=False)
    (token,) = session.state.logs_due.all()
    directory = session.state.path / "logs-due"
    (directory / "no token").write_text("x")
    (directory / ("0" * 32)).write_bytes(b"\xff/task-0/attempt-0")
    assert list(session.state.logs_due.all()) == [token]
    assert logs_to_copy(session.view(), session.state.logs_due.all())
