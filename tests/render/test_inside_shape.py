"""`iris status JOB --json` has one shape: inside of a task a part of the document outside, with equal values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

from iris_cli.config.request_text import write_answer
from iris_cli.core.ids import JobId
from iris_cli.core.messages.requests import JobAnswer
from iris_cli.ops.cycle.replies import job_answer
from iris_cli.ops.views.job_status import job_status
from iris_cli.remote.inside import program
from iris_cli.render.as_json import document, json_text
from iris_cli.render.layout import clean_line
from tests.ops.asking import EVAL, running
from tests.support.fake_runner import S, Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A job with an endpoint and a child. Its first attempt failed, and its retry runs."""
    site, _, task = running(tmp_path, max_retries_failure=1)
    task.state, task.exit_code = S.EXITED, 3
    site.run()
    again = site.hosts["w0"].of("train")
    again.ask("1", "submit", job=EVAL)
    again.ask("2", "register_endpoint", name="http", port=80, metadata={"path": "/"})
    site.cycle()
    site.cycle()
    return site


def answer(site: Site, job: str) -> JobAnswer:
    return job_answer(site.cluster, JobId(job))


def outside(site: Site, job: str) -> Any:
    return json.loads(json_text(job_status(site.session(), job)))


def part(whole: Any, shape: Any) -> Any:
    """The whole without the fields that the shape lacks."""
    if isinstance(shape, dict) and isinstance(whole, dict):
        return {key: part(whole.get(key, "missing"), each) for key, each in shape.items()}
    if isinstance(shape, list) and isinstance(whole, list):
        return [part(*pair) for pair in zip(whole, shape, strict=True)]
    return whole


@pytest.mark.parametrize("job", ["train", "train/eval"])
def test_a_status_inside_is_a_part_of_the_status_outside(job: str, site: Site) -> None:
    whole = outside(site, job)
    shown = json.loads(json_text(answer(site, job)))
    shown["tasks"][0].pop("duration_seconds")  # only attempts that ended have one inside
    assert part(whole, shown) == shown
    assert shown["submitted_at"].endswith("Z")
    assert shown["tasks"][0]["started_at"].endswith("Z")


def test_an_ended_job_has_its_end_and_its_duration_in_both(site: Site) -> None:
    entry = site.hosts["w0"].of("train")
    entry.state, entry.exit_code = S.EXITED, 1
    site.run()
    whole = outside(site, "train")
    shown = json.loads(json_text(answer(site, "train")))
    assert part(whole, shown) == shown
    assert (shown["state"], shown["tasks"][0]["exit_code"]) == ("FAILED", 1)
    assert shown["ended_at"].endswith("Z")


def test_the_program_of_tasks_prints_the_same_document(site: Site) -> None:
    found = answer(site, "train")
    said = json.loads(write_answer(to_builtins(found)))["result"]
    assert program.status_document(said) == document(found)


def test_a_time_that_no_clock_could_have_reported_is_null() -> None:
    assert program.time_text(1e20) is None
    assert program.time_text(1_800_000_000.1236) == "2027-01-15T08:00:00.124Z"


def test_the_program_of_tasks_shows_every_character_as_iris_does() -> None:
    signs = list(map(chr, (*range(0x3100), *range(0xD7F0, 0x10FFFF, 97), 0xFEFF, 0x10FFFF)))
    assert [program.one_line(sign) for sign in signs] == [clean_line(sign) for sign in signs]
