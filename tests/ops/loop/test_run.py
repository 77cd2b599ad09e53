"""The background loop does what a scheduler does, and ends when nothing is left to do."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import tracemalloc
from pathlib import Path

import pytest
from msgspec.structs import replace

from iris_cli.config.schema import Mode, Notify
from iris_cli.core.messages.observations import SilenceKind
from iris_cli.core.model.job import JobState
from iris_cli.errors import IrisError, LogDamagedError
from iris_cli.files import DISK
from iris_cli.journal import access, state_dir
from iris_cli.journal.files.runners import LOOP, LoopOrder, RunnerLock, runners_of, write_loop_order
from iris_cli.ops.cycle.cycle import Cycles
from iris_cli.ops.jobs.change import cancel
from iris_cli.ops.loop.run import LoopEnd
from tests.ops.loop.loop_lab import HOUR, LoopLab
from tests.support.fake_hosts import Host


@pytest.fixture
def lab(tmp_path: Path) -> LoopLab:
    return LoopLab(tmp_path, "w0", "w1")


def test_a_gang_with_a_retry_succeeds_with_nobody_else_there(lab: LoopLab) -> None:
    lab.site.gang("train", 2, max_retries_failure=1)
    lab.ends(30, "train/task-1", 3)
    lab.ends(90, "train/task-0")
    lab.ends(90, "train/task-1")
    assert lab.run() is LoopEnd.DONE
    assert lab.site.state_of("train") is JobState.SUCCEEDED
    assert lab.now < 90 + 15


def test_the_siblings_of_a_failed_rank_are_stopped_within_15_seconds(lab: LoopLab) -> None:
    lab.site.gang("train", 2)
    lab.ends(123.4, "train/task-1", 3)
    lab.at(123.4 + 15, lambda: stopped.append(lab.running()))
    stopped: list[list[str]] = []
    assert lab.run() is LoopEnd.DONE
    assert stopped in ([[]], [])  # it may have ended before
    assert lab.site.state_of("train") is JobState.FAILED
    assert lab.now < 123.4 + 15


def test_it_ends_at_once_where_there_is_nothing_to_do(lab: LoopLab) -> None:
    assert lab.run() is LoopEnd.DONE
    assert len(lab.turns) == 1


def test_an_attempt_on_a_lost_worker_keeps_no_loop_running(lab: LoopLab) -> None:
    lab.site.launch("train", replace_lost="never")
    lab.site.cycle()
    [host] = [each for each in lab.site.hosts.values() if each.running]
    host.silence = SilenceKind.UNREACHABLE
    lab.at(60, lambda: cancel(lab.site.session(), ["train"]))
    assert lab.run() is LoopEnd.DONE
    assert lab.now > 600  # only then it is lost
    assert lab.site.attempt("train").live


def test_an_unkillable_attempt_keeps_no_loop_running(lab: LoopLab) -> None:
    lab.site.launch("train")
    lab.site.cycle()
    for host in lab.site.hosts.values():
        host.unkillable = True
    lab.at(20, lambda: cancel(lab.site.session(), ["train"]))
    assert lab.run() is LoopEnd.DONE
    assert lab.site.attempt("train").unkillable


def test_a_stop_is_seen_to_its_end_although_the_job_is_over(lab: LoopLab) -> None:
    lab.site.launch("train")
    lab.site.cycle()
    [host] = [each for each in lab.site.hosts.values() if each.running]
    lab.at(20, lambda: setattr(host, "silence", SilenceKind.TIMEOUT))
    lab.at(21, lambda: cancel(lab.site.session(), ["train"]))
    lab.at(60, lambda: setattr(host, "silence", None))
    assert lab.run() is LoopEnd.DONE
    assert lab.now >= 60
    assert not lab.site.attempt("train").live


# What it is told


def order(lab: LoopLab, *, stopped: bool) -> None:
    write_loop_order(lab.state, DISK, LoopOrder(turn=os.urandom(4).hex(), stopped=stopped))


@pytest.mark.parametrize(("stopped", "leaving"), [(True, LoopEnd.STOPPED), (False, LoopEnd.REPLACED)])
def test_an_order_ends_it_within_seconds(stopped: bool, leaving: LoopEnd, lab: LoopLab) -> None:
    lab.site.launch("train")
    lab.at(33.0, lambda: order(lab, stopped=stopped))
    assert lab.run() is leaving
    assert lab.now <= 35.0


def test_one_that_was_stopped_before_it_began_does_nothing(lab: LoopLab) -> None:
    lab.site.launch("train")
    order(lab, stopped=True)
    assert lab.run() is LoopEnd.STOPPED
    assert lab.turns == []


def test_an_unreadable_order_is_ignored(lab: LoopLab) -> None:
    lab.site.launch("train")
    lab.at(33.0, lambda: (lab.state / "loop.json").write_text('{"turn": 7'))
    assert lab.run(60) is None


@pytest.mark.parametrize("fate", ["moved", "deleted", "replaced"])
def test_it_ends_when_its_state_directory_is_gone(fate: str, lab: LoopLab) -> None:
    lab.site.launch("train")

    def happen() -> None:
        if fate == "deleted":
            shutil.rmtree(lab.state)
            return
        lab.state.rename(lab.directory / "elsewhere")
        if fate == "replaced":
            shutil.copytree(lab.directory / "elsewhere", lab.state)

    lab.at(33.0, happen)
    assert lab.run() is LoopEnd.GONE
    assert lab.now <= 35.0
    assert (lab.state.exists(), (lab.directory / "elsewhere").exists()) == (
        fate == "replaced",
        fate != "deleted",
    )


def test_it_ends_where_another_version_is_installed(lab: LoopLab) -> None:
    lab.site.launch("train")
    installed: list[str] = [""]
    lab.new_version = lambda: installed[0]
    lab.at(33.0, lambda: installed.append(installed.pop() + "0.2.0"))
    assert lab.run() is LoopEnd.UPGRADE


# Its configuration


def test_it_follows_the_configuration(lab: LoopLab) -> None:
    lab.site.gang("train", 3, force=True)
    lab.at(30.0, lambda: add_worker(lab))
    lab.at(45.0, lambda: seen.append(lab.running()))
    seen: list[list[str]] = []
    assert lab.run(60) is None
    assert seen == [["train/task-0", "train/task-1", "train/task-2"]]


def add_worker(lab: LoopLab) -> None:
    lab.site.hosts["w2"] = Host("w2", lab.clock.now)
    lab.site.configured.append("w2")
    lab.file.write_text("valid")
    os.utime(lab.file, ns=(1, 1))


def test_with_an_invalid_configuration_it_settles_and_places_nothing(lab: LoopLab) -> None:
    lab.site.launch("first", cpu=4.0, replicas=2)
    lab.site.cycle()
    lab.at(20.0, lambda: lab.file.write_text("nonsense"))
    lab.at(25.0, lambda: lab.site.launch("second"))
    for index in range(2):
        lab.ends(30.0, f"first/task-{index}")
    states: list[tuple[JobState, JobState]] = []
    lab.at(60.0, lambda: states.append((lab.site.state_of("first"), lab.site.state_of("second"))))
    lab.at(61.0, lambda: lab.file.write_text("valid"))
    assert lab.run(90) is None
    assert states == [(JobState.SUCCEEDED, JobState.PENDING)]
    assert lab.running() == ["second/task-0"]


def test_it_says_that_the_configuration_is_invalid_and_what_to_type(lab: LoopLab) -> None:
    lab.site.launch("train")
    lab.at(20.0, lambda: lab.file.write_text("nonsense"))
    assert lab.run(60) is None
    said = runners_of(lab.site.session().state.read_heartbeat())[LOOP]
    assert said["troubles"] == [
        "cluster.yaml is invalid (1 problem), nothing is placed: iris config validate"
    ]


def test_a_configuration_that_is_being_replaced_is_waited_for(lab: LoopLab) -> None:
    lab.site.launch("train")
    lab.at(20.0, lab.file.unlink)
    lab.at(23.0, lambda: lab.file.write_text("valid"))
    assert lab.run(60) is None
    assert "troubles" not in runners_of(lab.site.session().state.read_heartbeat())[LOOP]


def test_loop_off_in_the_configuration_ends_it(lab: LoopLab) -> None:
    lab.site.launch("train")

    def switch_off() -> None:
        lab.change = lambda config: replace(config, loop=Mode.OFF)
        os.utime(lab.file, ns=(1, 1))

    lab.at(20.0, switch_off)
    assert lab.run() is LoopEnd.OFF
    assert lab.now <= 31.0


def test_another_cluster_name_is_no_configuration_of_this_cluster(lab: LoopLab) -> None:
    lab.site.launch("train")

    def rename() -> None:
        lab.change = lambda config: replace(config, name="other")
        os.utime(lab.file, ns=(1, 1))

    lab.at(20.0, rename)
    assert lab.run(60) is None
    [trouble] = runners_of(lab.site.session().state.read_heartbeat())[LOOP]["troubles"]
    assert trouble == "cluster.yaml names cluster 'other' instead of 'site': nothing is placed"


# Trouble


def test_a_disk_that_is_full_for_a_while_ends_no_loop(lab: LoopLab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.site.launch("train")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    broken = pytest.MonkeyPatch()
    lab.at(20.0, lambda: broken.setattr(access, "check_writable", full))
    lab.at(25.0, lambda: broken.setattr(state_dir, "write_heartbeat", full))
    lab.at(80.0, broken.undo)
    lab.ends(50.0, "train/task-0")
    assert lab.run() is LoopEnd.DONE
    assert 80.0 <= lab.now <= 95.0
    assert any("No space left" in each.trouble for each in lab.told)


def test_a_fault_of_ours_in_one_cycle_ends_no_loop(lab: LoopLab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.site.launch("train")
    run = Cycles.run

    def broken(cycles: Cycles) -> None:
        if 20.0 < lab.now < 60.0:
            raise ZeroDivisionError("a fault of ours")
        run(cycles)

    monkeypatch.setattr(Cycles, "run", broken)
    lab.ends(70.0, "train/task-0")
    assert lab.run() is LoopEnd.DONE
    assert {each.trouble for each in lab.told} == {"", "internal error: ZeroDivisionError: a fault of ours"}


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (ZeroDivisionError("a fault of ours"), "internal error: ZeroDivisionError: a fault of ours"),
        (IrisError("no thread can be started", hint="ulimit -u"), "no thread can be started; ulimit -u"),
    ],
)
def test_a_fault_between_two_cycles_ends_no_loop(
    fault: Exception, told: str, lab: LoopLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.site.launch("train")
    finish_calls = Cycles.finish_calls

    def broken(cycles: Cycles, *, until: float) -> None:
        if 20.0 < lab.now < 60.0:
            raise fault
        finish_calls(cycles, until=until)

    monkeypatch.setattr(Cycles, "finish_calls", broken)
    lab.ends(70.0, "train/task-0")
    assert lab.run() is LoopEnd.DONE
    assert {each.trouble for each in lab.told} == {"", told}
    assert lab.now < 70 + 15


def test_a_log_that_lost_its_end_under_it_ends_it(lab: LoopLab) -> None:
    lab.site.launch("train")
    log = lab.state / "events.jsonl"
    lab.at(20.0, lambda: os.truncate(log, len(log.read_bytes().splitlines(keepends=True)[0])))
    with pytest.raises(LogDamagedError):
        lab.run()


# Its end


def test_a_job_that_comes_while_it_ends_is_not_left_alone(
    lab: LoopLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who launched it saw the lock held, and so started no loop."""
    lab.site.launch("first")
    lab.ends(20.0, "first/task-0")
    loop = lab.loop()
    release, jobs = RunnerLock.release, ["second"]

    def launch_at_the_last_moment(held: RunnerLock) -> None:
        if jobs:
            lab.site.launch(jobs.pop())
            lab.ends(lab.now + 20.0, "second/task-0")
            assert [each.kind for each in lab.site.session().state.runners.live_runners()] == [LOOP]
        release(held)

    monkeypatch.setattr(RunnerLock, "release", launch_at_the_last_moment)
    assert loop.run() is LoopEnd.DONE
    assert lab.site.state_of("second") is JobState.SUCCEEDED


def test_only_one_of_two_loops_continues(lab: LoopLab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.site.launch("first")
    lab.ends(20.0, "first/task-0")
    loop = lab.loop()
    first, release = loop.lock, RunnerLock.release
    others = []

    def let_another_one_in(held: RunnerLock) -> None:
        release(held)
        if held is first:
            lab.site.launch("second")
            others.append(lab.site.session().state.runners.hold(LOOP, "other", interval=10.0, since=0.0))

    monkeypatch.setattr(RunnerLock, "release", let_another_one_in)
    assert loop.run() is LoopEnd.DONE
    assert others[0] is not None


def test_it_stays_until_a_notice_is_sent(lab: LoopLab) -> None:
    """The command fails at first, and is tried again a minute later."""
    told = lab.directory / "told"
    command = ("sh", "-c", f"echo $IRIS_STATE >>{told}; test -e {lab.directory}/works")
    lab.notify = Notify(command=command)
    lab.site.launch("train")
    lab.ends(20.0, "train/task-0")
    lab.at(50.0, (lab.directory / "works").touch)
    assert lab.run() is LoopEnd.DONE
    assert set(told.read_text().split()) == {"SUCCEEDED"}
    assert lab.now >= 50.0


@pytest.mark.parametrize(("workers", "hours"), [(20, 0.1), pytest.param(100, 1.0, marks=pytest.mark.soak)])
def test_its_memory_does_not_grow(workers: int, hours: float, tmp_path: Path) -> None:
    """All workers run something, and a job waits: a cycle every ten seconds."""
    lab = LoopLab(tmp_path, *(f"w{number}" for number in range(workers)))
    lab.site.launch("train", replicas=workers)
    lab.site.launch("waits", cpu=1000.0, force=True)
    for host in lab.site.hosts.values():
        host.calls = Forgetful()
    sizes: list[int] = []

    def measure() -> None:
        lab.turns.clear()
        lab.told.clear()
        gc.collect()
        sizes.append(tracemalloc.get_traced_memory()[0])

    end = hours * HOUR
    lab.at(end / 4, tracemalloc.start)
    lab.at(end / 2, measure)
    lab.at(end - 1, measure)
    try:
        assert lab.run(end) is None
    finally:
        tracemalloc.stop()
    assert sizes[1] - sizes[0] < 32 << 10


class Forgetful(list[str]):
    def append(self, _: str) -> None:
        pass
