"""An ended job submitted again: what is kept, what the options change, which tasks are left, and its name."""

from __future__ import annotations

from typing import Any

import pytest

from iris_cli.core import JobState
from iris_cli.core.constraint_syntax import format_constraint, parse_constraint
from iris_cli.core.ids import JobId
from iris_cli.core.model.job import Job
from iris_cli.errors import UsageError
from tests.support.lab import Lab


def ended(name: str | None = "train", said: str = "exited 1", **asked: Any) -> Lab:
    lab = Lab().slice("a").worker("w").job(name, **asked).schedule()
    return lab.reports(f"{next(iter(lab.cluster.jobs))}/* {said}")


def sweep(**asked: Any) -> Lab:
    """Of five tasks, those of the indexes 2 and 7 failed."""
    lab = Lab().worker("w").job("sweep", array="1-3,7,9", **asked).schedule()
    for index, code in enumerate((0, 1, 0, 1, 0)):
        lab.reports(f"sweep/task-{index} exited {code}")
    return lab


def fields_of(job: Job) -> dict[str, Any]:
    """What was asked for, without what became of it."""
    own = ("id", "again", "tried_again", "submitted_at", "order", "end", "rounds", "last_task_ended_at")
    of_rounds = ("settled_rounds", "failed_rounds", "preempted_rounds", "refused_rounds")
    names = set(Job.__struct_fields__) - {*own, *of_rounds}
    return {name: getattr(job, name) for name in names}


ASKED: tuple[dict[str, Any], ...] = (
    {},
    {"tpu": "v4-16", "env": {"A": "1"}, "labels": {"team": "x"}, "grace": 7.0},
    {"tpu": "v4-16", "group_by": "tpu-name", "max_retries_failure": 0},
    {"replicas": 3, "cpu": 2.0, "memory": 5 << 30, "max_task_failures": 1, "timeout": 60.0},
    {"array": "0-4%2", "keep_going": False, "timeout": 90.0, "signal": "USR1@30s", "ports": ("http",)},
    {"secrets": ("TOKEN=@/etc/token", "KEY"), "setup": "true", "silent_after": 60.0, "image": "python"},
)


@pytest.mark.parametrize("asked", ASKED)
def test_a_job_that_is_tried_again_keeps_every_field(asked: dict[str, Any]) -> None:
    lab = Lab().slice("a").worker("w").job("train", **asked).cancel("train")
    lab.schedule().again("train")
    assert fields_of(lab.the_job("train-2")) == fields_of(lab.the_job("train")) | {"cancelled": False}
    assert lab.state_of("train-2") is JobState.PENDING


def test_options_win_and_mappings_are_merged() -> None:
    lab = ended(env={"A": "1", "B": "1"}, cpu=1.0)
    job = lab.again("train", env={"B": "2"}, cpu=3.0, command=("other",)).the_job("train-2")
    assert (job.env, job.resources.cpu, job.command) == ({"A": "1", "B": "2"}, 3.0, ("other",))


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (["~zone=z"], ["~zone=z", "region=us"]),
        (["region=eu"], ["region=eu", "~rack=1"]),
        (["region=eu", "~zone=z"], ["region=eu", "~zone=z"]),
        ([], []),
    ],
)
def test_a_preference_replaces_no_requirement_and_the_other_way_round(
    said: list[str], found: list[str]
) -> None:
    own = tuple(map(parse_constraint, ("region=us", "~rack=1")))
    lab = Lab().worker("w").job("train", constraints=own).cancel("train")
    job = lab.again("train", constraints=tuple(map(parse_constraint, said))).the_job("train-2")
    assert list(map(format_constraint, job.constraints)) == found


def test_a_gang_on_another_slice_has_its_number_of_ranks() -> None:
    lab = Lab().slice("a").slice("b", "v4-32").job("train", tpu="v4-16").cancel("train").schedule()
    lab.again("train", tpu="v4-32")
    assert (lab.the_job("train").replicas, lab.the_job("train-2").replicas) == (2, 4)


def test_a_job_and_the_one_that_tries_it_again_name_each_other() -> None:
    lab = ended().again("train").cancel("train-2").schedule().again("train-2").again("train")
    chain = {name: (job.again, job.tried_again) for name, job in lab.cluster.jobs.items()}
    assert chain == {
        "train": (None, ("train-2", "train-4")),
        "train-2": ("train", ("train-3",)),
        "train-3": ("train-2", ()),
        "train-4": ("train", ()),
    }


@pytest.mark.parametrize(("said", "hint"), [("running", "iris retry train"), ("", "iris why train")])
def test_a_job_that_has_not_ended_is_refused(said: str, hint: str) -> None:
    lab = Lab().worker("w").job("train")
    if said:
        lab.schedule().reports(f"train/* {said}")
    with pytest.raises(UsageError, match="train has not ended") as refused:
        lab.again("train")
    assert refused.value.hint == hint
    assert list(lab.cluster.jobs) == ["train"]


# Its name


@pytest.mark.parametrize(
    ("name", "next_name"),
    [
        ("train", "train-2"),
        ("run-7", "run-7-2"),  # the number is the user's
        ("task", "job-2"),  # task-2 would be a task
        ("n" * 63, "n" * 55 + "-2"),
    ],
)
def test_the_stem_of_the_first_origin_is_kept(name: str, next_name: str) -> None:
    lab = ended(name).again(name)
    assert lab.the_job(next_name).again == name
    lab.cancel(next_name).schedule().again(next_name)
    assert lab.the_job(next_name.removesuffix("2") + "3").again == next_name


def test_a_number_of_ours_is_no_part_of_the_stem() -> None:
    lab = ended(None, command=("python", "fit.py"))
    first = next(iter(lab.cluster.jobs))
    assert lab.again(first).the_job(first.removesuffix("1") + "2").again == first


def test_the_lowest_number_that_no_job_has_is_taken_and_a_name_that_is_given_wins() -> None:
    lab = ended().job("train-2").job("train-4").again("train").again("train").again("train", name="mine")
    assert lab.the_job("train").tried_again == ("train-3", "train-5", "mine")


# Only what did not succeed


def test_an_array_that_is_tried_again_keeps_its_limit_of_running_tasks() -> None:
    lab = Lab().worker("w").job("sweep", array="0-4%2").cancel("sweep").schedule().again("sweep", failed=True)
    assert (lab.the_job("sweep-2").indexes, lab.the_job("sweep-2").max_running) == ((0, 1, 2, 3, 4), 2)


@pytest.mark.parametrize(
    ("lab", "said", "message"),
    [
        (lambda: ended(), {}, "train is not an array"),
        (lambda: ended(replicas=3), {}, "train is not an array"),
        (lambda: ended(array="0-3", said="exited 0"), {}, "all tasks of train have succeeded"),
        (lambda: ended(array="0-3"), {"array": "0-1"}, "already selects the tasks"),
    ],
)
def test_failed_is_refused_where_it_chooses_nothing(lab: Any, said: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        lab().again("train", failed=True, **said)


# What is not kept


def test_what_it_waited_for_is_not_carried_over() -> None:
    lab = Lab().worker("w").job("prep").job("train", after=("prep",)).cancel("train").schedule()
    assert lab.the_job("train").after == ("prep",)
    assert lab.again("train").again("train", after=("prep",)).the_job("train-2").after == ()
    assert lab.the_job("train-3").after == ("prep",)


def test_a_child_becomes_a_root_job() -> None:
    lab = Lab().worker("w").job("parent").job("parent/child").cancel("parent/child").schedule()
    lab.again("parent/child")
    assert lab.the_job("child-2").again == "parent/child"
    assert JobId("child-2") not in lab.cluster.children.get(JobId("parent"), ())
