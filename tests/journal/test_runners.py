"""The locks of processes that run cycles: who holds one is seen, who was killed is gone."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from iris_cli.journal.files.runners import LOOP, Runner, Runners

_HOLD = """
import sys
from pathlib import Path
from iris_cli.journal.files.runners import Runner, Runners
runners = Runners(Path(sys.argv[1]), "me@laptop")
held = runners.hold(sys.argv[2], "iris " + sys.argv[2], interval=3.0, since=1000.0)
print("held" if held else "taken", flush=True)
sys.stdin.read()
"""


@contextmanager
def holding(directory: Path, kind: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock of a runner of that kind; killed at the end."""
    command = [sys.executable, "-c", _HOLD, str(directory), kind]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


@pytest.fixture
def runners(tmp_path: Path) -> Runners:
    return Runners(tmp_path, "me@laptop")


def test_without_a_directory_there_are_no_runners(runners: Runners, tmp_path: Path) -> None:
    assert runners.live_runners() == []
    assert list(tmp_path.iterdir()) == []


def test_a_runner_is_seen_with_what_it_says_of_itself(runners: Runners, tmp_path: Path) -> None:
    with holding(tmp_path, "wait") as process:
        [found] = runners.live_runners()
        assert (found.kind, found.pid, found.actor) == ("wait", process.pid, "me@laptop")
        assert (found.command, found.interval, found.since) == ("iris wait", 3.0, 1000.0)


def test_a_runner_that_was_killed_is_gone_at_once(runners: Runners, tmp_path: Path) -> None:
    with holding(tmp_path, LOOP) as process:
        assert [each.kind for each in runners.live_runners()] == [LOOP]
        process.kill()
        process.wait()
        assert runners.live_runners() == []


def test_there_is_one_loop_and_any_number_of_waits(runners: Runners, tmp_path: Path) -> None:
    with holding(tmp_path, LOOP), holding(tmp_path, "wait"), holding(tmp_path, "wait"):
        assert runners.hold(LOOP, "iris loop", interval=10.0, since=0.0) is None
        assert sorted(each.kind for each in runners.live_runners()) == [LOOP, "wait", "wait"]


def test_two_simultaneous_checks_do_not_block_each_other(runners: Runners, tmp_path: Path) -> None:
    held = runners.hold(LOOP, "iris loop", interval=10.0, since=0.0)
    assert held is not None
    held.release()
    path = tmp_path / "runners" / LOOP
    with Runners.probing(path) as first, Runners.probing(path) as second:
        assert (first, second) == (True, True)


def test_a_running_check_does_not_block_the_loop(runners: Runners, tmp_path: Path) -> None:
    """A loop that took another command's look for another loop would leave, and nobody would run cycles."""
    held = runners.hold(LOOP, "iris loop", interval=10.0, since=0.0)
    assert held is not None
    held.release()
    with ExitStack() as look:
        assert look.enter_context(Runners.probing(tmp_path / "runners" / LOOP))
        patient = Runners(tmp_path, "me@laptop", sleep=lambda _: look.close())
        assert patient.hold(LOOP, "iris loop", interval=10.0, since=0.0) is not None


def test_the_files_are_private(runners: Runners, tmp_path: Path) -> None:
    with holding(tmp_path, "wait"):
        directory = tmp_path / "runners"
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert [stat.S_IMODE(each.stat().st_mode) for each in directory.iterdir()] == [0o600]


def test_only_a_new_runner_deletes_files_of_killed_ones(runners: Runners, tmp_path: Path) -> None:
    with holding(tmp_path, "wait") as process:
        process.kill()
        process.wait()
    runners.live_runners()
    assert len(list((tmp_path / "runners").iterdir())) == 1
    held = runners.hold("watch", "iris watch", interval=2.0, since=0.0)
    assert held is not None
    assert [each.name.partition("-")[0] for each in (tmp_path / "runners").iterdir()] == ["watch"]
    held.release()
    assert list((tmp_path / "runners").iterdir()) == []


def test_a_lock_that_was_removed_or_replaced_is_not_held_any_more(runners: Runners, tmp_path: Path) -> None:
    held = runners.hold(LOOP, "iris loop", interval=10.0, since=0.0)
    assert held is not None
    assert held.is_in_place()
    (tmp_path / "runners" / LOOP).unlink()
    assert not held.is_in_place()
    (tmp_path / "runners" / LOOP).touch()
    assert not held.is_in_place()


def test_a_descriptor_hands_the_lock_to_a_child(runners: Runners, tmp_path: Path) -> None:
    held = runners.hold(LOOP, "iris loop", interval=10.0, since=0.0)
    assert held is not None
    child = subprocess.Popen(
        ["sleep", "60"], stdin=subprocess.DEVNULL, pass_fds=(held.descriptor,), start_new_session=True
    )
    try:
        held.hand_over()
        [found] = runners.live_runners()
        assert found.kind == LOOP
    finally:
        child.kill()
        child.wait()
    assert runners.live_runners() == []


def test_a_second_release_does_not_close_the_descriptor_of_another_file(
    runners: Runners, tmp_path: Path
) -> None:
    held = runners.hold(LOOP, "iris loop", interval=10.0, since=1000.0)
    assert held is not None
    number = held.descriptor
    with (tmp_path / "other").open("wb") as other:
        held.release()
        os.dup2(other.fileno(), number)
        held.release()
        os.write(number, b"still open")
        os.close(number)


def test_a_lock_is_taken_over_by_its_descriptor_only_if_it_is_the_one(
    runners: Runners, tmp_path: Path
) -> None:
    held = runners.hold(LOOP, "iris loop", interval=10.0, since=0.0)
    assert held is not None
    taken = runners.inherit(held.descriptor, "iris loop", interval=10.0, since=5.0)
    assert taken is not None
    assert [each.since for each in runners.live_runners()] == [5.0]
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    assert runners.inherit(other, "iris loop", interval=10.0, since=0.0) is None
    assert runners.inherit(10_000, "iris loop", interval=10.0, since=0.0) is None


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"[]", b"{", b"\xff\x00"),
        *(b'{"pid": "x"}', b'{"pid": 1e999}', b'{"pid": -1}', b'{"interval": NaN}', b'{"interval": -1}'),
    ],
)
def test_a_runner_with_a_damaged_file_still_counts(text: bytes, runners: Runners, tmp_path: Path) -> None:
    held = runners.hold("wait", "iris wait", interval=3.0, since=0.0)
    assert held is not None
    [path] = (tmp_path / "runners").iterdir()
    path.write_bytes(text)
    [found] = runners.live_runners()
    assert (found.kind, found.pid, found.interval) == ("wait", 0, 0.0)


def test_what_is_no_file_of_ours_is_no_runner(runners: Runners, tmp_path: Path) -> None:
    held = runners.hold("wait", "iris wait", interval=3.0, since=0.0)
    assert held is not None
    os.mkfifo(tmp_path / "runners" / "wait-pipe")
    (tmp_path / "runners" / "wait-link").symlink_to(tmp_path / "runners")
    (tmp_path / "runners" / "unheard-of").touch()
    assert len(runners.live_runners()) == 1


def test_a_process_is_told_from_a_later_one_of_its_number() -> None:
    mine = Runner.of_process(os.getpid(), "loop", "me@laptop", "iris loop", interval=10.0, since=0.0)
    assert mine.is_process(os.getpid())
    if Path("/proc/self/stat").exists():
        later = Runner(**{**mine.entry(), "kind": "loop", "started": f"{mine.started}0"})
        assert not later.is_process(os.getpid())
