"""When a loop runs its next cycle."""

from __future__ import annotations

from pathlib import Path

import pytest

from iris_cli.errors import NotWritableError
from iris_cli.ops.cycle.cycle import Cycles
from iris_cli.ops.loop.run import LoopEnd
from tests.ops.loop.loop_lab import LoopLab, S


@pytest.fixture
def lab(tmp_path: Path) -> LoopLab:
    return LoopLab(tmp_path, "w0", "w1")


def test_with_jobs_running_each_worker_is_polled_once_an_interval(lab: LoopLab) -> None:
    lab.site.gang("train", 2)
    assert lab.run(100) is None
    before = lab.polls()
    lab.clock.began = lab.clock.time
    assert lab.run(200) is None
    assert 2 * 20 <= lab.polls() - before <= 2 * 26  # a loop that has just begun looks more often


def test_after_a_change_it_looks_again_soon_and_then_less_and_less_often(lab: LoopLab) -> None:
    lab.site.gang("train", 2)
    assert lab.run(60) is None
    pauses = [round(late - early, 3) for early, late in zip(lab.turns, lab.turns[1:], strict=False)]
    assert pauses[:5] == [1.0, 2.0, 4.0, 8.0, 10.0]


def test_if_already_its_first_cycle_fails_it_tries_again_less_and_less_often(
    lab: LoopLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing has changed since it began: it must not try again at once, for ever."""
    lab.site.launch("train")

    def broken(*given: object, **options: object) -> object:
        raise NotWritableError("the disk is full")

    monkeypatch.setattr(Cycles, "run", broken)
    assert lab.run(60) is None
    pauses = [round(late - early, 3) for early, late in zip(lab.turns, lab.turns[1:], strict=False)]
    assert pauses[:5] == [1.0, 2.0, 4.0, 8.0, 10.0]


def test_a_job_that_somebody_submits_is_placed_within_seconds(lab: LoopLab) -> None:
    lab.site.gang("train", 2)
    lab.at(47.0, lambda: lab.site.launch("side", cpu=0.5))
    placed: list[float] = []
    lab.at(50.0, lambda: placed.append(len(lab.site.task("side").attempts)))
    assert lab.run(60) is None
    assert placed == [1]


def test_the_end_of_a_time_limit_is_seen_when_it_comes(lab: LoopLab) -> None:
    lab.site.launch("train", timeout=100.0)
    lab.site.cycle()
    started = lab.now

    def limit() -> None:
        [host] = [each for each in lab.site.hosts.values() if each.running]
        entry = host.of("train")
        entry.state, entry.exit_code, entry.cause, entry.ended_at = S.EXITED, 143, "timeout", host.now()

    lab.at(started + 100.0, limit)
    assert lab.run() is LoopEnd.DONE
    assert lab.now - started < 103.0
