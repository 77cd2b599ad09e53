"""Running tasks that have written nothing for their `silent_after` are marked, in the log and on screens."""

from __future__ import annotations

import pytest

from iris_cli.core import JobId, Limits, TaskId
from iris_cli.core.model.task import AttemptState
from iris_cli.core.model.waiting import describe_quiet_tasks
from tests.support.lab import Lab


def shown(lab: Lab) -> str:
    job = lab.the_job("train")
    return describe_quiet_tasks(job, lab.cluster.tasks_of(job.id), lab.now)


def is_marked(lab: Lab) -> bool:
    return lab.cluster.tasks[TaskId(JobId("train"), 0)].attempts[-1].quiet_since is not None


def test_a_task_is_marked_after_half_an_hour_without_output_and_until_it_writes_again() -> None:
    lab = Lab().worker("w").job("train").schedule().reports("train/* running quiet-1799s")
    assert not is_marked(lab)
    assert shown(lab.reports("train/* running quiet-1800s")) == "quiet 30m"
    before = lab.cluster.seq
    assert shown(lab.reports("train/* running quiet-1810s")).startswith("quiet 30m")
    assert lab.cluster.seq == before  # an unchanged mark is no event
    assert shown(lab.reports("train/* running quiet-5s")) == ""


def test_an_older_answer_that_is_weighed_later_does_not_end_the_silence() -> None:
    lab = Lab().worker("w").job("train").schedule().reports("train/* running quiet-1800s")
    assert is_marked(lab.reports("train/* running quiet-1790s"))
    lab.limits = Limits(silent_after=7200.0)
    assert not is_marked(lab.reports("train/* running quiet-1800s"))


def test_a_task_that_wrote_between_two_polls_is_quiet_since_its_last_output() -> None:
    lab = Lab().worker("w").job("train", silent_after=60.0).schedule().reports("train/* running quiet-61s")
    lab.advance(600.0).reports("train/* running quiet-90s")
    assert shown(lab) == "quiet 1m"


@pytest.mark.parametrize(
    ("own", "quiet", "marked"), [(60.0, "61s", True), (0.0, "9d", False), (7200.0, "1h", False)]
)
def test_a_job_has_its_own_time(own: float, quiet: str, marked: bool) -> None:
    lab = (
        Lab().worker("w").job("train", silent_after=own).schedule().reports(f"train/* running quiet-{quiet}")
    )
    assert is_marked(lab) is marked


def test_a_worker_that_has_not_looked_marks_nothing() -> None:
    assert not is_marked(Lab().worker("w").job("train").schedule().reports("train/* running 9d-ago"))


def test_the_rank_that_is_quiet_longest_is_named_first() -> None:
    lab = (
        Lab()
        .slice("a")
        .slice("b")
        .job("train", tpu="v4-16", slices=2, replicas=4)
        .schedule()
        .reports("train/* running")
    )
    lab.reports("train/task-2 running quiet-45m", "train/task-0 running quiet-40m")
    assert shown(lab) == "2 of 4 ranks quiet 45m: rank 2, then 0"
    lab.reports("train/task-1 running quiet-31m", "train/task-3 running quiet-31m")
    assert shown(lab) == "all 4 ranks quiet 45m: rank 2, then 0-1,3"


def test_ranks_are_grouped_by_the_place_they_were_in_the_odd_one_first() -> None:
    lab = Lab().slice("a").slice("b").job("train", tpu="v4-16", slices=2, replicas=4).schedule()
    lab.reports("train/* running")
    lab.reports("train/task-0 running quiet-45m in-psum", "train/task-1 running quiet-40m in-load")
    assert shown(lab) == "2 of 4 ranks quiet 45m: rank 0 in psum, rank 1 in load"
    lab.reports("train/task-2 running quiet-31m in-psum", "train/task-3 running quiet-31m in-psum")
    assert shown(lab) == "all 4 ranks quiet 45m: rank 1 in load, ranks 0,2-3 in psum"
    lab.reports("train/task-1 running quiet-1s", "train/task-1 running quiet-30m")
    assert shown(lab) == "all 4 ranks quiet 45m: rank 1 in an unknown place, ranks 0,2-3 in psum"


def test_a_single_task_is_shown_with_its_place_until_it_writes_again() -> None:
    lab = Lab().worker("w").job("train").schedule().reports("train/* running quiet-42m in-load")
    assert shown(lab) == "quiet 42m in load"
    assert shown(lab.reports("train/* running quiet-43m in-elsewhere")) == "quiet 42m in load"
    assert shown(lab.reports("train/* running quiet-1s", "train/* running quiet-30m")) == "quiet 30m"


def test_a_stop_ends_the_mark() -> None:
    lab = Lab().worker("w").job("train").schedule().reports("train/* running quiet-1h").cancel("train")
    assert lab.cluster.tasks[TaskId(JobId("train"), 0)].attempts[-1].state is AttemptState.STOPPING
    assert not is_marked(lab)
    assert shown(lab) == ""
