"""In whatever order slices come: each gang runs, and no more slices are made than were asked for at first."""

from __future__ import annotations

from random import Random

import pytest

from iris_cli.core.cloud import CloudState
from iris_cli.core.constraint_syntax import parse_constraint
from tests.support.autoscaling_script import autoscale, probe_all, scale_group
from tests.support.lab import Lab

_ZONES = ("us-west4-a", "us-central2-b", "europe-west4-b")
_WISHES = (
    ("region=us-west4", "region=us-central2"),
    ("preemptible=true", "preemptible=false"),
    ("~region=us-central2", "~preemptible=true"),
)


@pytest.mark.parametrize("seed", range(25))
def test_gangs_of_several_groups_run_on_what_was_asked_for_at_first(seed: int) -> None:
    _story(Random(seed))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(25, 2000))
def test_gangs_of_several_groups_run_on_what_was_asked_for_at_first_long(seed: int) -> None:
    _story(Random(seed))


def _story(random: Random) -> None:
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
