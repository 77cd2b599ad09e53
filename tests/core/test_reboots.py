"""Another boot id is proof that what ran is over; what the worker's disk says of it tells how it ended."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from iris_cli.core import AttemptState, EndReason, TaskState, WorkerId
from iris_cli.core.evolve import Draft
from iris_cli.core.lifecycle import identity
from iris_cli.core.messages.observations import AttemptReport, RemoteState, WorkerReport
from iris_cli.core.model.task import End
from iris_cli.core.model.worker import WorkerCondition
from tests.support.lab import START, Lab

W = WorkerId("w")


def one() -> Lab:
    return Lab().worker("w")


def busy() -> Lab:
    return one().job("train").schedule().reports("train/* running")


def test_a_reboot_ends_what_ran_and_gives_back_what_had_not_started() -> None:
    lab = busy().job("next").job("last").schedule().reports("last/* running").cancel("train")
    lab.hosts[W].reboot()
    lab.answers(lab.answer_of("w"))
    assert list(lab.cluster.live_attempts()) == []
    assert [lab.task(job).state.value for job in ("train", "next", "last")] == [
        "KILLED",
        "PENDING",
        "PENDING",
    ]
    assert [lab.task(job).preemptions for job in ("next", "last")] == [0, 1]
    assert lab.the_worker("w").boot_id == "boot-2"


@pytest.mark.parametrize("said", ["absent", "preparing", "prepared", "launching 1s-ago"])
def test_a_reboot_charges_nothing_for_an_attempt_that_the_worker_has_not_started(said: str) -> None:
    lab = one().job("train", setup="make").schedule().reports(f"train/* {said}")
    lab.hosts[W].reboot()
    lab.reports("train/* lost")
    assert (lab.task("train").state, lab.task("train").preemptions) == (TaskState.PENDING, 0)
    end = lab.attempt("train").end
    assert end is not None
    assert end.reason is EndReason.DISPATCH_FAILED


def test_a_reboot_charges_nothing_for_a_gang_of_which_no_rank_has_started() -> None:
    lab = Lab().slice("a").job("gang", tpu="v4-16").schedule().reports("gang/* prepared")
    lab.hosts[WorkerId("a-0")].reboot()
    lab.reports("gang/task-0 lost").reports("gang/task-1 stopped")
    job = lab.the_job("gang")
    assert (job.settled_rounds, job.preempted_rounds, job.failed_rounds) == (1, 0, 0)
    assert {lab.task("gang", rank).state for rank in range(2)} == {TaskState.PENDING}


def test_reports_in_the_answer_after_a_reboot_are_of_the_old_boot_and_weigh_nothing() -> None:
    lab = busy()
    lab.hosts[W].reboot()
    assert not identity.check_identity(Draft(lab.cluster, lab.now), lab.answer_of("w"), lab.limits)
    lab.reports("train/* running")
    assert lab.task("train").state is TaskState.PENDING


@pytest.mark.parametrize(
    ("left_on_its_disk", "task", "preemptions"),
    [
        ("exited 0", TaskState.SUCCEEDED, 0),
        ("timeout 143", TaskState.FAILED, 0),
        ("exited 1", TaskState.PENDING, 1),
        ("exited 143", TaskState.PENDING, 1),
        ("signal 143", TaskState.PENDING, 1),
        ("oom 137", TaskState.PENDING, 1),
        ("cancelled lease", TaskState.PENDING, 1),
        ("lost", TaskState.PENDING, 1),
        ("running", TaskState.PENDING, 1),
    ],
)
def test_what_an_exit_record_is_worth_after_a_reboot(
    left_on_its_disk: str, task: TaskState, preemptions: int
) -> None:
    lab = busy()
    lab.hosts[W].reboot()
    lab.reports(f"train/* {left_on_its_disk}")
    assert (lab.task("train").state, lab.task("train").preemptions) == (task, preemptions)
    assert lab.the_worker("w").boot_id == "boot-2"


def test_an_end_before_a_reboot_has_no_time_of_its_own() -> None:
    lab = busy().advance(60.0)
    lab.hosts[W].reboot()
    lab.reports("train/* exited 0 30s-ago")
    assert lab.task("train").end == End(reason=EndReason.OK, at=START + 60.0, exit_code=0)


def test_a_task_that_succeeded_unheard_of_before_its_host_rebooted_has_succeeded() -> None:
    lab = one().job("train").schedule()
    lab.hosts[W].reboot()
    lab.reports("train/* exited 0")
    assert lab.task("train").state is TaskState.SUCCEEDED


def test_a_set_up_that_was_ended_and_said_0_before_a_reboot_is_no_success() -> None:
    """It ran out of time, and its trap for SIGTERM exits with 0: the task itself never started."""
    lab = one().job("train").schedule().reports("train/* preparing")
    lab.hosts[W].reboot()
    token = lab.attempt("train").token
    said = AttemptReport(token=token, state=RemoteState.NOSTART, exit_code=0, cause="setup")
    lab.answers(lab.answer_of("w", said))
    assert (lab.task("train").state, lab.attempt("train").started_at) == (TaskState.PENDING, None)


def test_a_success_that_a_stop_came_too_late_for_is_not_run_again() -> None:
    lab = one().job("train").schedule().reports("train/* launching 1h-ago")
    assert lab.attempt("train").state is AttemptState.STOPPING
    lab.reports("train/* exited 0")
    assert lab.task("train").state is TaskState.SUCCEEDED


def test_a_cancelled_task_stays_cancelled_though_it_succeeded_before_its_host_rebooted() -> None:
    lab = busy().cancel("train")
    lab.hosts[W].reboot()
    lab.reports("train/* exited 0")
    assert lab.task("train").state is TaskState.KILLED
    assert list(lab.cluster.live_attempts()) == []


def test_after_a_reboot_nothing_ends_before_all_that_ran_there_was_asked_for() -> None:
    lab = busy()
    facts = lab.hosts[W].facts
    lab.hosts[W].reboot()
    rebooted = WorkerReport(worker=W, boot_id="boot-2", incarnation=facts.incarnation)
    assert lab.answers(rebooted).last == ()
    with lab.transaction() as draft:
        identity.apply_probe(draft, lab.hosts[W].facts, lab.limits)
    assert lab.last == ()
    assert lab.reports("train/* exited 0").task("train").state is TaskState.SUCCEEDED


def test_a_host_that_cannot_tell_its_boot_was_not_rebooted_for_that() -> None:
    """As when it has no room for one more open file."""
    lab = busy()
    known = lab.hosts[W].facts
    lost = AttemptReport(token=lab.attempt("train").token, state=RemoteState.LOST)
    lab.answers(WorkerReport(worker=W, boot_id="", incarnation=known.incarnation, attempts=(lost,)))
    assert lab.attempt("train").state is AttemptState.RUNNING
    with lab.transaction() as draft:
        identity.apply_probe(draft, replace(known, boot_id=""), lab.limits)
    assert (lab.attempt("train").live, lab.the_worker("w").boot_id) == (True, known.boot_id)
    assert lab.the_worker("w").condition is WorkerCondition.UNTRUSTED
    assert lab.probe("w").the_worker("w").condition is WorkerCondition.HEALTHY
