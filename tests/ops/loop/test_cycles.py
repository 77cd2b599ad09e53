"""Who runs cycles, and whether another one comes: what every screen says is asked here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from iris_cli.journal.files.runners import LOOP, Runner
from iris_cli.journal.state_dir import StateDir
from iris_cli.ops.views.cycles import Cycles, cycles_of, cycles_words

NOW = 1_800_000_000.0


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    return StateDir(tmp_path, now=lambda: NOW, actor="me@laptop")


def beat(state: StateDir, kind: str, ago: float, **said: Any) -> None:
    at = NOW - ago
    state.write_heartbeat({"at": at}, kind, {"at": at, **said})


def runs(state: StateDir, kind: str, *, since: float = 1000.0, interval: float = 10.0, **said: Any) -> None:
    """Such a runner holds its lock, and began so many seconds ago."""
    held = state.runners.hold(kind, f"iris {kind}", interval=interval, since=NOW - since)
    assert held is not None
    if said:
        signed = {"kind": kind, "actor": "me@laptop", "interval": interval, "since": NOW - since, **said}
        held.write(Runner(**signed))


def test_without_anything_nobody_runs_cycles(state: StateDir) -> None:
    cycles = cycles_of(state, NOW)
    assert cycles == Cycles()
    assert not cycles.has_next_cycle
    assert (
        cycles_words(cycles)
        == "no cycles are running (none has run yet): iris loop start, or iris cron install"
    )


def test_a_heartbeat_of_an_older_iris_says_how_old_the_last_cycle_is(state: StateDir) -> None:
    state.write_heartbeat({"at": NOW - 720.0, "asked": 3, "silent": 0})
    cycles = cycles_of(state, NOW)
    assert (cycles.by, cycles.last, cycles.has_next_cycle) == (None, 720.0, False)
    assert (
        cycles_words(cycles)
        == "no cycles are running (last one 12m ago): iris loop start, or iris cron install"
    )


def test_single_cycles_are_nobodys_promise(state: StateDir) -> None:
    beat(state, "command", 2.0)
    cycles = cycles_of(state, NOW)
    assert (cycles.by, cycles.last, cycles.has_next_cycle) == (None, 2.0, False)


def test_a_live_loop_runs_the_cycles(state: StateDir) -> None:
    runs(state, LOOP, pid=4711)
    beat(state, LOOP, 3.0, pid=4711, interval=10.0)
    cycles = cycles_of(state, NOW)
    assert cycles == Cycles(by=LOOP, pid=4711, last=3.0, last_own=3.0, next=7.0, interval=10.0)
    assert cycles.has_next_cycle
    assert cycles_words(cycles) == "cycles: background loop (pid 4711), last 3s ago"


def test_a_loop_that_has_just_begun_runs_the_cycles(state: StateDir) -> None:
    runs(state, LOOP, since=1.0, pid=0)
    beat(state, "command", 5.0)
    cycles = cycles_of(state, NOW)
    assert (cycles.by, cycles.last, cycles.next) == (LOOP, 5.0, 9.0)
    assert cycles_words(cycles) == "cycles: background loop, starting"


def test_a_loop_that_has_just_begun_takes_over_the_age_of_what_others_did(state: StateDir) -> None:
    beat(state, LOOP, 88.0, pid=12, interval=10.0)
    beat(state, "wait", 2.0)
    runs(state, LOOP, since=1.0, pid=4711)
    cycles = cycles_of(state, NOW)
    assert cycles_words(cycles) == "cycles: background loop (pid 4711), last 2s ago"
    assert cycles.last_own is None


def test_a_late_loop_is_reported_even_if_another_process_ran_a_cycle(state: StateDir) -> None:
    runs(state, LOOP, pid=4711)
    beat(state, LOOP, 300.0, pid=4711)
    beat(state, "command", 2.0)
    said = "cycles: background loop (pid 4711) is late (last cycle 5m ago); run: iris loop start"
    assert cycles_words(cycles_of(state, NOW)) == said


def test_a_time_without_a_lock_is_a_dead_loops(state: StateDir) -> None:
    beat(state, LOOP, 3.0, pid=4711, interval=10.0)
    assert cycles_of(state, NOW).by is None


@pytest.mark.parametrize(("ago", "late"), [(0.0, False), (60.0, False), (60.5, True), (7200.0, True)])
def test_a_loop_that_is_suspended_keeps_its_lock_and_is_late(ago: float, late: bool, state: StateDir) -> None:
    runs(state, LOOP, pid=4711)
    beat(state, LOOP, ago, pid=4711)
    cycles = cycles_of(state, NOW)
    assert (cycles.late, cycles.has_next_cycle) == (late, not late)
    if ago == 7200.0:
        said = "cycles: background loop (pid 4711) is late (last cycle 2h ago); run: iris loop start"
        assert cycles_words(cycles) == said


def test_a_loop_with_long_intervals_has_time(state: StateDir) -> None:
    runs(state, LOOP, interval=300.0)
    beat(state, LOOP, 850.0)
    assert cycles_of(state, NOW).has_next_cycle


def test_the_lock_of_another_host_says_which(state: StateDir) -> None:
    runs(state, LOOP, pid=4711, actor="me@bastion")
    beat(state, LOOP, 3.0)
    cycles = cycles_of(state, NOW)
    assert cycles.host == "bastion"
    assert cycles_words(cycles) == "cycles: background loop (pid 4711 on bastion), last 3s ago"


@pytest.mark.parametrize(
    ("ago", "believed"),
    [(0.0, True), (41.0, True), (179.0, True), (180.0, False), (-179.0, True), (-86400.0, False)],
)
def test_cron_counts_for_three_of_its_intervals(ago: float, believed: bool, state: StateDir) -> None:
    beat(state, "cron", ago, interval=60.0)
    cycles = cycles_of(state, NOW)
    assert (cycles.by, cycles.has_next_cycle) == ("cron" if believed else None, believed)
    if ago == 41.0:
        assert cycles.next == 19.0
        assert cycles_words(cycles) == "cycles: cron every 1m, last 41s ago"


def test_one_that_is_late_gives_way_to_one_that_is_not(state: StateDir) -> None:
    runs(state, LOOP, pid=4711)
    beat(state, LOOP, 500.0)
    beat(state, "cron", 20.0, interval=60.0)
    assert cycles_of(state, NOW).by == "cron"


def test_the_loop_goes_before_the_others(state: StateDir) -> None:
    runs(state, "wait", interval=3.0)
    runs(state, "watch", interval=2.0)
    beat(state, "wait", 1.0)
    assert cycles_of(state, NOW).by in ("wait", "watch")
    runs(state, LOOP, since=5.0)
    assert cycles_of(state, NOW).by == LOOP


@pytest.mark.parametrize(
    ("kind", "command", "words"),
    [
        ("wait", "", "cycles: iris wait (pid 12), last 1s ago"),
        ("wait", "iris logs", "cycles: iris logs (pid 12), last 1s ago"),
        ("wait", "iris launch", "cycles: iris launch (pid 12), last 1s ago"),
        ("watch", "", "cycles: iris watch (pid 12), last 1s ago"),
        ("command", "", "cycles: iris schedule (pid 12), last 1s ago"),
    ],
)
def test_who_runs_them_in_words(kind: str, command: str, words: str, state: StateDir) -> None:
    runs(state, kind, interval=3.0, pid=12, command=command)
    beat(state, kind, 1.0)
    assert cycles_words(cycles_of(state, NOW)) == words


def test_a_cycle_in_the_future_hides_no_later_one(state: StateDir) -> None:
    beat(state, "command", -86400.0)
    beat(state, LOOP, 720.0)
    assert cycles_of(state, NOW).last == 720.0


def test_a_clock_that_stepped_back_makes_no_negative_age(state: StateDir) -> None:
    runs(state, LOOP, since=-500.0)
    beat(state, LOOP, -400.0)
    beat(state, "cron", -400.0, interval=60.0)
    cycles = cycles_of(state, NOW)
    assert cycles.last == 0.0
    assert not cycles.late


@pytest.mark.parametrize(
    "text",
    [
        '{"at": "now", "runners": {"loop": {"at": 1e999, "troubles": "x", "missing": [1]}}}',
        '{"at": true, "runners": {"cron": {"at": [1], "interval": "x"}}}',
        '{"runners": {"loop": {"troubles": [1, "real"], "missing": {"job": 7}}}}',
        "[]",
    ],
)
def test_what_makes_no_sense_in_the_heartbeat_is_passed_over(text: str, state: StateDir) -> None:
    runs(state, LOOP, since=5.0, pid=4711)
    (state.path / "heartbeat.json").write_text(text)
    assert json.loads(text) is not None
    cycles = cycles_of(state, NOW)
    assert (cycles.by, cycles.pid) == (LOOP, 4711)
    assert set(cycles.troubles) <= {"real"}


def test_what_the_loop_lacks_is_the_loops_alone(state: StateDir) -> None:
    said = {"troubles": ["its SSH agent is gone"], "missing": {"train": ["WANDB"]}}
    runs(state, LOOP)
    beat(state, LOOP, 3.0, **said)
    cycles = cycles_of(state, NOW)
    assert (cycles.troubles, cycles.missing) == (("its SSH agent is gone",), {"train": ["WANDB"]})
