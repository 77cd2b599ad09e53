"""Which worker an exported event is about, also where the event itself does not say."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest

from iris_cli.core.events.events import Event
from iris_cli.ops.event_rows import WorkersOfAttempts, rows
from tests.journal.samples import HELD_UP, LOSSES, NOON, REAPING, STORY, state_in


def exported(path: Path, story: tuple[tuple[Event, ...], ...]) -> list[tuple[str, str | None]]:
    state = state_in(path)
    state.create("museum")
    with state.locked("iris test") as writer:
        for number, events in enumerate(story[1:], 1):
            writer.append(events, at=NOON + number)
    return [(row.type, row.worker) for row in rows(state)]


def test_every_event_of_an_attempt_names_its_worker_to_the_very_last(tmp_path: Path) -> None:
    told = exported(tmp_path / "state", LOSSES)
    first = told.index(("TaskAssigned", "spot-0"))
    assert [kind for kind, worker in told[first:] if worker != "spot-0"] == []
    assert told[-1][0] == "AttemptProvenGone"


def test_a_place_is_forgotten_when_the_attempt_is_over_for_certain(tmp_path: Path) -> None:
    told = exported(tmp_path / "state", REAPING)
    assert [worker for kind, worker in told if kind == "AttemptEnded"] == ["spot-0", "spot-0"]
    ended = exported(tmp_path / "other", HELD_UP)
    assert {worker for kind, worker in ended if kind.startswith(("Task", "Attempt"))} == {"spot-0"}


@pytest.mark.parametrize("story", [LOSSES, REAPING])
def test_no_attempt_is_kept_in_memory_after_its_last_event(story: tuple[tuple[Event, ...], ...]) -> None:
    workers = WorkersOfAttempts()
    counts = []
    for event in chain.from_iterable(story):
        workers.read(event)
        counts.append(len(workers))
    assert (max(counts) > 0, counts[-1]) == (True, 0)


def test_what_is_about_no_worker_names_none(tmp_path: Path) -> None:
    told = dict(exported(tmp_path / "state", STORY))
    about_none = ("ClusterCreated", "JobSubmitted", "JobCancelled", "JobEnded", "GangRoundEnded")
    assert [told[kind] for kind in about_none] == [None] * len(about_none)
