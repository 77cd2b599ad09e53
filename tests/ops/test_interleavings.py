"""Whoever else is at work, whatever is cut off and however late an answer is weighed."""

from __future__ import annotations

from pathlib import Path

import pytest

from iris_cli.core.ids import JobId
from iris_cli.core.job import JobState
from iris_cli.core.observations import RemoteState as S
from iris_cli.core.observations import SilenceKind
from iris_cli.core.outcome import EndReason
from iris_cli.core.task import AttemptState, TaskState
from iris_cli.core.worker import WorkerCondition
from iris_cli.ops import workers
from iris_cli.ops.cancel import cancel
from tests.support.fake_runner import Site


def test_a_launch_cut_between_prepare_and_go_is_started_by_the_next_cycle(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.launch("one")
    site.hosts["w0"].cut = "prepared"
    site.run()
    assert site.attempt("one").state is AttemptState.RUNNING
    assert site.hosts["w0"].of("one").starts == 1


@pytest.mark.parametrize("setup", ["", "pip install it"])
def test_a_launch_cut_while_it_was_prepared_is_finished_by_the_next_cycle(tmp_path: Path, setup: str) -> None:
    site = Site(tmp_path, "w0")
    site.launch("one", setup=setup)
    site.hosts["w0"].cut = "made"
    site.run()
    assert site.attempt("one").state is AttemptState.RUNNING
    assert site.hosts["w0"].of("one").starts == 1


def test_tasks_with_a_set_up_do_not_wait_for_those_that_have_no_place(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.launch("many", replicas=3, cpu=2.0, setup="make")
    site.run()
    assert sorted(site.hosts["w0"].running) == ["many/task-0", "many/task-1"]
    site.hosts["w0"].exits("many/task-0")
    site.run()
    assert site.task("many", 2).state is TaskState.RUNNING


def test_tasks_with_a_set_up_do_not_wait_for_one_that_failed(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.launch("many", replicas=2, setup="make", max_task_failures=1)
    site.cycle()
    entry = site.hosts["w0"].of("many/task-0")
    entry.state, entry.cause = S.NOSTART, "setup"
    site.run()
    assert site.task("many", 1).state is TaskState.RUNNING


def test_a_dispatcher_that_is_killed_is_followed_by_another(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0", "w1")
    site.gang("train", 2)
    site.crash("prepare", on="w1")
    site.run()
    assert site.state_of("train") is JobState.RUNNING
    assert [host.of(f"train/task-{i}").starts for i, host in enumerate(site.hosts.values())] == [1, 1]


def test_an_answer_from_before_the_launch_does_not_stop_what_runs_now(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.launch("one")
    site.cycle()
    w0 = site.hosts["w0"]
    site.launch("two")

    def late_poll() -> None:
        """Somebody else's poll was answered before this launch; it is weighed after it."""
        w0.meanwhile["poll"] = lambda: resumed.append(site.session())
        site.cycle()

    resumed: list[object] = []
    # The other one polls while `two` is assigned but not prepared, and commits when it runs.
    session = site.session()
    from iris_cli.ops import cycle, observe

    with session.transaction() as draft:
        cycle.assign(session, draft)
    slow = site.session()
    snapshot = slow.view()
    answers = [
        each
        for batch in observe.ask(slow, snapshot, observe.questions(slow, snapshot, slow.clock.now()))
        for each in batch
    ]
    site.run(cycles=6)
    assert site.attempt("two").state is AttemptState.RUNNING
    with slow.transaction() as draft:
        observe.weigh(slow, draft, answers)
    assert site.attempt("two").state is AttemptState.RUNNING


def test_an_answer_from_before_a_reboot_releases_nothing_after_it(tmp_path: Path) -> None:
    from iris_cli.ops import observe

    site = Site(tmp_path, "w0")
    site.launch("one")
    site.cycle()
    slow = site.session()
    snapshot = slow.view()
    answers = [
        each
        for batch in observe.ask(slow, snapshot, observe.questions(slow, snapshot, slow.clock.now()))
        for each in batch
    ]
    site.hosts["w0"].reboot()
    site.run()
    attempt = site.attempt("one")
    assert (attempt.number, attempt.state) == (1, AttemptState.RUNNING)
    with slow.transaction() as draft:
        observe.weigh(slow, draft, answers)
    assert site.attempt("one") == attempt


def test_a_directory_that_vanished_after_the_launch_is_fenced_not_filled_again(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.launch("one")
    site.cycle()
    entry = site.hosts["w0"].of("one")
    entry.state = S.LAUNCHING


@pytest.mark.parametrize("gap", [0.0, 300.0])
def test_a_rebooted_host_outranks_the_exit_code_that_was_heard_first(tmp_path: Path, gap: float) -> None:
    site = Site(tmp_path, "w0", "w1", "w2")
    site.gang("train", 3)
    site.cycle()
    assert site.state_of("train") is JobState.RUNNING
    hosts = site.hosts
    hosts["w1"].exits("train/task-1", 1)
    hosts["w0"].silence = SilenceKind.TIMEOUT
    if gap:
        hosts["w2"].unkillable = True
        site.cycle()
        hosts["w2"].unkillable = False
    hosts["w0"].silence = None
    hosts["w0"].reboot()
    arrived: list[str] = []

    def wait_for_the_others() -> None:
        import time

        time.sleep(0.5)

    hosts["w0"].meanwhile["poll"] = wait_for_the_others
    site.cycle(gap)
    job = site.cluster.jobs[JobId("train")]
    assert (job.failed_rounds, job.preempted_rounds) == (0, 1), arrived


def test_a_round_whose_culprit_ended_well_after_all_is_settled(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0", "w1")
    site.gang("train", 2)
    site.cycle()
    token = site.attempt("train").token
    w0 = site.hosts["w0"]
    entry = w0.tokens.pop(token)
    w0.silence = None
    ended = site.clock.now()
    site.clock.time += 5

    def back() -> None:
        w0.tokens[token] = entry
        entry.state, entry.exit_code, entry.ended_at = S.EXITED, 0, ended

    w0.meanwhile["poll"] = back
    site.run()
    assert site.cluster.jobs[JobId("train")].settled_rounds >= 1
    assert site.cluster.jobs[JobId("train")].rounds == 2


def test_what_runs_beside_an_unkillable_process_is_polled_for_ever(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.launch("stuck")
    site.launch("fine")
    site.cycle()
    w0 = site.hosts["w0"]
    w0.unkillable = True
    cancel(site.session(), ["stuck"])
    site.cycle()
    assert site.cluster.workers[workers.WorkerId("w0")].quarantined
    w0.exits("fine")
    site.cycle(2 * 3600.0)
    site.cycle(60.0)
    assert site.state_of("fine") is JobState.SUCCEEDED


def test_a_worker_that_refused_is_still_asked_and_still_stops_what_it_runs(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.launch("old", replicas=2)
    site.cycle()
    w0 = site.hosts["w0"]
    w0.refuses = "disk"
    site.launch("new")
    site.cycle()
    w0.exits("old/task-0")
    site.cycle(1.0)
    assert site.task("old", 0).state is TaskState.SUCCEEDED
    cancel(site.session(), ["old"])
    assert w0.running == []


def test_a_quarantine_in_the_future_is_over(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.launch("one")
    w0 = site.hosts["w0"]
    w0.refuses = "disk"
    for _ in range(3):
        site.cycle(700.0)
    assert site.cluster.workers[workers.WorkerId("w0")].quarantined
    w0.refuses = ""
    site.clock.time -= 86400.0
    site.run()
    assert site.state_of("one") is JobState.RUNNING


def test_a_refused_worker_is_asked_again_and_used_when_it_is_mended(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.hosts["w0"].network_disk = True
    site.launch("one")
    site.run(2)
    assert site.state_of("one") is JobState.PENDING
    site.hosts["w0"].network_disk = False
    site.cycle(3600.0)
    site.run()
    assert site.state_of("one") is JobState.RUNNING


def test_what_still_runs_on_a_worker_declared_dead_is_stopped_before_it_takes_something_new(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.launch("one")
    site.cycle()
    w0 = site.hosts["w0"]
    w0.silence = SilenceKind.TIMEOUT
    site.cycle()
    workers.forget(site.session(), "w0", dead=True)
    w0.silence = None
    w0.unkillable = True
    site.cycle(60.0)
    assert [entry.state for entry in w0.tokens.values()] == [S.UNKILLABLE]
    w0.unkillable = False
    site.run(60)
    assert [entry.state for entry in w0.tokens.values()] == [S.STOPPED, S.RUNNING]


def test_an_untrusted_worker_is_trusted_by_a_probe_alone(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.launch("one")
    site.cycle()
    w0 = site.hosts["w0"]
    w0.silence = SilenceKind.HOST_KEY
    site.cycle()
    w0.silence = None
    assert site.cluster.workers[workers.WorkerId("w0")].condition is WorkerCondition.UNTRUSTED
    site.run(2)
    assert site.cluster.workers[workers.WorkerId("w0")].condition is WorkerCondition.HEALTHY


def test_a_cancel_in_the_middle_of_a_gangs_dispatch_leaves_nothing_running(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0", "w1")
    site.gang("train", 2)
    site.hosts["w0"].meanwhile["prepare"] = lambda: cancel(site.session(), ["train"]) and None
    site.run()
    assert [host.running for host in site.hosts.values()] == [[], []]
    assert site.state_of("train") is JobState.KILLED
    assert list(site.cluster.live_attempts()) == []
    assert site.task("train").end is not None and site.task("train").end.reason is EndReason.CANCELLED
