"""Many processes launch at the same moment: each job is there once, under a name of its own."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris_cli.errors import ExitCode
from iris_cli.journal.log.verify import verify
from tests.support.invocations import Invocations
from tests.support.site import Site

LAUNCH = ("--lock-timeout", "240", "launch", "--no-schedule")
PROCESSES = 16


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    for name in ("IRIS_STATE_DIR", "IRIS_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "cluster.yaml").write_text(
        "cluster: {name: lab}\nworkers: [{id: w, host: nowhere.invalid}]\n"
    )
    return Site(tmp_path, [])


@pytest.fixture
def invocations(site: Site) -> Iterator[Invocations]:
    invocations = Invocations(site)
    yield invocations
    invocations.close()


def submitted(site: Site) -> list[dict[str, object]]:
    """The jobs of the log, in order."""
    assert verify(site.state).ok
    return [event["job"] for event in site.events() if event["type"] == "JobSubmitted"]


def test_each_launch_gets_its_own_job_and_number(site: Site, invocations: Invocations) -> None:
    """There is not even a state directory when they begin."""
    started = [
        invocations.start(*LAUNCH, "--label", f"n={number}", "--", "true") for number in range(PROCESSES)
    ]
    told = [each.done().splitlines()[0] for each in started]
    jobs = submitted(site)
    assert [job["id"] for job in jobs] == [f"true-{number + 1}" for number in range(PROCESSES)]
    assert sorted(told) == sorted(str(job["id"]) for job in jobs)
    labels = {str(job["id"]): job["labels"] for job in jobs}
    assert [labels[job] for job in told] == [{"n": str(number)} for number in range(PROCESSES)]
    seqs = [json.loads(line)["seq"] for line in (site.state / "events.jsonl").read_text().splitlines()]
    assert seqs == list(range(1, PROCESSES + 2))


def test_of_those_that_want_the_same_name_one_gets_it(site: Site, invocations: Invocations) -> None:
    started = [invocations.start(*LAUNCH, "--name", "same", "--", "true") for _ in range(8)]
    codes = Counter(each.wait() for each in started)
    assert codes[ExitCode.OK] == 1
    assert codes.total() == 8
    assert codes.keys() == {ExitCode.OK, ExitCode.USAGE}
    assert [job["id"] for job in submitted(site)] == ["same"]
