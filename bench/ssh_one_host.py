"""Targets 9 and 10: start one task on one host over a new and an open connection, near and far."""

from __future__ import annotations

import getpass
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench.result import Row, Scale
from bench.ssh_hosts import (
    PATIENCE,
    ROUND_TRIP,
    Identity,
    far_port,
    has_ssh,
    launch,
    new_runner,
    real_host,
    script_of_launch,
)
from bench.stopwatch import medians, seconds, wall
from iris_cli.core.messages.observations import ProbeReport
from iris_cli.remote.transport import Target
from tests.support.sshd import SshHost


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
    with new_runner(known_hosts) as runner:
        report = runner.probe(target)
        assert isinstance(report, ProbeReport), report
        return report.boot_id, report.incarnation


def start_on_new(known_hosts: Path, identity: Identity, target: Target) -> float:
    """Return the seconds to start a task on a host without a connection."""
    with new_runner(known_hosts) as runner:
        return seconds(lambda: launch(runner, target, identity), wall)


def start_on_open(known_hosts: Path, identity: Identity, target: Target) -> float:
    """Return the seconds to start a second task over the same connection."""
    with new_runner(known_hosts) as runner:
        launch(runner, target, identity)
        return seconds(lambda: launch(runner, target, identity), wall)


def openssh(host: SshHost, port: int, identity: Identity) -> float:
    """Return the seconds that ssh needs for the same script."""
    script = script_of_launch(host.target(), identity)
    options = ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "BatchMode=yes"]
    command = ["ssh", "-F", "none", "-i", str(host.client_key), "-p", str(port), "-l", getpass.getuser()]
    command += [word for option in options for word in ("-o", option)] + ["127.0.0.1", "sh -s"]

    def run() -> None:
        subprocess.run(command, input=script, stdout=subprocess.DEVNULL, check=True, timeout=PATIENCE)

    return seconds(run, wall)
