"""Host keys on real connections are verified before anything is sent to the host."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from iris_cli.core.ids import WorkerId
from iris_cli.core.messages.observations import SilenceKind
from iris_cli.errors import NotWritableError
from iris_cli.remote.ssh import SshTransport
from iris_cli.remote.transport import NoAnswer, Script, Target
from tests.support.sshd import SshLab, know, presented, write_key
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.ssh

Opener = Callable[[], SshTransport]


@pytest.fixture
def invocation(tmp_path: Path) -> Iterator[Opener]:
    """Makes transports as separate invocations do: with the same two files, at first missing."""
    opened = []

    def open_one() -> SshTransport:
        users = tmp_path / "users"
        opened.append(SshTransport(tmp_path / "own", ssh_config=None, user_known_hosts=users))
        return opened[-1]

    yield open_one
    for ssh in opened:
        ssh.close()


def answers(ssh: SshTransport, target: Target, *, first_contact: bool = False) -> bool:
    output = ssh.run(
        target, Script(text=b"true", connect_timeout=PATIENCE, timeout=PATIENCE, first_contact=first_contact)
    )
    return output.status == 0


def refusal(ssh: SshTransport, target: Target, *, first_contact: bool = False) -> NoAnswer:
    with pytest.raises(NoAnswer) as caught:
        answers(ssh, target, first_contact=first_contact)
    assert caught.value.step == "host key"
    assert not caught.value.sent
    return caught.value


@pytest.mark.parametrize("first_contact", [False, True])
def test_strict_rejects_an_unknown_key_with_a_hint(
    ssh_lab: SshLab, invocation: Opener, tmp_path: Path, first_contact: bool
) -> None:
    (host,) = ssh_lab()
    error = refusal(invocation(), host.target(), first_contact=first_contact)
    assert error.kind is SilenceKind.UNKNOWN_HOST
    assert error.detail == "no host key on record"  # the same for all new hosts
    assert error.hint.startswith("iris worker probe --accept-key ")
    assert "Accepted" not in host.log()  # nobody logged in
    assert not (tmp_path / "own").exists()


def test_strict_accepts_keys_in_the_users_files(ssh_lab: SshLab, invocation: Opener, tmp_path: Path) -> None:
    (host,) = ssh_lab()
    know(tmp_path / "users", host)
    assert answers(invocation(), host.target())


def test_strict_accepts_keys_in_the_users_files_with_hashed_names(
    ssh_lab: SshLab, invocation: Opener, tmp_path: Path
) -> None:
    (host,) = ssh_lab()
    know(tmp_path / "users", host)
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(tmp_path / "users")], check=True, capture_output=True)
    assert answers(invocation(), host.target())


def test_accept_new_takes_a_key_at_first_contact_only(
    ssh_lab: SshLab, invocation: Opener, tmp_path: Path
) -> None:
    (host,) = ssh_lab()
    target = host.target(known_hosts="accept-new")
    error = refusal(invocation(), target)
    assert error.kind is SilenceKind.UNKNOWN_HOST
    assert error.hint.startswith("iris worker probe ")
    assert answers(invocation(), target, first_contact=True)
    assert (tmp_path / "own").read_text() == f"host-0 {host.public_host_key}\n"
    assert answers(invocation(), target)


def test_a_key_once_taken_is_pinned_for_the_same_and_for_later_invocations(
    ssh_lab: SshLab, invocation: Opener
) -> None:
    (host,) = ssh_lab()
    target = host.target(known_hosts="accept-new")
    ssh, before = invocation(), host.fingerprint
    assert answers(ssh, target, first_contact=True)
    host.stop()
    host.new_host_key()
    host.start()
    for later in (ssh, invocation()):
        error = refusal(later, target, first_contact=True)
        assert error.kind is SilenceKind.HOST_KEY
        assert before in error.detail
        assert host.fingerprint in error.detail
        assert error.hint.startswith("iris worker probe host-0 --accept-key ")


def test_first_contact_records_a_key_in_the_users_files(
    ssh_lab: SshLab, invocation: Opener, tmp_path: Path
) -> None:
    (host,) = ssh_lab()
    know(tmp_path / "users", host)
    assert answers(invocation(), host.target(), first_contact=True)
    host.stop()
    host.new_host_key()
    host.start()
    (tmp_path / "users").write_text("")
    know(tmp_path / "users", host)  # as after ssh-keygen -R and a new login
    assert refusal(invocation(), host.target()).kind is SilenceKind.HOST_KEY


def test_the_operator_accepts_the_key_that_was_shown(ssh_lab: SshLab, invocation: Opener) -> None:
    (host,) = ssh_lab()
    ssh = invocation()
    ssh.accept_keys({host.worker: presented(write_key(host.directory / "old"))})
    target = host.target()
    assert refusal(ssh, target).kind is SilenceKind.HOST_KEY
    shown = ssh.presented_key(target, PATIENCE)
    assert shown == presented(host.public_host_key)
    assert shown not in ssh.known_keys(target)
    ssh.accept_keys({host.worker: shown})
    assert ssh.known_keys(target) == (shown,)
    assert answers(ssh, target)
    assert answers(invocation(), target)


def test_each_worker_is_checked_by_its_own_key_even_at_the_same_address(
    ssh_lab: SshLab, ssh: SshTransport
) -> None:
    (host,) = ssh_lab()
    ssh.accept_keys({WorkerId("twin"): presented(write_key(host.directory / "other"))})
    assert answers(ssh, host.target())
    twin = Target(worker=WorkerId("twin"), connection=host.connection())
    assert refusal(ssh, twin).kind is SilenceKind.HOST_KEY


def test_a_key_that_can_not_be_recorded_is_an_error_of_the_state(ssh_lab: SshLab, tmp_path: Path) -> None:
    (host,) = ssh_lab()
    (tmp_path / "own").symlink_to("elsewhere")
    ssh = SshTransport(tmp_path / "own", ssh_config=None, user_known_hosts=None)
    with pytest.raises(NotWritableError, match="host-0"):
        ssh.accept_keys({host.worker: presented(host.public_host_key)})
    assert refusal_kind(ssh, host.target()) is SilenceKind.LOCAL


def refusal_kind(ssh: SshTransport, target: Target) -> SilenceKind:
    with pytest.raises(NoAnswer) as caught:
        answers(ssh, target)
    return caught.value.kind


def test_a_revoked_key_is_refused_though_it_is_on_record(
    ssh_lab: SshLab, invocation: Opener, tmp_path: Path
) -> None:
    (host,) = ssh_lab()
    know(tmp_path / "users", host)
    with (tmp_path / "users").open("a") as users:
        users.write(f"@revoked * {host.public_host_key}\n")
    invocation().accept_keys({host.worker: presented(host.public_host_key)})
    error = refusal(invocation(), host.target())
    assert error.kind is SilenceKind.HOST_KEY
    assert "@revoked" in error.detail


def test_a_certificate_authority_is_not_used_as_the_hosts_key(
    ssh_lab: SshLab, invocation: Opener, tmp_path: Path
) -> None:
    (host,) = ssh_lab()
    (tmp_path / "users").write_text(f"@cert-authority * {host.public_host_key}\n")
    error = refusal(invocation(), host.target())
    assert error.kind is SilenceKind.UNKNOWN_HOST
    assert "certificate authority" in error.detail


def test_garbage_in_the_users_file_hides_no_key(ssh_lab: SshLab, invocation: Opener, tmp_path: Path) -> None:
    (host,) = ssh_lab()
    (tmp_path / "users").write_bytes(
        b"\xff\xfe\0garbage\n@cert-authority\n* ssh-rsa AAAA\n@revoked x y z\n\n"
    )
    know(tmp_path / "users", host)
    assert answers(invocation(), host.target())


def test_another_type_of_key_than_the_known_one_is_not_asked_for(
    ssh_lab: SshLab, invocation: Opener, tmp_path: Path
) -> None:
    command = ["ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-N", "", "-f", str(tmp_path / "rsa")]
    subprocess.run(command, check=True)
    (host,) = ssh_lab(options=[f"HostKey {tmp_path / 'rsa'}"])
    (tmp_path / "users").write_text(f"[127.0.0.1]:{host.port} {(tmp_path / 'rsa.pub').read_text()}")
    assert answers(invocation(), host.target())
