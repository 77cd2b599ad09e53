"""Commands of the operator on a worker: output, exit code, no remaining processes, no effect on tasks."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from iris_cli.core.ids import Token
from iris_cli.core.messages.observations import RemoteState
from iris_cli.remote.command_calls import CommandEnd, CommandRequest
from tests.remote.test_task_environment import HOSTILE
from tests.support.waiting import LIMITS, PATIENCE, until
from tests.support.worker_host import WorkerHost, is_alive, marked, pids_in


def request(*argv: str, **settings: object) -> CommandRequest:
    fields: dict[str, object] = {"token": Token(secrets.token_hex(16)), "argv": argv, "env": {}}
    return CommandRequest(**fields | settings)  # type: ignore[arg-type]  # tests may name any field


def ran(host: WorkerHost, asked: CommandRequest) -> CommandEnd:
    answer = host.runner.commands.run(host.target, asked)
    assert isinstance(answer, CommandEnd), answer
    assert list((host.root / "e").glob("*")) == []
    assert not marked(asked.token)
    return answer


def test_output_and_exit_code_of_a_command_are_returned(host: WorkerHost) -> None:
    end = ran(host, request("sh", "-c", "echo out; echo err >&2; printf '\\0\\377no line end'; exit 7"))
    assert end == CommandEnd(exit_code=7, output=b"out\nerr\n\0\xffno line end")


def test_arguments_and_environment_arrive_byte_for_byte(host: WorkerHost) -> None:
    program = "import os, sys; sys.stdout.buffer.write(b'|'.join([*map(os.fsencode, sys.argv[1:]), os.environb[b'V']]))"
    words = list(HOSTILE.values())[:-1]
    end = ran(host, request(sys.executable, "-c", program, *words, env={"V": HOSTILE["quotes"]}))
    assert end.output == b"|".join(word.encode() for word in [*words, HOSTILE["quotes"]])


def test_a_command_has_nothing_to_read_and_starts_at_home(host: WorkerHost) -> None:
    end = ran(host, request("sh", "-c", 'cat; pwd; echo "${IRIS_TASK_DIR-none}"'))
    assert end.output.decode().splitlines() == [str(host.directory / "home"), "none"]


def test_in_a_task_it_is_in_its_directory_and_no_process_of_it(host: WorkerHost) -> None:
    task = host.running("sh", "-c", "echo here >made; exec sleep 1000")
    until((host.attempt_dir(task) / "work/made").exists)
    asked = request("sh", "-c", 'cat made; echo "$IRIS_WORKDIR"; echo $IRIS_ATTEMPT_TOKEN', attempt=task)
    end = ran(host, asked)
    assert end.output.decode().splitlines() == ["here", f"{host.attempt_dir(task)}/work", asked.token]
    assert host.state(task) is RemoteState.RUNNING
    host.stopped(task, grace=0)


def test_a_command_for_a_missing_attempt_is_gone(host: WorkerHost, tmp_path: Path) -> None:
    end = ran(host, request("touch", str(tmp_path / "ran"), attempt=Token("0" * 32)))
    assert end == CommandEnd(exit_code=None, output=b"", gone=True)
    assert not (tmp_path / "ran").exists()


def test_a_command_without_its_program_prints_a_message(host: WorkerHost) -> None:
    end = ran(host, request("no-such-program"))
    assert end.exit_code == 127
    assert b"no-such-program" in end.output


def test_much_output_is_cut_and_all_of_it_is_taken(host: WorkerHost) -> None:
    end = ran(host, request("sh", "-c", "yes | head -c 3000000; echo $? >&2; exit 4", limit=1001))
    assert (end.exit_code, end.cut, end.output) == (4, True, (b"y\n" * 501)[:1001])


@pytest.mark.parametrize("size", [0, 1, 999, 1000])
def test_output_up_to_the_limit_is_whole(dash_host: WorkerHost, size: int) -> None:
    end = ran(dash_host, request("head", "-c", str(size), "/dev/zero", limit=1000))
    assert (end.output, end.cut) == (bytes(size), False)


def test_a_command_that_takes_too_long_is_ended_with_all_that_it_started(
    dash_host: WorkerHost, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    beside = f"(setsid sleep 1000 & echo $! >>{pids}; wait) & echo $$ >>{pids}"
    script = f"trap '' TERM; {beside}; echo begun; wait; sleep 1000"
    for limit in LIMITS:
        pids.write_text("")
        end = ran(dash_host, request("sh", "-c", script, timeout=limit))
        assert end.timed_out
        assert not any(map(is_alive, pids_in(pids)))
        if end.output == b"begun\n":
            assert end.exit_code == 137
            return
    raise AssertionError("the command never came so far")


def test_processes_left_by_a_command_are_ended_without_delay(host: WorkerHost, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"setsid sleep 1000 & echo $! >>{pids}; exit 0"
    assert ran(host, request("sh", "-c", script)).exit_code == 0
    assert not any(map(is_alive, pids_in(pids)))


def in_the_background(act: Callable[[], object]) -> Callable[[], object]:
    """Start a function in a thread; return a function that waits for its result."""
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(act()), daemon=True)
    thread.start()

    def result() -> object:
        thread.join(PATIENCE)
        return results[0]

    return result


def test_a_command_can_be_ended_from_elsewhere(host: WorkerHost, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    asked = request("sh", "-c", f"echo $$ >>{pids}; exec sleep 1000", timeout=1000.0)
    result = in_the_background(lambda: host.runner.commands.run(host.target, asked))
    until(lambda: pids_in(pids))
    assert host.runner.commands.end(host.target, [asked.token]) is None
    assert not is_alive(pids_in(pids)[0])
    end = result()
    assert isinstance(end, CommandEnd)
    assert (end.exit_code, end.timed_out) == (143, False)
    until(lambda: not list((host.root / "e").glob("*")))


def test_a_command_that_was_ended_before_it_arrived_never_starts(host: WorkerHost, tmp_path: Path) -> None:
    asked = request("touch", str(tmp_path / "ran"))
    assert host.runner.commands.end(host.target, [asked.token]) is None
    assert ran(host, asked) == CommandEnd(exit_code=None, output=b"")
    assert not (tmp_path / "ran").exists()


def test_files_of_a_killed_command_are_removed_by_the_next_one(dash_host: WorkerHost) -> None:
    dead, lives, fresh = (dash_host.root / "e" / (letter * 32) for letter in "abc")
    process = subprocess.Popen(["sleep", "1000"])
    try:
        start = Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2].split()[19]
        for place, said in ((dead, f"{process.pid} 1 {dash_host.boot_id}"), (lives, "")):
            place.mkdir(parents=True)
            (place / "caller").write_text(f"{said or f'{process.pid} {start} {dash_host.boot_id}'}\n")
            (place / "out").write_text("said")
        fresh.mkdir()
        dash_host.runner.commands.run(dash_host.target, request("true"))
        assert sorted((dash_host.root / "e").iterdir()) == [lives, fresh]
    finally:
        process.kill()
        process.wait()
    os.utime(fresh, (1, 1))
    assert ran(dash_host, request("true")).exit_code == 0
    assert list((dash_host.root / "e").iterdir()) == []
