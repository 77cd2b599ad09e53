"""What people are shown of slices that were made on demand, and of the jobs that they were made for."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from iris_cli.core.constraint_syntax import format_constraint, parse_constraint
from iris_cli.ops.views.status import cluster_status
from iris_cli.ops.views.why import why
from tests.ops.test_autoscale import Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "state")


def test_slices_of_a_group_that_the_configuration_knows_no_more_are_shown_as_long_as_they_are_there(
    site: Site,
) -> None:
    site.launch("train")
    site.autoscale()
    name = site.only()
    site.group = replace(site.group, name="other")
    [other, west] = cluster_status(site.session()).scaling.groups
    assert (other.name, other.slices) == ("other", ())
    assert (west.name, west.type, west.max_slices) == ("west", "v4-16 (8 chips, 2 VMs)", 0)
    assert [(each.name, each.state) for each in west.slices] == [(name, "creating")]


def test_a_job_for_which_a_slice_was_made_is_explained_by_its_own_constraints_alone(site: Site) -> None:
    own = ("region=us-west4", "~pool=a")
    site.launch("train", constraints=tuple(map(parse_constraint, own)))
    site.autoscale()
    [wait] = why(site.session(), "train").waits
    assert wait.explanation is not None
    found = wait.explanation.constraints
    assert tuple(format_constraint(each.constraint) for each in found) == own
    assert [str(each) for each in wait.explanation.reasons] == ["no_such_device: no v4-16 slice exists"]


def test_before_the_first_slice_screens_say_how_slices_are_created(site: Site) -> None:
    site.launch("train")
    site.launch("far", constraints=(parse_constraint("region=eu-west4"),), force=True)
    note = ("cluster.yaml says autoscale: off; to create slices for pending jobs: iris autoscale",)
    assert cluster_status(site.session()).messages == why(site.session(), "train").messages == note
    assert why(site.session(), "far").messages == ()
    site.autoscale()
    assert cluster_status(site.session()).messages == why(site.session(), "train").messages == ()
