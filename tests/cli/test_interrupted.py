"""Ctrl-C while hosts are silent: one line, exit 130, and a log that is whole."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from paramiko import ECDSAKey

from iris_cli.cli.app import run
from iris_cli.clock import SystemClock
from iris_cli.errors import ExitCode, LogDamagedError
from tests.house.rules import ROOT
from tests.support.command_server import command_server
from tests.support.forked import Forked
from tests.support.json_output import checked
from tests.support.waiting import PATIENCE

CONFIG = """
cluster: {{name: lab}}
ssh: {{user: me, key: {key}, known_hosts: accept-new}}
limits: {{connect_timeout: 300s}}
workers: [{{id: a, host: 127.0.0.1, port: {port}}}, {{id: b, host: localhost, port: {port}}}]
"""


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A host that takes connections and says nothing, ever."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE)
        yield server


@pytest.fixture
def lab(silent: socket.socket, tmp_path: Path) -> Path:
    key = tmp_path / "key"
    ECDSAKey.generate().write_private_key_file(str(key))
    (tmp_path / "cluster.yaml").write_text(CONFIG.format(key=key, port=silent.getsockname()[1]))
    assert ended(tmp_path, "launch", "--no-schedule", "--name", "job", "--", "true") == ExitCode.OK
    return tmp_path


def environ(lab: Path) -> dict[str, str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(lab), "IRIS_CONFIG": str(lab / "cluster.yaml")}
    env.pop("IRIS_STATE_DIR", None)
    return env


def ended(lab: Path, *words: str) -> int:
    """The exit code of a command that nobody interrupts."""
    server, nowhere = command_server(), Path(os.devnull)
    return server.wait(server.start(words, directory=lab, env=environ(lab), out=nowhere, err=nowhere))


def iris(lab: Path, *words: str) -> Forked:
    return Forked(words, cwd=lab, env=environ(lab), text=True, session=True)


@pytest.mark.parametrize(
    "line",
    [
        "worker probe",
        "launch --wait -- true",
        "logs job --follow",
        pytest.param("schedule --interval 300", marks=pytest.mark.soak),
        pytest.param("doctor", marks=pytest.mark.soak),
    ],
)
def test_ctrl_c_ends_it_in_one_line(line: str, lab: Path, silent: socket.socket) -> None:
    running = iris(lab, *line.split())
    try:
        caller, _ = silent.accept()  # it waits for an answer now
        with caller:
            running.send_signal(signal.SIGINT)
            _, said = running.communicate(timeout=PATIENCE)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == ExitCode.INTERRUPTED
    assert "Traceback" not in said
    assert len(said.splitlines()) in (1, 2), said
    assert ended(lab, "log", "verify") == ExitCode.OK


def _outcome(program: str, *words: str) -> tuple[int, str, str]:
    """What a program of Python ends with and prints, on standard output and on standard error."""
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_ctrl_c_ends_a_sleep_though_it_comes_just_before_it() -> None:
    """As a signal that is taken by another thread: the handler has run, and the system call goes on."""
    program = (
        "import signal, threading, time\n"
        "from iris_cli.clock import SystemClock\n"
        "def press():\n"
        "    time.sleep(0.2)\n"
        "    signal.pthread_kill(threading.get_ident(), signal.SIGINT)\n"
        "try: threading.Thread(target=press).start(); SystemClock().sleep(3600.0)\n"
        "except KeyboardInterrupt: print('heard')\n"
    )
    assert _outcome(program) == (0, "heard\n", "")


_SLOW = """
import threading, time
class Slow(threading.Timer):
    def start(self):
        super().start()
        threading.Timer = threading._RealTimer
        time.sleep(0.5)
threading._RealTimer, threading.Timer = threading.Timer, Slow
"""
"""The first timer is started so slowly that it has expired when its start returns."""


@pytest.mark.parametrize(
    ("pressed", "begin"),
    [("SIGINT", ""), ("SIGTERM", "signal.signal(signal.SIGINT, signal.SIG_IGN)"), ("SIGINT", _SLOW)],
    ids=["Ctrl-C", "kill, behind & in a script", "on a busy machine"],
)
def test_ctrl_c_while_python_cleans_up_is_neither_shown_nor_lost(pressed: str, begin: str) -> None:
    program = (
        f"import signal\n{begin}\n"
        "from iris_cli.cli import app\n"
        "from iris_cli.clock import SystemClock\n"
        "class Old:\n"
        f"    def __del__(self): signal.raise_signal(signal.{pressed})\n"
        "def act(words, clock):\n"
        "    old = Old()\n"
        "    del old\n"
        "    SystemClock().sleep(3600.0)\n"
        "app._run = act\n"
        "from iris_cli.__main__ import main; main()"
    )
    assert _outcome(program, "schedule") == (ExitCode.INTERRUPTED, "", "interrupted\n")


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 0.2, 0.7])
def test_a_sleep_is_as_long_as_it_was_asked_to_be(seconds: float) -> None:
    clock = SystemClock()
    begun = clock.monotonic()
    clock.sleep(seconds)
    assert clock.monotonic() - begun >= seconds - 0.01


def test_ctrl_c_while_modules_are_loaded_is_told_in_one_line_too() -> None:
    program = (
        "import sys\n"
        "class Pressed:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'iris_cli.core.model.cluster' and sys.meta_path.pop(0): raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Pressed())\n"
        "from iris_cli.__main__ import main; main()"
    )
    assert _outcome(program, "status") == (ExitCode.INTERRUPTED, "", "interrupted\n")
    assert _outcome(program, "exec", "w", "--", "--json") == (ExitCode.INTERRUPTED, "", "interrupted\n")
    code, out, said = _outcome(program, "status", "--json")
    assert (code, out) == (ExitCode.INTERRUPTED, "")
    assert checked("error", said)[0]["error"]["message"] == "interrupted"


def _ctrl_c(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def _damaged(*_: object, **__: object) -> None:
    raise LogDamagedError("the log is damaged")


@pytest.mark.parametrize(
    ("broken", "code", "last"),
    [
        ({"iris_cli.ops.jobs.launch.wait_for_set_up": _ctrl_c}, 130, "interrupted"),
        ({"iris_cli.ops.cycle.cycle.run": _damaged}, 6, "the log is damaged"),
        ({"iris_cli.ops.views.view.load_view": _ctrl_c}, 130, "interrupted"),
        ({"iris_cli.cli.context.Context._start_loop_or_warn": _ctrl_c}, 130, "interrupted"),
        (
            {
                "iris_cli.ops.jobs.launch.wait_for_set_up": _ctrl_c,
                "iris_cli.ops.views.view.load_view": _damaged,
            },
            130,
            "interrupted",
        ),
    ],
)
def test_a_launch_that_is_cut_short_prints_its_document(
    broken: dict[str, Callable[..., None]],
    code: int,
    last: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, act in broken.items():
        monkeypatch.setattr(name, act)
    monkeypatch.delenv("IRIS_STATE_DIR", raising=False)
    monkeypatch.delenv("IRIS_CONFIG", raising=False)
    monkeypatch.setenv("IRIS_LOOP", "off")
    monkeypatch.chdir(tmp_path)
    Path("cluster.yaml").write_text("cluster: {name: lab}\n")
    assert run(["launch", "--json", "--name", "job", "--", "true"]) == code
    said = capsys.readouterr()
    [document] = checked("iris launch", said.out)
    assert document["job"] == "job"
    error = json.loads(said.err.splitlines()[-1])["error"]  # messages come before it
    assert (error["message"], error["exit_code"]) == (last, code)


def test_a_launch_whose_state_can_not_be_read_afterwards_has_worked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("iris_cli.ops.views.view.load_view", _damaged)
    monkeypatch.setenv("IRIS_LOOP", "off")
    monkeypatch.setenv("IRIS_CONFIG", str(tmp_path / "cluster.yaml"))
    monkeypatch.delenv("IRIS_STATE_DIR", raising=False)
    (tmp_path / "cluster.yaml").write_text("cluster: {name: lab}\n")
    assert run(["launch", "--json", "--name", "job", "--", "true"]) == ExitCode.OK
    said = capsys.readouterr()
    [document] = checked("iris launch", said.out)
    assert (document["job"], document["cycles"]) == ("job", None)
    assert said.err.count("warning: the log is damaged") == 1


@pytest.mark.parametrize("ends", ["raise KeyboardInterrupt", "return 0"])
def test_threads_of_hosts_that_nobody_waits_for_do_not_spoil_the_exit_code(ends: str) -> None:
    program = (
        "import threading, time\n"
        "from cryptography.hazmat.primitives.hashes import SHA256, Hash\n"
        "from iris_cli.cli import app\n"
        "begun = threading.Event()\n"
        "class Slow(SHA256):\n"
        "    @property\n"
        "    def name(self):\n"
        "        begun.set()\n"
        "        while True: time.sleep(0.001)\n"
        "def act(words, clock):\n"
        "    threading.Thread(target=Hash, args=(Slow(),), daemon=True).start()\n"
        "    begun.wait(60)\n"
        f"    {ends}\n"
        "app._run = act\n"
        "from iris_cli.__main__ import main; main()"
    )
    code, _, said = _outcome(program)
    expected = (ExitCode.OK, "") if ends == "return 0" else (ExitCode.INTERRUPTED, "interrupted\n")
    assert (code, said) == expected
