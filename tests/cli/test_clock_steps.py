"""The wall clock of the operator's machine is set back and forth between commands: only durations could suffer."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris_cli.core.ids import JobId
from iris_cli.core.invariants import breaches
from iris_cli.core.model.job import JobState
from iris_cli.errors import ExitCode
from iris_cli.journal.log.verify import verify
from tests.cli.test_disk_faults import CLOCK, CONFIG, JOB, PAST_ANY_BACK_OFF, Site
from tests.support.fake_runner import Clock, Host, S

YEAR = 365 * 86400.0
STEPS = (0.5, 20.0, 400.0, -0.5, -20.0, -200.0, -400.0, -7200.0, YEAR, -YEAR)
READING = (("status",), ("status", "--all"), ("history", "--limit", "1000"), ("workers",), ("report",))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.delenv("IRIS_STATE_DIR", raising=False)
    (tmp_path / "cluster.yaml").write_text(CONFIG)
    # The hosts have clocks of their own, which are right.
    return Site(tmp_path, {name: Host(name, time.time) for name in ("w0", "w1")})


def numbers(found: object, name: str = "") -> Iterator[tuple[str, float]]:
    """Every number in a JSON document, with the name of its field."""
    if isinstance(found, dict):
        for key, value in found.items():
            yield from numbers(value, key)
    elif isinstance(found, list):
        for value in found:
            yield from numbers(value, name)
    elif isinstance(found, (int, float)) and not isinstance(found, bool):
        yield name, found


def looks_right(site: Site, capsys: pytest.CaptureFixture[str], jobs: list[str]) -> None:
    for words in (*READING, *(("status", job) for job in jobs), *(("why", job) for job in jobs[-1:])):
        capsys.readouterr()
        assert site.iris("--json", *words) == ExitCode.OK
        shown = json.loads(capsys.readouterr().out)
        assert [each for each in numbers(shown) if each[0].endswith("_seconds") and each[1] < 0] == [], words
        seqs = [value for name, value in numbers(shown) if words[0] == "history" and name == "seq"]
        assert seqs == sorted(seqs)
        assert site.iris(*words) == ExitCode.OK
        assert re.search(r"(?<![\w.])-[\d.]+[smhd]", capsys.readouterr().out) is None, words


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 14))])
def test_however_the_clock_steps_order_is_by_seq_no_duration_is_negative_and_all_work_ends(
    site: Site, capsys: pytest.CaptureFixture[str], seed: int
) -> None:
    chance = random.Random(seed)
    jobs: list[str] = []
    for number in range(14):
        CLOCK.ahead += chance.choice(STEPS)
        if number % 3 == 0:
            jobs.append(f"job-{number}")
            waits = ("--no-schedule",) if number % 2 else ()  # until the next cycle, by another clock
            assert site.iris("launch", "--name", jobs[-1], *waits, *JOB) == ExitCode.OK
        CLOCK.ahead += chance.choice(STEPS)
        for host in site.hosts.values():
            for name in host.running[:1]:
                host.exits(name, chance.choice((0, 1)))
            host.silence = None
        CLOCK.ahead += chance.choice(STEPS)
        assert site.iris("schedule", "--once") == ExitCode.OK
        assert breaches(site.cluster) == []
    looks_right(site, capsys, jobs)
    for _ in range(12):
        CLOCK.ahead += PAST_ANY_BACK_OFF
        for host in site.hosts.values():
            for name in list(host.running):
                host.exits(name)
        assert site.iris("schedule", "--once") == ExitCode.OK
    cluster = site.cluster
    assert {cluster.job_state(JobId(job)) for job in jobs} <= {JobState.SUCCEEDED, JobState.FAILED}
    assert not [entry for entry in site.tokens().values() if entry.state is S.RUNNING]
    looks_right(site, capsys, jobs)
    assert verify(site.path / "state").ok


@pytest.mark.parametrize("step", [5 * 3600.0, -5 * 3600.0])
def test_a_clock_that_is_set_while_a_task_runs_changes_no_duration_on_any_screen(
    site: Site, capsys: pytest.CaptureFixture[str], step: float
) -> None:
    workers = Clock()
    for host in site.hosts.values():
        host.now = workers.now
    assert site.iris("launch", "--name", "one", *JOB) == ExitCode.OK
    workers.time += 90.0
    CLOCK.ahead += 90.0 + step
    try:
        for host in site.hosts.values():
            for name in list(host.running):
                host.exits(name)
        assert site.iris("schedule", "--once") == ExitCode.OK
        page = str(site.path / "report.html")
        assert site.iris("report", "--html", page) == ExitCode.OK
        capsys.readouterr()
        jobs = []
        for words in (("status",), ("status", "one"), ("report",)):
            assert site.iris("--json", *words) == ExitCode.OK
            shown = json.loads(capsys.readouterr().out)
            jobs.append(shown if words == ("status", "one") else shown["jobs"][0])
            assert site.iris(*words) == ExitCode.OK
            assert "1m30s" in capsys.readouterr().out, words
        assert [jobs[0]["duration_seconds"], jobs[1]["duration_seconds"], jobs[2]["ran_seconds"]] == [
            90.0
        ] * 3
        (task,) = jobs[1]["tasks"]
        assert [each["duration_seconds"] for each in (task, *task["attempts"])] == [90.0, 90.0]
        assert 'data-key="90">1m30s' in Path(page).read_text()
    finally:
        CLOCK.ahead -= 90.0 + step


@pytest.mark.parametrize(("back", "warned"), [(200.0, False), (250.0, False), (900.0, True), (YEAR, True)])
def test_a_step_back_of_more_than_five_minutes_is_told_to_who_writes(
    site: Site, capsys: pytest.CaptureFixture[str], back: float, warned: bool
) -> None:
    assert site.iris("launch", "--no-schedule", "--name", "one", *JOB) == ExitCode.OK
    CLOCK.ahead -= back
    capsys.readouterr()
    try:
        assert site.iris("launch", "--no-schedule", "--name", "two", *JOB) == ExitCode.OK
        said = capsys.readouterr().err
        assert ("behind the last event" in said) is warned
        times = [each.at for each in site.state.read().transactions]
        assert times != sorted(times)  # as the clock said; order is that of the lines
        assert list(site.cluster.jobs) == ["one", "two"]
        assert site.iris("launch", "--no-schedule", "--name", "three", *JOB) == ExitCode.OK
        assert "behind" not in capsys.readouterr().err  # once for each step
    finally:
        CLOCK.ahead += back
