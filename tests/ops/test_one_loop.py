"""One host that hangs holds up nothing but itself; what can't be written now is written later; idle costs nothing."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest
from msgspec.structs import replace

from iris_cli.core.events.events import TaskDispatchFailed
from iris_cli.core.ids import JobId, TaskId
from iris_cli.core.messages.observations import SilenceKind
from iris_cli.core.model.job import JobState
from iris_cli.core.model.limits import Limits
from iris_cli.core.model.task import AttemptState, TaskState
from iris_cli.errors import LockedError, NotWritableError
from iris_cli.files import Disk
from iris_cli.journal.state_dir import StateDir
from iris_cli.ops.cycle import cycle
from iris_cli.ops.jobs.change import cancel
from iris_cli.ops.loop.foreground import Step, watch
from iris_cli.ops.session import Session
from iris_cli.ops.workers import workers
from tests.support.fake_runner import Host, S, Site
from tests.support.waiting import until

SAFETY_NET = 60.0  # seconds; what has not happened by then never will
SHORT = 0.1


@contextmanager
def hanging(host: Host, call: str) -> Iterator[Event]:
    """The next such call to a host hangs until the block ends; the event tells that it does."""
    hangs, gate = Event(), Event()

    def hang() -> None:
        hangs.set()
        assert gate.wait(SAFETY_NET), "nobody opened the gate"

    host.meanwhile[call] = hang
    try:
        yield hangs
    finally:
        gate.set()


@contextmanager
def while_hanging(host: Host, call: str, act: Callable[[], object]) -> Iterator[Event]:
    """Something goes on in another thread, with a call to one host that hangs; both end after the block."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001,RUF100 - raised in the thread of the test
            failed.append(error)

    thread = Thread(target=run, daemon=True)
    with hanging(host, call) as hangs:
        thread.start()
        yield hangs
    thread.join(SAFETY_NET)
    assert not thread.is_alive()
    if failed:
        raise failed[0]


def once(site: Site) -> None:
    """One cycle that waits for nobody in particular before it places."""
    cycle.run(site.session(), patience=SHORT)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A gang on `w0` and `w1`, a single task on `w2`, nothing on `w3`."""
    made = Site(tmp_path, "w0", "w1", "w2", "w3")
    made.gang("train", 2)
    made.launch("one", cpu=3.0)
    made.cycle()
    assert [host.running for host in made.hosts.values()] == [
        ["train/task-0"],
        ["train/task-1"],
        ["one/task-0"],
        [],
    ]
    return made


# A host that hangs


def test_the_verdict_waits_for_a_sibling_that_hangs_but_the_stops_of_the_others_do_not(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path, "w0", "w1", "w2")
    site.gang("train", 3)
    site.cycle()
    site.hosts["w0"].exits("train/task-0", 1)
    with while_hanging(site.hosts["w2"], "poll", lambda: once(site)) as hangs:
        assert hangs.wait(SAFETY_NET)
        until(lambda: site.hosts["w1"].running == [])
        until(lambda: site.attempt("train", 1).state is AttemptState.ENDED)
        assert site.attempt("train", 2).state is AttemptState.STOPPING
        assert site.cluster.jobs[JobId("train")].settled_rounds == 0
    assert site.hosts["w2"].running == []
    assert site.cluster.jobs[JobId("train")].settled_rounds == 1


def test_nothing_is_placed_on_a_host_that_has_not_answered_yet(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0", "w1")
    site.launch("one", cpu=1.0)
    site.launch("fill", cpu=3.5)
    site.cycle()
    site.launch("small", cpu=1.0)
    site.launch("tiny", cpu=0.5)
    host, other = (site.hosts[site.attempt(name).worker] for name in ("one", "fill"))
    with while_hanging(host, "poll", lambda: once(site)):
        until(lambda: other.running == ["fill/task-0", "tiny/task-0"])
        assert site.task("small").state is TaskState.PENDING
    assert host.running == ["one/task-0", "small/task-0"]


def test_a_late_answer_makes_room_for_what_waits_in_the_same_cycle(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.launch("old", cpu=4.0)
    site.cycle()
    site.launch("new", cpu=4.0)
    site.hosts["w0"].exits("old")
    with while_hanging(site.hosts["w0"], "poll", lambda: once(site)) as hangs:
        assert hangs.wait(SAFETY_NET)
    assert site.hosts["w0"].running == ["new/task-0"]


def test_a_launch_that_hangs_does_not_hold_up_the_start_of_another_gang(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0", "w1", "w2", "w3")
    site.cycle()
    site.gang("slow", 2)
    site.gang("quick", 2)
    with while_hanging(site.hosts["w0"], "prepare", lambda: once(site)):
        until(lambda: site.hosts["w2"].running + site.hosts["w3"].running == ["quick/task-0", "quick/task-1"])
        assert site.hosts["w1"].running == []
    assert site.state_of("slow") is JobState.RUNNING


def test_cancel_does_not_wait_for_one_host_to_stop_the_others(site: Site) -> None:
    with while_hanging(site.hosts["w0"], "stop", lambda: cancel(site.session(), ["train", "one"])):
        until(lambda: not site.hosts["w1"].running and not site.hosts["w2"].running)


# Watch


def steps(site: Site, session: Session | None = None) -> Iterator[Step]:
    return watch(session or site.session(), interval=SHORT, schedule=True)


def test_a_watch_asks_the_others_again_while_one_host_hangs(site: Site) -> None:
    watching = steps(site)
    next(watching)
    with hanging(site.hosts["w2"], "poll") as hangs:
        next(watching)
        assert hangs.wait(SAFETY_NET)
        before = {name: host.calls.count("poll") for name, host in site.hosts.items()}
        for _ in range(3):
            next(watching)
        after = {name: host.calls.count("poll") for name, host in site.hosts.items()}
        assert after["w0"] > before["w0"]
        assert after["w2"] == before["w2"]
        site.hosts["w0"].exits("train/task-0", 3)
        for _ in range(3):
            next(watching)
        assert site.hosts["w1"].running == []
    site.hosts["w2"].exits("one")
    for _ in range(5):
        next(watching)
    assert site.state_of("one") is JobState.SUCCEEDED


def test_a_watch_goes_on_when_the_state_is_not_locked_any_more(site: Site) -> None:
    session = site.session()
    session.lock_timeout = 0.01
    watching = steps(site, session)
    site.launch("new")
    with site.session().state.locked("iris log salvage", 1.0):
        assert "iris log salvage" in next(watching).trouble
        assert site.task("new").state is TaskState.PENDING
    for _ in range(3):
        step = next(watching)
    assert (step.trouble, site.task("new").state) == ("", TaskState.RUNNING)


class TroubledDisk(Disk):
    """`full`: nothing can be written. `during_fsync` happens before an fsync fails."""

    full = False
    during_fsync: Callable[[], None] | None = None

    def write(self, fd: int, data: bytes) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(fd, data)

    def fsync(self, fd: int) -> None:
        if self.during_fsync is not None:
            act, self.during_fsync = self.during_fsync, None
            act()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().fsync(fd)


def on(site: Site, disk: Disk) -> Session:
    session = site.session()
    session.state = StateDir(session.state.path, now=site.clock.now, actor="me@laptop", disk=disk)
    return session


def test_a_watch_says_that_the_disk_is_full_dispatches_nothing_and_tries_again(site: Site) -> None:
    disk = TroubledDisk()
    watching = steps(site, on(site, disk))
    next(watching)
    site.launch("new", cpu=3.0)
    site.hosts["w2"].exits("one")
    disk.full = True
    for _ in range(3):
        assert "free some space" in next(watching).trouble
    assert site.hosts["w3"].calls == ["probe"]
    assert site.state_of("one") is JobState.RUNNING
    disk.full = False
    for _ in range(4):
        step = next(watching)
    assert step.trouble == ""
    assert site.state_of("one") is JobState.SUCCEEDED
    assert [entry.starts for host in site.hosts.values() for entry in host.tokens.values()] == [1, 1, 1, 1]


def test_a_watch_does_not_act_on_unsynced_lines_and_rereads_the_log_if_they_vanish(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("iris_cli.ops.session.LOCK_TIMEOUT", 0.01)
    looking = site.session()
    looking.lock_timeout = 0.01
    watching = steps(site, looking)
    next(watching)

    def look() -> None:
        assert looking.view().job_state(JobId("train")) is JobState.KILLED
        assert "is locked" in next(watching).trouble

    disk = TroubledDisk()
    disk.during_fsync = look
    with pytest.raises(Exception, match="can't be written"):
        cancel(on(site, disk), ["train"])
    for _ in range(2):
        step = next(watching)
    assert step.trouble == ""
    assert looking.cluster.job_state(JobId("train")) is JobState.RUNNING
    assert site.hosts["w0"].running == ["train/task-0"]
    site.hosts["w2"].exits("one")
    for _ in range(2):
        next(watching)
    assert site.state_of("one") is JobState.SUCCEEDED


def test_decisions_about_unsynced_lines_need_the_lock(site: Site) -> None:
    deciding = replace(site.session(), lock_timeout=0.01)

    def look() -> None:
        with pytest.raises(LockedError):
            deciding.decide(lambda draft: pytest.fail("decided without the lock"))

    disk = TroubledDisk()
    disk.during_fsync = look
    with pytest.raises(NotWritableError):
        cancel(on(site, disk), ["train"])
    assert deciding.decide(lambda draft: draft.cluster.job_state(JobId("train"))) is JobState.RUNNING


# What nobody may do twice, or too late


def test_what_is_left_when_the_lease_ends_is_not_sent(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0", "w1")
    site.cycle()
    site.launch("one", replicas=2, cpu=3.0)

    def sleep() -> None:
        site.clock.time += 61.0

    site.hosts["w0"].meanwhile["prepare"] = sleep
    session = site.session()
    session.config = replace(session.config, limits=Limits(max_dispatch_parallelism=1))
    cycle.run(session)
    assert site.hosts["w1"].calls == ["probe"]
    token = site.attempt("one", 1).token
    assert site.attempt("one", 1).state is AttemptState.ASSIGNED
    site.cycle()
    assert site.hosts["w1"].tokens[token].starts == 1
    assert site.attempt("one", 1).state is AttemptState.RUNNING


def test_what_an_outcome_that_came_too_late_says_to_run_is_stopped(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.cycle()
    site.launch("one")

    def end() -> None:
        session = site.session()
        with session.transaction() as draft:
            draft.record(
                TaskDispatchFailed(task=TaskId(JobId("one"), 0), attempt=0, error="by somebody else")
            )

    site.hosts["w0"].meanwhile["prepare"] = end
    site.cycle()
    first = site.task("one").attempts[0]
    assert (first.state, first.started_at) == (AttemptState.ENDED, None)
    assert site.hosts["w0"].tokens[first.token].state is S.STOPPED
    assert site.cluster.workers[first.worker].condition == "healthy"
    site.cycle()
    assert [entry.starts for entry in site.hosts["w0"].tokens.values()] == [1, 1]


def test_stops_that_forgetting_a_worker_asks_for_are_sent_by_that_command(site: Site) -> None:
    site.hosts["w0"].silence = SilenceKind.TIMEOUT
    site.cycle()
    workers.forget(site.session(), "w0", dead=True)
    assert site.hosts["w1"].tokens[site.attempt("train", 1).token].state is S.STOPPED


# Nothing to do


def test_an_idle_cycle_asks_nobody_takes_no_lock_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, "w0", "w1")
    site.launch("one")
    site.cycle()
    site.hosts["w0"].exits("one")
    site.cycle()
    log = (tmp_path / "state" / "events.jsonl").read_bytes()
    calls = [list(host.calls) for host in site.hosts.values()]

    def no_lock(*_: object, **__: object) -> None:
        raise AssertionError("it takes the lock")

    monkeypatch.setattr(StateDir, "locked", no_lock)
    site.cycle(10.0)
    assert (tmp_path / "state" / "events.jsonl").read_bytes() == log
    assert [host.calls for host in site.hosts.values()] == calls


def test_a_watch_takes_the_lock_only_for_news(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    watching = steps(site)
    next(watching)
    locked, taken = StateDir.locked, []

    def counting(*arguments: object, **options: object) -> object:
        taken.append(arguments)
        return locked(*arguments, **options)  # type: ignore[arg-type]  # handed through

    monkeypatch.setattr(StateDir, "locked", counting)
    for _ in range(3):
        next(watching)
    assert taken == []
    site.hosts["w2"].exits("one")
    for _ in range(2):
        next(watching)
    assert len(taken) == 1
