"""Whatever a worker answers, only that worker is distrusted for it; and so it is where weighing fails by our fault."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from iris_cli.core.evolve import Draft
from iris_cli.core.ids import Token, WorkerId
from iris_cli.core.invariants import breaches
from iris_cli.core.lifecycle import attempts, gangs
from iris_cli.core.messages.observations import AttemptReport, ProbeReport, RemoteState, Silence, WorkerReport
from iris_cli.core.model.job import JobState
from iris_cli.core.model.worker import WorkerCondition
from iris_cli.journal.log.record import decode_event, encode_event
from iris_cli.ops.cycle import cycle, observe
from iris_cli.ops.cycle.answers import MAX_TEXT, MAX_UPTIME, Observation, validate
from iris_cli.ops.session import Session
from tests.support.fake_runner import Site

FORGED = Token("0" * 32)
W0, W1, W2 = (WorkerId(f"w{number}") for number in range(3))
EXAMPLES = int(os.environ.get("IRIS_HOSTILE_ANSWERS", "60"))
SOAK = 4_000

times = st.sampled_from([0.0, -1.0, 1e-9, 0.5, 59.0, 1e6, 1e12, 1e308, math.inf, -math.inf, math.nan])
counts = st.sampled_from([0, 1, 4, 112, 1 << 20, 1 << 40, 1 << 70, -1])
words = st.sampled_from(["", "oom", "setup", "lease", "\x1b]0;x\x07", "a\0b", "\udcff", "x" * (MAX_TEXT + 1)])
texts = st.one_of(words, st.text(max_size=20))
names = st.sampled_from(["boot-1", "w0-life", "", "another", "\udcff", "x" * 100])
KEYS = ("accelerator-type", "agent-worker-number", "instance-id", "tpu-name", "zone", "preemptible", "\x1b")


def reports(token: Token) -> st.SearchStrategy[AttemptReport]:
    """Anything that has the form of a report about an attempt, most often about the one that is there."""
    return st.builds(
        AttemptReport,
        token=st.sampled_from([token, token, token, FORGED]),
        state=st.sampled_from(RemoteState),
        exit_code=st.sampled_from([None, None, 0, 1, 137, 256, -1, 1 << 70]),
        cause=st.one_of(st.just(""), texts),
        started_ago=st.one_of(st.none(), times),
        ended_ago=st.one_of(st.none(), times),
        output_bytes=counts,
        log_tail=texts,
    )


def answers(token: Token) -> st.SearchStrategy[Observation]:
    """Anything that has the form of an answer of `w0`."""
    who = {"worker": st.sampled_from([W0, W0, W0, W1]), "boot_id": names, "incarnation": names}
    when = {"clock": times, "uptime": times}
    polled = st.builds(WorkerReport, attempts=st.lists(reports(token), max_size=3).map(tuple), **who, **when)
    probed = st.builds(
        ProbeReport,
        **dict.fromkeys(("cpus", "memory", "disk_free", "chips", "gpus"), counts),
        gpu_variant=texts,
        containment=texts,
        metadata=st.lists(st.tuples(st.sampled_from(KEYS), texts), max_size=4).map(tuple),
        tokens=st.lists(st.sampled_from([token, FORGED]), max_size=2).map(tuple),
        warnings=st.lists(texts, max_size=2).map(tuple),
        **who,
        **when,
    )
    return st.one_of(polled, polled, probed)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """A gang on `w0` and `w1`, a single task on `w2`."""
    site = Site(tmp_path_factory.mktemp("site"), "w0", "w1", "w2")
    site.gang("train", 2)
    site.launch("one", cpu=3.0)
    site.cycle()
    assert [site.attempt("train", rank).worker for rank in (0, 1)] == [W0, W1]
    session = site.session()
    session.view()
    return session


def weighed(session: Session, seen: Observation) -> Draft:
    """The draft after the lie of `w0` was weighed beside a true word of `w2`."""
    cluster, now = session.cluster, session.clock.now()
    truth = WorkerReport(worker=W2, boot_id="boot-1", incarnation="w2-life")
    draft = Draft(cluster, now)
    batch = [
        observe.validated_answer(session, observe.call_context(cluster, worker), now, said)
        for worker, said in ((W0, seen), (W2, truth))
    ]
    observe.record_answers(session, draft, batch)
    return draft


def check(session: Session, seen: Observation) -> None:
    draft = weighed(session, seen)
    assert session.faults == []
    # A host may say that it has shrunk, under what runs there: that is its own affair.
    assert [each for each in breaches(draft.cluster) if not each.startswith("w0: ")] == []
    for event in draft.events:
        assert decode_event(json.loads(json.dumps(encode_event(event), allow_nan=False))) == event
        for ran in (getattr(each, "ran", None) for each in (event, getattr(event, "end", None))):
            assert ran is None or 0 <= ran <= MAX_UPTIME
    for each in (W1, W2):
        assert draft.cluster.workers[each].condition is WorkerCondition.HEALTHY
    untouched = [task for task in session.cluster.tasks.values() if task.job == "one"]
    assert untouched == [task for task in draft.cluster.tasks.values() if task.job == "one"]
    if isinstance(validate(seen, W0, observe.call_context(session.cluster, W0).tokens), Silence):
        distrusted = draft.cluster.workers[W0]
        assert distrusted.condition is WorkerCondition.SUSPECT
        assert distrusted.reason.startswith("answer: implausible answer: ")
        assert {type(event).__name__ for event in draft.events} == {"WorkerConditionChanged"}


def token_of(session: Session) -> Token:
    return next(attempt.token for _, attempt in session.cluster.live_attempts_on(W0))


@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data())
def test_nothing_that_a_worker_says_is_felt_by_others(running: Session, data: st.DataObject) -> None:
    check(running, data.draw(answers(token_of(running))))


@pytest.mark.soak
@settings(max_examples=SOAK, deadline=None)
@given(data=st.data())
def test_nothing_that_a_worker_says_is_felt_by_others_however_many_answers(
    running: Session, data: st.DataObject
) -> None:
    check(running, data.draw(answers(token_of(running))))


HONEST = WorkerReport(worker=W0, boot_id="boot-1", incarnation="w0-life", clock=1.8e9, uptime=5000.0)
RUNS = AttemptReport(token=FORGED, state=RemoteState.RUNNING, started_ago=10.0)
EXITED = replace(RUNS, state=RemoteState.EXITED, exit_code=1, ended_ago=1.0)
PROBE = ProbeReport(worker=W0, boot_id="boot-1", incarnation="w0-life", cpus=4, memory=8 << 30)


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (replace(HONEST, worker=W1), "it is about another worker"),
        (replace(HONEST, boot_id="x" * 65), "its boot id or incarnation is malformed"),
        (replace(HONEST, incarnation="\x1b[2J"), "its boot id or incarnation is malformed"),
        (replace(HONEST, clock=math.nan), "its clock is invalid"),
        (replace(HONEST, uptime=-1.0), "its clock is invalid"),
        (replace(HONEST, attempts=(RUNS, RUNS)), "it names an attempt twice"),
        (replace(HONEST, attempts=(replace(RUNS, token=Token("1" * 32)),)), "it was not asked about"),
        (replace(HONEST, attempts=(replace(RUNS, started_ago=-5.0),)), "invalid"),
        (replace(HONEST, attempts=(replace(RUNS, started_ago=math.inf),)), "invalid"),
        (replace(HONEST, attempts=(replace(RUNS, started_ago=9000.0),)), "before the host booted"),
        (replace(HONEST, attempts=(replace(EXITED, ended_ago=60.0),)), "ended before it started"),
        (replace(HONEST, attempts=(replace(EXITED, exit_code=None),)), "contradictory facts"),
        (replace(HONEST, attempts=(replace(RUNS, exit_code=0),)), "contradictory facts"),
        (replace(HONEST, attempts=(replace(EXITED, exit_code=1 << 70),)), "contradictory facts"),
        (
            replace(HONEST, attempts=(replace(EXITED, log_tail="x" * (MAX_TEXT + 1)),)),
            "output of an attempt",
        ),
        (replace(HONEST, attempts=(replace(EXITED, log_tail="\udcff"),)), "output of an attempt"),
        (replace(PROBE, cpus=1 << 40), "no host has so many cores or devices"),
        (replace(PROBE, gpus=1 << 20), "no host has so many cores or devices"),
        (replace(PROBE, memory=-1), "no host has so much memory"),
        (replace(PROBE, warnings=("x" * (MAX_TEXT + 1),)), "its facts are not text"),
    ],
)
def test_what_can_t_be_true_is_no_answer(seen: Observation, why: str) -> None:
    refused = validate(seen, W0, frozenset({FORGED}))
    assert isinstance(refused, Silence)
    assert (refused.kind, refused.step) == ("protocol", "answer")
    assert why in refused.detail


@pytest.mark.parametrize("seen", [HONEST, replace(HONEST, attempts=(EXITED,)), PROBE])
def test_what_can_be_true_is_taken_as_it_is(seen: Observation) -> None:
    assert validate(seen, W0, frozenset({FORGED})) is seen


def fails(*_: object) -> None:
    raise ZeroDivisionError("a fault of ours")


def test_a_fault_in_weighing_one_answer_costs_that_worker_its_word_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, "w0", "w1")
    site.launch("one", replicas=2, cpu=3.0)
    site.cycle()
    site.hosts["w0"].exits("one/task-0")
    site.hosts["w1"].exits("one/task-1")
    bad = site.attempt("one", 0).token
    reported = attempts.apply_report

    def sometimes(draft: Draft, attempt_id: object, report: AttemptReport, *rest: object) -> None:
        reported(draft, attempt_id, report, *rest)  # type: ignore[arg-type]  # handed through
        if report.token == bad:
            fails()

    monkeypatch.setattr(attempts, "apply_report", sometimes)
    session = site.session()
    said: list[str] = []
    session.tell = said.append
    cycle.run(session)
    assert [site.task("one", index).state for index in (0, 1)] == ["RUNNING", "SUCCEEDED"]
    worker = site.cluster.workers[site.attempt("one", 0).worker]
    assert (worker.condition, worker.reason) == (
        WorkerCondition.SUSPECT,
        "answer: the check failed: ZeroDivisionError",
    )
    assert [each for each in said if "ZeroDivisionError: a fault of ours" in each] == said
    assert len(said) == 1
    monkeypatch.setattr(attempts, "apply_report", reported)
    site.cycle(60.0)
    assert site.state_of("one") is JobState.SUCCEEDED


def test_a_fault_in_settling_one_gang_leaves_the_others_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, "w0", "w1", "w2", "w3")
    site.gang("bad", 2)
    site.gang("good", 2)
    site.cycle()
    settle = gangs.decide_round

    def sometimes(draft: Draft, job: str, *rest: object) -> None:
        settle(draft, job, *rest)  # type: ignore[arg-type]  # handed through
        if job == "bad":
            fails()

    monkeypatch.setattr(gangs, "decide_round", sometimes)
    for name, host in (("bad", 0), ("good", 2)):
        for rank in (0, 1):
            site.hosts[f"w{host + rank}"].exits(f"{name}/task-{rank}")
    session = site.session()
    cycle.run(session)
    assert (site.state_of("bad"), site.state_of("good")) == (JobState.RUNNING, JobState.SUCCEEDED)
    assert len(session.faults) == 1


def test_a_fault_in_a_call_is_no_answer_of_that_worker(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0", "w1")
    site.launch("one", replicas=2, cpu=3.0)
    site.cycle()
    site.hosts["w0"].meanwhile["poll"] = fails
    site.hosts["w1"].exits(f"one/task-{1 if site.attempt('one', 1).worker == W1 else 0}")
    site.cycle()
    assert site.cluster.workers[W0].reason == "call: internal error: ZeroDivisionError: a fault of ours"
    assert sorted(site.task("one", index).state for index in (0, 1)) == ["RUNNING", "SUCCEEDED"]
