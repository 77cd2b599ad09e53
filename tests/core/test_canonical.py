"""Region and preemptible are placement intent: read, merged and refused in one way everywhere."""

from __future__ import annotations

import pytest

from iris_cli.core.constraint_syntax import parse_constraint
from iris_cli.core.constraints import (
    PREEMPTIBLE_ATTRIBUTE_KEY,
    REGION_ATTRIBUTE_KEY,
    TPU_NAME_ATTRIBUTE_KEY,
    AttributeValue,
    Constraint,
    ConstraintOp,
    NormalizedConstraints,
    contradiction_in,
    merge_constraints,
    normalize_constraints,
    preemptible_constraint,
    preemptible_preference_from_constraints,
    region_constraint,
    required_regions_from_constraints,
)


def parsed(*texts: str) -> list[Constraint]:
    return [parse_constraint(text) for text in texts]


def test_the_well_known_keys_have_their_published_names() -> None:
    assert (REGION_ATTRIBUTE_KEY, PREEMPTIBLE_ATTRIBUTE_KEY, TPU_NAME_ATTRIBUTE_KEY) == (
        "region",
        "preemptible",
        "tpu-name",
    )


def test_preemptible_is_required_by_default_and_can_be_excluded() -> None:
    assert preemptible_constraint() == parse_constraint("preemptible=true")
    assert preemptible_constraint(False) == parse_constraint("preemptible=false")


def test_one_region_is_an_equality_and_several_are_a_membership() -> None:
    assert region_constraint(["us-west4"]) == Constraint.of("region", ConstraintOp.EQ, "us-west4")
    assert region_constraint(["b", "a", "b"]) == Constraint.of("region", ConstraintOp.IN, values=["b", "a"])
    assert region_constraint(["a", "a"]).op is ConstraintOp.EQ


@pytest.mark.parametrize("regions", [[], [""], ["us-west4", "  "], "us-west4"])
def test_no_region_a_blank_one_or_a_lone_text_is_refused(regions: list[str]) -> None:
    with pytest.raises(ValueError, match="region"):
        region_constraint(regions)


@pytest.mark.parametrize(
    ("texts", "wanted"),
    [
        ([], None),
        (["region=a"], None),
        (["preemptible=true"], True),
        (["preemptible=false", "preemptible=false"], False),
        (["~preemptible=true"], None),
        (["~preemptible=true", "preemptible=false"], False),
        (["~preemptible", "~preemptible=maybe"], None),
    ],
)
def test_preemptible_is_read_from_required_constraints_only(texts: list[str], wanted: bool | None) -> None:
    assert preemptible_preference_from_constraints(parsed(*texts)) is wanted


@pytest.mark.parametrize(
    "texts",
    [
        ["preemptible=true", "preemptible=false"],
        ["preemptible"],
        ["!preemptible"],
        ["preemptible!=true"],
        ["preemptible in true,false"],
        ["preemptible=1"],
        ["preemptible=True"],
        ["preemptible=yes"],
    ],
)
def test_odd_or_contradicting_preemptible_is_refused(texts: list[str]) -> None:
    with pytest.raises(ValueError, match="preemptible"):
        normalize_constraints(parsed(*texts))


@pytest.mark.parametrize(
    ("texts", "wanted"),
    [
        ([], None),
        (["~region=a"], None),
        (["region=a"], {"a"}),
        (["region in a,b"], {"a", "b"}),
        (["region in a,b", "region in b,c"], {"b"}),
        (["region in a,b", "region=a", "~region=z"], {"a"}),
    ],
)
def test_several_region_constraints_intersect(texts: list[str], wanted: set[str] | None) -> None:
    assert required_regions_from_constraints(parsed(*texts)) == wanted


@pytest.mark.parametrize(
    "texts",
    [
        ["region=a", "region=b"],
        ["region in a,b", "region=c"],
        ['region=""'],
        ['region=" "'],
        ["region=5"],
        ['region in a,""'],
        ["region!=a"],
        ["region"],
        ["!region"],
        ["region>1"],
    ],
)
def test_an_odd_region_or_an_empty_intersection_is_refused(texts: list[str]) -> None:
    with pytest.raises(ValueError, match="region"):
        normalize_constraints(parsed(*texts))


def test_normalizing_reads_both_keys_and_leaves_the_rest_alone() -> None:
    found = normalize_constraints(iter(parsed("region=a", "pool=x", "preemptible=false")))
    assert found == NormalizedConstraints(preemptible=False, required_regions=frozenset({"a"}))
    assert normalize_constraints([]) == NormalizedConstraints(None, None)


@pytest.mark.parametrize(
    ("parent", "child", "merged"),
    [
        (["region=a", "pool=x"], [], ["region=a", "pool=x"]),
        (["region=a", "pool=x"], ["region=b"], ["pool=x", "region=b"]),
        (["region in a,b", "region in b,c"], ["region=d"], ["region=d"]),
        (["preemptible=true"], ["preemptible=false"], ["preemptible=false"]),
        (["region=a", "preemptible=true"], ["region=b"], ["preemptible=true", "region=b"]),
        (["region=a"], ["~region=b"], ["region=a", "~region=b"]),
        (["~region=a", "region in a,b"], ["~region=b"], ["region in a,b", "~region=b"]),
        (["~region=a"], ["region=b"], ["region=b"]),
        (["pool=x", "disk"], ["disk", "pool=x", "rack=1"], ["pool=x", "disk", "rack=1"]),
        (["pool=1"], ['pool="1"'], ["pool=1", 'pool="1"']),
        (["pool=x"], ["~pool=x"], ["pool=x", "~pool=x"]),
        (["disk", "disk"], [], ["disk"]),
        (["tpu-name=a"], ["tpu-name=b"], ["tpu-name=a", "tpu-name=b"]),
    ],
)
def test_constraints_of_a_child_are_merged_with_those_of_its_parent(
    parent: list[str], child: list[str], merged: list[str]
) -> None:
    assert merge_constraints(parsed(*parent), parsed(*child)) == parsed(*merged)


@pytest.mark.parametrize(
    "texts",
    [
        ["tpu-name=a", "tpu-name=b"],
        ["pool=1", 'pool="1"'],
        ["pool", "!pool"],
        ["pool=a", "!pool"],
        ["pool=a", "pool!=a"],
        ["pool in a,b", "pool=c"],
        ["pool in a,b", "pool!=a", "pool!=b"],
        ["n>5", "n<3"],
        ["n>=5", "n<5"],
        ["n>=5", "n<=5", "n!=5"],
        ["n=4", "n>4"],
        ["n=a", "n>4"],
    ],
)
def test_constraints_that_no_worker_could_satisfy_contradict(texts: list[str]) -> None:
    constraints = parsed(*texts)
    key = constraints[0].key
    assert repr(key) in contradiction_in(constraints)
    values = [*map(AttributeValue, ("a", "b", "c", "1")), *map(AttributeValue, (1, 2, 3, 4, 4.5, 5, 6))]
    workers: list[dict[str, AttributeValue]] = [{}, *({key: value} for value in values)]
    assert not any(all(each.matches(worker) for each in constraints) for worker in workers)


@pytest.mark.parametrize(
    "texts",
    [
        [],
        ["tpu-name=a", "~tpu-name=b"],
        ["pool=a", "rack=b"],
        ["!pool", "!pool"],
        ["pool in a,b", "pool in b,c", "pool!=a"],
        ["n>3", "n<4"],
        ["n>=5", "n<=5"],
        ["n=5", "n>4.5", "n"],
        ["n!=1", "n!=2"],
    ],
)
def test_constraints_that_some_worker_could_satisfy_do_not(texts: list[str]) -> None:
    assert contradiction_in(parsed(*texts)) == ""
