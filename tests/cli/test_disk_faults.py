"""The disk refuses, at each single step of each command that writes: nothing half done, and the next run goes on."""

from __future__ import annotations

import copy
import errno
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

import pytest

from iris_cli.cli.app import run
from iris_cli.cli.context import Context
from iris_cli.clock import Clock
from iris_cli.core.evolve import replay
from iris_cli.core.ids import JobId, Token, WorkerId
from iris_cli.core.invariants import breaches
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.job import JobState
from iris_cli.errors import ExitCode
from iris_cli.files import DISK
from iris_cli.journal.log.verify import verify
from iris_cli.journal.state_dir import StateDir
from iris_cli.remote.task_runner import TaskRunner
from tests.journal.test_faults import BadDisk
from tests.support.desk import ShiftedClock
from tests.support.fake_runner import Entry, FakeRunner, Host, S
from tests.support.mounts import on_a_small_disk, remount

Hosts = dict[str, Host]
FAULTS = ((errno.ENOSPC, False), (errno.EROFS, True), ("short", False), (errno.EIO, True))
CLOCK = ShiftedClock()
PAST_ANY_BACK_OFF = 601.0
CONFIG = """cluster: {name: lab}
workers:
  - {id: w0, host: nowhere.invalid}
  - {id: w1, host: elsewhere.invalid}
"""
JOB = ("--cpu", "0.1", "--memory", "1MiB", "--", "true")


class Site:
    """A configuration, its state, and its hosts in memory."""

    def __init__(self, path: Path, hosts: Hosts) -> None:
        self.path, self.hosts = path, hosts

    def iris(self, *words: str, clock: Clock = CLOCK) -> int:
        runner = cast("TaskRunner", FakeRunner(self.hosts))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Context, "_runner", lambda *_: runner)
            return run(["--config", str(self.path / "cluster.yaml"), *words], clock)

    @property
    def state(self) -> StateDir:
        return StateDir(self.path / "state", now=lambda: 0.0, actor="me@laptop")

    @property
    def cluster(self) -> Cluster:
        view = self.state.read()
        assert view.damage is None
        return replay(view.transactions)

    def copy(self, path: Path) -> Site:
        if path.exists():
            shutil.rmtree(path)
        shutil.copytree(self.path, path)
        return Site(path, copy.deepcopy(self.hosts))

    def tokens(self) -> dict[Token, Entry]:
        return {token: entry for host in self.hosts.values() for token, entry in host.tokens.items()}

    def works_again(self, command: tuple[str, ...]) -> None:
        """Whatever became of the command: it can be given again, and what is asked for happens once."""
        if command[0] != "launch" or JobId("job") not in self.cluster.jobs:
            assert self.iris(*command) == ExitCode.OK
        for _ in range(3):
            CLOCK.ahead += PAST_ANY_BACK_OFF
            assert self.iris("schedule", "--once") == ExitCode.OK


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Two workers, a job that runs, and one that waits to be sent."""
    monkeypatch.delenv("IRIS_STATE_DIR", raising=False)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "cluster.yaml").write_text(CONFIG)
    site = Site(tmp_path / "site", {name: Host(name, CLOCK.now) for name in ("w0", "w1")})
    assert site.iris("launch", "--name", "runs", *JOB) == ExitCode.OK
    assert site.iris("launch", "--name", "waits", "--no-schedule", *JOB) == ExitCode.OK
    assert site.cluster.job_state(JobId("runs")) is not JobState.PENDING
    return site


def keep_snapshots(monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    """Every so many lines, in all commands of this process."""
    defaults = {**(StateDir.__init__.__kwdefaults__ or {}), "snapshot_every": every}
    monkeypatch.setattr(StateDir.__init__, "__kwdefaults__", defaults)


@contextmanager
def bad(disk: BadDisk) -> Iterator[None]:
    """All that this process writes goes to that disk."""
    with pytest.MonkeyPatch.context() as patch:
        for call in ("write", "fsync", "truncate", "rename"):
            patch.setattr(DISK, call, getattr(disk, call))
        yield


def runs_once(site: Site, *jobs: str) -> None:
    for job in jobs:
        assert site.cluster.job_state(JobId(job)) is JobState.RUNNING
        started = [entry for entry in site.tokens().values() if entry.name.startswith(f"{job}/")]
        assert [entry.starts for entry in started] == [1]


def scheduled(site: Site) -> None:
    runs_once(site, "runs", "waits")


def launched(site: Site) -> None:
    runs_once(site, "runs", "waits", "job")


def cancelled(site: Site) -> None:
    assert site.cluster.job_state(JobId("runs")) is JobState.KILLED
    assert [entry.state for entry in site.tokens().values() if entry.name.startswith("runs/")] == [S.STOPPED]


def drained(site: Site) -> None:
    assert site.cluster.workers[WorkerId("w0")].draining
    scheduled(site)


def compacted(site: Site) -> None:
    assert [*(site.path / "state" / "archive").glob("*.gz")]
    scheduled(site)


COMMANDS: list[tuple[tuple[str, ...], Callable[[Site], None]]] = [
    (("launch", "--name", "job", *JOB), launched),
    (("schedule", "--once"), scheduled),
    (("cancel", "runs"), cancelled),
    (("worker", "drain", "w0"), drained),
    (("log", "compact"), compacted),
]


SNAPSHOT_EACH_TIME = 1  # every so many lines; a snapshot that can't be written is nobody's trouble


@pytest.mark.parametrize(
    ("every", "snapshot_every"),
    [
        (7, 10_000),
        (11, SNAPSHOT_EACH_TIME),
        pytest.param(1, 10_000, marks=pytest.mark.soak),
        pytest.param(1, SNAPSHOT_EACH_TIME, marks=pytest.mark.soak),
    ],
)
@pytest.mark.parametrize(
    ("command", "done"), COMMANDS, ids=lambda each: each[0] if isinstance(each, tuple) else ""
)
def test_a_disk_that_refuses_at_any_step_ends_the_command_and_leaves_nothing_half_done(
    site: Site,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    command: tuple[str, ...],
    done: Callable[[Site], None],
    every: int,
    snapshot_every: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keep_snapshots(monkeypatch, snapshot_every)
    assert site.iris("status") == ExitCode.OK
    assert (site.path / "state" / "snapshot.json").exists() is (snapshot_every == SNAPSHOT_EACH_TIME)
    history = site.state.read().transactions
    sound = BadDisk(step=10_000, fault=errno.EIO)
    with bad(sound):
        copied = site.copy(tmp_path / "sound")
        assert copied.iris(*command) == ExitCode.OK
    assert len(sound.calls) >= 3  # the line, its fsync, HEAD
    # Before a compaction one is written whenever the last one was.
    keeps_one = snapshot_every == SNAPSHOT_EACH_TIME or command == ("log", "compact")
    cases = [(step, *fault) for step in range(len(sound.calls)) for fault in FAULTS]
    for step, fault, worn in cases[:: every * len(FAULTS) // 2 + 1] if every > 1 else cases:
        where = f"{command[0]}: step {step} of {sound.calls}, {fault}, {worn=}"
        copied = site.copy(tmp_path / "copy")
        capsys.readouterr()
        with bad(BadDisk(step=step, fault=fault, worn=worn)):
            code = copied.iris(*command)
        said = capsys.readouterr().err
        assert code == ExitCode.NOT_WRITABLE or (code == ExitCode.OK and keeps_one), (where, said)
        assert (code == ExitCode.NOT_WRITABLE) is ("can't be written" in said), where
        assert "internal error" not in said, where
        view = copied.state.read()
        assert view.damage is None, where
        assert view.transactions[: len(history)] == history, where
        assert breaches(copied.cluster) == [], where
        known = {attempt.token for task in copied.cluster.tasks.values() for attempt in task.attempts}
        assert copied.tokens().keys() <= known, where
        copied.works_again(command)
        done(copied)
        assert verify(copied.path / "state").ok, where
        assert breaches(copied.cluster) == [], where


def fill(disk: Path, *, spare: int) -> Path:
    """Leave so many bytes of it, by pages. Returns what is to be removed to make room again.

    A thread of an earlier command may still hold a snapshot open that was removed since: its page would become free
    later.
    """
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join()
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        with suppress(OSError):
            while True:
                file.write(bytes(4096))
        file.truncate(file.tell() - spare)
    return filler


@pytest.mark.parametrize("spares", [(0, 4096, -1), pytest.param((8192, -1), marks=pytest.mark.soak)], ids=str)
def test_on_a_disk_that_is_really_full_or_read_only_the_commands_end_and_later_go_on(
    site: Site, tmp_path: Path, spares: tuple[int, ...]
) -> None:
    """With room for nothing, for a page, and for a bit more: how far each command gets then is its own affair.

    A short line would still fit into the last page of the log; what follows from it would not.
    """
    disk = tmp_path / "disk"
    disk.mkdir()

    def attempt() -> None:
        refused = 0
        for spare in spares:
            for command, done in COMMANDS:
                copied = site.copy(disk / "copy")
                copied.iris("log", "compact")  # an archive is there, too
                history = copied.state.read().transactions
                filler = fill(disk, spare=max(spare, 0))
                if spare < 0:
                    remount(disk, "ro")
                code = copied.iris(*command)
                assert code in (ExitCode.NOT_WRITABLE, ExitCode.OK), (command, spare)
                assert copied.iris("status") == ExitCode.OK
                refused += code == ExitCode.NOT_WRITABLE
                view = copied.state.read()
                assert view.damage is None
                assert view.transactions[: len(history)] == history
                if spare <= 0 and command[0] != "log":
                    assert (code, view.transactions) == (ExitCode.NOT_WRITABLE, history), (command, spare)
                    assert copied.tokens().keys() == site.tokens().keys()
                if spare < 0:
                    remount(disk, "rw")
                filler.unlink()
                copied.works_again(command)
                done(copied)
                assert verify(copied.path / "state").ok
        assert refused > len(COMMANDS) or 0 not in spares, "not only where the disk is read-only"

    on_a_small_disk(disk, attempt)


def test_on_a_full_disk_each_command_says_so_and_leaves_no_part_of_a_file(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cycle that can't run is a failure, doctor names the disk, and a bundle is written when there is room."""
    disk = tmp_path / "disk"
    disk.mkdir()

    def attempt() -> None:
        copied = site.copy(disk / "copy")
        bundle = disk / "bundle.txt"
        filler = fill(disk, spare=0)
        assert copied.iris("watch", "--once") == ExitCode.NOT_WRITABLE
        assert "No space left on device\nhint: free some space" in capsys.readouterr().err
        assert copied.iris("doctor", "--offline") != ExitCode.OK
        assert "state: " in (said := capsys.readouterr().out), said
        assert "can't be written: No space left on device" in said
        assert copied.iris("doctor", "--offline", "--yes", "--bundle", str(bundle)) == ExitCode.NOT_WRITABLE
        assert not bundle.exists()
        filler.unlink()
        assert copied.iris("doctor", "--offline", "--yes", "--bundle", str(bundle)) == ExitCode.OK
        assert bundle.stat().st_size > 0

    on_a_small_disk(disk, attempt)
