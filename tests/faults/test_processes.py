"""Something on a worker is killed, or hides: `iris` tells what became of the task, and leaves no process behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from iris_cli.core.ids import JobId
from iris_cli.core.model.job import JobState
from iris_cli.core.model.task import AttemptState, End, EndReason
from iris_cli.ops.outcomes.causes import end_words
from tests.faults.conftest import use_home_of
from tests.support.desk import Desk
from tests.support.ledger import Ledger
from tests.support.site import Site
from tests.support.sshd import SshHost
from tests.support.waiting import until
from tests.support.worker_host import is_alive, kill, marked, pids_in, until_gone

pytestmark = pytest.mark.ssh


class OneHost(Desk):
    """A single worker, and what lies on its disk."""

    def __init__(self, site: Site, host: SshHost) -> None:
        super().__init__(site)
        self.host = host

    def pid_of(self, job: str, name: str = "pid") -> int:
        """Return the pid of its wrapper, or of the process that another file names."""
        (file,) = self.host.home.glob(f".iris/*/*/a/{self.attempt(job).token}/{name}")
        return int(file.read_text().split()[0])

    def run(self, job: str, *command: str, **asked: object) -> None:
        """Submit it; on return the log knows that it runs."""
        self.launch(job, *command, grace=1.0, **asked)
        self.until(lambda: self.attempts(job) and self.attempt(job).state is AttemptState.RUNNING)

    def end_of(self, job: str, number: int = -1) -> End:
        """How that attempt ended; without a number the last one, when the job is over."""
        if number < 0:
            self.until(lambda: self.cluster.jobs[JobId(job)].end)
        self.until(lambda: self.attempts(job)[number].end)
        end = self.attempts(job)[number].end
        assert end is not None
        return end


@pytest.fixture
def desk(ssh_lab: Callable[..., list[SshHost]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OneHost:
    (host,) = ssh_lab(1)
    (tmp_path / "operator").mkdir()
    site = Site(tmp_path / "operator", [host])
    site.write_config({"alone": [host]}, tpu="v4-8", backoff_first="0.1s")
    use_home_of(site, monkeypatch)
    return OneHost(site, host)


def test_the_wrapper_is_killed_and_the_task_runs_on_until_its_end_is_seen(
    desk: OneHost, ledger: Ledger
) -> None:
    with ledger.closed():
        desk.run("job", *ledger.waiting())
        until(lambda: ledger.living("job"))
        number, token = desk.attempt("job").number, desk.attempt("job").token
        kill(desk.pid_of("job"))
        desk.cycle()
        desk.cycle()
        assert (desk.attempt("job").token, desk.attempt("job").state) == (token, AttemptState.RUNNING)
        assert len(ledger.living("job")) == 1
    assert (
        desk.end_of("job", number).reason is EndReason.WORKER_FAILED
    )  # nobody was there to see how it ended
    desk.until(lambda: desk.state("job") is JobState.SUCCEEDED)  # so it was run again
    assert len(ledger.starts) == 2
    ledger.check()


def test_the_wrapper_is_killed_and_the_time_limit_still_ends_the_task(desk: OneHost, ledger: Ledger) -> None:
    desk.site.write_config({"alone": [desk.host]}, tpu="v4-8", settle_seconds="0s")
    with ledger.closed():
        desk.run("job", *ledger.waiting(), timeout=2.0)
        until(lambda: ledger.living("job"))
        kill(desk.pid_of("job"))
        assert desk.end_of("job").reason is EndReason.TIMEOUT
        assert desk.state("job") is JobState.FAILED
        until_gone(desk.attempt("job").token)
    assert len(ledger.starts) == 1
    ledger.check()


def test_the_process_that_runs_the_set_up_is_killed_and_the_task_is_never_told_as_running(
    desk: OneHost, tmp_path: Path
) -> None:
    desk.site.write_config({"alone": [desk.host]}, tpu="v4-8", settle_seconds="0s", device_wait="0s")
    set_up = f"echo $$ >>{tmp_path}/pids; exec sleep 1000"
    desk.launch("job", "true", grace=1.0, setup=set_up, setup_timeout=3.0)
    desk.until(lambda: pids_in(tmp_path / "pids"))
    kill(desk.pid_of("job", "setup.pid"))
    end = desk.end_of("job")
    assert (end.reason, desk.attempt("job").started_at) == (EndReason.SETUP_FAILED, None)
    until_gone(desk.attempt("job").token)
    assert len(pids_in(tmp_path / "pids")) == 1


def test_the_users_process_is_killed_and_that_is_what_is_told(desk: OneHost, ledger: Ledger) -> None:
    with ledger.closed():
        desk.run("job", *ledger.waiting())
        until(lambda: ledger.living("job"))
        kill(ledger.starts[0].pid)
        end = desk.end_of("job")
        assert (end.reason, end.exit_code) == (EndReason.SIGNAL, 128 + signal.SIGKILL)
        assert end_words(end) == "killed by SIGKILL"
        assert desk.state("job") is JobState.FAILED
        until_gone(desk.attempt("job").token)
    ledger.check()


def test_a_program_that_exits_with_137_itself_is_not_told_as_killed(desk: OneHost) -> None:
    desk.launch("job", "sh", "-c", "exit 137", grace=1.0)
    end = desk.end_of("job")
    assert (end.reason, end_words(end)) == (EndReason.USER_ERROR, "exit 137")


def test_the_whole_session_is_killed_and_the_result_is_unknown_never_a_success(
    desk: OneHost, ledger: Ledger
) -> None:
    with ledger.closed():
        desk.run("job", *ledger.waiting(), max_retries_preemption=0)
        os.killpg(os.getsid(desk.pid_of("job")), signal.SIGKILL)
        until(lambda: not marked(desk.attempt("job").token))
        assert desk.end_of("job").reason is EndReason.WORKER_FAILED
        assert desk.state("job") is JobState.FAILED
    ledger.check()


def test_a_task_that_forges_its_success_runs_on_and_keeps_its_chips(desk: OneHost, tmp_path: Path) -> None:
    done = tmp_path / "done"
    forge = f"cd $IRIS_TASK_DIR && mv x.pending x.0 && touch {done}; exec sleep 1000"
    desk.run("job", "sh", "-c", forge, tpu="v4-8")
    until(done.exists)
    desk.launch("next", "true", tpu="v4-8")
    for _ in range(2):
        desk.cycle()
        assert (desk.state("job"), desk.state("next")) == (JobState.RUNNING, JobState.PENDING)
    desk.cancel("job")
    desk.until(lambda: desk.state("next") is JobState.SUCCEEDED)
    assert desk.state("job") is JobState.KILLED
    assert not marked(desk.attempt("job").token)


def test_a_task_that_forks_twice_and_leaves_its_session_is_stopped_with_its_job(
    desk: OneHost, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    stray = f"setsid sh -c '(sh -c \"echo \\$\\$ >>{pids}; exec sleep 1000\" &) ; exit 0'"
    desk.run("job", "sh", "-c", f"{stray}; echo $$ >>{pids}; exec sleep 1000")
    until(lambda: len(pids_in(pids)) == 2)
    desk.cancel("job")
    desk.until(lambda: not desk.attempt("job").live)
    assert [pid for pid in pids_in(pids) if is_alive(pid)] == []
    assert not marked(desk.attempt("job").token)


def test_what_a_task_leaves_running_ends_with_it(desk: OneHost, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    desk.launch(
        "job",
        "sh",
        "-c",
        f"setsid sh -c 'echo $$ >>{pids}; exec sleep 1000' & wait_for={pids}; "
        'until [ -s "$wait_for" ]; do sleep 0.1; done',
        grace=1.0,
    )
    desk.until(lambda: desk.state("job") is JobState.SUCCEEDED)
    assert [pid for pid in pids_in(pids) if is_alive(pid)] == []


def test_a_task_that_floods_its_output_fills_a_file_and_nothing_else(desk: OneHost) -> None:
    megabytes = 16
    flood = f"yes 'all work and no play' | head -c {megabytes << 20}; echo; echo the end; exit 5"
    desk.launch("job", "sh", "-c", flood)
    end = desk.end_of("job")
    assert (end.reason, end.exit_code) == (EndReason.USER_ERROR, 5)
    assert end.log_tail.endswith("the end\n")
    assert len(end.log_tail) < 10_000
    (out,) = desk.host.home.glob(".iris/*/*/a/*/out")
    assert out.stat().st_size > megabytes << 20
    out.unlink()
    assert (desk.site.state / "events.jsonl").stat().st_size < 1 << 20
