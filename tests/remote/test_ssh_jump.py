"""Jump hosts and proxy commands, with real servers and a generated ssh config."""

from __future__ import annotations

import getpass
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from iris_cli.core.ids import WorkerId
from iris_cli.core.messages.observations import SilenceKind
from iris_cli.core.model.worker import Connection
from iris_cli.remote.ssh import SshTransport
from iris_cli.remote.transport import NoAnswer, Script, ScriptResult, Target
from tests.remote.test_ssh_deadline import silence
from tests.support.fan_out import fan_out
from tests.support.relay import Fault, closed_port, deaf_port, relay
from tests.support.sshd import SshHost, SshLab, know, write_key
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.ssh

Opener = Callable[..., SshTransport]


@pytest.fixture
def opener(ssh_lab: SshLab, tmp_path: Path) -> Iterator[Opener]:
    """`opener(config)` returns a transport with that ssh config; `know` writes to the user's known_hosts, `users`."""
    opened = []

    def open_one(config: str = "") -> SshTransport:
        (tmp_path / "config").write_text(config)
        users = tmp_path / "users"
        opened.append(
            SshTransport(ssh_lab.known_hosts, ssh_config=tmp_path / "config", user_known_hosts=users)
        )
        return opened[-1]

    yield open_one
    for ssh in opened:
        ssh.close()


def run(
    ssh: SshTransport, target: Target, script: bytes = b'echo "$HOME"', timeout: float = PATIENCE
) -> ScriptResult:
    return ssh.run(target, Script(text=script, connect_timeout=timeout, timeout=timeout))


def is_at(host: SshHost, output: ScriptResult) -> bool:
    return output.stdout.decode().strip() == str(host.home)


def block(name: str, host: SshHost, *more: str, port: int = 0) -> str:
    """A Host block for a server of the lab."""
    lines = [
        f"Host {name}",
        "HostName 127.0.0.1",
        f"Port {port or host.port}",
        f"IdentityFile {host.client_key}",
        *more,
    ]
    return "\n  ".join(lines) + "\n"


def aliased(host: SshHost, name: str) -> Target:
    """Return a connection with only the name, which the ssh config resolves."""
    return Target(worker=host.worker, connection=Connection(host=name))


def test_an_alias_of_the_ssh_config_is_all_a_worker_needs(ssh_lab: SshLab, opener: Opener) -> None:
    (host,) = ssh_lab()
    assert is_at(host, run(opener(block("tpu-0", host)), aliased(host, "tpu-0")))


def test_a_worker_is_reached_over_a_jump_host(ssh_lab: SshLab, opener: Opener, tmp_path: Path) -> None:
    bastion, host = ssh_lab(2)
    know(tmp_path / "users", bastion)
    jump = f"{getpass.getuser()}@127.0.0.1:{bastion.port}"
    assert is_at(host, run(opener(), host.target(proxy_jump=jump)))
    assert "Accepted" in bastion.log()


def test_a_worker_is_reached_over_a_chain_of_jump_hosts_of_the_ssh_config(
    ssh_lab: SshLab, opener: Opener, tmp_path: Path
) -> None:
    first, second, host = ssh_lab(3)
    know(tmp_path / "users", first, second)
    config = block("first", first) + block("second", second) + block("w", host, "ProxyJump first,second")
    assert is_at(host, run(opener(config), aliased(host, "w")))
    assert "Accepted" in first.log()
    assert "Accepted" in second.log()


def test_many_workers_share_one_connection_to_the_jump_host(
    ssh_lab: SshLab, opener: Opener, tmp_path: Path
) -> None:
    bastion, *hosts = ssh_lab(13)
    with relay(bastion.port) as way:
        config = block("bastion", bastion, "HostKeyAlias bastion", port=way.port)
        (tmp_path / "users").write_text(f"bastion {bastion.public_host_key}\n")
        ssh = opener(config)
        for host, output in fan_out(hosts, lambda host: run(ssh, host.target(proxy_jump="bastion"))):
            assert is_at(host, output)
        assert way.connections == 1


def test_an_unknown_jump_host_is_refused(ssh_lab: SshLab, opener: Opener) -> None:
    bastion, host = ssh_lab(2)
    target = host.target(proxy_jump="bastion")
    with pytest.raises(NoAnswer, match="no host key on record for jump host bastion") as caught:
        run(opener(block("bastion", bastion)), target)
    assert caught.value.kind is SilenceKind.UNKNOWN_HOST
    assert "--accept-key" not in caught.value.hint  # accept-new is only for workers
    assert "Accepted" not in bastion.log()


def test_a_first_key_of_a_jump_host_is_taken_at_first_contact(ssh_lab: SshLab, opener: Opener) -> None:
    bastion, host = ssh_lab(2)
    config = block("bastion", bastion)
    target = host.target(proxy_jump="bastion", known_hosts="accept-new")
    output = opener(config).run(
        target, Script(text=b"true", connect_timeout=PATIENCE, timeout=PATIENCE, first_contact=True)
    )
    assert output.status == 0
    assert is_at(host, run(opener(config), host.target(proxy_jump="bastion")))


def test_a_jump_host_with_another_key_is_refused(ssh_lab: SshLab, opener: Opener, tmp_path: Path) -> None:
    bastion, host = ssh_lab(2)
    other = write_key(tmp_path / "other")
    (tmp_path / "users").write_text(f"[127.0.0.1]:{bastion.port} {other}\n")
    with pytest.raises(NoAnswer, match="jump host bastion shows ssh-ed25519") as caught:
        run(opener(block("bastion", bastion)), host.target(proxy_jump="bastion"))
    assert caught.value.kind is SilenceKind.HOST_KEY
    assert "ssh-keygen -R" in caught.value.hint


def test_the_workers_own_key_is_checked_behind_a_jump_host(
    ssh_lab: SshLab, opener: Opener, tmp_path: Path
) -> None:
    bastion, host, other = ssh_lab(3)
    know(tmp_path / "users", bastion)
    # Another server in place of the worker shows another key.
    target = Target(worker=host.worker, connection=other.connection(proxy_jump="bastion"))
    with pytest.raises(NoAnswer) as caught:
        run(opener(block("bastion", bastion)), target)
    assert caught.value.kind is SilenceKind.HOST_KEY


def test_a_worker_that_the_jump_host_can_not_reach_does_not_affect_others(
    ssh_lab: SshLab, opener: Opener, tmp_path: Path
) -> None:
    bastion, host = ssh_lab(2)
    know(tmp_path / "users", bastion)
    ssh = opener(block("bastion", bastion))
    with pytest.raises(NoAnswer, match="worker gone") as caught:
        run(
            ssh,
            Target(
                worker=WorkerId("gone"), connection=host.connection(port=closed_port(), proxy_jump="bastion")
            ),
        )
    assert (caught.value.kind, caught.value.step) == (SilenceKind.UNREACHABLE, "connect")
    assert is_at(host, run(ssh, host.target(proxy_jump="bastion")))


def test_a_jump_host_that_forbids_forwarding_is_recognized(
    ssh_lab: SshLab, opener: Opener, tmp_path: Path
) -> None:
    (bastion,) = ssh_lab(options=["AllowTcpForwarding no"])
    (host,) = ssh_lab()
    know(tmp_path / "users", bastion)
    with pytest.raises(NoAnswer) as caught:
        run(opener(block("bastion", bastion)), host.target(proxy_jump="bastion"))
    assert caught.value.kind is SilenceKind.PROTOCOL
    assert "AllowTcpForwarding" in caught.value.hint


def test_a_silent_worker_behind_a_jump_host_times_out_alone(
    ssh_lab: SshLab, opener: Opener, tmp_path: Path
) -> None:
    bastion, host = ssh_lab(2)
    know(tmp_path / "users", bastion)
    ssh = opener(block("bastion", bastion))
    assert is_at(host, run(ssh, host.target(proxy_jump="bastion")))
    with relay(host.port, Fault(hang=True)) as way:
        error = silence(ssh, host.target(port=way.port, proxy_jump="bastion"), "SSH banner")
    assert error.kind is SilenceKind.TIMEOUT
    assert is_at(host, run(ssh, host.target(proxy_jump="bastion")))
    assert bastion.log().count("Accepted") == 1


def test_a_worker_that_the_jump_host_cannot_reach_affects_no_other(
    ssh_lab: SshLab, opener: Opener, tmp_path: Path
) -> None:
    bastion, host = ssh_lab(2)
    know(tmp_path / "users", bastion)
    ssh = opener(block("bastion", bastion))
    assert is_at(host, run(ssh, host.target(proxy_jump="bastion")))
    with deaf_port() as port:
        error = silence(ssh, host.target(port=port, proxy_jump="bastion"), "connect")
    assert error.kind is SilenceKind.UNREACHABLE
    assert is_at(host, run(ssh, host.target(proxy_jump="bastion")))
    assert bastion.log().count("Accepted") == 1


def test_a_silent_jump_host_delays_no_other_host(ssh_lab: SshLab, opener: Opener, tmp_path: Path) -> None:
    bastion, host = ssh_lab(2)
    (tmp_path / "users").write_text(f"bastion {bastion.public_host_key}\n")
    with relay(bastion.port, Fault(silent_down=5000)) as way:
        ssh = opener(block("bastion", bastion, "HostKeyAlias bastion", port=way.port))
        with pytest.raises(NoAnswer) as caught:
            run(ssh, host.target(proxy_jump="bastion"), b"head -c 100000 /dev/zero", timeout=2.0)
    assert caught.value.kind in (SilenceKind.TIMEOUT, SilenceKind.UNREACHABLE)


def test_a_proxy_command_is_run(ssh_lab: SshLab, opener: Opener, tmp_path: Path) -> None:
    (host,) = ssh_lab()
    if shutil.which("ssh") is None:
        pytest.skip("no ssh client to be the proxy command")
    (bastion,) = ssh_lab()
    know(tmp_path / "users", bastion)
    options = f"-F none -i {host.client_key} -o UserKnownHostsFile={tmp_path / 'users'} -o LogLevel=ERROR"
    proxy = f"ssh {options} -p {bastion.port} {getpass.getuser()}@127.0.0.1 -W %h:%p"
    config = block("w", host, f"ProxyCommand {proxy}")
    assert is_at(host, run(opener(config), aliased(host, "w")))
    assert "Accepted" in bastion.log()


def test_a_failed_proxy_command_is_a_silence(ssh_lab: SshLab, opener: Opener) -> None:
    (host,) = ssh_lab()
    with pytest.raises(NoAnswer) as caught:
        run(opener(block("w", host, "ProxyCommand exit 1")), aliased(host, "w"))
    assert (caught.value.step, caught.value.sent) == ("SSH banner", False)


def test_a_proxy_command_that_hangs_is_left_behind(ssh_lab: SshLab, opener: Opener) -> None:
    (host,) = ssh_lab()
    ssh = opener(block("w", host, "ProxyCommand sleep 1000"))
    assert silence(ssh, aliased(host, "w"), "SSH banner").kind is SilenceKind.TIMEOUT
