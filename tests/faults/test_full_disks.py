"""No space left, on a worker and on the operator's own machine."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from iris_cli.core.ids import JobId
from iris_cli.core.model.job import JobState
from iris_cli.errors import NotWritableError
from iris_cli.ops.workers import workers
from tests.faults.conftest import fill, use_home_of
from tests.support.desk import Desk
from tests.support.ledger import Ledger
from tests.support.site import Site
from tests.support.sshd import SshHost
from tests.support.waiting import until

pytestmark = pytest.mark.ssh

PAST_ANY_BACK_OFF = 601.0
MANY, LONG = 24, "-".join(["long"] * 12)
"""So many assignments of a job with such a name take more than a page of the log: its last one has room for a few."""

Lab = Callable[..., list[SshHost]]
SmallDisk = Callable[[Path], None]


def site_of(hosts: list[SshHost], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    (tmp_path / "operator").mkdir()
    site = Site(tmp_path / "operator", hosts)
    slices = {name: [host] for name, host in zip(("first", "second"), hosts, strict=False)}
    site.write_config(slices, tpu="v4-8", backoff_first="0.1s")
    use_home_of(site, monkeypatch)
    return site


def test_a_worker_without_space_refuses_and_is_quarantined_and_what_runs_there_still_ends(
    ssh_lab: Lab, small_disk: SmallDisk, tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = ssh_lab(1)
    home = hosts[0].home
    small_disk(home)
    desk = Desk(site_of(hosts, tmp_path, monkeypatch))
    with ledger.closed():
        desk.launch("early", *ledger.waiting("gate", "echo there is no room for this; exit 6"))
        desk.until(lambda: ledger.living("early"))
        filler = fill(home)
        desk.launch("late", "true", tpu="v4-8")
        desk.until(lambda: desk.worker("first-0").quarantined, every=PAST_ANY_BACK_OFF)
    assert "disk" in desk.worker("first-0").quarantine_reason
    assert (desk.state("late"), desk.cluster.tasks_of(JobId("late"))[0].failures) == (JobState.PENDING, 0)
    desk.until(lambda: desk.state("early") is JobState.FAILED, every=1.0)
    end = desk.attempt("early").end
    assert end is not None
    assert end.exit_code == 6
    filler.unlink()
    with desk.invocation() as session:
        workers.uncordon(session, ["first-0"])
    desk.until(lambda: desk.state("late") is JobState.SUCCEEDED, every=1.0)
    ledger.check()


def test_work_that_a_full_worker_refuses_goes_to_another_one(
    ssh_lab: Lab, small_disk: SmallDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = ssh_lab(2)
    small_disk(hosts[0].home)
    desk = Desk(site_of(hosts, tmp_path, monkeypatch))
    desk.until(lambda: probed(desk) == 2)
    fill(hosts[0].home)
    desk.launch("job", "true", tpu="v4-8")
    desk.until(lambda: desk.state("job") is JobState.SUCCEEDED, every=1.0)
    *before, last = desk.attempts("job")
    assert before
    assert {attempt.worker for attempt in before if attempt.refused} <= {"first-0"}
    assert last.worker == "second-0"


def test_a_worker_with_a_read_only_disk_is_unusable_and_starts_the_attempt_when_it_can_write(
    ssh_lab: Lab, small_disk: SmallDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = ssh_lab(1)
    home = hosts[0].home
    small_disk(home)
    desk = Desk(site_of(hosts, tmp_path, monkeypatch))
    desk.until(lambda: probed(desk) == 1)
    subprocess.run(["mount", "-o", "remount,ro", str(home)], check=True)
    desk.launch("job", "true", tpu="v4-8")
    desk.until(lambda: desk.worker("first-0").unschedulable)
    assert "can't write below" in desk.worker("first-0").reason
    assert "worker: unusable: can't write below" in " ".join(desk.site.iris("status", "job").out.split())
    assert len(desk.attempts("job")) == 1
    subprocess.run(["mount", "-o", "remount,rw", str(home)], check=True)
    desk.until(lambda: desk.state("job") is JobState.SUCCEEDED, every=PAST_ANY_BACK_OFF)
    assert len(desk.attempts("job")) == 1


def test_without_space_for_the_log_nothing_is_sent_and_the_next_run_goes_on(
    ssh_lab: Lab, small_disk: SmallDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts, ledger = ssh_lab(1), Ledger(tmp_path / "ledger")
    site = site_of(hosts, tmp_path, monkeypatch)
    site.state.mkdir(mode=0o700)
    small_disk(site.state)
    desk = Desk(site)
    desk.until(lambda: probed(desk) == 1)
    desk.launch(LONG, *ledger.task(), replicas=MANY)
    filler = fill(site.state)
    log = (site.state / "events.jsonl").read_bytes()
    with pytest.raises(NotWritableError):
        desk.cycle()
    assert "No space left" in site.iris("schedule", "--once", code=10).err
    assert (site.state / "events.jsonl").read_bytes() == log
    site.iris("log", "verify")
    assert [*hosts[0].home.glob(".iris/*/*/a/*")] == []
    filler.unlink()
    desk.until(lambda: desk.state(LONG) is JobState.SUCCEEDED)
    assert len(ledger.starts) == MANY
    ledger.check()


def test_a_loop_on_a_full_disk_says_so_and_goes_on_when_there_is_room(
    ssh_lab: Lab, small_disk: SmallDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path / "ledger")
    site = site_of(ssh_lab(1), tmp_path, monkeypatch)
    site.state.mkdir(mode=0o700)
    small_disk(site.state)
    with ledger.closed():
        site.iris(
            *("launch", "--name", "job", "--tpu", "v4-8", "--", *ledger.waiting()), env={"IRIS_LOOP": "auto"}
        )
        until(lambda: ledger.living("job"))
        until(lambda: site.iris("status", "--json").json()["cycles"]["last_own"] is not None)
        pid = site.iris("status", "--json").json()["cycles"]["pid"]
        filler = fill(site.state)
    until(lambda: "No space left" in site.iris("status", code=None).out, lambda: site.iris("status").out)
    assert site.job("job")["state"] == "RUNNING"
    filler.unlink()
    until(lambda: site.job("job")["state"] == "SUCCEEDED", lambda: site.iris("status").out)
    assert f"runs cycles, pid {pid}\n" in (site.state / "loop.log").read_text()
    until(lambda: not Path("/proc", str(pid)).exists())
    ledger.check()


def test_a_read_only_state_directory_is_read_and_no_host_is_asked_by_who_would_write(
    ssh_lab: Lab, small_disk: SmallDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = ssh_lab(1)
    site = site_of(hosts, tmp_path, monkeypatch)
    site.state.mkdir(mode=0o700)
    small_disk(site.state)
    desk = Desk(site)
    desk.until(lambda: probed(desk) == 1)
    desk.launch("job", "true")
    subprocess.run(["mount", "-o", "remount,ro", str(site.state)], check=True)
    logins = hosts[0].log().count("Accepted publickey")
    assert "can't be written" in site.iris("schedule", "--once", code=10).err
    assert "Read-only file system, no cycle can run: " in site.iris("status").out
    assert hosts[0].log().count("Accepted publickey") == logins
    subprocess.run(["mount", "-o", "remount,rw", str(site.state)], check=True)
    desk.until(lambda: desk.state("job") is JobState.SUCCEEDED)


def probed(desk: Desk) -> int:
    return sum(bool(worker.incarnation) for worker in desk.cluster.workers.values())
