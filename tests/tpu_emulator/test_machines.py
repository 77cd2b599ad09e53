"""Nodes whose VMs are SSH servers of this machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import paramiko
import pytest

from iris_cli.demo.processes import make_key
from tests.support.tpu_emulator.cloud import Cloud
from tests.support.tpu_emulator.machines import LocalMachines
from tests.support.tpu_emulator.records import Node, Place
from tests.support.waiting import until

PLACE = Place("p", "us-west4-a")


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    made = Cloud(machines=LocalMachines(tmp_path / "machines"))
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(params=["v4-8"])
def node(request: pytest.FixtureRequest, cloud: Cloud, tmp_path: Path) -> Node:
    """A spot slice, of one VM if no test asks for more, which lets in `id_ed25519`, and is ready."""
    key = make_key(tmp_path / "id_ed25519")
    spec = {
        "acceleratorType": request.param,
        "runtimeVersion": "x",
        "schedulingConfig": {"spot": True},
        "metadata": {"ssh-keys": f"me:ssh-ed25519 {key} me@here"},
    }
    cloud.create_node(PLACE, "west-1", spec)
    name = f"{PLACE}/nodes/west-1"
    until(lambda: cloud.node(name).state == "READY")
    return cloud.node(name)


def run(node: Node, worker: int, key: Path, command: str) -> str:
    machine = node.machines[worker]
    return run_at((machine.host, machine.port), key, command, host_key=machine.key)


def run_at(place: tuple[str, int], key: Path, command: str, host_key: str = "") -> str:
    with paramiko.Transport(place) as transport:
        transport.connect(username="me", pkey=paramiko.Ed25519Key.from_private_key_file(str(key)))
        if host_key:
            assert f"ssh-ed25519 {transport.get_remote_server_key().get_base64()}" == host_key
        channel = transport.open_session()
        channel.exec_command(command)
        return channel.makefile().read().decode()


@pytest.mark.parametrize("node", ["v4-16"], indirect=True)
def test_each_vm_has_its_own_key_home_and_metadata_server_and_lets_in_nobody_else(
    node: Node, tmp_path: Path
) -> None:
    said = [
        run(node, index, tmp_path / "id_ed25519", "echo $GCE_METADATA_HOST $HOME").split() for index in (0, 1)
    ]
    assert [ask(server, "attributes/agent-worker-number") for server, _ in said] == ["0", "1"]
    assert [ask(server, "scheduling/preemptible") for server, _ in said] == ["TRUE", "TRUE"]
    assert said[0][1] != said[1][1]
    assert node.machines[0].key != node.machines[1].key
    make_key(tmp_path / "other")
    with pytest.raises(paramiko.AuthenticationException):
        run(node, 0, tmp_path / "other", "true")


def ask(server: str, what: str) -> str:
    url = f"http://{server}/computeMetadata/v1/instance/{what}"
    request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        text: str = answer.read().decode()
        return text


@pytest.mark.parametrize("how", ["preempted", "deleted"])
def test_its_machines_end_with_it_and_all_that_runs_there(
    how: str, node: Node, cloud: Cloud, tmp_path: Path
) -> None:
    if not Path("/proc/self/environ").exists():
        pytest.skip("the system does not show environments")
    run(node, 0, tmp_path / "id_ed25519", "sleep 600 >/dev/null 2>&1 </dev/null & echo $! >$HOME/pid")
    [pid] = [int(path.read_text()) for path in (tmp_path / "machines").rglob("pid")]
    assert Path(f"/proc/{pid}").exists()
    if how == "preempted":
        cloud.preempt("west-1")
    else:
        cloud.delete_node(node.name)
    until(lambda: not Path(f"/proc/{pid}/exe").exists())
    until(lambda: is_refused(node.machines[0].host, node.machines[0].port))
    assert [path.name for path in (tmp_path / "machines").iterdir()] == [".iris-tpu-emulator"]


def is_refused(host: str, port: int) -> bool:
    """Whether nothing listens there. A connection that the server did not accept before its end does not count."""
    try:
        socket.create_connection((host, port), timeout=60).close()
    except ConnectionRefusedError:
        return True
    return False


def test_nodes_are_made_also_where_an_emulator_was_killed(node: Node, tmp_path: Path) -> None:
    left = tmp_path / "machines/node-1/vm-0/home/left"
    left.touch()
    with closing(Cloud(machines=LocalMachines(tmp_path / "machines"))) as again:
        again.create_node(PLACE, "west-2", node.spec)
        until(lambda: again.node(f"{PLACE}/nodes/west-2").state == "READY")
        assert (again.node(f"{PLACE}/nodes/west-2").uid, left.exists()) == (node.uid, False)


def test_servers_and_what_runs_there_end_with_the_emulator_however_that_ends(tmp_path: Path) -> None:
    key = make_key(tmp_path / "id_ed25519")
    spec = {
        "acceleratorType": "v4-8",
        "runtimeVersion": "x",
        "metadata": {"ssh-keys": f"me:ssh-ed25519 {key} me"},
    }
    script = (
        "import sys, time; from pathlib import Path; from tests.support.tpu_emulator.cloud import Cloud\n"
        "from tests.support.tpu_emulator.machines import LocalMachines\n"
        "from tests.support.tpu_emulator.records import Place\n"
        f"cloud = Cloud(machines=LocalMachines(Path({str(tmp_path / 'machines')!r})))\n"
        f"cloud.create_node(Place('p', 'z'), 'a', {spec!r})\n"
        "while not (node := cloud.node('projects/p/locations/z/nodes/a')).machines: time.sleep(0.05)\n"
        "print(node.machines[0].port, flush=True); time.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    pids: list[int] = []
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        process.stdout.close()
        command = "setsid sleep 600 >/dev/null 2>&1 </dev/null & echo $!"
        pids.append(int(run_at(("127.0.0.1", port), tmp_path / "id_ed25519", command)))
        process.kill()
        process.wait()

        def refused() -> bool:
            try:
                paramiko.Transport(("127.0.0.1", port)).close()
            except (OSError, paramiko.SSHException):
                return True
            return False

        until(refused)
        if Path("/proc/self/environ").exists():
            until(lambda: not Path(f"/proc/{pids[0]}/exe").exists())
            pids.clear()
    finally:
        process.kill()
        process.wait()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
