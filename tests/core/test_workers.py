"""Workers that are silent, refuse, answer again, or are no longer who they were."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from iris_cli.core import AttemptState, AttributeValue, EndReason, TaskState, WorkerId
from iris_cli.core.events.events import WorkerConditionChanged, WorkerUncordoned
from iris_cli.core.ids import Token
from iris_cli.core.messages.observations import SilenceKind
from iris_cli.core.model.limits import Limits
from iris_cli.core.model.worker import OCCUPIED, Worker, WorkerCondition, is_cooling_down
from tests.support.lab import START, Host, Lab
from tests.support.reports import parse_report

V, W = WorkerId("v"), WorkerId("w")
KINDS = {kind.value: kind for kind in SilenceKind}


def one() -> Lab:
    return Lab().worker("w")


def busy() -> Lab:
    return one().job("train").schedule().reports("train/* running")


# Silence


@pytest.mark.parametrize(
    ("kind", "condition"),
    [
        ("unreachable", "suspect"),
        ("timeout", "suspect"),
        ("protocol", "suspect"),
        ("local", "suspect"),
        ("unknown_host", "suspect"),
        ("auth", "auth_failed"),
        ("host_key", "untrusted"),
    ],
)
def test_the_first_failed_poll_gives_a_worker_the_condition_of_its_kind(kind: str, condition: str) -> None:
    lab = busy().silent("w", kind=KINDS[kind])
    worker = lab.the_worker("w")
    assert (worker.condition, worker.failed_polls, worker.cooldown_until) == (condition, 1, START + 10)
    assert [type(event) for event in lab.last] == [WorkerConditionChanged]


@pytest.mark.parametrize("kind", list(SilenceKind))
def test_no_kind_of_silence_ends_or_charges_anything(kind: SilenceKind) -> None:
    lab = busy()
    before = lab.task("train")
    for _ in range(10):
        lab.advance("1h").silent("w", kind=kind).schedule()
    assert lab.task("train") == before


@pytest.mark.parametrize(
    ("kinds", "minutes", "condition"),
    [
        (["timeout"] * 2, 30, "suspect"),
        (["timeout"] * 3, 10, "lost"),
        (["timeout"] * 3, 9, "suspect"),
        (["unreachable", "timeout", "timeout"], 10, "lost"),
        (["timeout", "timeout", "auth"], 30, "auth_failed"),
        (["timeout", "timeout", "protocol"], 30, "suspect"),
        (["host_key", "timeout", "timeout"], 30, "untrusted"),
    ],
)
def test_when_a_worker_is_lost(kinds: list[str], minutes: float, condition: str) -> None:
    lab = one()
    for kind in kinds[:-1]:
        lab.silent("w", kind=KINDS[kind])
    assert lab.advance(minutes * 60).silent("w", kind=KINDS[kinds[-1]]).the_worker("w").condition == condition


def test_a_lost_worker_stays_lost_until_it_answers() -> None:
    lab = one().silent("w").silent("w").advance("11m").silent("w").silent("w", kind=SilenceKind.PROTOCOL)
    assert lab.the_worker("w").condition is WorkerCondition.LOST
    worker = lab.answers(lab.answer_of("w")).the_worker("w")
    assert (worker.condition, worker.failed_polls, worker.cooldown_until) == (WorkerCondition.HEALTHY, 0, 0.0)
    assert worker.silent_since is None


def test_a_healthy_answer_is_no_event() -> None:
    lab = one()
    assert lab.answers(lab.answer_of("w")).last == ()


@pytest.mark.parametrize(
    ("until", "is_cooling"),
    [(0.0, False), (99.0, False), (100.0, False), (101.0, True), (700.0, True), (701.0, False)],
)
def test_a_wait_longer_than_the_longest_back_off_counts_as_over(until: float, is_cooling: bool) -> None:
    assert is_cooling_down(Worker(id=W, cooldown_until=until), 100.0, Limits()) is is_cooling


def test_the_back_off_doubles_up_to_its_maximum() -> None:
    limits = Limits()
    assert [limits.backoff(failures) for failures in (1, 2, 3, 6, 7, 8, 10_000)] == [
        10,
        20,
        40,
        320,
        600,
        600,
        600,
    ]


# Refusals


def test_three_refusals_in_a_row_of_any_jobs_quarantine_a_worker() -> None:
    lab = one().job("a").job("b").job("c").schedule()
    lab.reports("a/* nostart disk").reports("b/* nostart chips")
    assert not lab.the_worker("w").quarantined
    lab.reports("c/* nostart port")
    worker = lab.the_worker("w")
    assert (worker.quarantined, worker.condition) == (True, WorkerCondition.HEALTHY)
    assert (
        worker.quarantine_reason == "refused 3 launches in a row, last: the worker refused to start it: port"
    )


def test_a_refusal_says_who_holds_what_is_lacking() -> None:
    lab = one().job("a").schedule()
    refused = parse_report(lab.attempt("a").token, "nostart chips")
    tail = "of the set-up\niris: not started: the chips of this host are held by process 7 (train)\n"
    lab.answers(lab.answer_of("w", replace(refused, log_tail=tail)))
    assert lab.the_worker("w").reason == (
        "the worker refused to start it: chips (the chips of this host are held by process 7 (train))"
    )


def test_a_start_of_any_job_resets_the_refusals_of_its_worker() -> None:
    lab = one().job("a").job("b").job("c").schedule().reports("a/* nostart disk").reports("b/* nostart disk")
    assert lab.the_worker("w").refusals == 2
    assert lab.reports("c/* prepared").the_worker("w").refusals == 2
    assert lab.reports("c/* running").the_worker("w").refusals == 0


def test_a_failed_set_up_is_no_refusal_of_the_worker() -> None:
    lab = one().job("a", setup="make").schedule().reports("a/* nostart setup")
    assert (lab.the_worker("w").refusals, lab.the_worker("w").cooldown_until) == (0, 0.0)


def test_being_out_of_reach_is_never_a_quarantine() -> None:
    lab = one().job("a")
    for _ in range(10):
        lab.schedule().not_sent("a/*").silent("w", kind=SilenceKind.AUTH).advance("1h").probe("w")
    assert not lab.the_worker("w").quarantined


@pytest.mark.parametrize(("seconds", "lifted"), [(3599.0, False), (3600.0, True), (-1.0, True)])
def test_a_clean_probe_an_hour_later_lifts_a_quarantine(seconds: float, lifted: bool) -> None:
    lab = (
        one()
        .job("a")
        .job("b")
        .job("c")
        .schedule()
        .reports("a/* nostart disk", "b/* nostart disk", "c/* nostart disk")
    )
    worker = lab.advance(seconds).probe("w").the_worker("w")
    assert worker.quarantined is not lifted
    assert worker.refusals == (0 if lifted else 3)


def test_no_probe_lifts_a_quarantine_while_something_there_can_not_be_killed() -> None:
    lab = busy().cancel("train").reports("train/* unkillable").advance("2h").probe("w")
    assert lab.the_worker("w").quarantined
    assert lab.reports("train/* stopped").probe("w").the_worker("w").quarantined is False


def test_a_drained_worker_stays_drained_when_its_quarantine_ends() -> None:
    lab = (
        busy()
        .drain("w")
        .cancel("train")
        .reports("train/* unkillable", "train/* stopped")
        .advance("2h")
        .probe("w")
    )
    assert (lab.the_worker("w").draining, lab.the_worker("w").quarantined) == (True, False)


# Identity


def test_a_new_boot_and_a_new_incarnation_are_doubtful_until_the_operator_says_so() -> None:
    lab = busy()
    lab.hosts[W].reboot()
    lab.hosts[W].wipe()
    lab.answers(lab.answer_of("w")).probe("w")
    assert lab.the_worker("w").condition is WorkerCondition.UNTRUSTED
    assert lab.attempt("train").live
    lab.probe("w", trusted=True)
    assert lab.the_worker("w").condition is WorkerCondition.HEALTHY
    assert lab.task("train").state is TaskState.PENDING


def test_a_wiped_home_stops_what_runs_and_what_may_run_before_it_is_released() -> None:
    lab = busy().job("next").schedule()
    lab.hosts[W].wipe()
    lab.answers(lab.answer_of("w"))
    assert [attempt.state for _, attempt in lab.cluster.live_attempts()] == [
        AttemptState.RUNNING,
        AttemptState.ASSIGNED,
    ]
    lab.probe("w")
    stops = [attempt.stop.reason for _, attempt in lab.cluster.live_attempts() if attempt.stop]
    assert stops == [EndReason.WORKER_FAILED, EndReason.DISPATCH_FAILED]
    lab.reports("train/* stopped", "next/* stopped")
    assert [(lab.task(job).state.value, lab.task(job).preemptions) for job in ("train", "next")] == [
        ("PENDING", 1),
        ("PENDING", 0),
    ]


def test_a_wiped_home_under_a_gang_is_to_blame_for_its_round() -> None:
    lab = Lab().slice("a").job("train", tpu="v4-16").schedule().reports("train/* running 60s-ago")
    lab.hosts[WorkerId("a-1")].wipe()
    lab.probe("a-1").reports("train/task-0 exited 1 5s-ago")
    assert lab.attempt("train", 0).end is not None
    assert lab.the_job("train").settled_rounds == 0
    lab.reports("train/task-1 stopped")
    assert (lab.the_job("train").preempted_rounds, lab.the_job("train").failed_rounds) == (1, 0)


@pytest.mark.parametrize(("key", "value"), [("tpu-name", "b"), ("tpu-worker-id", 1), ("tpu-name", None)])
def test_a_host_that_became_another_member_or_another_slice_is_doubtful(
    key: str, value: str | int | None
) -> None:
    lab = Lab().slice("a")
    host = lab.hosts[WorkerId("a-0")]
    attributes = {name: each for name, each in host.facts.attributes.items() if name != key}
    if value is not None:
        attributes[key] = AttributeValue(value)
    host.facts = replace(host.facts, attributes=attributes)
    lab.probe("a-0")
    assert lab.the_worker("a-0").condition is WorkerCondition.UNTRUSTED
    assert lab.the_worker("a-0").reason.startswith(f"its {key} was ")
    host.facts = replace(host.facts, declared="the operator wrote something else")
    assert lab.probe("a-0").the_worker("a-0").condition is WorkerCondition.HEALTHY
    assert lab.the_worker("a-0").attributes.get(key) == attributes.get(key)


def test_another_vm_under_the_same_boot_and_incarnation_is_doubtful_whatever_the_configuration_says() -> None:
    lab = Lab().worker("w")
    host = lab.hosts[WorkerId("w")]
    host.facts = replace(host.facts, vm="4711")
    assert lab.probe("w").the_worker("w").vm == "4711"
    host.facts = replace(host.facts, vm="4712", declared="the operator wrote something else")
    lab.probe("w")
    assert lab.the_worker("w").condition is WorkerCondition.UNTRUSTED
    assert lab.the_worker("w").reason == "its VM was 4711 and is now 4712"
    assert lab.probe("w", trusted=True).the_worker("w").vm == "4712"
    host.facts = replace(host.facts, vm="")  # the metadata server did not answer
    assert lab.probe("w").the_worker("w").condition is WorkerCondition.HEALTHY


def test_tokens_are_foreign_if_no_attempt_ever_had_them() -> None:
    lab = busy().reports("train/* exited 1").schedule()
    known, unknown = lab.attempt("train", 0, 0).token, Token("f" * 32)
    assert lab.cluster.unknown_tokens([unknown, known]) == (unknown,)


def test_an_answer_of_a_worker_that_was_never_probed_makes_it_no_healthy_one() -> None:
    lab = one()
    lab.forget_dead("w").configure()
    assert lab.answers(lab.answer_of("w")).last == ()
    assert lab.the_worker("w").condition is WorkerCondition.UNPROBED


def test_a_probe_that_found_nothing_new_is_no_event() -> None:
    assert one().taint("w", "spot").probe("w").last == ()


def test_the_reason_why_a_worker_can_not_be_used_outlives_a_silence() -> None:
    lab = one()
    lab.hosts[W].facts = replace(lab.hosts[W].facts, refusal="it is the same host as v")
    lab.probe("w").silent("w").answers(lab.answer_of("w"))
    assert (lab.the_worker("w").unschedulable, lab.the_worker("w").reason) == (
        True,
        "it is the same host as v",
    )
    lab.hosts[W].facts = replace(lab.hosts[W].facts, refusal="")
    assert (lab.probe("w").the_worker("w").unschedulable, lab.the_worker("w").reason) == (False, "")


# Configuration


def test_a_host_that_comes_back_into_the_configuration_is_taken_back() -> None:
    lab = busy().configure("w")
    assert lab.the_worker("w").draining
    assert not lab.configure(back="w").the_worker("w").draining


def test_a_drain_by_hand_is_not_lifted_by_the_configuration() -> None:
    lab = busy().drain("w", "new disk").configure("w")
    assert lab.configure(back="w").the_worker("w").draining


def renamed() -> Lab:
    """The configuration gives the host of `w` the name `v`, while a task runs there."""
    lab = busy()
    lab.hosts[V] = Host(replace(lab.hosts[W].facts, worker=V, incarnation="v-life-1"))
    return lab.configure("w").probe("v")


def test_a_host_under_a_new_name_takes_nothing_while_tasks_of_its_old_name_run_there() -> None:
    lab = renamed().job("eval").schedule()
    assert (lab.the_worker("v").draining, lab.the_worker("v").drain_reason) == (True, OCCUPIED)
    assert lab.task("eval").state is TaskState.PENDING
    lab.records(WorkerUncordoned(worker=V)).configure()
    assert lab.the_worker("v").draining
    lab.reports("train/* exited 0").configure().schedule()
    assert W not in lab.cluster.workers
    assert lab.attempt("eval").worker == V


def test_a_host_that_gets_its_old_name_back_goes_on() -> None:
    lab = renamed().configure("v", back="w").job("eval").schedule()
    assert V not in lab.cluster.workers
    assert lab.attempt("eval").worker == W


def test_a_drain_of_the_new_name_by_hand_is_not_lifted_when_the_old_name_is_gone() -> None:
    lab = renamed().drain("v", "new disk").reports("train/* exited 0").configure()
    assert lab.the_worker("v").drain_reason == "new disk"


def test_a_dead_worker_that_is_still_configured_is_registered_again() -> None:
    lab = busy().forget_dead("w").configure()
    assert lab.the_worker("w").condition is WorkerCondition.UNPROBED
    assert lab.task("train").state is TaskState.PENDING
    assert lab.schedule().last == ()


# Names that lead to another machine


def forgotten() -> Lab:
    """The operator says that a host is dead. It is still configured."""
    return busy().forget_dead("w")


def test_a_name_that_leads_to_another_machine_is_doubtful_while_something_may_run_on_the_first_one() -> None:
    lab = forgotten()
    lab.hosts[W].reboot()
    lab.hosts[W].wipe()
    lab.configure().probe("w").schedule()
    assert lab.the_worker("w").condition is WorkerCondition.UNTRUSTED
    assert lab.the_worker("w").reason == (
        "train/task-0/attempt-0 may still be running on another host: this one has a different boot and incarnation"
    )
    assert W in lab.cluster.ghosts
    assert lab.task("train").state is TaskState.PENDING
    lab.probe("w", trusted=True).schedule()
    assert W not in lab.cluster.ghosts
    assert lab.attempt("train").number == 1


def test_a_name_that_leads_to_the_same_machine_is_taken_back_when_what_ran_there_is_over() -> None:
    lab = forgotten().configure().probe("w").schedule()
    assert lab.the_worker("w").condition is WorkerCondition.HEALTHY
    assert lab.task("train").state is TaskState.PENDING
    lab.reports("train/task-0/attempt-0 stopped").schedule()
    assert lab.attempt("train").number == 1


def test_a_reboot_of_the_same_machine_is_proof_for_a_name_that_was_forgotten_too() -> None:
    lab = forgotten()
    lab.hosts[W].reboot()
    lab.configure().probe("w").schedule()
    assert W not in lab.cluster.ghosts
    assert lab.attempt("train").number == 1
