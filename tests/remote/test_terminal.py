"""Attempts that start on a terminal: the program uses it, the wrapper doesn't, and each starts once."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from iris_cli.core.ids import Token
from iris_cli.core.messages.observations import RemoteState
from iris_cli.remote.launch_request import terminal_command
from tests.support.terminal import _BECOME_ITS_OWN
from tests.support.waiting import PATIENCE, until
from tests.support.worker_host import WorkerHost, until_gone


class OnTerminal:
    """Runs a command on a terminal, as a worker's sshd does."""

    def __init__(self, host: WorkerHost, token: Token) -> None:
        self.ours, theirs = pty.openpty()
        command = terminal_command("c1", host.target, token)
        self.process = subprocess.Popen(
            ["python3", "-I", "-S", "-c", _BECOME_ITS_OWN, "/bin/sh", "-c", command],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=host.transport.env,
            cwd=host.transport.home,
            start_new_session=True,
        )
        os.close(theirs)
        self.shown = b""

    def until(self, words: bytes) -> None:
        deadline = time.monotonic() + PATIENCE
        while words not in self.shown:
            left = max(0.0, deadline - time.monotonic())
            assert select.select([self.ours], [], [], left)[0], f"no {words!r} in {self.shown!r}"
            self.shown += os.read(self.ours, 4096)

    def end(self) -> bytes:
        """Read to the end; return all output."""
        with suppress(OSError):
            while data := os.read(self.ours, 4096):
                self.shown += data
        self.process.wait(PATIENCE)
        return self.shown

    def close(self) -> None:
        if self.ours >= 0:
            os.close(self.ours)
            self.ours = -1


@contextmanager
def on_terminal(host: WorkerHost, token: Token) -> Iterator[OnTerminal]:
    terminal = OnTerminal(host, token)
    try:
        yield terminal
    finally:
        terminal.close()
        terminal.process.kill()
        terminal.process.wait(PATIENCE)


def prepared(host: WorkerHost, script: str, **settings: object) -> Token:
    request = host.request("sh", "-c", script, **settings)
    [report] = host.prepare(request)
    assert report.state is RemoteState.PREPARED
    return request.token


def watchdogs(host: WorkerHost, token: Token) -> list[int]:
    """Return the watchdogs of the terminal of an attempt, which have it as stdin."""
    words = b"\0".join([str(host.attempt_dir(token) / "run").encode(), b"terminal", b""])
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if words in (path / "cmdline").read_bytes() and os.readlink(path / "fd/0").startswith(
                "/dev/pts/"
            ):
                found.append(int(path.name))
    return found


def test_the_program_has_the_terminal_and_its_end_is_recorded(host: WorkerHost) -> None:
    token = prepared(
        host, "test -t 0 && test -t 1 && test -t 2 && echo shown; echo told >&2; exit 7", lease=600
    )
    with on_terminal(host, token) as terminal:
        assert terminal.end().split() == [b"shown", b"told"]
    report = host.wait(token)
    assert (report.state, report.exit_code, report.cause) == (RemoteState.EXITED, 7, "")
    assert host.output(token) == b""
    with on_terminal(host, token) as again:
        assert again.end() == b""
    assert host.poll(token)[0].exit_code == 7


def test_ctrl_c_is_for_the_program_and_the_end_of_the_terminal_ends_it(host: WorkerHost) -> None:
    # Not a shell: bash ignores a Ctrl-C if its current child happens to exit normally at that moment.
    # os.write, because a print in the handler fails if the signal interrupts another print.
    program = """
import os, signal, time
signal.signal(signal.SIGINT, lambda *_: os.write(1, b"caught"))
os.write(1, b"ready")
while True:
    time.sleep(1)
"""
    token = prepared(host, f"exec python3 -I -S -c '{program}'")
    with on_terminal(host, token) as terminal:
        terminal.until(b"ready")
        until(lambda: watchdogs(host, token))
        os.write(terminal.ours, b"\x03")
        terminal.until(b"caught")
        os.write(terminal.ours, b"\x1a")  # no process could continue it
        os.write(terminal.ours, b"\x03")
        terminal.shown = b""
        terminal.until(b"caught")
        assert host.state(token) is RemoteState.RUNNING
        assert len(watchdogs(host, token)) == 1
        terminal.close()
        report = host.wait(token)
    assert (report.state, report.exit_code, report.cause) == (
        RemoteState.EXITED,
        128 + signal.SIGHUP,
        "signal",
    )
    until_gone(token)


def test_a_program_that_outlives_its_terminal_is_stopped_as_any(host: WorkerHost) -> None:
    token = prepared(host, "trap '' HUP TERM; echo ready; while :; do sleep 1; done")
    with on_terminal(host, token) as terminal:
        terminal.until(b"ready")
        terminal.close()
        until(lambda: host.state(token) is RemoteState.RUNNING)
        assert host.stopped(token, grace=0.1).state is RemoteState.STOPPED
    until_gone(token)


def test_only_an_attempt_prepared_in_this_boot_starts(host: WorkerHost) -> None:
    stopped = prepared(host, "echo started")
    assert host.stopped(stopped).state is RemoteState.STOPPED
    running = host.running("sleep", "1000")
    older = prepared(host, "echo started")
    run = host.attempt_dir(older) / "run"
    run.write_text(run.read_text().replace(host.boot_id, "another-boot", 1))
    for token in (stopped, running, older, Token("0" * 32)):
        with on_terminal(host, token) as terminal:
            assert terminal.end() == b""
    assert host.state(running) is RemoteState.RUNNING
    assert not (host.attempt_dir(older) / "go").exists()
    host.stopped(running, grace=0)
