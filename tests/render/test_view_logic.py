"""What the views work out from the log: ages, reasons, causes, and what to type next."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from iris_cli.core.events.events import GangRoundEnded, WorkerRegistered
from iris_cli.core.ids import JobId, TaskId, WorkerId
from iris_cli.core.model.job import Job, JobState
from iris_cli.core.model.task import End, EndReason, Task
from iris_cli.core.resources import Resources
from iris_cli.core.scheduling import plan
from iris_cli.errors import NotFoundError, UsageError
from iris_cli.journal.log.record import EVENT_TYPES
from iris_cli.journal.state_dir import StateDir
from iris_cli.ops.outcomes.causes import end_words, exit_words
from iris_cli.ops.outcomes.event_words import event_words
from iris_cli.ops.views.history import history
from iris_cli.ops.views.inventory import inventory
from iris_cli.ops.views.job_status import job_status
from iris_cli.ops.views.status import cluster_status, in_display_order
from iris_cli.ops.views.view import as_of, cycle_age, load_view, parse_moment
from iris_cli.ops.views.why import why
from tests.journal.samples import HOST
from tests.render.scenes import SCENES, busy, displays, failed_gang, retried_gang, session_of
from tests.support.inside import Inside
from tests.support.lab import START, Lab
from tests.support.onlooker import Onlooker
from tests.support.reports import parse_report

# Times


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2h", START - 7200),
        ("90s", START - 90),
        ("0", START),
        ("2027-01-15T07:30:00Z", START - 1800),
        ("2027-01-15T07:30", START - 1800),
        ("2027-01-15 09:00:00+02:00", START - 3600),
        ("2027-01-15", START - 8 * 3600),
        ("20270115", START - 8 * 3600),
    ],
)
def test_a_moment_is_an_iso_time_in_utc_or_an_age(text: str, moment: float) -> None:
    assert parse_moment(text, START) == moment


@pytest.mark.parametrize("text", ["", "soon", "-2h", "2027-13-01", "nan", "9" * 400])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_moment(text, START)


@pytest.mark.parametrize(
    ("heartbeat", "age", "stale"),
    [
        (None, None, True),
        ({}, None, True),
        ({"at": "yesterday"}, None, True),
        ({"at": True}, None, True),
        ({"at": float("inf")}, None, True),
        ({"at": START - 38}, 38.0, False),
        ({"at": START - 300}, 300.0, False),
        ({"at": START - 301}, 301.0, True),
        ({"at": START + 3600}, 0.0, False),
    ],
)
def test_cron_seems_dead_when_the_last_cycle_is_older_than_five_minutes(
    heartbeat: dict[str, object] | None, age: float | None, stale: bool
) -> None:
    seen = cycle_age(heartbeat, START)
    assert (seen.age, seen.stale) == (age, stale)


@pytest.mark.parametrize(
    ("times", "moment", "last"),
    [
        ([10, 20, 30], 25, 2),
        ([10, 20, 30], 30, 3),
        ([10, 20, 30], 5, 0),
        ([10, 99, 20, 30], 25, 3),
        ([10, 20, 15, 30], 17, 3),
    ],
)
def test_the_past_ends_with_the_last_transaction_that_was_in_time(
    tmp_path: Path, times: list[float], moment: float, last: int
) -> None:
    state = StateDir(tmp_path / "state", now=lambda: times[0], actor="me@laptop")
    state.create("lab")
    with state.locked("iris test") as writer:
        for at in times[1:]:
            writer.append([WorkerRegistered(worker=WorkerId(f"w{at}"), connection=HOST)], at=at)
    assert as_of(state, moment, lambda _: nullcontext())[0].seq == last


def test_reading_a_long_log_shows_progress(tmp_path: Path) -> None:
    session, onlooker = session_of(failed_gang(), tmp_path / "state"), Onlooker()
    session.progress = onlooker
    session.view()
    assert onlooker.sees("reading the log")[3] == "bytes"
    assert onlooker.sees("writing the snapshot")


def test_status_at_a_time_shows_the_cluster_as_it_was_then(tmp_path: Path) -> None:
    session = session_of(failed_gang(), tmp_path / "state")
    then = job_status(session, "train", at="2027-01-15T09:00Z")
    now = job_status(session, "train")
    assert (then.past, then.job.state, then.job.age) == (True, JobState.RUNNING, 3600.0)
    assert (now.past, now.job.state) == (False, JobState.FAILED)
    assert cluster_status(session, at="2027-01-15T07:59").jobs == ()


def test_a_clock_that_stepped_back_makes_no_negative_duration(tmp_path: Path) -> None:
    lab = Lab().worker("w").job("job", cpu=1.0).schedule().reports("job/* running").advance(-3600)
    row = job_status(session_of(lab, tmp_path / "state"), "job")
    assert (row.job.age, row.job.duration, row.tasks[0].duration) == (0.0, 0.0, 0.0)


# Jobs


def test_a_card_shows_only_the_last_lines_of_a_long_log(tmp_path: Path) -> None:
    lab = Lab().worker("w").job("job").schedule().reports("job/* running")
    report = lab.answer_of("w")
    long = "".join(f"line {number}\n" for number in range(1000))
    ended = replace(parse_report(lab.attempt("job").token, "exited 1"), log_tail=long)
    lab.answers(replace(report, attempts=(ended,)))
    card = job_status(session_of(lab, tmp_path / "state"), "job").failure
    assert card is not None
    assert card.log_lines == tuple(f"line {number}" for number in range(980, 1000))
    assert card.headline == "failed"


def in_vain() -> Lab:
    lab = Lab().worker("w").job("first").job("second", after=(JobId("first"),)).schedule()
    return lab.reports("first/* exited 1").schedule()


def stuck_on_a_lost_host() -> Lab:
    """A gang that iris retries waits for the rank on a host that does not answer."""
    lab = Lab().slice("a", workers=2).job("train", tpu="v4-16").schedule().reports("train/* running")
    return lab.silent("a-1").retry("train").reports("train/task-0 stopped").schedule()


def never_placed() -> Lab:
    return Lab().worker("w", cpu=1).job("big", cpu=8.0, scheduling_timeout=60.0).advance("2m").schedule()


@pytest.mark.parametrize(
    ("lab", "job", "command"),
    [
        (busy, "train", "iris logs train --follow"),
        (busy, "eval", "iris why eval"),
        (failed_gang, "train", "iris exec v5a-2 -- sh -c 'dmesg | grep -i -A1 oom'"),
        (
            lambda: Lab().worker("w").job("job").schedule().reports("job/* exited 1"),
            "job",
            "iris ssh job/task-0",
        ),
        (lambda: Lab().worker("w").job("job").cancel("job"), "job", "iris history job"),
        (in_vain, "second", "iris status first"),
        (stuck_on_a_lost_host, "train", "iris doctor"),
        (never_placed, "big", "iris workers"),
        (
            lambda: Lab().worker("w").job("job").schedule().reports("job/* exited 0"),
            "job",
            "iris logs job",
        ),
    ],
)
def test_the_next_command_fits_the_state(
    lab: Callable[[], Lab], job: str, command: str, tmp_path: Path
) -> None:
    assert job_status(session_of(lab(), tmp_path / "state"), job).next == command


def test_a_slice_without_one_of_its_vms_is_not_healthy(tmp_path: Path) -> None:
    """As after `iris worker forget --dead` of a host that still does not answer."""
    lab = Lab().slice("a", workers=1)
    (one,) = inventory(session_of(lab, tmp_path / "one")).slices
    (both,) = inventory(session_of(lab.vm("a-1", "a", 1), tmp_path / "both")).slices
    assert (one.status, both.status) == ("1 missing", "healthy")


@pytest.mark.parametrize(
    ("reason", "code", "column", "words"),
    [
        (EndReason.CANCELLED, None, "", "cancelled"),
        (EndReason.USER_ERROR, 1, "1", "exit 1"),
        (EndReason.USER_ERROR, 137, "137", "exit 137"),
        (EndReason.SIGNAL, 137, "137 (SIGKILL)", "killed by SIGKILL"),
        (EndReason.OOM, 137, "137", "ran out of memory, exit 137"),
    ],
)
def test_an_exit_code_above_128_names_a_signal_only_if_one_was_reported(
    reason: EndReason, code: int | None, column: str, words: str
) -> None:
    end = End(reason=reason, exit_code=code)
    assert (exit_words(end), end_words(end)) == (column, words)


@pytest.mark.parametrize(
    ("labels", "states", "jobs"),
    [
        ([], [], ["train", "prep", "eval", "big"]),
        (["team=vision"], [], ["train"]),
        (["team"], [], ["train"]),
        (["team=speech"], [], []),
        ([], ["pending"], ["eval", "big"]),
        ([], ["pending", "RUNNING"], ["train", "prep", "eval", "big"]),
        (["team=vision"], ["pending"], []),
    ],
)
def test_jobs_are_chosen_by_label_and_state(
    labels: list[str], states: list[str], jobs: list[str], tmp_path: Path
) -> None:
    seen = cluster_status(session_of(busy(), tmp_path / "state"), labels=labels, states=states)
    assert [job.id for job in seen.jobs] == jobs


@pytest.mark.parametrize(
    ("states", "jobs"),
    [
        (["RETRYING"], ["flaky", "spot"]),
        (["stopping"], ["eval"]),
        (["stopped"], ["diverged"]),
        (["running"], ["flaky", "spot", "sweep", "eval", "train"]),
        (["pending"], ["low", "high", "sweep"]),
        (["Retrying", "failed"], ["diverged", "flaky", "spot"]),
    ],
)
def test_jobs_are_chosen_by_what_they_read(states: list[str], jobs: list[str], tmp_path: Path) -> None:
    seen = cluster_status(session_of(displays(), tmp_path / "state"), states=states)
    assert [job.id for job in seen.jobs] == jobs


def test_a_state_that_does_not_exist_is_refused_with_those_that_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"pending, running, .*, stopped, stopping, retrying") as caught:
        cluster_status(session_of(displays(), tmp_path / "state"), states=["retryng"])
    assert caught.value.hint == "did you mean 'retrying'?"


def test_what_runs_stands_above_what_waits_and_that_above_what_ended(tmp_path: Path) -> None:
    lab = displays()
    inside = Inside(lab, "train/task-0")
    inside.submit(name="fold")
    lab.cancel("spot")
    session = session_of(lab, tmp_path / "state")
    assert [job.id for job in cluster_status(session).jobs][:3] == ["diverged", "low", "high"]
    still_open, ended = ["train", "eval", "flaky", "high", "train/fold", "sweep", "low"], ["spot", "diverged"]
    for limit in (None, *range(9)):
        seen = cluster_status(session, opened=limit)
        assert [job.id for job in in_display_order(seen.jobs)] == [*still_open[:limit], *ended]
        assert seen.more_open == len(still_open) - len(still_open[:limit])


@pytest.mark.parametrize(("labels", "states"), [(["=x"], []), ([], ["lost"])])
def test_a_filter_that_can_not_be_meant_is_refused(
    labels: list[str], states: list[str], tmp_path: Path
) -> None:
    with pytest.raises(UsageError):
        cluster_status(session_of(busy(), tmp_path / "state"), labels=labels, states=states)


# Workers


@pytest.mark.parametrize("scene", SCENES)
def test_a_worker_refuses_exactly_when_the_scheduler_gives_it_nothing(scene: str, tmp_path: Path) -> None:
    lab = SCENES[scene]()
    small = Job(id=JobId("small"), resources=Resources(cpu=0.001, memory=1))
    task = Task(id=TaskId(small.id, 0))
    for details in inventory(session_of(lab, tmp_path / "state")).workers:
        row = details.worker
        if row.cpu_free < 0.001:
            continue
        alone = lab.cluster.copy()
        alone.workers = {row.id: alone.workers[row.id]}
        alone.jobs[small.id], alone.tasks[task.id] = small, task
        placed = plan(alone, lab.now).assignments
        assert (task.id in {each.task for each in placed}) == (row.refuses == ()), row


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        (lambda lab: lab, "healthy", ""),
        (lambda lab: lab.silent("w"), "suspect", "suspect for 0s (connect: no route to host)"),
        (lambda lab: lab.drain("w", "new disk"), "draining", "draining (new disk)"),
        (
            lambda lab: lab.job("j").schedule().reports("j/* nostart disk"),
            "cooling",
            "cooling down, 10s left",
        ),
        (
            lambda lab: lab.job("j").schedule().reports("j/* running").cancel("j"),
            "stopping",
            "still stopping j/task-0/attempt-0",
        ),
    ],
)
def test_a_worker_says_why_it_takes_nothing(
    change: Callable[[Lab], Lab], status: str, words: str, tmp_path: Path
) -> None:
    (details,) = inventory(session_of(change(Lab().worker("w")), tmp_path / "state")).workers
    assert details.worker.status == status
    assert " ".join(details.worker.refuses).startswith(words)
    assert bool(details.worker.refuses) == bool(words)


# Why


def test_why_tells_the_reasons_that_a_cycle_computes_now(tmp_path: Path) -> None:
    lab = busy()
    session = session_of(lab, tmp_path / "state")
    (wait,) = why(session, "eval").waits
    assert wait.explanation == plan(lab.cluster, lab.now).waiting.explain(JobId("eval"))
    assert len(wait.tasks) == 8


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("trian", "did you mean 'train'?"),
        ("v5a-9", "did you mean 'v5a-3'?"),
        ("train/task-9", "the last task is train/task-3"),
        ("\x1b[2J", "`iris status` lists the jobs; `iris workers` lists the workers"),
    ],
)
def test_a_name_that_is_nowhere_gets_the_nearest_one(name: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError) as caught:
        why(session_of(busy(), tmp_path / "state"), name)
    assert caught.value.hint == hint


# History


def test_history_of_a_worker_tells_what_happened_to_the_attempts_there(tmp_path: Path) -> None:
    session = session_of(retried_gang(), tmp_path / "state")
    texts = [entry.text for entry in history(session, "v5a-1").entries]
    assert "train/task-1/attempt-0 ended: exit 1" in texts
    assert "train/task-1/attempt-1 is running" in texts
    assert not any("v5a-0" in text or "task-0" in text for text in texts)


def test_history_keeps_the_newest_and_counts_the_rest(tmp_path: Path) -> None:
    session = session_of(retried_gang(), tmp_path / "state")
    everything, some = history(session), history(session, limit=3)
    assert some.entries == everything.entries[-3:]
    assert some.earlier == some.entries[0].seq, "its own transaction is shown in part"
    of_one = history(session, "train/task-3", limit=3)
    assert of_one.earlier == len(history(session, "train/task-3").entries) - 3
    assert everything.earlier == 0


def test_history_knows_what_the_cluster_has_forgotten(tmp_path: Path) -> None:
    lab = Lab().worker("gone").worker("stays").configure("gone")
    session = session_of(lab, tmp_path / "state")
    assert "gone" not in load_view(session).cluster.workers
    assert history(session, "gone").entries[-1].text.startswith("worker gone forgotten")


def test_history_of_a_name_that_never_was_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError) as caught:
        history(session_of(retried_gang(), tmp_path / "state"), "trian")
    assert caught.value.hint == "did you mean 'train'?"


def test_every_kind_of_event_has_its_words() -> None:
    from iris_cli.ops.outcomes import event_words as words

    assert set(EVENT_TYPES.values()) == set(words._WORDS)


def test_a_round_that_iris_retry_stopped_names_no_rank_as_failed() -> None:
    ended = partial(GangRoundEnded, job=JobId("train"), round=0, trigger=TaskId(JobId("train"), 1))
    stopped = event_words(ended(reason=EndReason.RETRIED))
    assert stopped == "round 0 of train ended (stopped by iris retry)"
    assert (
        event_words(ended(reason=EndReason.USER_ERROR)) == "round 0 of train ended: train/task-1 failed first"
    )


@pytest.mark.parametrize("scene", SCENES)
def test_the_words_of_an_event_are_one_line(scene: str) -> None:
    for transaction in SCENES[scene]().log:
        for event in transaction.events:
            assert event_words(event)
            assert "\n" not in event_words(event)
