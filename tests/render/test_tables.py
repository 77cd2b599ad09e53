"""How much is shown: what matters on any width, the rest where there is room or on request."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from iris_cli.ops.views.job_status import job_status
from iris_cli.ops.views.status import cluster_status
from iris_cli.render.console import Output
from iris_cli.render.tables import folded_rows, table
from iris_cli.render.views.job_tables import show_job
from iris_cli.render.views.status import show_cluster
from tests.render.scenes import busy, failed_gang, many_tasks, session_of
from tests.render.snapshots import Screen
from tests.support.lab import Lab


@pytest.mark.parametrize("width", [20, 40, 60, 79, 80, 119, 120, 300])
def test_no_line_is_longer_than_the_terminal_is_wide(width: int, tmp_path: Path, screen: Screen) -> None:
    session = session_of(busy(), tmp_path / "state")
    for show in (
        lambda output: show_cluster(output, cluster_status(session)),
        lambda output: show_job(output, job_status(session, "eval")),
    ):
        shown = screen.text(show, width)
        assert max(map(len, shown.splitlines())) <= width


@pytest.mark.parametrize("width", [40, 60, 100, 200])
def test_the_reason_is_never_cut(width: int, tmp_path: Path, screen: Screen) -> None:
    session = session_of(busy(), tmp_path / "state")
    shown = screen.text(lambda output: show_cluster(output, cluster_status(session)), width)
    assert all(word in shown for word in ("unavailable", "v5b-2:", "suspect)", "pool=large"))


def test_jobs_beyond_the_newest_ones_are_only_counted(tmp_path: Path, screen: Screen) -> None:
    lab = Lab()
    for number in range(75):
        lab.job(f"open-{number}" if number < 60 else f"over-{number}").advance(1)
        if number >= 60:
            lab.cancel(f"over-{number}")
    status = cluster_status(session_of(lab, tmp_path / "state"))
    brief = screen.text(partial(show_cluster, status=status))
    assert "10 more open jobs and 5 older jobs not shown: iris status --all" in brief
    assert "over-74" in brief
    assert "over-60" not in brief
    full = screen.text(partial(show_cluster, status=status, everything=True))
    assert all(job.id in full for job in status.jobs)
    assert "not shown" not in full
    assert len(screen.quiet(partial(show_cluster, status=status)).splitlines()) == 75


def test_every_task_has_a_line_of_its_own_on_request(tmp_path: Path, screen: Screen) -> None:
    status = job_status(session_of(many_tasks(), tmp_path / "state"), "sweep")
    brief, full = (
        screen.text(partial(show_job, status=status, everything=everything), 200)
        for everything in (False, True)
    )
    assert len(brief.splitlines()) < 20
    assert sum(line.startswith("task-") for line in full.splitlines()) == 500


@pytest.mark.parametrize(
    ("cycle_ago", "words"),
    [
        (38.0, "cycles: cron every 1m, last 38s ago"),
        (7200.0, "no cycles are running (last one 2h ago): iris loop start, or iris cron install"),
        (None, "no cycles are running (none has run yet): iris loop start, or iris cron install"),
    ],
)
def test_the_age_of_the_facts_is_on_the_second_line(
    cycle_ago: float | None, words: str, tmp_path: Path, screen: Screen
) -> None:
    session = session_of(busy(), tmp_path / "state", cycle_ago)
    for show in (
        partial(show_cluster, status=cluster_status(session)),
        partial(show_job, status=job_status(session, "train")),
    ):
        assert screen.text(show).splitlines()[1] == words


def test_a_look_at_the_past_says_so(tmp_path: Path, screen: Screen) -> None:
    session = session_of(failed_gang(), tmp_path / "state")
    shown = screen.text(partial(show_cluster, status=cluster_status(session, at="2027-01-15T09:00")))
    assert shown.splitlines()[0].endswith("as of 2027-01-15 09:00:00 UTC")
    assert "RUNNING" in shown


def test_messages_about_the_log_come_before_anything_else(tmp_path: Path, screen: Screen) -> None:
    session = session_of(busy(), tmp_path / "state")
    said = ("the log is damaged, line 7: believe only what is above",)
    for show in (
        partial(show_cluster, status=replace(cluster_status(session), messages=said)),
        partial(show_job, status=replace(job_status(session, "train"), messages=said)),
    ):
        assert screen.text(show).startswith("the log is damaged")


def test_a_column_without_content_is_left_out(screen: Screen) -> None:
    made = table(("JOB", "WHY", "STATE"), [("a", "", "RUNNING"), ("b", "", "PENDING")])
    assert screen.text(lambda output: output.show(made)).split() == [
        "JOB",
        "STATE",
        "a",
        "RUNNING",
        "b",
        "PENDING",
    ]


def test_rows_that_differ_only_in_name_are_one_line() -> None:
    rows = [("w-0", "idle"), ("w-1", "busy"), ("w-2", "idle")]
    assert folded_rows(rows, lambda row: row[0], lambda row: (row[1],)) == [
        ("w-[0,2]", "idle"),
        ("w-1", "busy"),
    ]


def test_a_number_of_each_row_is_said_to_be_that_of_each_if_it_is_known() -> None:
    rows = [
        ("w-0", "4/8", "1"),
        ("w-1", "4/8", "1"),
        ("v", "4/8", "1"),
        *(("x-0", "-", ""), ("x-1", "-", "")),
    ]
    assert folded_rows(rows, lambda row: row[0], lambda row: ("cpu", *row[1:]), per_row=(2, 3)) == [
        ("w-[0-1], v", "cpu", "4/8 each", "1 each"),
        ("x-[0-1]", "cpu", "-", ""),
    ]


@pytest.mark.parametrize("width", ["", "abc", "0", "-5", " 80 x"])
def test_an_invalid_width_is_ignored(
    width: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    Output().show("word " * 30)
    assert capsys.readouterr().out.count("\n") == 1


def test_colours_only_on_a_terminal(tmp_path: Path, screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    show = partial(show_cluster, status=cluster_status(session_of(busy(), tmp_path / "state")))
    assert "\x1b" not in screen.text(show)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[32mRUNNING" in screen.text(show)
    assert "\x1b[32m" not in screen.text(show, output=Output(color=False))
    monkeypatch.setenv("NO_COLOR", "")  # says nothing
    assert "\x1b[32mRUNNING" in screen.text(show)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[32m" not in screen.text(show)
