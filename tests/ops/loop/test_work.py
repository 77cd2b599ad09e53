"""What a loop is needed for, in words; '' ends it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from iris_cli.config.schema import ClusterConfig, Mode, Notify
from iris_cli.core.ids import JobId
from iris_cli.core.lifecycle import jobs
from iris_cli.core.messages.notices import Channel, Notice, NoticeState
from iris_cli.core.model.slice import Provider, ScaleGroup, Slice, SliceState, SliceTemplate
from iris_cli.ops.jobs.change import cancel
from iris_cli.ops.session import Session
from iris_cli.ops.views.cycles import work_left
from tests.support.fake_runner import Site

TEMPLATE = SliceTemplate(provider=Provider.LOCAL, type="v5litepod-16", zone="us-west4-a")


def left(session: Session, **changes: Any) -> str:
    config: ClusterConfig = replace(session.config, **changes)
    return work_left(session.view(), config, session.state)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(tmp_path, "w0")
    site.cycle()
    return site


def test_open_jobs_are_work_for_the_loop(site: Site) -> None:
    assert left(site.session()) == ""
    site.launch("train")
    assert left(site.session()) == "1 open job"
    site.cycle()
    site.launch("other")
    assert left(site.session()) == "2 open jobs"


def test_an_attempt_to_stop_is_work_until_it_is_unkillable(site: Site) -> None:
    site.launch("train")
    site.cycle()
    site.hosts["w0"].unkillable = True
    with site.session().transaction() as draft:
        jobs.cancel(draft, JobId("train"), "enough")
    assert left(site.session()) == "1 attempt to stop"
    cancel(site.session(), ["train"])
    assert site.attempt("train").unkillable
    assert left(site.session()) == ""


def test_a_notice_to_send_is_work_where_somebody_is_to_be_told(site: Site) -> None:
    session = site.session()
    channel = Channel(waiting=(Notice(event="job_ended", job="train"),), retry_at=session.clock.now() + 60)
    session.state.notices.write(NoticeState(cluster_id="c", channels={"command": channel}))
    notify = Notify(command=("true",))
    assert left(session, notify=notify) == "1 notice to send"
    assert left(session) == ""


@pytest.mark.parametrize(
    ("states", "least", "needed"),
    [
        ([SliceState.BOOTING], 0, True),
        ([SliceState.DELETING], 0, True),
        ([SliceState.READY], 0, True),
        ([SliceState.READY], 1, False),
        ([SliceState.READY, SliceState.READY], 1, True),
        ([], 1, True),
        ([], 0, False),
    ],
)
def test_slices_that_are_made_or_are_to_go(
    states: list[SliceState], least: int, needed: bool, site: Site
) -> None:
    session = site.session()
    slices = {
        f"west-{number}": Slice(name=f"west-{number}", group="west", template=TEMPLATE, state=state)
        for number, state in enumerate(states)
    }
    cluster = replace(session.view(), slices=slices)
    group = ScaleGroup(name="west", template=TEMPLATE, min_slices=least)
    config = replace(session.config, scale_groups=(group,))
    words = "slices to create or delete" if needed else ""
    assert work_left(cluster, replace(config, autoscale=Mode.AUTO), session.state) == words
    assert work_left(cluster, config, session.state) == ""
