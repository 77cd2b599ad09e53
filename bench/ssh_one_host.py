"""Targets 9 and 10: start one task on one host over a new and an open connection, near and far."""

from __future__ import annotations

import getpass
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bench.result import Row
from bench.scale import Scale
from bench.ssh_hosts import PATIENCE, ROUND_TRIP, far_port, has_ssh, launch, real_host, runner_of, transport
from bench.stopwatch import medians, seconds, wall
from iris_cli.core.ids import Token
from iris_cli.core.messages.observations import ProbeReport, SilenceKind
from iris_cli.remote.task_runner import TaskRunner
from iris_cli.remote.transport import NoAnswer, Script, ScriptResult, Target
from tests.support.sshd import SshHost

Identity = tuple[str, str]


def rows(scale: Scale) -> Iterator[Row]:
    """Measure a start: connect, authenticate, send the script, start detached, receive the answer."""
    if not has_ssh():
        return
    with real_host() as (lab, host), far_port(host.port) as far:
        identity = probed(lab.known_hosts, host.target())
        ours = partial(start_on_new, lab.known_hosts, identity)
        found = medians(
            {
                "near": lambda: ours(host.target()),
                "ssh near": lambda: openssh(host, host.port, identity),
                "far": lambda: ours(host.target(port=far)),
                "open": lambda: start_on_open(lab.known_hosts, identity, host.target(port=far)),
                "open near": lambda: start_on_open(lab.known_hosts, identity, host.target()),
                "ssh far": lambda: openssh(host, far, identity),
            },
            scale.repeat,
        )
    yield Row(
        target=9,
        name="start anew against ssh, s wall",
        value=found["near"],
        reference=found["ssh near"],
        limit=0.35,
    )
    # Includes the time of the worker and this machine, as in the near figures; only round trips are counted.
    way = ROUND_TRIP
    yield Row(
        target=10, name="start anew, round trips of 50 ms", value=found["far"], reference=way, limit=10.5
    )
    yield Row(
        target=10,
        name="start on an open connection, round trips",
        value=found["open"],
        reference=way,
        limit=3.2,
    )
    yield Row(
        target=10,
        name="start anew against ssh, 50 ms, s wall",
        value=found["far"],
        reference=found["ssh far"],
        limit=1,
    )


def probed(known_hosts: Path, target: Target) -> Identity:
    """Create the worker's directory; return its boot id and incarnation."""
    with transport(known_hosts) as ssh:
        report = runner_of(ssh).probe(target)
        assert isinstance(report, ProbeReport), report
        return report.boot_id, report.incarnation


def start_on_new(known_hosts: Path, identity: Identity, target: Target) -> float:
    """Return the seconds to start a task on a host without a connection."""
    with transport(known_hosts) as ssh:
        runner = runner_of(ssh)
        return seconds(lambda: launch(runner, target, identity, ["true"]), wall)


def start_on_open(known_hosts: Path, identity: Identity, target: Target) -> float:
    """Return the seconds to start a second task over the same connection."""
    with transport(known_hosts) as ssh:
        runner = runner_of(ssh)
        launch(runner, target, identity, ["true"])
        return seconds(lambda: launch(runner, target, identity, ["true"]), wall)


def openssh(host: SshHost, port: int, identity: Identity) -> float:
    """Return the seconds that ssh needs for the same script."""
    script = _script_of(lambda runner: launch(runner, host.target(), identity, ["true"]))
    options = ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "BatchMode=yes"]
    command = ["ssh", "-F", "none", "-i", str(host.client_key), "-p", str(port), "-l", getpass.getuser()]
    command += [word for option in options for word in ("-o", option)] + ["127.0.0.1", "sh -s"]

    def run() -> None:
        subprocess.run(command, input=script, stdout=subprocess.DEVNULL, check=True, timeout=PATIENCE)

    return seconds(run, wall)


class _Recorder:
    """A transport that only records the script."""

    script = b""

    def run(self, target: Target, script: Script) -> ScriptResult:
        self.script = script.text
        raise NoAnswer(SilenceKind.LOCAL, "configuration", "nothing is sent")

    def close(self) -> None:
        """Do nothing: no connection is open."""


def _script_of(call: Callable[[TaskRunner], Token]) -> bytes:
    recorder = _Recorder()
    try:
        call(TaskRunner(recorder, "bench"))
    except RuntimeError:
        return recorder.script
    raise AssertionError("a recorder starts nothing")
