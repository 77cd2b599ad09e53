"""`--signal USR1@120`: processes with a handler get the signal before the time limit, others don't."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from iris_cli.core.messages.observations import AttemptReport, RemoteState
from iris_cli.core.model.job import SIGNALS, EarlySignal
from iris_cli.remote.launch_request import settings_text
from iris_cli.remote.worker_script import library_part
from tests.support.local_transport import SHELLS, tools_of
from tests.support.waiting import LIMITS, until
from tests.support.worker_host import WorkerHost, marked, until_gone

LIMIT = 1000.0
"""Seconds, more than any machine needs, so that the limit itself has no effect."""


def warned(host: WorkerHost, script: str, name: str = "USR1") -> tuple[AttemptReport, bytes]:
    """Run a task until its early signal, which is sent when the handler exists."""
    for delay in LIMITS:
        request = host.request("sh", "-c", script, timeout=LIMIT, signal=EarlySignal(name, LIMIT - delay))
        host.prepare(request, go=True)
        errors = host.attempt_dir(request.token) / "err"
        until(lambda: b"before the time limit" in errors.read_bytes())  # noqa: B023 - called at once
        if b" to 0 process" not in errors.read_bytes():
            return host.wait(request.token), errors.read_bytes()
        host.stopped(request.token, grace=0)
    raise AssertionError("the task never came so far")


def test_a_task_is_warned_and_may_end_well(host: WorkerHost) -> None:
    report, said = warned(host, "trap 'echo saved; exit 7' USR1; while :; do sleep 0.2; done")
    assert (report.state, report.exit_code, report.cause) == (RemoteState.EXITED, 7, "")
    assert re.search(rb"^iris: \d+ s before the time limit: SIGUSR1 to [12] process", said)


def test_a_task_without_a_handler_gets_no_early_signal(host: WorkerHost) -> None:
    """The signal would end a helper without a handler. All descendants with a handler get it."""
    inner = "trap 'echo inner; exit 0' USR1; while :; do sleep 0.2; done"
    script = f'sleep 1000 & helper=$!; sh -c "{inner}"; kill -0 $helper && echo "helper lives"; exit 5'
    report, _ = warned(host, script)
    assert (report.state, report.exit_code) == (RemoteState.EXITED, 5)
    assert host.output(report.token) == b"inner\nhelper lives\n"
    until_gone(report.token)


def test_an_early_signal_does_not_replace_the_time_limit(host: WorkerHost) -> None:
    script = "trap 'echo heard' USR1; while :; do sleep 0.2; done"
    for limit in LIMITS:
        early = EarlySignal("USR1", limit / 2)
        report = host.ended("sh", "-c", script, timeout=limit, signal=early, grace=0.5)
        assert (report.state, report.cause) == (RemoteState.EXITED, "timeout")
        if host.output(report.token) == b"heard\n":
            return
    raise AssertionError("it was never warned")


def test_a_task_that_ends_before_hears_nothing(host: WorkerHost) -> None:
    report = host.ended("sh", "-c", "exit 3", timeout=LIMIT, signal=EarlySignal("USR1", 60.0))
    assert (report.state, report.exit_code, report.cause) == (RemoteState.EXITED, 3, "")
    assert (host.attempt_dir(report.token) / "err").read_bytes() == b""


def test_a_task_without_one_is_sent_nothing_of_it(dash_host: WorkerHost) -> None:
    assert "early" not in settings_text(dash_host.request("true", timeout=LIMIT))


def test_only_the_wrapper_is_recognized_by_its_command_line(host: WorkerHost) -> None:
    """Processes that the wrapper forks before the command have its handlers: a signal would end the task too early."""
    token = host.running("sh", "-c", "while :; do sleep 0.2; done", "run", "start")
    wrapper = host.wrapper(token)
    others = sorted(marked(token) - {wrapper})
    asked = "\n".join(f"executes_run {pid} {token} && echo {pid}" for pid in [wrapper, *others])
    library = (resources.files("iris_cli") / "remote/shell/attempt.sh").read_text()
    script = f"iris_proc=/proc\n{library}\n{asked}\n:"
    told = subprocess.run(
        [host.tools / "sh", "-c", script], capture_output=True, check=True, text=True
    ).stdout
    assert told.split() == [str(wrapper)]
    host.stopped(token, grace=0)


@pytest.mark.parametrize("shell", SHELLS)
def test_handlers_are_found_for_each_signal(shell: str, tmp_path: Path) -> None:
    some = sorted(SIGNALS)[::2]
    waits = ";".join(f"signal.signal(signal.SIG{name}, print)" for name in some)
    waiting = (
        f"import signal; signal.signal(signal.SIGINT, 0); {waits}; print('ready', flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", waiting], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            asked = "\n".join(
                f"is_handled {process.pid} {number} && echo {name}" for name, number in SIGNALS.items()
            )
            script = f"iris_proc=/proc\n{library_part('early')}\n{asked}\n:"
            shell_path = tools_of(shell, tmp_path / "tools") / "sh"
            told = subprocess.run(
                [shell_path, "-c", script], capture_output=True, check=True, text=True
            ).stdout
        finally:
            process.kill()
    assert sorted(told.split()) == some


@pytest.mark.skipif(sys.platform != "linux", reason="these are the numbers on Linux")
def test_the_numbers_are_those_of_the_system() -> None:
    if os.uname().machine not in ("x86_64", "aarch64"):
        pytest.skip("other machines may have other numbers")
    assert {name: int(getattr(signal, f"SIG{name}")) for name in SIGNALS} == dict(SIGNALS)
