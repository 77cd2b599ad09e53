"""The screen of a watch: what matters first, in whatever room there is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from iris_cli.core.model.limits import Limits
from iris_cli.ops.session import Session
from iris_cli.ops.views.history import Entry, history
from iris_cli.ops.views.live_view import LiveView, Urgency, live_view
from iris_cli.ops.views.metrics import metrics
from iris_cli.render.watch.board import ScreenInput, draw_cluster
from iris_cli.render.watch.recent_events import RecentEvent, fold_events
from iris_cli.render.watch.screen import open_jobs_words
from tests.render.scenes import SCENES, busy, failed_gang, many_tasks, session_of
from tests.render.snapshots import check
from tests.support.lab import Lab

SIZES = ((20, 5), (40, 12), (60, 24), (100, 30), (200, 50))
HOSTILE = "\x1b[2J\x1b]0;mine\x07[bold]‮漢字é\n" + "x" * 300


def seen(lab: Lab, directory: Path) -> LiveView:
    return live_view(session_of(lab, directory / "state"))


def lines(shown: LiveView, width: int, height: int, *said: str) -> list[str]:
    heard = [RecentEvent(shown.status.at - len(said) + number, text) for number, text in enumerate(said)]
    moment = ScreenInput(now=shown.status.at + 2.0, events=heard)
    return [line.plain for line in draw_cluster(shown, moment, width, height)]


@pytest.mark.parametrize(
    "scene", ["empty", "busy", "failed_gang", "retried_gang", "many_tasks", "lost_host", "displays"]
)
def test_the_board_of_a_scene_is_the_recorded_one(scene: str, tmp_path: Path) -> None:
    session = session_of(SCENES[scene](), tmp_path / "state")
    shown, said = live_view(session), [each.text for each in fold_events(history(session, limit=2).entries)]
    pages = [
        "\n".join([f"{'=' * 20} {width} columns, {height} lines", *lines(shown, width, height, *said), ""])
        for width, height in SIZES
    ]
    check(f"watch-{scene}.txt", "\n".join(pages))


@pytest.mark.parametrize(
    ("cycle_ago", "words"),
    [
        (38.0, "cycles: cron every 1m, last 40s ago"),
        (7200.0, "no cycles are running (last one 2h ago): iris loop start, or iris cron install"),
    ],
)
def test_its_second_line_says_who_runs_cycles(cycle_ago: float, words: str, tmp_path: Path) -> None:
    shown = lines(live_view(session_of(busy(), tmp_path / "state", cycle_ago)), 200, 30)
    assert shown[1] == words
    assert any("the next cycle" in line for line in shown) == (cycle_ago == 38.0)


def test_a_repaired_log_is_no_longer_reported_as_damaged(tmp_path: Path) -> None:
    session = session_of(busy(), tmp_path / "state")
    log = tmp_path / "state" / "events.jsonl"
    sound = log.read_bytes()
    log.write_bytes(sound[:-20] + b"?" + sound[-19:])
    assert "is damaged" in lines(live_view(session), 400, 30)[2]
    log.write_bytes(sound)
    assert not any("is damaged" in line for line in lines(live_view(session), 400, 30))


@settings(deadline=None, max_examples=30)
@given(width=st.integers(1, 400), height=st.integers(1, 80), said=st.integers(0, 60))
def test_it_fits_into_any_screen(width: int, height: int, said: int, crowded: LiveView) -> None:
    moment = ScreenInput(now=crowded.status.at, events=[RecentEvent(0.0, HOSTILE)] * said, trouble=HOSTILE)
    painted = draw_cluster(crowded, moment, width, height)
    assert 1 <= len(painted) <= height
    assert all(cell_len(line.plain) <= width for line in painted)
    assert all(line.plain.isprintable() for line in painted)


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> LiveView:
    """500 tasks in one job, and some 60 others."""
    lab = many_tasks()
    for number in range(60):
        lab.job(f"job-{number}", cpu=64.0 if number % 2 else 0.1)
    return seen(lab.schedule().advance("1m"), tmp_path_factory.mktemp("crowded"))


def test_of_500_tasks_those_that_failed_have_a_line_and_the_rest_are_counted(tmp_path: Path) -> None:
    shown = lines(seen(many_tasks(), tmp_path), 160, 24)
    rows = [line for line in shown if "task-" in line]
    assert rows[0].split()[:3] == ["task-77", "FAILED", "1"]
    assert len(rows) <= 4
    assert any("2 failed, 308 pending, 160 running, 30 succeeded" in line for line in shown)


def test_what_finds_no_room_is_counted(crowded: LiveView) -> None:
    shown = lines(crowded, 100, 10)
    (rest,) = [line for line in shown if "more jobs: " in line]
    assert rest.startswith(
        f"{len(crowded.jobs) - len([line for line in shown if line[:3] in ('swe', 'job')])} more jobs: "
    )


def gangs() -> Lab:
    """One gang runs, a young one waits and an old one, which was submitted last."""
    lab = Lab(limits=Limits(gang_reserve_after=600.0)).slice("v5a", "v5litepod-16")
    lab.job("runs", tpu="v5litepod-16").schedule().reports("runs/* running")
    lab.job("old", tpu="v5litepod-16").advance("11m").job("young", tpu="v5litepod-16")
    return lab.schedule().advance("30s")


def test_a_gang_that_has_waited_long_stands_before_those_that_wait(tmp_path: Path) -> None:
    shown = seen(gangs(), tmp_path)
    assert [(job.row.id, job.urgency) for job in shown.jobs] == [
        ("old", Urgency.OVERDUE),
        ("young", Urgency.WAITING),
        ("runs", Urgency.RUNNING),
    ]
    (row,) = [line for line in lines(shown, 120, 20) if line.startswith("old ")]
    assert "pending for 11m (gang_reserve_after: 10m): " in row


@pytest.mark.parametrize(
    ("lab", "concern"),
    [(failed_gang(), Urgency.FAILING), (busy().cancel("train").advance("1h"), Urgency.RUNNING)],
    ids=["failed", "cancelled"],
)
def test_what_is_still_being_stopped_is_not_over(lab: Lab, concern: Urgency, tmp_path: Path) -> None:
    (train,) = [job for job in seen(lab, tmp_path).jobs if job.row.id == "train"]
    assert train.row.state.terminal
    assert train.urgency is concern


def test_the_last_line_names_the_jobs_by_the_states_on_the_screen() -> None:
    lab = Lab().worker("w").job("late").job("bounced", max_retries_failure=1).job("job").schedule()
    lab.reports("job/* running", "bounced/* running").reports("bounced/* exited 1")
    said = open_jobs_words(lab.cluster)
    assert said.startswith("stopped watching; job running, bounced retrying, late pending: ")


def test_a_ghost_is_neither_running_nor_an_open_job(tmp_path: Path) -> None:
    lab = Lab().worker("w").job("job").schedule().reports("job/* running").cancel("job")
    assert open_jobs_words(lab.cluster).startswith("stopped watching; job stopping: ")
    lab.forget_dead("w")
    assert open_jobs_words(lab.cluster).startswith("stopped watching; nothing is running: ")
    assert set(metrics(session_of(lab, tmp_path / "state")).jobs.values()) == {0}


def entry(text: str, kind: str = "TaskRunning", at: float = 1.0) -> Entry:
    return Entry(seq=1, at=at, actor="me", type=kind, text=text)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ([], []),
        (["a/task-0/attempt-0 runs"], ["a/task-0/attempt-0 runs"]),
        ([f"a/task-{n}/attempt-0 runs" for n in (0, 1, 2, 7)], ["a/task-[0-2,7]/attempt-0 runs"]),
        (
            [f"a/task-{n}/attempt-0 placed on v5a-{n}" for n in range(4)],
            ["a/task-[0-3]/attempt-0 placed on v5a-[0-3]"],
        ),
        (
            [f"a/task-{n}/attempt-0 placed on w-1, GPUs 3" for n in (0, 1)],
            ["a/task-[0-1]/attempt-0 placed on w-1, GPUs 3"],
        ),
        (
            ["final state of a/task-0: FAILED (exit 1)", "final state of a/task-1: FAILED (exit 2)"],
            ["final state of a/task-0: FAILED (exit 1)", "final state of a/task-1: FAILED (exit 2)"],
        ),
        (["a/task-0 runs", "b/task-0 runs"], ["a/task-0 runs", "b/task-0 runs"]),
        (
            ["a/task-0/attempt-0 runs", "a/task-1/attempt-1 is running"],
            ["a/task-0/attempt-0 runs", "a/task-1/attempt-1 is running"],
        ),
        (["job a succeeded", "job a succeeded"], ["job a succeeded"]),
    ],
    ids=str,
)
def test_events_that_differ_only_in_numbers_are_one_line(said: list[str], told: list[str]) -> None:
    assert [each.text for each in fold_events([entry(text) for text in said])] == told


def test_events_of_different_types_are_different_lines() -> None:
    assert len(fold_events([entry("a/task-0 x", "TaskRunning"), entry("a/task-1 x", "TaskEnded")])) == 2


def test_a_line_for_many_has_the_time_of_the_last() -> None:
    assert [each.at for each in fold_events([entry("a-0 x", at=1.0), entry("a-1 x", at=3.0)])] == [3.0]


def test_looking_on_tells_what_is_about_these_jobs(tmp_path: Path) -> None:
    from iris_cli.ops.loop.foreground import follow_log

    lab = Lab().worker("w", cpu=8)
    session: Session = session_of(lab, tmp_path / "state")
    steps = follow_log(session, every=2.0, followed=lambda: ("mine",))
    assert next(steps).entries == ()
    before = len(lab.log)
    lab.job("mine", cpu=1.0).job("other", cpu=1.0).schedule()
    from iris_cli.journal.log.file_store import FileStore

    store = FileStore(tmp_path / "state")
    store.load()
    for transaction in lab.log[before:]:
        store.append(transaction.seq - 1, transaction.events, at=transaction.at, actor="other@host")
    texts = [each.text for each in next(steps).entries]
    assert texts
    assert all("mine" in text for text in texts)
