"""A watch on real hosts: one hangs for as long as the test wants, and the others don't notice."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.relay import Fault, Relay, relay
from tests.support.site import PATIENCE, Site
from tests.support.sshd import SshHost

pytestmark = pytest.mark.ssh

Lab = Callable[..., list[SshHost]]


def through(site: Site, host: SshHost, by: Relay) -> None:
    """From now on the way to a host leads through the relay, and a call there may last as long as it likes."""
    config = site.directory / "cluster.yaml"
    text = config.read_text().replace(f"127.0.0.1:{host.port}", f"127.0.0.1:{by.port}")
    config.write_text(text.replace("connect_timeout: 5s", "connect_timeout: 1h"))
    known = site.directory / ".ssh" / "known_hosts"
    known.write_text(known.read_text() + f"[127.0.0.1]:{by.port} {host.public_host_key}\n")


def test_a_gang_goes_down_while_another_host_hangs(ssh_lab: Lab, tmp_path: Path) -> None:
    hosts = ssh_lab(3)
    site = Site(tmp_path, hosts)
    site.write_config({"a": hosts[:1], "b": hosts[1:2], "lone": hosts[2:]}, tpu="v5litepod-4")
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


def types(site: Site) -> list[str]:
    return [event["type"] for event in site.events()]
