"""What a session does around its transactions."""

from __future__ import annotations

from pathlib import Path

import pytest

from iris_cli.core.events import IllegalTransitionError
from iris_cli.core.events import events as ev
from iris_cli.core.evolve import ImpossibleHistoryError
from iris_cli.core.ids import AttemptId, JobId, RequestId, TaskId
from iris_cli.journal.history import MAX_STORY_EVENTS
from tests.support.fake_runner import Site


def test_a_repair_is_reported_when_the_lock_is_free(tmp_path: Path) -> None:
    """Somebody has pressed Ctrl-S, perhaps, and the others go on."""
    site, told = Site(tmp_path, "w0"), list[str]()
    site.launch("one")
    session = site.session()
    with (session.state.path / "events.jsonl").open("ab") as log:
        log.write(b'{"seq":')

    def tell(message: str) -> None:
        with site.session().state.locked("iris schedule", 0.0):
            told.append(message)

    session.tell = tell
    with pytest.raises(ZeroDivisionError), session.transaction():
        _ = 1 / 0
    assert len(told) == 1
    assert "unfinished line" in told[0]


ONE = TaskId(JobId("one"), 0)
STARTED = ev.TaskRunning(task=ONE, attempt=0, started_at=1.0)


def ran(tmp_path: Path) -> Site:
    """A site where `one` has ended, and `other` was submitted after it."""
    site = Site(tmp_path, "w0")
    site.launch("one")
    site.cycle()
    site.hosts["w0"].exits("one/task-0")
    site.cycle()
    site.launch("other")
    return site


def kinds(story: tuple[str, ...]) -> list[str]:
    """The events of a story, less their fields."""
    return [line.split("(")[0].rpartition(" ")[2] for line in story if not line.startswith("attempt-")]


HISTORY = [
    "JobSubmitted",
    "TaskAssigned",
    "TaskDispatched",
    "TaskRunning",
    "AttemptEnded",
    "TaskEnded",
    "JobEnded",
]


@pytest.mark.parametrize("compacted", [False, True])
def test_an_illegal_transition_tells_what_the_log_has_about_its_task(tmp_path: Path, compacted: bool) -> None:
    site = ran(tmp_path)
    if compacted:
        site.session().state.compact("iris log compact")
    session = site.session()
    reaped = ev.AttemptsReaped(worker=site.attempt("one").worker, attempts=(AttemptId(ONE, 0),))
    with pytest.raises(IllegalTransitionError) as refused, session.transaction() as draft:
        draft.record(reaped, STARTED)
    attempt, *events = refused.value.story
    assert attempt.startswith("attempt-0 on w0: Ended(")
    assert kinds(refused.value.story) == [*HISTORY, "AttemptsReaped"]
    assert events[1].startswith("seq 5 2027-01-15T08:00:00.000Z TaskAssigned(task=")
    assert events[-1].startswith("not committed AttemptsReaped(")


def test_the_story_of_a_fault_is_told_when_the_lock_is_free_again(tmp_path: Path) -> None:
    site, told = ran(tmp_path), list[str]()
    session = site.session()

    def tell(message: str) -> None:
        if told:
            with site.session().state.locked("iris schedule", 0.0):
                """The lock is free."""
        told.append(message)

    session.tell = tell
    with session.transaction() as draft:
        try:
            draft.record(STARTED)
        except IllegalTransitionError as error:
            session.fault("checking the answer of w0", error)
    assert told[0].startswith(
        "internal error while checking the answer of w0: IllegalTransitionError: TaskRunning("
    )
    assert kinds(tuple(told[1:])) == HISTORY


def test_an_impossible_log_tells_its_story_up_to_the_event_that_cannot_have_happened(tmp_path: Path) -> None:
    site = ran(tmp_path)
    state = site.session().state
    with state.locked("iris schedule") as writer:
        for seconds in range(MAX_STORY_EVENTS):
            started = ev.TaskRunning(task=ONE, attempt=0, started_at=float(seconds))
            bad = writer.append([started], at=site.clock.now())
    with pytest.raises(ImpossibleHistoryError) as refused:
        site.session().view()
    assert refused.value.seq == bad.seq - MAX_STORY_EVENTS + 1
    assert kinds(refused.value.story) == [*HISTORY, "TaskRunning"]
    assert refused.value.story[-1].startswith(f"seq {refused.value.seq} 2027-")


def test_of_a_long_story_the_end_is_told(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.launch("one")
    site.cycle()
    session = site.session()
    for number in range(MAX_STORY_EVENTS):
        request = RequestId(f"r{number}")
        announced = ev.EndpointRegistered(task=ONE, attempt=0, name=f"n{number}", port=1, request=request)
        with session.transaction() as draft:
            draft.record(announced)
    with pytest.raises(IllegalTransitionError) as refused, session.transaction() as draft:
        draft.record(STARTED)
    _, unsaid, *events = refused.value.story
    assert unsaid == "4 earlier events"
    assert kinds(tuple(events)) == ["EndpointRegistered"] * MAX_STORY_EVENTS
    assert f"name='n{MAX_STORY_EVENTS - 1}'" in events[-1]
