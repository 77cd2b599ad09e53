"""The clocks of workers: how far they are off is measured, recorded when it is news, and puts nothing in order."""

from __future__ import annotations

import pytest

from iris_cli.core.events.events import WorkerSkewChanged
from iris_cli.core.evolve import Draft
from iris_cli.core.ids import JobId, TaskId, WorkerId
from iris_cli.core.lifecycle import workers
from iris_cli.core.model.task import EndReason
from iris_cli.core.model.worker import has_wrong_clock
from tests.support.lab import Lab

W = WorkerId("w")


def skew_after(known: float, clock: float, asked_at: float, heard_at: float) -> float | None:
    """What is recorded when a worker whose skew is known says what time it is; None for nothing."""
    lab = Lab().worker("w")
    if known:
        lab.records(WorkerSkewChanged(worker=W, skew=known))
    draft = Draft(lab.cluster, lab.now)
    workers.record_clock(draft, W, clock, asked_at, heard_at)
    assert len(draft.events) <= 1
    return draft.cluster.workers[W].skew if draft.events else None


@pytest.mark.parametrize(
    ("known", "clock", "asked_at", "heard_at", "recorded"),
    [
        (0, 1000, 1000.2, 1000.9, None),
        (0, 1004, 1000, 1000, None),
        (0, 1060, 1000, 1001, 59),
        (0, 940, 1000, 1001, -59),
        (0, 1014, 1000, 1015, None),  # a slow answer: the clock may be right
        (59, 1060, 1000, 1001, None),
        (59, 1062, 1000, 1015, None),
        (59, 1000, 1000, 1001, 0),  # somebody set it
        (59, 1100, 1000, 1001, 99),
        (0, 0, 1000, 1001, None),  # it did not say
        (0, 10**14, 1000, 1001, 10**14 - 1001),
    ],
)
def test_a_skew_is_recorded_when_it_is_certain_and_news(
    known: float, clock: float, asked_at: float, heard_at: float, recorded: float | None
) -> None:
    assert skew_after(known, clock, asked_at, heard_at) == recorded


@pytest.mark.parametrize(
    ("skew", "worth_a_word"), [(0, False), (30, False), (-30, False), (31, True), (-31, True)]
)
def test_more_than_half_a_minute_is_worth_a_word(skew: float, worth_a_word: bool) -> None:
    lab = Lab().worker("w").records(WorkerSkewChanged(worker=W, skew=skew))
    assert has_wrong_clock(lab.the_worker("w")) is worth_a_word


@pytest.mark.parametrize("skew", [-1e6, 1e6])
def test_who_ended_first_is_told_by_how_long_ago_and_not_by_the_clocks(skew: float) -> None:
    lab = Lab().slice("a").job("train", tpu="v4-16").schedule().reports("train/* running")
    lab.records(WorkerSkewChanged(worker=WorkerId("a-0"), skew=skew))
    lab.reports("train/task-0 exited 1 10s-ago", "train/task-1 exited 2 12s-ago")
    end = lab.the_job("train").end
    assert end is not None
    assert (str(end.trigger), end.exit_code, end.reason) == ("train/task-1", 2, EndReason.USER_ERROR)


@pytest.mark.parametrize(
    ("later", "skew", "heard", "blamed"),
    [
        (10.0, None, "exited 2 30s-ago", 0),  # it had ended before its sibling, and is heard of later
        (10.0, None, "exited 2 5s-ago", 1),  # it ended of its stop
        (10.0, 30.0, "exited 2 30s-ago", 1),  # our clock was set back by 30 s meanwhile: it ended of its stop
        (10.0, -30.0, "exited 2 30s-ago", 1),  # or theirs was: who knows
        (-3600.0, None, "exited 2 5s-ago", 1),  # ours, so far that it shows by itself
    ],
)
def test_an_exit_counts_against_its_stop_only_if_no_clock_was_set_in_between(
    later: float, skew: float | None, heard: str, blamed: int
) -> None:
    lab = Lab().slice("a").job("train", tpu="v4-16").schedule().reports("train/* running 5m-ago")
    lab.reports("train/task-1 exited 1", unheard=["a-0"]).advance(later)
    if skew is not None:
        lab.records(WorkerSkewChanged(worker=WorkerId("a-0"), skew=skew))
    lab.reports(f"train/task-0 {heard}")
    end = lab.the_job("train").end
    assert end is not None
    assert end.trigger == TaskId(JobId("train"), blamed)
