"""One interpreter of the log: it records, refuses what doesn't fit, and leaves what it was given untouched."""

from __future__ import annotations

from copy import deepcopy

import pytest

from iris_cli.core import (
    AttemptId,
    AttributeValue,
    Cluster,
    End,
    EndReason,
    Job,
    JobId,
    TaskId,
    TaskState,
    Token,
    WorkerId,
)
from iris_cli.core.events import events as ev
from iris_cli.core.events.events import Event, Transaction
from iris_cli.core.evolve import Draft, IllegalTransitionError, evolve, replay
from iris_cli.core.ids import RequestId
from iris_cli.core.model.worker import Connection
from iris_cli.journal.log.record import EVENT_TYPES
from tests.support.lab import Lab

TRAIN = JobId("train")
TASK = TaskId(TRAIN, 0)
W = WorkerId("w")
REQUEST = RequestId("r")
OK = End(reason=EndReason.OK)
SIBLING = EndReason.SIBLING


def assigned(number: int = 0, worker: str = "w") -> Event:
    return ev.TaskAssigned(task=TASK, attempt=number, worker=WorkerId(worker), token=Token("0" * 32))


def pending() -> Lab:
    return Lab().worker("w").job("train")


def running() -> Lab:
    return pending().schedule().reports("train/* running")


def stopping() -> Lab:
    return running().cancel("train")


def over() -> Lab:
    return running().reports("train/* exited 0")


def listening() -> Lab:
    return running().records(ev.EndpointRegistered(task=TASK, attempt=0, name="x", port=1, request=REQUEST))


def gang() -> Lab:
    return Lab().slice("a").job("train", tpu="v4-16").schedule()


def stopping_gang() -> Lab:
    """Its second rank failed: the first one is to be tried again, and isn't stopped yet."""
    lab = Lab().slice("a").job("train", tpu="v4-16", max_retries_failure=1).schedule()
    return lab.reports("train/* running").reports("train/task-1 exited 1")


@pytest.mark.parametrize(
    ("lab", "event"),
    [
        (pending, ev.WorkerRegistered(worker=W, connection=Connection(host="w"))),
        (running, ev.WorkerForgotten(worker=W)),
        (pending, ev.JobSubmitted(job=Job(id=TRAIN))),
        (over, ev.JobEnded(job=TRAIN, end=OK)),
        (over, ev.JobCancelled(job=TRAIN)),
        (pending, assigned(number=1)),
        (running, assigned(number=1)),
        (running, assigned(number=0)),
        (over, assigned(number=1)),
        (stopping_gang, assigned(number=1, worker="a-0")),
        (pending, ev.TaskDispatched(task=TASK, attempt=0)),
        (running, ev.TaskDispatched(task=TASK, attempt=-1)),
        (over, ev.TaskDispatched(task=TASK, attempt=0)),
        (over, ev.DispatchTakenOver(task=TASK, attempt=0)),
        (running, ev.TaskRunning(task=TASK, attempt=0, started_at=1.0)),
        (over, ev.TaskRunning(task=TASK, attempt=0, started_at=1.0)),
        (running, ev.AttemptHeldUp(task=TASK, attempt=0, error="")),
        (running, ev.AttemptUnkillable(task=TASK, attempt=0)),
        (over, ev.EndpointRegistered(task=TASK, attempt=0, name="x", port=1, request=REQUEST)),
        (listening, ev.EndpointRemoved(task=TASK, attempt=0, name="other", request=REQUEST)),
        (running, ev.TaskDispatchFailed(task=TASK, attempt=0, error="")),
        (over, ev.AttemptEnded(task=TASK, attempt=0, end=OK)),
        (over, ev.AttemptStopRequested(task=TASK, attempt=0, reason=SIBLING)),
        (stopping, ev.AttemptStopRequested(task=TASK, attempt=0, reason=SIBLING)),
        (running, ev.AttemptStopped(task=TASK, attempt=0)),
        (over, ev.AttemptStopped(task=TASK, attempt=0)),
        (over, ev.TaskRequeued(task=TASK, reason=EndReason.USER_ERROR)),
        (running, ev.TaskRequeued(task=TASK, reason=EndReason.USER_ERROR)),
        (over, ev.TaskEnded(task=TASK, state=TaskState.FAILED, end=OK)),
        (running, ev.TaskEnded(task=TASK, state=TaskState.PENDING, end=OK)),
        (running, ev.AttemptsReaped(worker=W, attempts=(AttemptId(TASK, 0),))),
        (over, ev.AttemptsReaped(worker=W)),
        (over, ev.AttemptsReaped(worker=W, attempts=(AttemptId(TASK, 1),))),
        (over, ev.AttemptsReaped(worker=W, attempts=(AttemptId(TASK, 0),) * 2)),
        (gang, ev.GangRoundEnded(job=TRAIN, round=1, reason=EndReason.USER_ERROR)),
        (gang, ev.GangRoundEnded(job=TRAIN, round=-1, reason=EndReason.USER_ERROR)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Event) else value.__name__,
)
def test_what_does_not_fit_is_refused(lab: object, event: Event) -> None:
    cluster = lab().cluster  # type: ignore[operator]  # one of the functions above
    with pytest.raises(IllegalTransitionError):
        evolve(cluster, [event], at=1.0)


@pytest.mark.parametrize(
    "event",
    [
        ev.WorkerUpdated(worker=WorkerId("x"), connection=Connection(host="x")),
        ev.WorkerUncordoned(worker=WorkerId("x")),
        ev.WorkerForgotten(worker=WorkerId("x")),
        ev.JobCancelled(job=JobId("x")),
        ev.TaskEnded(task=TaskId(JobId("x"), 0), state=TaskState.KILLED, end=OK),
        ev.TaskEnded(task=TaskId(TRAIN, 7), state=TaskState.KILLED, end=OK),
        ev.TaskDispatched(task=TaskId(JobId("x"), 0), attempt=0),
        assigned(worker="x"),
    ],
    ids=lambda event: type(event).__name__,
)
def test_no_event_refers_to_what_does_not_exist(event: Event) -> None:
    with pytest.raises(IllegalTransitionError):
        evolve(pending().cluster, [event], at=1.0)


def test_nothing_is_proven_gone_that_was_not_presumed_to_be() -> None:
    other = TaskId(JobId("other"), 0)
    two = running().job("other").schedule().cluster
    presumed = evolve(two, [ev.AttemptPresumedGone(task=TASK, attempt=0)], at=1.0)
    with pytest.raises(IllegalTransitionError):
        evolve(presumed, [ev.AttemptProvenGone(task=other, attempt=0)], at=2.0)


def retried(failures: int) -> Lab:
    lab = Lab().worker("w").job("train", max_retries_failure=failures).schedule()
    for _ in range(failures):
        lab.reports("train/* exited 1").schedule()
    return lab


def test_a_refusal_tells_the_attempts_of_the_task_and_what_was_recorded_just_before() -> None:
    lab = retried(1).worker("other")
    with pytest.raises(IllegalTransitionError) as refused:
        evolve(
            lab.cluster,
            [
                ev.TaskDispatched(task=TASK, attempt=1),
                ev.WorkerDrained(worker=WorkerId("other")),
                ev.TaskRunning(task=TASK, attempt=0, started_at=1.0),
            ],
            at=1.0,
        )
    said = str(refused.value)
    assert said.startswith("TaskRunning(task='train/task-0', attempt=0, started_at=1.0) does not fit")
    assert said.endswith("train/task-0: it is ASSIGNED, its last attempt ASSIGNED")
    first, second, before = refused.value.story
    assert first.startswith("attempt-0 on w: Ended(end=End(reason=<EndReason.USER_ERROR: 'user_error'>")
    assert second == "attempt-1 on w: Assigned(acknowledged=True, taken_over=False, held_up='')"
    assert before == "not committed TaskDispatched(task='train/task-0', attempt=1)"
    assert refused.value.__notes__ == [first, second, before]  # a traceback has them


def test_an_event_about_an_unknown_worker_tells_the_story_of_its_task_too() -> None:
    with pytest.raises(IllegalTransitionError, match="refers to an unknown object: 'x'") as refused:
        evolve(pending().cluster, [ev.JobCancelled(job=TRAIN), assigned(worker="x")], at=1.0)
    assert refused.value.story == ("not committed JobCancelled(job='train', reason='')",)


def test_a_refusal_stays_readable_whatever_went_before() -> None:
    long = ev.TaskDispatchFailed(task=TASK, attempt=0, error="x" * 10_000)
    with pytest.raises(IllegalTransitionError) as refused:
        evolve(retried(15).cluster, [long], at=1.0)
    earlier, *attempts = refused.value.story
    assert earlier == "6 earlier attempts"
    assert [line.partition(" ")[0] for line in attempts] == [f"attempt-{number}" for number in range(6, 16)]
    assert max(map(len, (str(refused.value), *attempts))) < 400


def test_every_event_has_its_place_in_the_interpreter() -> None:
    """An event type that `evolve` doesn't know would be a KeyError on replay."""
    from iris_cli.core.evolve import CHANGES

    assert set(CHANGES) == set(EVENT_TYPES.values())


def test_evolve_leaves_its_cluster_untouched() -> None:
    lab = gang().reports("train/* running")
    before = deepcopy(lab.cluster)
    events = [
        ev.WorkerTainted(worker=WorkerId("a-0"), taint="t"),
        ev.JobCancelled(job=TRAIN),
        ev.AttemptStopRequested(task=TASK, attempt=0, reason=SIBLING),
        ev.AttemptStopped(task=TASK, attempt=0),
        ev.JobSubmitted(job=Job(id=JobId("next"))),
    ]
    after = evolve(lab.cluster, events, at=2.0)
    assert lab.cluster == before
    assert after != before


def test_a_draft_that_refused_an_event_has_not_recorded_it() -> None:
    draft = Draft(pending().cluster, at=1.0)
    draft.record(ev.JobCancelled(job=TRAIN))
    with pytest.raises(IllegalTransitionError):
        draft.record(assigned(number=5))
    assert draft.events == [ev.JobCancelled(job=TRAIN)]


def test_replay_goes_on_from_a_snapshot_and_from_nothing() -> None:
    lab = running()
    assert lab.replayed() == replay(lab.log) == lab.cluster
    for cut in range(len(lab.log)):
        start = replay(lab.log[:cut])
        assert replay(lab.log[cut:], start=start) == lab.cluster
        assert start.seq == cut
    assert replay([]) == Cluster()


def test_a_replay_changes_nothing_that_others_hold() -> None:
    """It overwrites records of its own: what it began with and what it was told stay as they were."""
    lab = gang().reports("train/* running").taint("a-0", "slow").reports("train/task-0 exited 1")
    lab.probe("a-0").reports("train/task-1 stopped").schedule().cancel("train")
    log = deepcopy(lab.log)
    for cut in range(len(lab.log)):
        start = replay(lab.log[:cut])
        before = deepcopy(start)
        assert replay(lab.log[cut:], start=start) == lab.cluster
        assert start == before
    assert lab.log == log


def test_replay_keeps_the_number_and_the_time_of_the_last_transaction() -> None:
    cluster = replay([Transaction(seq=7, at=3.5, actor="a", events=(ev.ClusterCreated(name="lab"),))])
    assert (cluster.name, cluster.seq, cluster.at) == ("lab", 7, 3.5)


def test_a_cluster_is_created_once() -> None:
    with pytest.raises(IllegalTransitionError, match="the cluster lab exists already"):
        Lab().records(ev.ClusterCreated(name="other"))


def test_jobs_know_when_and_in_which_order_they_came() -> None:
    lab = Lab().job("a").advance(5).job("b")
    assert [(job.id, job.order) for job in lab.cluster.jobs.values()] == [("a", 0), ("b", 1)]
    assert lab.the_job("b").submitted_at - lab.the_job("a").submitted_at == 5


def test_an_attempt_holds_what_it_holds_until_its_end() -> None:
    lab = Lab().worker("w", gpus=2).job("train", gpu="A100:2", cpu=1.5, memory=1000).schedule()
    (claim,) = lab.the_worker("w").claims.values()
    assert (claim.cpu_millis, claim.memory, claim.gpus, claim.chips) == (1500, 1000, (0, 1), False)
    assert lab.reports("train/* running").the_worker("w").claims
    assert lab.cancel("train").the_worker("w").claims
    assert lab.reports("train/* stopping").the_worker("w").claims
    assert not lab.reports("train/* stopped").the_worker("w").claims


def test_a_tpu_task_holds_all_chips_of_its_host() -> None:
    assert all(claim.chips for claim in gang().the_worker("a-0").claims.values())


def test_taints_by_hand_outlive_a_probe_and_are_attributes() -> None:
    lab = Lab().worker("w").taint("w", "spot").taint("w", "slow").taint("w", "spot")
    assert lab.the_worker("w").taints == ("slow", "spot")
    lab.hosts[W].reboot()
    lab.probe("w").taint("w", "slow", removed=True)
    assert lab.the_worker("w").attributes["taint:spot"] == AttributeValue("true")
    assert "taint:slow" not in lab.the_worker("w").attributes
    lab.drain("w", "disk").hosts[W].reboot()
    assert lab.probe("w").the_worker("w").taints == ("spot",)
    assert lab.replayed() == lab.cluster


def test_uncordon_lifts_drain_quarantine_and_cool_down() -> None:
    lab = Lab().worker("w").drain("w", "disk").records(ev.WorkerQuarantined(worker=W, reason="x")).silent("w")
    worker = lab.uncordon("w").the_worker("w")
    assert (worker.draining, worker.quarantined, worker.cooldown_until) == (False, False, 0.0)
    assert worker.condition == "suspect"
