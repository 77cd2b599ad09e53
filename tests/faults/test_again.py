"""`iris launch --again` and `iris retry` over real SSH: killed at any step, and from two terminals at once."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from iris_cli.core.ids import JobId
from iris_cli.core.model.job import JobState
from iris_cli.core.model.task import AttemptState, EndReason
from tests.faults.hall import RANKS, Hall
from tests.support.invocations import Invocation

pytestmark = pytest.mark.ssh

every_step = pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.soak)])


def fails(hall: Hall, name: str) -> Path:
    """Run a gang to its end, which is a failure. Once the returned file exists, its program succeeds."""
    mended = hall.ledger.directory / "mended"
    hall.gang(name, f"[ -e {mended} ] || exit 3")
    hall.until_running(name)
    hall.open(name)
    hall.until(lambda: hall.state(name) is JobState.FAILED)
    return mended


def jobs_again(hall: Hall) -> list[str]:
    """The jobs that were submitted again, in the order of their submission."""
    return [job.id for job in hall.cluster.jobs.values() if job.again is not None]


def told(invocation: Invocation) -> list[str]:
    """The job ids that a launch printed."""
    return re.findall(r"^train-\d+$", invocation.said.read_text(), re.MULTILINE)


def all_succeed(hall: Hall, gate: str, jobs: list[str]) -> None:
    """Every rank of these jobs runs, once at a time, and succeeds in the attempt in which it was running."""
    hall.until_running(*jobs)
    running = {job: hall.cluster.live_attempts_of(JobId(job)) for job in jobs}
    hall.open(gate)
    hall.until(lambda: all(hall.state(job) is JobState.SUCCEEDED for job in jobs))
    for job, ranks in running.items():
        lasts = [(task.id, task.attempts[-1].number) for task in hall.cluster.tasks_of(JobId(job))]
        assert lasts == [(attempt.task, attempt.number) for attempt, _ in ranks]
    hall.ledger.check()


@every_step
def test_killed_at_any_step_of_launch_again_the_job_runs_or_was_never_submitted(
    hall: Hall, stride: int
) -> None:
    mended = fails(hall, "train")
    mended.touch()
    hall.close("train")
    codes, printed = [], []
    for step in range(1, 26, stride):
        before = len(jobs_again(hall))
        invocation = hall.invocations.start("launch", "--again", "train", die_at=step)
        codes.append(invocation.wait())
        assert len(jobs_again(hall)) - before in ((1,) if codes[-1] == 0 else (0, 1))
        printed += told(invocation)
    assert -signal.SIGKILL in codes
    assert set(codes) <= {-signal.SIGKILL, 0}
    jobs = jobs_again(hall)
    assert jobs == [f"train-{number}" for number in range(2, len(jobs) + 2)]
    assert set(printed) <= set(jobs)
    hall.repair()
    all_succeed(hall, "train", jobs)


def test_terminals_that_launch_it_again_at_once_run_a_job_each(hall: Hall) -> None:
    mended = fails(hall, "train")
    mended.touch()
    hall.close("train")
    started = [hall.invocations.start("launch", "--again", "train") for _ in range(3)]
    for each in started:
        each.done()
    assert sorted(job for each in started for job in told(each)) == ["train-2", "train-3", "train-4"]
    assert jobs_again(hall) == ["train-2", "train-3", "train-4"]
    all_succeed(hall, "train", jobs_again(hall))


@pytest.mark.parametrize("rounds", [3, pytest.param(30, marks=pytest.mark.soak)])
def test_terminals_that_retry_at_once_while_others_schedule_leave_one_attempt_of_each_rank(
    hall: Hall, rounds: int
) -> None:
    hall.gang("train")
    hall.until_running("train")
    commands = (("retry", "train"), ("retry", "train/task-1"), ("schedule", "--once"), ("schedule", "--once"))
    for _ in range(rounds):
        for each in [hall.invocations.start(*words) for words in commands]:
            each.done()
        hall.until_running("train")
    all_succeed(hall, "train", ["train"])
    for rank in range(RANKS):
        *retried, last = hall.attempts("train", rank)
        assert rounds <= len(retried) <= 2 * rounds
        assert {each.end.reason for each in retried if each.end is not None} == {EndReason.RETRIED}
        assert last.state is AttemptState.ENDED
    job = hall.cluster.jobs[JobId("train")]
    assert (job.failed_rounds, job.preempted_rounds) == (0, 0)


def test_a_chain_with_kills_reads_as_one_story(hall: Hall) -> None:
    """train fails; train-2 is killed in its dispatch, and fails; train-3 is retried by a command that is killed."""
    mended = fails(hall, "train")
    hall.close("train")
    hall.invocations.start("launch", "--again", "train", die_at=6).wait()
    assert jobs_again(hall) == ["train-2"]
    hall.repair()
    hall.until_running("train-2")
    hall.open("train")
    hall.until(lambda: hall.state("train-2") is JobState.FAILED)
    mended.touch()
    hall.close("train")
    assert "train-3" in hall.invocations.run("launch", "--again", "train-2")
    hall.until_running("train-3")
    assert hall.invocations.start("retry", "train-3", die_at=3).wait() == -signal.SIGKILL
    hall.until(lambda: hall.cluster.jobs[JobId("train-3")].rounds == 2)
    hall.repair()
    all_succeed(hall, "train", ["train-3"])
    links = {
        "train": "resubmitted as train-2",
        "train-2": "resubmitted as train-3",
        "train-3": "resubmission of train-2",
    }
    for view in ("status", "report"):
        lines = hall.site.iris(view, env={"COLUMNS": "160"}).out.splitlines()
        rows = {line.split()[0]: line for line in lines if line.startswith("train")}
        assert {job: row.split("; ")[-1].split("  ")[-1] for job, row in rows.items()} == links
        states = {job: row.split()[1] for job, row in rows.items()}
        assert states == {"train": "FAILED", "train-2": "FAILED", "train-3": "SUCCEEDED"}
    facts = {job: hall.site.iris("status", job).out for job in links}
    assert "resubmitted as  train-2" in facts["train"]
    assert re.search(r"resubmission of +train\n", facts["train-2"])
    assert "next: iris status train-3" in facts["train-2"]
    assert re.search(r"resubmission of +train-2\n", facts["train-3"])
