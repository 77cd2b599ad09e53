"""In whatever order slices come: each gang runs, and no more slices are made than were asked for at first."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from iris_cli.core.constraint_syntax import parse_constraint
from iris_cli.core.ids import JobId
from iris_cli.core.messages.cloud import CloudState, Refusal
from iris_cli.core.scheduling.reasons import ReasonKind
from tests.support.autoscaling_script import autoscale, probe_all, scale_group
from tests.support.lab import Lab

_ZONES = ("us-west4-a", "us-central2-b", "europe-west4-b")
_WISHES = (
    ("region=us-west4", "region=us-central2"),
    ("preemptible=true", "preemptible=false"),
    ("~region=us-central2", "~preemptible=true"),
)


def test_gangs_of_several_groups_run_on_what_was_asked_for_at_first() -> None:
    for seed in range(12):
        _story(seed)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(12, 1_000, 100))
def test_gangs_of_several_groups_run_on_what_was_asked_for_at_first_long(first: int) -> None:
    for seed in range(first, first + 100):
        _story(seed)


_KINDS: dict[str, tuple[tuple[str, ...], tuple[dict[str, Any], ...]]] = {
    "gangs of one or two slices": (("v4-16",), ({"tpu": "v4-16"}, {"tpu": "v4-16", "replicas": 4})),
    "gangs of two or three slices": (
        ("v4-16",),
        ({"tpu": "v4-16", "replicas": 4}, {"tpu": "v4-16", "replicas": 6}),
    ),
    "single tasks": (("v4-8",), ({"tpu": "v4-8"},)),
    "single tasks and gangs": (("v4-8", "v4-16"), ({"tpu": "v4-8"}, {"tpu": "v4-16"})),
}
"""What slices the groups make, and what jobs ask for."""


@pytest.mark.parametrize("kind", _KINDS)
def test_no_slice_stands_idle_when_all_have_come(kind: str) -> None:
    for seed in range(5):
        _mixed_story(seed, kind)


@pytest.mark.soak
@pytest.mark.parametrize("kind", _KINDS)
def test_no_slice_stands_idle_when_all_have_come_long(kind: str) -> None:
    for seed in range(5, 400):
        _mixed_story(seed, kind)


def test_a_single_task_leaves_the_slice_of_another_one_while_its_own_is_on_its_way() -> None:
    made = _made("type=v4-8 zone=us-west4-a max=1", "type=v4-8 zone=us-central2-b max=1")
    made.job("any", tpu="v4-8").job(
        "picky", constraints=(parse_constraint("region=us-central2"),), tpu="v4-8"
    )
    assert _asked(made) == {"g0": ("any",), "g1": ("picky",)}
    _comes(made, "g1")
    assert [str(each.id) for each in made.cluster.pending_tasks()] == ["any/task-0"]
    _comes(made, "g0")
    assert list(made.cluster.pending_tasks()) == []
    assert made.cloud.made == 2


def test_a_gang_of_two_slices_keeps_the_first_one_from_those_behind_it_while_the_second_is_on_its_way() -> (
    None
):
    made = _made("type=v4-16 zone=us-west4-a max=2")
    made.job("pair", tpu="v4-16", replicas=4).job("behind", tpu="v4-16")
    assert _asked(made) == {"g0": ("pair",)}
    first, second = made.cluster.slices
    _comes(made, first)
    assert len(list(made.cluster.pending_tasks())) == 6
    held = made.plan().waiting[JobId("behind")][0]
    assert (held.kind, held.text) == (
        ReasonKind.RESERVED,
        f"{first} is for pair, which needs more slices",
    )
    _comes(made, second)
    assert {each.id.job for each in made.cluster.pending_tasks()} == {"behind"}


def test_a_gang_keeps_the_slice_of_one_group_while_that_of_another_group_is_being_created() -> None:
    made = _made(
        "type=v4-16 zone=us-central2-b preemptible=false max=1",
        "type=v4-16 zone=us-central2-b preemptible=true max=1",
    )
    made.job("pair", tpu="v4-16", replicas=4).job("behind", tpu="v4-16", force=True)
    assert _asked(made) == {"g0": ("pair",), "g1": ("pair",)}
    _comes(made, "g1")
    assert len(list(made.cluster.pending_tasks())) == 6
    _comes(made, "g0")
    assert {each.id.job for each in made.cluster.pending_tasks()} == {"behind"}


def test_when_nothing_is_on_its_way_any_more_nobody_waits_for_the_others() -> None:
    """Say, the second slice could not be made."""
    made = _made("type=v4-16 zone=us-west4-a max=2")
    made.job("pair", tpu="v4-16", replicas=4).job("behind", tpu="v4-16")
    _asked(made)
    first, second = made.cluster.slices
    made.cloud.refusals["g0"] = Refusal.QUOTA
    made.cloud.delete(second)
    _comes(made, first)
    autoscale(made.advance("1s"))
    made.schedule()
    assert {each.id.job for each in made.cluster.pending_tasks()} == {"pair"}


def _made(*groups: str) -> Lab:
    """Scale groups `g0` and so on, whose slices come when they are told to."""
    made = Lab()
    made.cloud.slow = True
    for number, words in enumerate(groups):
        options = dict(word.split("=") for word in words.split())
        made.cloud.groups[f"g{number}"] = scale_group(f"g{number}", options)
    return made


def _asked(made: Lab) -> dict[str, tuple[str, ...]]:
    """Have slices made; the groups, and whom their first ones are for."""
    autoscale(made)
    asked: dict[str, tuple[str, ...]] = {}
    for each in made.cluster.slices.values():
        asked.setdefault(each.group, each.wanted_by)
    return asked


def _comes(made: Lab, which: str) -> None:
    """A slice, or those of a group, are there, and taken into use."""
    for each in list(made.cluster.slices.values()):
        if which in (each.name, each.group):
            made.cloud.turn(each.name, CloudState.READY)
            autoscale(made.advance("1s"))
            probe_all(made, each.name)
            autoscale(made)
            made.schedule()


def _mixed_story(seed: int, kind: str) -> None:
    """A gang of several slices that no group could make together gathers them from several groups: who had some of
    those made has others made then, which may be in vain.
    """
    random = Random(seed)
    types, asked_for = _KINDS[kind]
    made = _made(
        *(
            f"zone={random.choice(_ZONES)} preemptible={random.choice(['true', 'false'])} "
            f"priority={random.randrange(3)} max={random.randrange(1, 5)} type={types[number % len(types)]}"
            for number in range(random.randrange(len(types), 5))
        )
    )
    for number in range(random.randrange(2, 6)):
        wishes = [random.choice(each) for each in _WISHES if random.random() < 0.4]
        made.job(
            f"j{number}",
            constraints=tuple(map(parse_constraint, wishes)),
            **random.choice(asked_for),
            force=True,
        )
    unmet = [each.entry for each in autoscale(made).routing.unmet]
    asked = made.cloud.made
    while coming := [each.name for each in made.cluster.slices.values() if each.is_provisioning]:
        _comes(made, random.choice(coming))
    used = {attempt.worker.rpartition("-")[0] for _, attempt in made.cluster.live_attempts()}
    if all(each.shape is None or each.shape.groups == 1 for each in unmet):
        assert used == set(made.cluster.slices)
    if not unmet:
        assert (made.cloud.made, list(made.cluster.pending_tasks())) == (asked, [])


def _story(seed: int) -> None:
    random = Random(seed)
    made = Lab()
    made.cloud.slow = True
    for number in range(random.randrange(2, 5)):
        options = {"zone": random.choice(_ZONES), "preemptible": random.choice(["true", "false"])}
        options |= {"priority": str(random.randrange(3)), "max": str(random.randrange(1, 5)), "type": "v4-16"}
        made.cloud.groups[f"g{number}"] = scale_group(f"g{number}", options)
    for number in range(random.randrange(2, 6)):
        wishes = [random.choice(each) for each in _WISHES if random.random() < 0.4]
        made.job(f"j{number}", constraints=tuple(map(parse_constraint, wishes)), tpu="v4-16")
    unmet = {str(each.entry.key) for each in autoscale(made).routing.unmet}
    asked = made.cloud.made
    coming = list(made.cluster.slices)
    random.shuffle(coming)
    for name in coming:
        made.cloud.turn(name, CloudState.READY)
        autoscale(made.advance("1s"))
        probe_all(made, name)
        autoscale(made)
        made.schedule()
    assert made.cloud.made == asked
    waiting = {str(task.id.job) for task in made.cluster.pending_tasks()}
    assert waiting == unmet
