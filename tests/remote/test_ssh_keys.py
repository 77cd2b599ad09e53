"""Private keys: offered ones, unusable ones, and the error messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from paramiko import AgentKey, SSHException, Transport

from iris_cli.core.messages.observations import SilenceKind
from iris_cli.remote.ssh import SshTransport
from iris_cli.remote.transport import NoAnswer, Script, Target
from tests.support.relay import relay
from tests.support.sshd import SshLab, write_key
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.ssh


@pytest.fixture(autouse=True)
def _nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without keys and without an agent."""
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    (tmp_path / "me" / ".ssh").mkdir(parents=True)


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An ssh-agent without keys; yields the path of its socket."""
    sock = tmp_path / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(sock)], stdout=subprocess.PIPE, text=True) as process:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(sock))
        assert process.stdout is not None
        assert process.stdout.readline().startswith("SSH_AUTH_SOCK=")  # it prints that after it listens
        yield sock
        process.terminate()


def answers(ssh: SshTransport, target: Target) -> bool:
    return ssh.run(target, Script(text=b"true", connect_timeout=PATIENCE, timeout=PATIENCE)).status == 0


def refusal(ssh: SshTransport, target: Target) -> NoAnswer:
    with pytest.raises(NoAnswer) as caught:
        ssh.run(target, Script(text=b"true", connect_timeout=PATIENCE, timeout=PATIENCE))
    assert not caught.value.sent
    return caught.value


def test_a_key_that_the_worker_does_not_know_is_refused_without_a_second_try(
    ssh_lab: SshLab, ssh: SshTransport, tmp_path: Path
) -> None:
    (host,) = ssh_lab()
    write_key(tmp_path / "other")
    with relay(host.port) as way:
        error = refusal(ssh, host.target(port=way.port, key=str(tmp_path / "other")))
        assert way.connections == 1
    assert (error.kind, error.step) == (SilenceKind.AUTH, "authentication")
    assert "SHA256:" in error.detail
    assert host.log().count("Failed publickey") <= 1


def test_a_configured_key_is_the_only_one_offered(ssh_lab: SshLab, ssh: SshTransport, tmp_path: Path) -> None:
    (host,) = ssh_lab()
    (tmp_path / "me/.ssh/id_ed25519").write_bytes(ssh_lab.client_key.read_bytes())
    (tmp_path / "me/.ssh/id_ed25519").chmod(0o600)
    write_key(tmp_path / "other")
    assert refusal(ssh, host.target(key=str(tmp_path / "other"))).kind is SilenceKind.AUTH


def test_without_a_configured_key_the_usual_ones_are_offered(
    ssh_lab: SshLab, ssh: SshTransport, tmp_path: Path
) -> None:
    (host,) = ssh_lab()
    write_key(tmp_path / "me/.ssh/id_ed25519")
    (tmp_path / "me/.ssh/id_rsa").write_bytes(ssh_lab.client_key.read_bytes())
    (tmp_path / "me/.ssh/id_rsa").chmod(0o600)
    assert answers(ssh, host.target(key=""))


def test_without_any_key_the_error_is_local(ssh_lab: SshLab, ssh: SshTransport) -> None:
    (host,) = ssh_lab()
    with relay(host.port) as way:
        error = refusal(ssh, host.target(port=way.port, key=""))
        assert way.connections == 0
    assert (error.kind, error.step) == (SilenceKind.LOCAL, "key")
    assert "ssh-keygen" in error.hint


def test_a_missing_key_file_is_a_local_error(ssh_lab: SshLab, ssh: SshTransport) -> None:
    (host,) = ssh_lab()
    error = refusal(ssh, host.target(key="~/.ssh/no-such-key"))
    assert error.kind is SilenceKind.LOCAL
    assert "no-such-key" in error.detail
    assert "ssh.key" in error.hint


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_key_that_others_may_read_is_refused_with_the_command_that_helps(
    ssh_lab: SshLab, ssh: SshTransport, mode: int
) -> None:
    (host,) = ssh_lab()
    ssh_lab.client_key.chmod(mode)
    error = refusal(ssh, host.target())
    assert error.kind is SilenceKind.LOCAL
    assert error.hint == f"chmod 600 {ssh_lab.client_key}"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become a user without its power over files")
def test_a_key_that_this_user_may_not_read_is_named_with_the_command_that_helps(tmp_path: Path) -> None:
    cases = [
        (name, *case)
        for name in ("key", "key-cert.pub")
        for case in (
            (0, 0, "chmod 600 {key}"),
            (65534, 0o600, "sudo chown $(id -un) {key} && chmod 600 {key}"),
            (None, 0, "ls -ld {directory}"),  # the directory can't be read
        )
    ]
    wanted, workers = {}, []
    for number, (name, owner, mode, fix) in enumerate(cases):
        directory, host = tmp_path / f"keys-{number}", f"127.0.0.{number + 1}"
        directory.mkdir()
        write_key(directory / "key")
        file = directory / name
        file.touch()
        file.chmod(mode)
        os.chown(file, owner or 0, 0)
        directory.chmod(0o700 if owner is not None else 0)
        workers.append(f"{{id: w{number}, host: {host}, ssh: {{key: {directory / 'key'}}}}}")
        key = directory / ("key" if owner is None else name)
        wanted[f"for {host}: can't read the key {key}: Permission denied"] = fix.format(
            key=key, directory=directory
        )
    (tmp_path / "cluster.yaml").write_text(f"workers: [{', '.join(workers)}]\n")
    words = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", sys.executable, "-m", "iris_cli"]
    ran = subprocess.run(
        [*words, "--json", "doctor", "--offline"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    for number in range(len(cases)):
        (tmp_path / f"keys-{number}").chmod(0o700)
    findings = [each for each in json.loads(ran.stdout)["findings"] if each["subject"] == "keys"]
    assert {each["text"]: each["fix"] for each in findings} == wanted


@pytest.mark.parametrize(
    "content", [b"", b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n", b"\xff\0garbage" * 99]
)
def test_a_file_without_a_key_is_a_local_error(
    ssh_lab: SshLab, ssh: SshTransport, tmp_path: Path, content: bytes
) -> None:
    (host,) = ssh_lab()
    (tmp_path / "key").touch(mode=0o600)
    (tmp_path / "key").write_bytes(content)
    error = refusal(ssh, host.target(key=str(tmp_path / "key")))
    assert error.kind is SilenceKind.LOCAL
    assert "is not a usable private key" in error.detail


def locked_key(lab: SshLab, path: Path) -> None:
    """The client key with a passphrase."""
    path.touch(mode=0o600)
    path.write_bytes(lab.client_key.read_bytes())
    command = ["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", str(path)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def test_a_key_with_a_passphrase_needs_an_agent(ssh_lab: SshLab, ssh: SshTransport, tmp_path: Path) -> None:
    (host,) = ssh_lab()
    locked_key(ssh_lab, tmp_path / "locked")
    error = refusal(ssh, host.target(key=str(tmp_path / "locked")))
    assert error.kind is SilenceKind.LOCAL
    assert "passphrase" in error.detail
    assert error.hint == f"ssh-add {tmp_path / 'locked'}"


def test_a_key_with_a_passphrase_is_used_through_the_agent(
    ssh_lab: SshLab, ssh: SshTransport, tmp_path: Path, agent: Path
) -> None:
    (host,) = ssh_lab()
    locked_key(ssh_lab, tmp_path / "locked")
    subprocess.run(["ssh-add", "-q", str(ssh_lab.client_key)], check=True, env=os.environ)
    assert answers(ssh, host.target(key=str(tmp_path / "locked")))


def test_without_a_configured_key_the_agent_is_asked(ssh_lab: SshLab, ssh: SshTransport, agent: Path) -> None:
    (host,) = ssh_lab()
    subprocess.run(["ssh-add", "-q", str(ssh_lab.client_key)], check=True, env=os.environ)
    assert answers(ssh, host.target(key=""))


def test_an_agent_without_its_user_prevents_no_later_connection(
    ssh_lab: SshLab, ssh: SshTransport, agent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (host,) = ssh_lab()
    subprocess.run(["ssh-add", "-q", str(ssh_lab.client_key)], check=True, env=os.environ)
    is_back = threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(AgentKey, "sign_ssh_data", lambda *_, **__: is_back.wait())
        with pytest.raises(NoAnswer):
            ssh.run(host.target(key=""), Script(text=b"true", connect_timeout=1.0, timeout=1.0))
        dialer = ssh._load_dialer()
        until(lambda: not any(slot.lock.locked() for slot in dialer._slots.values()))
    is_back.set()
    assert answers(ssh, host.target(key=""))


def test_an_agent_that_asks_its_user_first_delays_no_other_host(
    ssh_lab: SshLab, ssh: SshTransport, agent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, well = ssh_lab(2)
    subprocess.run(["ssh-add", "-q", str(ssh_lab.client_key)], check=True, env=os.environ)
    assert answers(ssh, well.target())
    sign = AgentKey.sign_ssh_data
    asked, allowed = threading.Event(), threading.Event()

    def sign_when_allowed(*args: Any, **named: Any) -> Any:
        asked.set()
        assert allowed.wait(PATIENCE)
        return sign(*args, **named)

    monkeypatch.setattr(AgentKey, "sign_ssh_data", sign_when_allowed)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(answers, ssh, slow.target(key=""))
        try:
            assert asked.wait(PATIENCE)
            assert answers(ssh, well.target())
        finally:
            allowed.set()
        assert waiting.result()


def test_only_a_server_with_the_right_key_is_shown_who_we_are(
    ssh_lab: SshLab, ssh: SshTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, other = ssh_lab(2)
    shown: list[str] = []
    show = Transport.auth_publickey

    def note(transport: Transport, user: str, *args: Any) -> object:
        shown.append(user)
        return show(transport, user, *args)

    monkeypatch.setattr(Transport, "auth_publickey", note)
    assert refusal(ssh, host.target(port=other.port)).kind is SilenceKind.HOST_KEY
    assert shown == []
    assert answers(ssh, host.target())
    assert len(shown) == 1


def test_an_agent_that_refuses_to_sign_is_named(
    ssh_lab: SshLab, ssh: SshTransport, agent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (host,) = ssh_lab()
    subprocess.run(["ssh-add", "-q", str(ssh_lab.client_key)], check=True, env=os.environ)

    def refuse(*_: object, **__: object) -> bytes:
        raise SSHException("key cannot be used for signing")  # the library's message

    monkeypatch.setattr(AgentKey, "sign_ssh_data", refuse)
    assert "cannot be used for signing" in refusal(ssh, host.target(key="")).detail


def test_a_missing_agent_is_ignored(
    ssh_lab: SshLab, ssh: SshTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (host,) = ssh_lab()
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "gone"))
    assert answers(ssh, host.target())


def test_a_user_that_does_not_exist_is_refused(ssh_lab: SshLab, ssh: SshTransport) -> None:
    (host,) = ssh_lab()
    error = refusal(ssh, host.target(user="nobody-at-all"))
    assert error.kind is SilenceKind.AUTH
    assert "nobody-at-all" in error.detail


def test_a_server_that_wants_passwords_only_is_a_refusal(ssh_lab: SshLab, ssh: SshTransport) -> None:
    (host,) = ssh_lab(options=["PubkeyAuthentication no", "AuthenticationMethods any"])
    assert refusal(ssh, host.target()).kind is SilenceKind.AUTH
