"""Whoever else is at work, whatever is cut off and however late an answer is weighed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from iris_cli.core.ids import JobId, WorkerId
from iris_cli.core.messages.observations import RemoteState as S
from iris_cli.core.messages.observations import SilenceKind
from iris_cli.core.model.job import JobState
from iris_cli.core.model.task import AttemptState, End, EndReason, TaskState
from iris_cli.core.model.worker import WorkerCondition
from iris_cli.errors import IrisError, NotFoundError, UsageError
from iris_cli.ops.cycle import cycle, observe, polls
from iris_cli.ops.cycle.environment import Placement
from iris_cli.ops.jobs.change import cancel
from iris_cli.ops.workers import workers
from tests.support.fake_runner import Site


def polled(site: Site) -> Callable[[], None]:
    """Somebody asks all workers now, and weighs what they said when the result is called."""
    session = site.session()
    seen = session.view()
    answers = []
    for question in polls.due(session, seen):
        known = observe.call_context(seen, question.worker)
        said = polls.poll_call(session, seen, session.read_at, question, known)()
        answers.append(observe.validated_answer(session, known, session.clock.now(), said))

    def weigh() -> None:
        with session.transaction() as draft:
            observe.record_answers(session, draft, answers)

    return weigh


def with_the_assignment_alone(site: Site) -> None:
    """Somebody places what waits, and is stopped before anything is sent."""
    session = site.session()
    with session.transaction() as draft:
        cycle.assign(session, draft)


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
    site.launch("two")
    with_the_assignment_alone(site)
    weigh_late = polled(site)
    site.run()
    assert site.attempt("two").state is AttemptState.RUNNING
    weigh_late()
    assert site.attempt("two").state is AttemptState.RUNNING


def test_an_answer_from_before_a_reboot_releases_nothing_after_it(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.launch("one")
    site.cycle()
    weigh_late = polled(site)
    site.hosts["w0"].reboot()
    site.run()
    attempt = site.attempt("one")
    assert (attempt.number, attempt.state) == (1, AttemptState.RUNNING)
    weigh_late()
    assert site.attempt("one") == attempt


def test_an_answer_that_lay_around_tells_the_time_of_the_end_all_the_same(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0", "w1")
    site.gang("train", 2)
    site.cycle()
    site.hosts["w0"].exits("train/task-0", 3)
    ended = site.clock.now()
    weigh_late = polled(site)
    site.clock.time += 20.0
    site.hosts["w1"].exits("train/task-1", 1)
    weigh_late()
    site.run()
    assert site.attempt("train", 0).end == End(reason=EndReason.USER_ERROR, at=ended, exit_code=3, ran=0.0)
    assert site.task("train", 0).state is TaskState.FAILED


def test_an_attempt_whose_directory_vanished_is_fenced_and_launched_again(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.launch("one", setup="make")
    site.cycle()
    token = site.attempt("one").token
    w0 = site.hosts["w0"]
    w0.tokens.clear()
    site.run()
    assert w0.tokens[token].state is S.STOPPED
    assert site.attempt("one").state is AttemptState.RUNNING
    assert site.attempt("one").token != token


@pytest.mark.parametrize("polls_before", [0, 1])
def test_a_rebooted_host_outranks_the_exit_code_that_was_heard_first(
    tmp_path: Path, polls_before: int
) -> None:
    site = Site(tmp_path, "w0", "w1", "w2")
    site.gang("train", 3)
    site.cycle()
    w0, w1, w2 = site.hosts.values()
    w1.exits("train/task-1", 1)
    w0.silence = SilenceKind.TIMEOUT
    w2.unkillable = True
    for _ in range(polls_before):
        site.cycle()
    w0.silence = None
    w0.reboot()
    w2.unkillable = False
    stopped = Event()
    w2.meanwhile["stop"] = stopped.set
    w0.meanwhile["poll"] = lambda: (stopped.wait(30.0), None)[1]  # the slowest host of all
    site.cycle(300.0)
    job = site.cluster.jobs[JobId("train")]
    assert (job.failed_rounds, job.preempted_rounds) == (0, 1)


def test_a_round_is_settled_even_if_its_failed_rank_turns_out_to_have_succeeded(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0", "w1")
    site.gang("train", 2)
    site.cycle()
    w0, token, ended = site.hosts["w0"], site.attempt("train").token, site.clock.now()
    entry = w0.tokens.pop(token)

    def come_back() -> None:
        w0.tokens[token] = entry
        entry.state, entry.exit_code, entry.ended_at = S.EXITED, 0, ended

    w0.meanwhile["poll"] = come_back  # its directory was moved away for a moment
    site.cycle(5.0)
    site.run()
    assert site.cluster.jobs[JobId("train")].rounds == 2
    assert site.state_of("train") is JobState.RUNNING


def test_what_runs_beside_an_unkillable_process_is_still_polled(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.launch("stuck")
    site.launch("fine")
    site.cycle()
    w0 = site.hosts["w0"]
    w0.unkillable = True
    cancel(site.session(), ["stuck"])
    site.cycle()
    assert site.cluster.workers[WorkerId("w0")].quarantined
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
    assert site.cluster.workers[WorkerId("w0")].quarantined
    w0.refuses = ""
    site.clock.time -= 86400.0
    site.run()
    assert site.state_of("one") is JobState.RUNNING


def test_an_unusable_worker_is_probed_again_and_used_once_it_is_repaired(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.hosts["w0"].network_disk = True
    site.launch("one")
    site.run(2)
    assert site.state_of("one") is JobState.PENDING
    site.hosts["w0"].network_disk = False
    site.cycle(3600.0)
    site.run()
    assert site.state_of("one") is JobState.RUNNING


def test_what_still_runs_on_a_worker_declared_dead_is_stopped_before_it_takes_something_new(
    tmp_path: Path,
) -> None:
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
    assert site.cluster.workers[WorkerId("w0")].quarantined
    w0.unkillable = False
    site.cycle()
    assert [entry.state for entry in w0.tokens.values()] == [S.STOPPED]
    site.cycle(3600.0)
    site.run(2)
    assert [entry.state for entry in w0.tokens.values()] == [S.STOPPED, S.RUNNING]


def test_an_untrusted_worker_is_trusted_by_a_probe_alone(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.launch("one")
    site.cycle()
    w0 = site.hosts["w0"]
    w0.silence = SilenceKind.HOST_KEY
    site.cycle()
    w0.silence = None
    assert site.cluster.workers[WorkerId("w0")].condition is WorkerCondition.UNTRUSTED
    site.run(2)
    assert site.cluster.workers[WorkerId("w0")].condition is WorkerCondition.HEALTHY


def test_an_answer_to_a_stop_makes_no_untrusted_worker_trusted(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.launch("one")
    site.cycle()
    site.hosts["w0"].silence = SilenceKind.HOST_KEY
    site.cycle()
    site.hosts["w0"].silence = None
    site.clock.time += 60.0
    cancel(site.session(), ["one"])
    assert site.cluster.workers[WorkerId("w0")].condition is WorkerCondition.UNTRUSTED
    site.run(2)
    assert list(site.cluster.live_attempts()) == []


def test_a_worker_that_is_forgotten_while_it_is_probed_is_left_out(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0", "w1")
    site.cycle()

    def forget() -> None:
        workers.forget(site.session(), "w0")

    site.hosts["w0"].meanwhile["probe"] = forget
    assert [probed.worker.id for probed in workers.probe(site.session(), [])] == ["w1"]
    site.cycle()
    site.hosts["w0"].meanwhile["probe"] = forget
    session = site.session()
    stranger = workers.probe_unrecorded(session, "w0")
    with pytest.raises(NotFoundError, match="w0"):
        workers.accept(session, stranger)


def test_a_probe_from_before_a_reboot_can_not_be_accepted_after_it(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.launch("one")
    site.cycle()
    session = site.session()
    stranger = workers.probe_unrecorded(session, "w0")  # then the operator thinks about it
    site.hosts["w0"].reboot()
    site.run(2)
    assert site.hosts["w0"].running == ["one/task-0"]
    with pytest.raises(IrisError, match="by another command"):
        workers.accept(session, stranger)
    assert site.attempt("one").state is AttemptState.RUNNING


def test_a_cancel_in_the_middle_of_a_gangs_dispatch_leaves_nothing_running(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0", "w1")
    site.gang("train", 2)

    def give_up() -> None:
        cancel(site.session(), ["train"])

    site.hosts["w0"].meanwhile["prepare"] = give_up
    site.run()
    assert [host.running for host in site.hosts.values()] == [[], []]
    assert site.state_of("train") is JobState.KILLED
    assert list(site.cluster.live_attempts()) == []


def test_what_was_taken_over_without_its_secret_waits_and_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, "w0")
    monkeypatch.setenv("TOKEN", "t")
    site.launch("one", secrets=("TOKEN",))
    site.cycle()
    site.launch("two", secrets=("TOKEN",))
    with_the_assignment_alone(site)
    monkeypatch.delenv("TOKEN")
    site.run()
    assert site.task("one").state is TaskState.RUNNING
    assert site.task("two").state is TaskState.PENDING
    assert not site.attempt("two").live
    monkeypatch.setenv("TOKEN", "t")
    site.run(1)
    assert site.task("two").state is TaskState.RUNNING


def test_a_secret_that_is_no_text_holds_up_its_own_job_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, "w0")
    monkeypatch.setenv("TOKEN", "\udcff")
    site.launch("bad", secrets=("TOKEN",), force=True)
    site.launch("good")
    site.run()
    assert (site.state_of("bad"), site.state_of("good")) == (JobState.PENDING, JobState.RUNNING)
    assert site.task("bad").attempts == ()


@pytest.mark.parametrize("program", ["", "-x", "A=1"])
def test_what_no_shell_could_execute_is_refused_at_once(tmp_path: Path, program: str) -> None:
    with pytest.raises(UsageError, match="is not a program name"):
        Site(tmp_path, "w0").launch("bad", command=(program, "it"))


def test_what_can_not_be_sent_keeps_nobody_else_from_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, "w0")
    site.launch("bad", env={"X": "1"})
    site.launch("good")
    monkeypatch.setattr("iris_cli.ops.cycle.environment.environment", surrogate_in_bad)
    site.run()
    assert (site.state_of("bad"), site.state_of("good")) == (JobState.PENDING, JobState.RUNNING)


def surrogate_in_bad(place: Placement, default_env: object, secrets: object) -> dict[str, str]:
    return {"IRIS_TASK_ID": str(place.attempt_id.task), "X": "\udcff" if "X" in place.job.env else ""}
