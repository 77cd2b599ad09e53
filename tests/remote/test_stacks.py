"""Stacks of running programs: from py-spy, or by a signal to programs that registered for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from iris_cli.core.ids import Token
from iris_cli.core.messages.observations import RemoteState
from iris_cli.core.messages.stacks import Frame, threads_of
from iris_cli.remote.stack_calls import Program, Programs
from tests.support.waiting import until
from tests.support.worker_host import WorkerHost, marked

REGISTERED = """
import faulthandler, os, signal
faulthandler.register(signal.SIGUSR1, file=open(os.path.join(os.environ["IRIS_TASK_DIR"], "stacks.USR1"), "a"))
"""
PLAIN = "import faulthandler, signal; faulthandler.register(signal.SIGUSR1)\n"
CHECKPOINTS = "import os, signal; signal.signal(signal.SIGUSR1, lambda *_: os._exit(1))\n"
WAITS = """
import threading
def wait_for_others(name):
    open(name, "w").close()
    threading.Event().wait(1000)
"""
PIECES = {
    "registered": f"{REGISTERED}{WAITS}wait_for_others('up')",
    "plain": f"{PLAIN}{WAITS}wait_for_others('up')",
    "checkpoints": f"{CHECKPOINTS}{WAITS}wait_for_others('up')",
    "neither": f"{WAITS}wait_for_others('up')",
    "several": f"{REGISTERED}{WAITS}if os.fork(): wait_for_others('up')\nelse: wait_for_others('child')",
}


@pytest.fixture(autouse=True)
def no_py_spy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide py-spy from the hosts if it is installed on this machine."""
    places = os.environ["PATH"].split(":")
    monkeypatch.setenv("PATH", ":".join(each for each in places if not Path(each, "py-spy").exists()))
    if shutil.which("sleep") is None:
        pytest.skip("py-spy is among the programs that every host has")


@pytest.fixture
def python(tmp_path: Path) -> str:
    """A Python in a separate directory, as py-spy may be next to that of the tests."""
    (tmp_path / "python").mkdir()
    link = tmp_path / "python/python3"
    link.symlink_to(sys.executable)
    return str(link)


def running(host: WorkerHost, python: str, *pieces: str, path: str = "") -> list[Token]:
    """Start these and wait until all their processes are waiting."""
    env = {"PATH": f"{path}:{host.transport.env['PATH']}"} if path else {}
    requests = [host.request(python, "-c", PIECES[piece], env=env) for piece in pieces]
    host.prepare(*requests, go=True)
    for request, piece in zip(requests, pieces, strict=True):
        for name in ("up", "child") if piece == "several" else ("up",):
            until((host.attempt_dir(request.token) / "work" / name).exists)
    return [request.token for request in requests]


def asked(host: WorkerHost, *tokens: Token, consent: str = "") -> list[Programs]:
    answer = host.runner.stacks.read(host.target, tokens, consent=consent)
    assert isinstance(answer, tuple), answer
    return list(answer)


def program(host: WorkerHost, tokens: list[Token]) -> Program:
    [found] = asked(host, *tokens)
    assert found.state is RemoteState.RUNNING
    [only] = found.programs
    return only


def in_main(dump: str) -> list[str]:
    return [frame.function for thread in threads_of(dump) if thread.is_main for frame in thread.frames]


def test_only_programs_with_faulthandler_get_the_signal(host: WorkerHost, python: str) -> None:
    """The signal would end some programs, and mean something else to others."""
    pieces = ["registered", "plain", "checkpoints", "neither"]
    ended = host.launch("true")
    tokens = [*running(host, python, *pieces), host.running("sleep", "1000")]
    host.wait(ended)
    *alive, over, absent = asked(host, *tokens, ended, Token("0" * 32))
    found = {name: each.programs for name, each in zip([*pieces, "sleep"], alive, strict=True)}
    assert {name: [each.how for each in programs] for name, programs in found.items()} == {
        "registered": ["handler"],
        "plain": ["catches.USR1"],
        "checkpoints": ["catches.USR1"],
        "neither": ["silent"],
        "sleep": ["other"],
    }
    [said] = found["registered"]
    assert in_main(said.dump)[-2:] == ["wait_for_others", "<module>"]
    assert [each.command for each in found["sleep"]] == ["sleep 1000"]
    assert found["sleep"][0].state in "RSD"
    assert (over.state, over.count, over.programs) == (RemoteState.EXITED, 0, ())
    assert (absent.state, absent.count, absent.programs) == (RemoteState.ABSENT, 0, ())

    on_the_word_of_the_operator = asked(host, tokens[1], tokens[3], tokens[4], consent="USR1")
    [said], [silent], [other] = (each.programs for each in on_the_word_of_the_operator)
    assert [each.how for each in (said, silent, other)] == ["handler", "silent", "other"]
    assert in_main(said.dump)[-2:] == ["wait_for_others", "<module>"]
    assert b"most recent call first" in host.output(tokens[1], "err")
    assert {each.state for each in host.poll(*tokens)} == {RemoteState.RUNNING}


def spy(directory: Path, script: str) -> Path:
    directory.mkdir()
    (directory / "py-spy").write_text(f"#!/bin/sh\n{script}\n")
    (directory / "py-spy").chmod(0o755)
    return directory


def test_a_py_spy_in_the_path_of_the_task_is_asked_first(
    host: WorkerHost, python: str, tmp_path: Path
) -> None:
    said = 'Thread 1 (idle): "MainThread"\\n    wait (threading.py:320)\\n    main (train.py:12)\\n'
    tools = spy(tmp_path / "venv", f"""[ "$1 $2" = "dump --pid" ] && kill -0 "$3" && printf '{said}'""")
    found = program(host, running(host, python, "registered", path=str(tools)))
    assert found.how == "spy", found
    [thread] = threads_of(found.dump)
    assert thread.frames == (Frame("wait", "threading.py", 320), Frame("main", "train.py", 12))


def test_without_permission_for_py_spy_each_process_of_a_task_is_signalled(
    dash_host: WorkerHost, python: str, tmp_path: Path
) -> None:
    tools = spy(tmp_path / "venv", "echo 'Error: Permission denied' >&2; exit 1")
    [found] = asked(dash_host, *running(dash_host, python, "several", path=str(tools)))
    assert found.count == 2
    assert [(each.how, each.trouble) for each in found.programs] == 2 * [
        ("handler", "Error: Permission denied")
    ]
    assert all(in_main(each.dump)[-2:] == ["wait_for_others", "<module>"] for each in found.programs)


@pytest.mark.soak
def test_endless_output_of_py_spy_is_truncated(dash_host: WorkerHost, python: str, tmp_path: Path) -> None:
    tools = spy(tmp_path / "venv", "yes '    main (train.py:1)' | head -c 3000000; printf '\\033[2J\\0'")
    found = program(dash_host, running(dash_host, python, "neither", path=str(tools)))
    assert found.how == "spy"
    assert 40_000 < len(found.dump) < 50_000


@pytest.mark.soak
def test_a_hanging_py_spy_leaves_no_process_stopped(host: WorkerHost, python: str, tmp_path: Path) -> None:
    tools = spy(tmp_path / "venv", 'kill -s STOP "$3"; exec sleep 1000')
    [token] = running(host, python, "registered", path=str(tools))
    found = program(host, [token])
    assert (found.how, found.trouble) == ("handler", "it took too long")
    assert in_main(found.dump)[-2:] == ["wait_for_others", "<module>"]


def test_the_real_py_spy(dash_host: WorkerHost, python: str, tmp_path: Path) -> None:
    real = Path(sys.executable).with_name("py-spy")
    if not real.exists():
        pytest.skip("py-spy is not installed here")
    tools = spy(tmp_path / "venv", f'exec {real} "$@"')
    found = program(dash_host, running(dash_host, python, "neither", path=str(tools)))
    if found.how != "spy":
        pytest.skip(f"py-spy may not look at processes here: {found.trouble}")
    assert in_main(found.dump)[-2:] == ["wait_for_others", "<module>"]
    assert not {
        each for each in marked(dash_host.tokens[0]) if "T (" in Path(f"/proc/{each}/status").read_text()
    }


SPINS = "import threading\nopen('up', 'w').close()\nwhile True: pass"
HOSTILE = "open('/proc/self/comm', 'w').write('a) R 1\\n9/stat:('); import threading\n"
PIECES["spins"] = SPINS
PIECES["hostile"] = f"{HOSTILE}{WAITS}wait_for_others('up')"


def test_without_a_stack_kernel_states_are_reported(host: WorkerHost, python: str) -> None:
    tokens = running(host, python, "neither", "hostile")
    sleeping, hostile = (each.programs[0].threads for each in asked(host, *tokens))
    assert [(each.state, each.spins) for each in sleeping] == [("S", False)]
    assert sleeping[0].wait_channel in (
        "",
        "futex_wait_queue",
        "futex_wait_queue_me",
        "futex_wait",
        "futex_do_wait",
    )
    assert [(each.state, each.spins, each.name[:4]) for each in hostile] == [("S", False, "a) R")]
    [spinning] = running(host, python, "spins")

    def states() -> list[tuple[str, bool]]:
        [found] = asked(host, spinning)
        return [(each.state, each.spins) for each in found.programs[0].threads]

    until(lambda: states() == [("R", True)])  # on a busy host it must first get some time to spin


@pytest.mark.parametrize(
    ("between", "left"),
    [
        (":", ["at 10000", "7/stat:7 (x) S", "7/wchan:pipe_read"] * 2),
        ('rm "$iris_proc/7/task/7/stat"', []),
        ('rm -r "$iris_proc/7"', []),
        ('echo "7 (other) S $rest 2" >"$iris_proc/7/stat"', []),
        (
            'rm "$iris_proc/7/task/7/wchan"',
            ["at 10000", "7/stat:7 (x) S", "7/wchan:pipe_read", "at 10000", "7/stat:7 (x) S"],
        ),
    ],
)
def test_a_process_that_ends_between_the_readings_has_no_threads(
    host: WorkerHost, tmp_path: Path, between: str, left: list[str]
) -> None:
    """Both readings use a directory instead of /proc. Process 8 is hidden, as with hidepid."""
    proc = tmp_path / "proc"
    (proc / "7/task/7").mkdir(parents=True)
    (proc / "uptime").write_text("100.00 0.00\n")
    (proc / "7/task/7/stat").write_text("7 (x) S\n")
    (proc / "7/task/7/wchan").write_text("pipe_read")
    shell = resources.files("iris_cli") / "remote" / "shell"
    library = "".join((shell / f"{name}.sh").read_text("utf-8") for name in ("host", "stacks"))
    (tmp_path / "library").write_text(library)
    script = f"""
        iris_proc={proc} iris_dev=/dev iris_sys=/sys iris_mounts=/proc/self/mounts iris_lock={tmp_path}/lock
        mkdir {proc}/self && touch {proc}/self/stat
        rest='1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0'
        echo "7 (x) S $rest 1" >{proc}/7/stat
        . {tmp_path}/library
        thread_room=1000
        read_first 7:1 8:1
        {between}
        dump=
        read_second 8 1
        read_second 7 1
        printf '%s' "$dump"
    """
    done = subprocess.run(
        ["sh", "-c", script],
        executable=str(host.tools / "sh"),
        env=host.transport.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.splitlines(), done.stderr) == (left, "")
