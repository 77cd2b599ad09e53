"""The figures of a report: who held how many chips for how long, who waited, what was in vain."""

from __future__ import annotations

from pathlib import Path

import pytest

from iris_cli.core.model.job import JobState
from iris_cli.core.model.task import EndReason
from iris_cli.errors import NotFoundError, UsageError
from iris_cli.ops.session import Session
from iris_cli.ops.views import report as ops
from iris_cli.ops.views.report import Report, by_label, by_priority, ends, report, total, uses
from tests.render.scenes import displays, failed_gang, lost_host, retried_gang, session_of
from tests.support.lab import Lab


def told(lab: Lab, directory: Path, since: str | None = None) -> Report:
    directory.mkdir(exist_ok=True)
    return report(session_of(lab, directory / "state"), since)


def test_chips_count_from_placement_to_the_proof_of_the_end(tmp_path: Path) -> None:
    """Four VMs of four chips: ten minutes in vain, and five that go on."""
    everything = total(told(retried_gang(), tmp_path).jobs)
    assert (everything.chip_seconds, everything.wasted) == (16 * 900.0, 16 * 600.0)
    assert everything.task_seconds == 4 * 900.0


def test_a_rank_that_is_not_proven_gone_holds_its_chips_on(tmp_path: Path) -> None:
    (job,) = told(failed_gang(), tmp_path).jobs
    first, *_, last = job.attempts
    assert (last.reason, first.reason) == (None, EndReason.SIBLING)
    assert last.seconds > first.seconds


def test_an_end_that_was_heard_of_late_freed_nothing_before(tmp_path: Path) -> None:
    lab = Lab().worker("w").job("a").schedule().reports("a/* running").advance("10m")
    (job,) = told(lab.reports("a/* exited 0 5m-ago"), tmp_path).jobs
    assert job.attempts[0].seconds == 600.0


def test_only_the_time_that_is_told_of_counts(tmp_path: Path) -> None:
    whole = told(retried_gang(), tmp_path / "whole")
    late = told(retried_gang(), tmp_path / "late", "8m")
    assert [whole.at - each.since for each in (whole, late)] == [960.0, 480.0]
    assert total(late.jobs).chip_seconds == 16 * (120.0 + 300.0)


def test_a_job_that_ended_before_is_not_told(tmp_path: Path) -> None:
    lab = Lab().worker("w").job("old").schedule().reports("old/* running").advance("1m")
    lab.reports("old/* exited 0").advance("1h").job("new")
    assert [job.id for job in told(lab, tmp_path / "whole").jobs] == ["old", "new"]
    assert [job.id for job in told(lab, tmp_path / "late", "30m").jobs] == ["new"]


def test_a_job_waits_until_its_first_task_starts_and_one_that_never_does_waits_on(tmp_path: Path) -> None:
    lab = Lab().worker("w", cpu=2).job("first", cpu=2.0).advance("5m").schedule().reports("first/* running")
    lab.job("second", cpu=2.0, labels={"team": "text"}).advance("10m")
    first, second = told(lab, tmp_path).jobs
    assert (first.waited, second.waited) == (300.0, 600.0)
    assert (first.ran, second.ran) == (600.0, None)


def test_a_held_job_is_told_as_held_until_its_release_or_end(tmp_path: Path) -> None:
    lab = Lab().worker("w").job("sweep").change("sweep", held=True)
    assert told(lab, tmp_path / "held").jobs[0].why == "held"
    assert told(lab.change("sweep", held=False), tmp_path / "released").jobs[0].why == ""
    lab.change("sweep", held=True).cancel("sweep")
    assert told(lab, tmp_path / "ended").jobs[0].why == "cancelled"


def test_retries_are_counted_as_made_and_preemptions_as_charged(tmp_path: Path) -> None:
    (gang,) = told(retried_gang(), tmp_path).jobs
    assert (gang.retries, gang.preemptions) == (1, 0)
    (failed,) = told(failed_gang(), tmp_path / "failed").jobs
    assert (failed.state, failed.retries) == (JobState.FAILED, 0)
    lost = {str(job.id): job for job in told(lost_host(), tmp_path / "whole").jobs}
    assert (lost["train"].retries, lost["train"].tries, lost["train"].preemptions) == (0, 1, 1)


def test_a_retry_that_waits_is_not_made_yet(tmp_path: Path) -> None:
    found = {str(job.id): job for job in told(displays(), tmp_path).jobs}
    assert (found["flaky"].display, found["flaky"].retries, found["flaky"].tries) == (
        "RETRYING (1 of 3)",
        0,
        0,
    )
    assert (found["spot"].display, found["spot"].tries, found["spot"].preemptions) == (
        "RETRYING (host lost)",
        0,
        1,
    )
    assert (found["eval"].display, found["eval"].retries) == ("STOPPING", 0)


def test_sums_by_label_count_a_job_for_each_of_its_labels(tmp_path: Path) -> None:
    lab = Lab().worker("w").job("a", labels={"team": "text", "run": "1"}).job("b", labels={"team": "text"})
    lab.job("c").schedule().advance("1h")
    found = {each.name: (each.jobs, each.task_seconds) for each in by_label(told(lab, tmp_path).jobs)}
    assert found == {"team=text": (2, 7200.0), "run=1": (1, 3600.0), "": (1, 3600.0)}


def test_a_report_counts_jobs_by_priority(tmp_path: Path) -> None:
    lab = Lab().job("a", priority="high").job("b").job("c").advance("1m")
    assert {each.name: each.jobs for each in by_priority(told(lab, tmp_path).jobs)} == {
        "high": 1,
        "normal": 2,
    }


def test_attempts_are_counted_by_their_ends(tmp_path: Path) -> None:
    found = ends(told(retried_gang(), tmp_path).jobs)
    assert [(each.reason, each.attempts) for each in found] == [
        (None, 4),
        (EndReason.SIBLING, 3),
        (EndReason.USER_ERROR, 1),
    ]


def test_a_worker_is_busy_while_it_has_at_least_one_task(tmp_path: Path) -> None:
    lab = Lab().worker("w").job("a").schedule().advance("10m").job("b").schedule().reports("a/* running")
    lab.advance("5m").reports("a/* exited 0").advance("5m")
    (use,) = uses(told(lab, tmp_path))
    assert (use.busy_seconds, use.worker.seconds, use.attempts, use.lost) == (1200.0, 1200.0, 2, 0)


def test_workers_are_told_in_the_order_in_which_people_count(tmp_path: Path) -> None:
    lab = Lab().worker("w-10").worker("w-9").slice("s-10", "v5litepod-16").slice("s-9", "v5litepod-16")
    in_order = [*(f"s-9-{n}" for n in range(4)), *(f"s-10-{n}" for n in range(4)), "w-9", "w-10"]
    assert [each.id for each in told(lab, tmp_path).workers] == in_order


def test_a_worker_that_was_forgotten_is_told_with_the_time_when_it_was_there(tmp_path: Path) -> None:
    lab = Lab().slice("v5a", "v5litepod-16").job("train", tpu="v5litepod-16").schedule()
    lab.reports("train/* running").advance("1h").cancel("train").reports("train/* stopped")
    for index in range(4):
        lab.forget_dead(f"v5a-{index}")
    seen = told(lab.advance("1h"), tmp_path)
    assert lab.cluster.workers == {}
    assert [(each.slice, each.chips, each.seconds) for each in seen.workers] == [("v5a", 4, 3600.0)] * 4
    assert total(seen.jobs).chip_seconds == 16 * 3600.0


def test_lost_work_counts_against_its_worker(tmp_path: Path) -> None:
    lost = {use.worker.id: use.lost for use in uses(told(lost_host(), tmp_path))}
    assert lost == {"spot-0": 1, "cpu-0": 0, "cpu-1": 0}


def test_a_clock_that_was_wrong_makes_no_negative_time(tmp_path: Path) -> None:
    lab = Lab().worker("w").job("a").advance("2d").schedule().reports("a/* running").advance(-90_000.0)
    seen = told(lab.advance("1m"), tmp_path)
    assert all(seen.since <= each.placed_at <= each.over_at <= seen.at for each in seen.jobs[0].attempts)
    assert min(seen.jobs[0].waited, seen.jobs[0].ran or 0.0) >= 0.0


def test_the_newest_jobs_are_told_where_there_is_no_room_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab().worker("w")
    for number in range(5):
        lab.job(f"job-{number}", replicas=2).schedule()
    monkeypatch.setattr(ops, "MAX_ATTEMPTS", 5)
    seen = told(lab, tmp_path)
    assert ([job.id for job in seen.jobs], seen.older) == (["job-3", "job-4"], 3)


def test_what_was_compacted_is_told_as_before(tmp_path: Path) -> None:
    session = session_of(retried_gang(), tmp_path / "state")
    before = report(session)
    session.state.compact("test")
    again = Session(
        state=session.state, config=session.config, make_runner=session.make_runner, clock=session.clock
    )
    assert list((tmp_path / "state" / "archive").iterdir())
    assert report(again) == before


def test_without_a_log_there_is_nothing_to_report(tmp_path: Path) -> None:
    session = session_of(Lab(), tmp_path / "state")
    for path in (tmp_path / "state").iterdir():
        path.unlink()
    with pytest.raises(NotFoundError, match="no event log"):
        report(session)


def test_a_time_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a time"):
        told(Lab().worker("w"), tmp_path, "yesterday")
