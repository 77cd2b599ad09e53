"""When the output of attempts is removed from their workers: of what has ended for certain, long ago, and once."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from iris_cli.core.evolve import Draft
from iris_cli.core.ids import AttemptId, JobId, TaskId, WorkerId
from iris_cli.core.lifecycle import reaping
from iris_cli.core.model.cluster import BATCH, Outputs
from iris_cli.core.model.job import ReplaceLost
from iris_cli.core.model.limits import Limits
from iris_cli.core.model.task import Task
from tests.support.lab import Lab

W = WorkerId("w")
TRAIN = "train/task-0/attempt-0"
NUMBERED = [AttemptId(TaskId(JobId("sweep"), index), 0) for index in range(3 * BATCH + 5)]


def ended(limits: Limits | None = None, tasks: int = 1) -> Lab:
    lab = Lab(limits).worker("w", cpu=tasks, memory=tasks << 30).job("train", replicas=tasks).schedule()
    return lab.reports("train/* running").reports("train/* exited 0")


@pytest.mark.parametrize(
    ("limits", "waited", "skew", "expected"),
    [
        (Limits(), "13d", 0.0, []),
        (Limits(), "14d", 0.0, [TRAIN]),
        (Limits(reap_after=3600), "59m", 0.0, []),
        (Limits(reap_after=3600), "1h", 0.0, [TRAIN]),
        (Limits(reap_after=0), "9000d", 0.0, []),
        (Limits(), "20d", -20 * 86400.0, []),  # our clock was set ahead
        (Limits(), "20d", 20 * 86400.0, []),
        (Limits(), "15d", -3600.0, [TRAIN]),
    ],
)
def test_the_output_of_an_attempt_is_due_so_long_after_its_end(
    limits: Limits, waited: str, skew: float, expected: list[str]
) -> None:
    lab = ended(limits).advance(waited)
    lab.cluster.workers[W] = replace(lab.the_worker("w"), skew=skew)
    assert lab.due("w") == expected


def test_what_lives_or_is_being_stopped_is_never_due() -> None:
    lab = Lab().worker("w").job("train", replicas=3).schedule().reports("train/* running")
    lab.cancel("train").reports("train/task-1 stopped").advance("90d")
    assert lab.due("w") == ["train/task-1/attempt-0"]


def test_what_was_presumed_gone_is_due_only_after_proof_that_it_is() -> None:
    lab = Lab().worker("w", preemptible="true").worker("v", cpu=1).worker("u", cpu=1)
    lab.policies = {W: ReplaceLost.PREEMPTIBLE}
    lab.job("train", cpu=8).schedule().reports("train/* running")
    for _ in range(5):
        lab.answers(lab.silence_of("w"), lab.answer_of("v"), lab.answer_of("u")).advance("3m")
    assert lab.attempt("train", number=0).presumed
    assert lab.cluster.outputs == {}
    lab.advance("90d").reports("train/task-0/attempt-0 stopped")
    assert lab.cluster.ghosts == {}
    assert lab.due("w") == [TRAIN]


@pytest.mark.parametrize("gone", ["forgotten", "re-created", "wiped"])
def test_nothing_is_removed_from_a_worker_that_was_replaced(gone: str) -> None:
    lab = ended().advance("14d")
    assert lab.due("w") == [TRAIN]
    if gone == "forgotten":
        lab.configure("w").configure(back="w").probe("w")
    else:
        if gone == "re-created":
            lab.hosts[W].reboot()
        lab.hosts[W].wipe()
        lab.answers(lab.answer_of("w")).probe("w", trusted=True)
    assert lab.cluster.outputs == {}
    assert lab.due("w") == []


def test_a_reboot_leaves_files_where_they_are() -> None:
    lab = ended().advance("14d")
    lab.hosts[W].reboot()
    lab.answers(lab.answer_of("w"))
    assert lab.due("w") == [TRAIN]


def test_only_a_worker_that_is_well_is_asked() -> None:
    lab = ended().advance("14d").silent("w")
    assert lab.due("w") == []
    assert lab.advance("1m").answers(lab.answer_of("w")).due("w") == [TRAIN]


def test_attempts_are_due_in_batches_the_oldest_first_and_each_once() -> None:
    lab = ended(tasks=2 * BATCH + 3).advance("14d")
    seen = []
    for _ in range(3):
        seen.append(lab.due("w"))
        lab.reap("w")
        assert lab.due("w") == []  # it has just been asked
        lab.advance(reaping.PAUSE)
    assert [len(batch) for batch in seen] == [BATCH, BATCH, 3]
    assert len({attempt for batch in seen for attempt in batch}) == 2 * BATCH + 3
    assert all(task.attempts[0].reaped_at is not None for task in lab.cluster.tasks.values())
    assert lab.due("w") == []


@pytest.mark.parametrize("before", [0, 2, BATCH - 1, BATCH])
def test_an_end_recorded_by_a_clock_that_was_ahead_keeps_no_files_of_later_attempts(before: int) -> None:
    """Attempts are in the order of their ends, so it ended before the next one."""
    lab = Lab().worker("w", cpu=BATCH + 2, memory=(BATCH + 2) << 30)
    for name, tasks in (("first", before), ("ahead", 1), ("last", BATCH - before // 2)):
        lab = lab.job(name, replicas=tasks).schedule().reports(f"{name}/* running") if tasks else lab
        lab = lab.advance("365d") if name == "ahead" else lab
        lab = lab.reports(f"{name}/* exited 0") if tasks else lab
        lab.now -= 365 * 86400.0 if name == "ahead" else 0.0
    everything = set(map(str, lab.cluster.outputs[W].attempts))
    assert lab.due("w") == []
    lab.advance("14d")
    worker = lab.the_worker("w")
    found = reaping.attempts_ended_before(lab.cluster, worker, lab.now, lab.now)
    assert set(map(str, found)) == everything
    seen: set[str] = set()
    while due := lab.due("w"):
        seen |= set(due)
        lab.reap("w").advance(reaping.PAUSE)
    assert seen == everything


def test_a_worker_that_is_asked_for_nothing_else_is_asked_once_a_day() -> None:
    lab = ended(tasks=BATCH + 1).advance("14d").reap("w").advance(reaping.PAUSE_WITHOUT_POLLS - 1)
    assert lab.due("w", pause=reaping.PAUSE_WITHOUT_POLLS) == []
    assert lab.due("w") == [f"train/task-{BATCH}/attempt-0"]
    assert lab.advance(1).due("w", pause=reaping.PAUSE_WITHOUT_POLLS) == lab.due("w")


def test_what_two_invocations_were_told_is_recorded_once() -> None:
    lab = ended(tasks=2).advance("14d")
    asked = reaping.attempts_due(lab.cluster, lab.the_worker("w"), lab.now, lab.limits)
    for reaped in (asked[:1], asked):
        with lab.transaction() as draft:
            reaping.record_reaped(draft, W, asked, reaped)
    assert [task.attempts[0].reaped_at is not None for task in lab.cluster.tasks.values()] == [True, True]
    with lab.transaction() as draft:
        reaping.record_reaped(draft, W, asked, asked)
    assert lab.last == ()


def test_a_long_history_costs_a_cycle_nothing() -> None:
    lab = ended().advance("14d")
    looked: list[TaskId] = []

    class Counting(dict[TaskId, Task]):
        def __getitem__(self, key: TaskId) -> Task:
            looked.append(key)
            return super().__getitem__(key)

    one = AttemptId(TaskId(JobId("train"), 0), 0)
    full = ((one,) * BATCH,) * 10_000
    lab.cluster.tasks = Counting(lab.cluster.tasks)
    lab.cluster.outputs[W] = Outputs(full=full, last=(one,))
    assert len(lab.due("w")) == len(looked) == BATCH
    assert Draft(lab.cluster, 0.0).cluster.outputs[W] is lab.cluster.outputs[W]
    assert lab.cluster.outputs[W].plus(one).full is full


def test_outputs_stand_in_the_order_of_their_ends() -> None:
    outputs, expected = Outputs(), list[AttemptId]()
    for index, attempt in enumerate(NUMBERED):
        outputs, expected = outputs.plus(attempt), [*expected, attempt]
        if index % 3 == 2:
            first = len(outputs.oldest_batch) // 2 + 1
            assert list(outputs.oldest_batch[:first]) == expected[:first]
            outputs, expected = outputs.minus(first, 0.0), expected[first:]
        assert list(outputs.attempts) == expected
        assert len(outputs.oldest_batch) <= BATCH
    while expected:
        count = len(outputs.oldest_batch)
        outputs, expected = outputs.minus(count, 0.0), expected[count:]
        assert list(outputs.attempts) == expected
