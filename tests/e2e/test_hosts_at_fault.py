"""Hosts that hang, that are many, that stand behind others, that nobody vouches for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.relay import Fault, relay
from tests.support.site import Site
from tests.support.sshd import SshHost

pytestmark = pytest.mark.ssh

TPU = ("--tpu", "v4-16")
Lab = Callable[..., list[SshHost]]


def test_a_host_that_accepts_and_hangs_delays_nobody_and_loses_nothing(ssh_lab: Lab, tmp_path: Path) -> None:
    well, sick = ssh_lab(2)
    site = Site(tmp_path, [well, sick])
    site.write_config({"well": [well], "sick": [sick]}, tpu="v4-8", connect_timeout="5s")
    site.iris("schedule", "--once")
    with relay(sick.port, Fault(hang=True)) as hung:
        config = tmp_path / "cluster.yaml"
        through = config.read_text().replace(f"127.0.0.1:{sick.port}", f"127.0.0.1:{hung.port}")
        config.write_text(through)
        known = tmp_path / ".ssh" / "known_hosts"
        known.write_text(known.read_text() + f"[127.0.0.1]:{hung.port} {sick.public_host_key}\n")
        site.iris("launch", "--name", "a", "--tpu", "v4-8", "--", "true")
        site.until(lambda: site.job("a")["state"] == "SUCCEEDED")
        site.until(
            lambda: condition(site, "sick-0") != "healthy"
        )  # `launch` may end before it has asked this host
        hung.fault = Fault()
        site.until(lambda: condition(site, "sick-0") == "healthy")


def test_a_launch_on_a_host_that_has_gone_names_it_in_words_and_in_json(ssh_lab: Lab, tmp_path: Path) -> None:
    hosts = ssh_lab(2)
    site = Site(tmp_path, hosts)
    site.write_config({"one": hosts[:1], "two": hosts[1:]}, tpu="v4-8")
    site.iris("schedule", "--once")
    for host in hosts:
        host.stop()
    launch = ("launch", "--tpu", "v4-8", "--name")
    (silent,) = json.loads(site.iris(*launch, "a", "--json", "--", "true").out)["silent"]
    assert (silent["worker"], "Connection refused" in silent["detail"]) == ("one-0", True)
    site.iris("cancel", "a")
    told = site.iris(*launch, "b", "--", "true").err
    assert told.startswith(f"b: no answer from two-0 (connect: worker two-0 at 127.0.0.1:{hosts[1].port}: ")
    assert "details: iris why b\n" in told


@pytest.mark.parametrize("count", [4, pytest.param(64, marks=pytest.mark.soak)])
def test_a_gang_on_many_hosts_is_assigned_in_one_record_and_runs_in_rank_order_with_its_environment_and_logs(
    ssh_lab: Lab, tmp_path: Path, count: int
) -> None:
    hosts = ssh_lab(count)
    site = Site(tmp_path, hosts)
    tpu = f"v5litepod-{4 * count}"
    site.write_config({"big": hosts}, tpu=tpu)
    script = 'echo "$IRIS_TASK_INDEX/$IRIS_NUM_TASKS $IRIS_WORKER_ID $MINE"; echo trouble >&2'
    gang = ("--tpu", tpu, "--name", "big", "-e", "MINE=a b")
    ran = site.iris("launch", "--wait", *gang, "--", "sh", "-c", script)
    assert not ran.err.count("no answer")
    assert site.job("big")["state"] == "SUCCEEDED"
    lines = site.iris("logs", "big", "--no-fold", "--stream", "out").out.splitlines()
    assert sorted(lines) == sorted(f"[{rank}] {rank}/{count} big-{rank} a b" for rank in range(count))
    records = [json.loads(line)["events"] for line in (site.state / "events.jsonl").read_text().splitlines()]
    assigned = [[event["task"] for event in record if event["type"] == "TaskAssigned"] for record in records]
    assert [each for each in assigned if each] == [[f"big/task-{rank}" for rank in range(count)]]


def test_hosts_behind_a_jump_host_by_their_names_in_ssh_config(ssh_lab: Lab, tmp_path: Path) -> None:
    bastion, *hosts = ssh_lab(3)
    site = Site(tmp_path, hosts)
    site.write_config({"far": hosts}, tpu="v4-16")
    config = tmp_path / "cluster.yaml"
    text = config.read_text()
    blocks = [
        f"Host bastion\n  HostName 127.0.0.1\n  Port {bastion.port}\n  IdentityFile {bastion.client_key}\n"
    ]
    for index, host in enumerate(hosts):
        text = text.replace(f"127.0.0.1:{host.port}", f"far-w-{index}")
        blocks.append(f"Host far-w-{index}\n  HostName 127.0.0.1\n  Port {host.port}\n  ProxyJump bastion\n")
    config.write_text(text)
    (tmp_path / ".ssh" / "config").write_text("".join(blocks))
    known = tmp_path / ".ssh" / "known_hosts"
    known.write_text(known.read_text() + bastion.known_hosts_line + "\n")
    site.iris("launch", "--wait", *TPU, "--", "true")
    assert "Accepted publickey" in bastion.log()


def test_an_unknown_host_key_is_refused_with_what_to_type(ssh_lab: Lab, tmp_path: Path) -> None:
    hosts = ssh_lab(1)
    site = Site(tmp_path, hosts)
    site.write_config({"one": hosts}, tpu="v5litepod-4")
    (tmp_path / ".ssh" / "known_hosts").write_text("")
    ran = site.iris("worker", "probe", code=7)
    assert "hint:" in ran.err
    assert "--accept-key" in ran.err
    config = tmp_path / "cluster.yaml"
    config.write_text(config.read_text().replace("ssh:\n", "ssh:\n  known_hosts: accept-new\n"))
    site.iris("worker", "probe")
    assert hosts[0].public_host_key.split()[1] in (site.state / "known_hosts").read_text()


def test_the_keys_of_new_hosts_are_shown_together_and_taken_with_one_word(
    ssh_lab: Lab, tmp_path: Path
) -> None:
    hosts = ssh_lab(3)
    site = Site(tmp_path, hosts)
    other = f"workers:\n  - {{id: other, host: {hosts[2].address}, port: {hosts[2].port}}}\n"
    site.write_config({"one": hosts[:2]}, tpu="v4-16", extra=other)
    (tmp_path / ".ssh" / "known_hosts").write_text("")
    hosts[2].stop()
    refused = site.iris("worker", "probe", "--accept-key", code=2)  # nobody is there to say yes
    for host in hosts[:2]:
        assert host.fingerprint in refused.err
    assert not (site.state / "known_hosts").exists()
    taken = site.iris("worker", "probe", "--accept-key", "--yes", code=7)
    assert "one-[0-1]: healthy" in taken.out
    assert "other: unprobed (connect" in taken.out
    recorded = (site.state / "known_hosts").read_text()
    assert [line.split()[0] for line in recorded.splitlines()] == ["one-0", "one-1"]
    hosts[2].start()
    assert "other: healthy" in site.iris("worker", "probe", "--accept-key", "--yes").out
    again = site.iris("worker", "probe", "--accept-key", "--yes", code=2)
    assert "all workers have a host key on record" in again.err


def test_accept_new_takes_a_first_key_and_never_a_second(ssh_lab: Lab, tmp_path: Path) -> None:
    host = ssh_lab(1)[0]
    site = Site(tmp_path, [host])
    site.write_config({"one": [host]}, tpu="v5litepod-4")
    (tmp_path / ".ssh" / "known_hosts").write_text("")
    config = tmp_path / "cluster.yaml"
    config.write_text(config.read_text().replace("ssh:\n", "ssh:\n  known_hosts: accept-new\n"))
    site.iris("worker", "probe")
    host.stop()
    host.new_host_key()
    host.start()
    ran = site.iris("worker", "probe", code=7)
    assert host.fingerprint in ran.out + ran.err
    assert condition(site, "one-0") == "untrusted"


def test_a_missing_key_file_is_said_before_anything_is_sent(ssh_lab: Lab, tmp_path: Path) -> None:
    host = ssh_lab(1)[0]
    site = Site(tmp_path, [host])
    site.write_config({"one": [host]}, tpu="v5litepod-4")
    config = tmp_path / "cluster.yaml"
    config.write_text(config.read_text().replace(str(host.client_key), str(tmp_path / "nowhere")))
    ran = site.iris("worker", "probe", code=7)
    assert "nowhere" in ran.out + ran.err
    assert "hint:" in ran.err


def condition(site: Site, worker: str) -> str:
    """What `iris worker show` says of a worker."""
    found = site.iris("worker", "show", worker, "--json").json()
    return str(found["condition"])
