"""A watch on real hosts: one hangs for as long as the test wants, and the others don't notice."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.relay import Fault, Relay, relay
from tests.support.site import Site
from tests.support.sshd import SshHost
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.ssh

Lab = Callable[..., list[SshHost]]


def through(site: Site, host: SshHost, by: Relay) -> None:
    """From now on the way to a host leads through the relay."""
    config = site.directory / "cluster.yaml"
    config.write_text(config.read_text().replace(f"127.0.0.1:{host.port}", f"127.0.0.1:{by.port}"))
    known = site.directory / ".ssh" / "known_hosts"
    known.write_text(known.read_text() + f"[127.0.0.1]:{by.port} {host.public_host_key}\n")


def test_a_gang_goes_down_while_another_host_hangs(ssh_lab: Lab, tmp_path: Path) -> None:
    hosts = ssh_lab(3)
    site = Site(tmp_path, hosts)
    slices = {"a": hosts[:1], "b": hosts[1:2], "lone": hosts[2:]}
    site.write_config(slices, tpu="v5litepod-4", connect_timeout="1h")
    fail = tmp_path / "fail"
    rank = f"while [ ! -e {fail} ]; do sleep 0.1; done; [ $IRIS_TASK_INDEX = 1 ] || exit 3; sleep 600"
    with relay(hosts[2].port) as way:
        through(site, hosts[2], way)
        site.iris("launch", "--name", "lone", "-c", "tpu-name=lone", "--cpu", "0.1", "--", "sleep", "600")
        gang = ("--group-by", "device-variant", "--replicas", "2", "-c", "tpu-name!=lone", "--cpu", "0.1")
        site.iris("launch", "--name", "train", "--grace", "1s", *gang, "--", "sh", "-c", rank)
        site.until(lambda: site.job("train")["state"] == "RUNNING")
        site.until(lambda: site.job("lone")["state"] == "RUNNING")
        way.fault = Fault(hang=True)
        before = way.connections
        watching = site.start("watch", "--quiet")
        try:
            site.until(lambda: way.connections > before, cycles=False)
            hung = way.connections
            fail.touch()
            site.until(lambda: "AttemptStopped" in types(site), cycles=False)
            assert way.connections == hung, "the host that hangs was given up meanwhile"
            assert watching.poll() is None
            watching.send_signal(signal.SIGTERM)
            assert watching.wait(PATIENCE) == 130
        finally:
            watching.kill()
            watching.communicate()
        way.fault = Fault()
        way.drop()
        site.iris("cancel", "lone")
    assert types(site).count("GangRoundEnded") == 1


def test_a_launch_elsewhere_starts_and_returns_while_a_host_hangs(ssh_lab: Lab, tmp_path: Path) -> None:
    """No limit ends the call to the host that hangs: a launch that waited for it would never return."""
    hosts = ssh_lab(3)
    site = Site(tmp_path, hosts)
    slices = {"a": hosts[:1], "b": hosts[1:2], "lone": hosts[2:]}
    site.write_config(slices, tpu="v5litepod-4", connect_timeout="1h")
    with relay(hosts[2].port) as way:
        through(site, hosts[2], way)
        site.iris("launch", "--name", "lone", "-c", "tpu-name=lone", "--cpu", "0.1", "--", "sleep", "600")
        site.until(lambda: site.job("lone")["state"] == "RUNNING")
        way.fault = Fault(hang=True)
        before = way.connections
        elsewhere = ("-c", "tpu-name!=lone", "--cpu", "0.1", "--", "sleep", "600")
        site.iris("launch", "--name", "one", *elsewhere)
        assert site.job("one")["state"] == "RUNNING"
        site.iris("launch", "--name", "two", "--setup", "true", *elsewhere)
        assert site.job("two")["state"] == "RUNNING"
        site.iris("launch", "--name", "any", "--cpu", "0.1", "--", "sleep", "600")
        assert site.job("any")["state"] == "RUNNING"
        assert way.connections > before
        way.fault = Fault()
        way.drop()
        site.iris("schedule", "--once")
        assert site.job("lone")["state"] == "RUNNING"
        site.iris("cancel", "--wait", "lone", "one", "two", "any")
    assert types(site).count("TaskAssigned") == 4


def types(site: Site) -> list[str]:
    return [event["type"] for event in site.events()]
