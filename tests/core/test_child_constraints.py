"""The constraints of child jobs: which they take over, and which are known as whose."""

from __future__ import annotations

import pytest

from iris_cli.core.constraint_syntax import format_constraint, parse_constraint
from iris_cli.core.lifecycle import children
from iris_cli.errors import UsageError
from iris_cli.ops.views.job_status import inherited_from
from tests.support.inside import Inside
from tests.support.lab import Lab


@pytest.mark.parametrize(
    ("parents", "childs", "result"),
    [
        (["pool=a", "region=us"], None, ["pool=a", "region=us"]),
        (["pool=a", "region=us"], [], []),
        (["pool=a", "region=us"], ["region=eu"], ["pool=a", "region=eu"]),
        (["pool=a", "region=us"], ["~region=eu"], ["pool=a", "region=us", "~region=eu"]),
        (["pool=a"], ["pool=a", "zone=z"], ["pool=a", "zone=z"]),
        (["preemptible=true"], ["preemptible=false"], ["preemptible=false"]),
        ([], ["pool=a"], ["pool=a"]),
        ([], None, []),
        (["region in us,eu"], None, ["region in us,eu"]),
    ],
)
def test_constraints_are_taken_over_or_merged(
    parents: list[str], childs: list[str] | None, result: list[str]
) -> None:
    wanted = None if childs is None else tuple(map(parse_constraint, childs))
    found = children.inherited_constraints(tuple(map(parse_constraint, parents)), wanted)
    assert [format_constraint(each) for each in found] == result


def test_a_contradiction_between_parent_and_child_is_refused() -> None:
    lab = Lab().worker("w", cpu=64, pool="a").job("train", constraints=(parse_constraint("pool=a"),))
    lab.schedule().reports("train/* running")
    with pytest.raises(UsageError, match="contradict"):
        Inside(lab).submit(constraints=(parse_constraint("pool=b"),))
    assert list(lab.cluster.jobs) == ["train"]


def sources_of(lab: Lab, name: str) -> tuple[str, ...]:
    """The job that named each constraint of a job: the job itself or an ancestor."""
    job = lab.the_job(name)
    inherited = inherited_from(lab.cluster, job)
    return tuple(inherited.get(format_constraint(each), job.id) for each in job.constraints)


def test_where_a_constraint_came_from_is_known_over_generations() -> None:
    lab = Lab().worker("w", cpu=64, pool="a", zone="us-a-b", rack="1")
    lab.job("train", constraints=(parse_constraint("pool=a"),)).schedule().reports("train/* running")
    Inside(lab).submit(name="b", constraints=(parse_constraint('rack="1"'),))
    lab.schedule().reports("train/b/* running")
    Inside(lab, "train/b/task-0").submit(name="c", constraints=(parse_constraint("zone=us-a-b"),))
    Inside(lab, "train/b/task-0").submit(name="d", constraints=(), request="r2")
    sources = {
        name: [
            f"{format_constraint(each)} {source}"
            for each, source in zip(
                lab.the_job(name).constraints,
                sources_of(lab, name),
                strict=True,
            )
        ]
        for name in lab.cluster.jobs
    }
    assert sources == {
        "train": ["pool=a train"],
        "train/b": ["pool=a train", 'rack="1" train/b'],
        "train/b/c": ["pool=a train", 'rack="1" train/b', "zone=us-a-b train/b/c"],
        "train/b/d": [],
    }


def test_a_constraint_that_a_child_names_as_its_parent_does_is_its_own() -> None:
    lab = Lab().worker("w", cpu=64, pool="a", region="us")
    ours = tuple(map(parse_constraint, ("pool=a", "region=us")))
    lab.job("train", constraints=ours).schedule().reports("train/* running")
    inside = Inside(lab)
    inside.submit(name="both", constraints=ours)
    inside.submit(name="one", constraints=ours[1:])
    inside.submit(name="alone", constraints=ours[:1], inherit_constraints=False)
    lab.schedule().reports("train/both/* running")
    Inside(lab, "train/both/task-0").submit(name="below")
    sources = {name: sources_of(lab, f"train/{name}") for name in ("both", "one", "alone")}
    assert sources == {
        "both": ("train/both", "train/both"),
        "one": ("train", "train/one"),
        "alone": ("train/alone",),
    }
    assert sources_of(lab, "train/both/below") == ("train/both", "train/both")


def test_a_job_of_the_operator_below_another_takes_nothing_over() -> None:
    lab = (
        Lab()
        .worker("w", cpu=64, pool="a")
        .job("train", constraints=(parse_constraint("pool=a"),), env={"A": "1"})
    )
    lab.job("train/mine", constraints=(parse_constraint("pool=a"),))
    assert (dict(lab.the_job("train/mine").env), sources_of(lab, "train/mine")) == ({}, ("train/mine",))
