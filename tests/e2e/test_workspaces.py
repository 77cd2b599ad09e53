"""A directory goes with a gang: once to each host, set up once there, whole before any rank starts."""

from __future__ import annotations

import os
import random
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from iris_cli.core.ids import Token
from iris_cli.core.messages.observations import ProbeReport, RemoteState, WorkerReport
from iris_cli.remote.ssh import SshTransport
from iris_cli.remote.task_runner import LaunchRequest, Shipment, TaskRunner
from iris_cli.remote.transport import Target
from tests.support.archives import archive, shipment
from tests.support.fan_out import fan_out
from tests.support.relay import Relay, relay
from tests.support.site import Site
from tests.support.sshd import SshLab
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.ssh

PAIR = ("--tpu", "v4-16")
SETUP = "echo $IRIS_TASK_INDEX >>~/set-ups; sh prepare.sh >made"


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A directory with a program, and what its set-up needs."""
    directory = tmp_path / "code"
    directory.mkdir()
    (directory / "train.sh").write_text('cat made data; echo "$IRIS_TASK_INDEX" >>data; cat data\n')
    (directory / "prepare.sh").write_text("echo prepared\n")
    (directory / "data").write_text("shipped\n")
    return directory


def test_gangs_and_single_tasks_share_what_is_shipped_and_set_up(slice_of_two: Site, code: Path) -> None:
    site = slice_of_two
    for name, words in (("gang", PAIR), ("cpu", ("--replicas", "2", "--cpu", "0.1"))):
        shipped = ("--workdir", str(code), "--setup", SETUP)
        site.iris("launch", "--wait", "--name", name, *shipped, *words, "--", "sh", "train.sh")
        logs = site.iris("logs", name, "--no-fold").out.splitlines()
        for rank in range(2):
            said = [line.partition("] ")[2] for line in logs if line.startswith(f"[{rank}] ")]
            assert said == ["prepared", "shipped", "shipped", str(rank)]
    for host in site.hosts:
        assert len((host.home / "set-ups").read_text().splitlines()) == 1
        (root,) = (host.home / ".iris").glob("*/*")
        assert len(list((root / "w").iterdir())) == len(list((root / "s").iterdir())) == 1
    ran = [path.parent for host in site.hosts for path in (host.home / ".iris").glob("*/*/a/*/work/made")]
    assert len(ran) == 4


def test_a_set_up_that_fails_is_tried_again_on_what_was_launched(slice_of_one: Site, code: Path) -> None:
    site = slice_of_one
    well = site.directory / "well"
    setup = f"[ -e {well} ] || {{ touch {well}; echo no luck >&2; exit 7; }}; {SETUP}"
    shipped = ("--workdir", str(code), "--setup", setup, "--max-retries-failure", "1")
    site.iris("launch", "--no-schedule", "--name", "job", *shipped, "--tpu", "v4-8", "--", "sh", "train.sh")
    (code / "train.sh").write_text("exit 1\n")
    site.until(lambda: site.job("job")["state"] in ("SUCCEEDED", "FAILED"))
    assert site.job("job")["state"] == "SUCCEEDED"
    ends = [event["end"] for event in site.events() if event.get("end")]
    [failed] = [end for end in ends if end["reason"] == "setup_failed"]
    assert "no luck" in failed["log_tail"]


def bring(runner: TaskRunner, sent: Shipment, target: Target, way: Relay) -> int:
    """What a dispatcher does for one attempt; how many bytes that took until it was told to get ready."""
    before = way.up
    probe = runner.probe(target)
    assert isinstance(probe, ProbeReport), probe
    identity = {"boot_id": probe.boot_id, "incarnation": probe.incarnation}
    token = Token(os.urandom(16).hex())
    request = LaunchRequest(token=token, argv=("true",), env={}, workspace=sent.hash)
    answer = runner.prepare(target, [request], go=False, **identity)
    assert isinstance(answer, WorkerReport), answer
    if answer.lacking:
        answer = runner.ship(target, sent, [token], **identity)
        assert isinstance(answer, WorkerReport), answer
        assert answer.lacking == (), answer
        answer = runner.prepare(target, [request], go=False, **identity)

    traveled = way.up - before

    def is_prepared() -> bool:
        answer = runner.poll(target, [token])
        assert isinstance(answer, WorkerReport), answer
        assert answer.attempts[0].state in (RemoteState.PREPARING, RemoteState.PREPARED), answer
        return answer.attempts[0].state is RemoteState.PREPARED

    until(is_prepared)
    return traveled


def test_the_second_time_only_the_hash_travels(ssh_lab: SshLab, ssh: SshTransport) -> None:
    noise = random.Random(1).randbytes(1 << 20)
    sent = shipment(archive(lambda a: a.file("noise", noise)))
    runner = TaskRunner(ssh, "c1", connect_timeout=PATIENCE, timeout=PATIENCE)
    with ExitStack() as stack:
        ways = [(host, stack.enter_context(relay(host.port))) for host in ssh_lab(2)]
        traveled = [
            [
                size
                for _, size in fan_out(
                    ways, lambda each: bring(runner, sent, each[0].target(port=each[1].port), each[1])
                )
            ]
            for _ in range(2)
        ]
    assert all(sent.packed_size <= size < sent.packed_size * 1.05 + 300_000 for size in traveled[0]), traveled
    assert all(size < 150_000 for size in traveled[1]), traveled


@pytest.mark.soak
def test_a_hundred_megabytes_go_to_sixteen_hosts_without_being_held(ssh_lab: SshLab, tmp_path: Path) -> None:
    directory = tmp_path / "operator"
    directory.mkdir()
    hosts = ssh_lab(16)
    site = Site(directory, hosts)
    site.write_config({"tpu-a": hosts}, tpu="v5litepod-64")
    (tmp_path / "code").mkdir()
    (tmp_path / "code/noise").write_bytes(random.Random(2).randbytes(100 << 20))
    words = ("--workdir", str(tmp_path / "code"), "--tpu", "v5litepod-64", "--", "test", "-s", "noise")
    for name in ("first", "second"):
        begun = time.monotonic()
        process = site.start("launch", "--wait", "--name", name, *words)
        most = 0
        while process.poll() is None:
            most = max(most, peak(process.pid))
            time.sleep(0.05)
        out, err = process.communicate()
        print(name, round(time.monotonic() - begun, 1), "s", most >> 20, "MiB")
        assert process.returncode == 0, (out, err)
        assert most < 250 << 20


def peak(pid: int) -> int:
    """The most memory a process has had at a time, in bytes."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    sizes = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")]
    return sizes[0] << 10 if sizes else 0
