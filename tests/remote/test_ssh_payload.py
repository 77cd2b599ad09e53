"""Payloads: sent when the script requests them, as fast as it reads, and cut at any byte."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator

import pytest

from iris_cli.core.messages.observations import SilenceKind
from iris_cli.remote.fan_out import fan_out
from iris_cli.remote.ssh import SshTransport
from iris_cli.remote.ssh.call import SshCall
from iris_cli.remote.ssh.script_run import PIECE
from iris_cli.remote.transport import NoAnswer, Output, Payload, Target
from tests.support.relay import Fault, relay
from tests.support.sshd import SshHost, SshLab
from tests.support.waiting import PATIENCE

MARK = b"READY 0123456789abcdef"
SUM = f"{{ printf '%s\\n' '{MARK.decode()}'; sha256sum; exit 0; }}\n"
MIB = 1 << 20


@pytest.mark.ssh
@pytest.mark.parametrize("said", ["x%s\\n", "%s", "\\n%sx\\n"])
def test_only_a_complete_line_requests_the_payload(ssh_lab: SshLab, ssh: SshTransport, said: str) -> None:
    (host,) = ssh_lab()

    def chunks() -> Iterator[bytes]:
        raise AssertionError("nobody has asked")

    payload = Payload(mark=MARK, size=MIB, chunks=chunks)
    output = run(ssh, host.target(), f"{{ printf '{said}' '{MARK.decode()}'; exit 3; }}\n", payload)
    assert (output.status, MARK in output.stdout) == (3, True)


@pytest.mark.ssh
def test_a_line_received_in_pieces_requests_the_payload(ssh_lab: SshLab, ssh: SshTransport) -> None:
    (host,) = ssh_lab()
    mark = MARK.decode()
    script = f"{{ printf 'hello\\n{mark[:5]}'; sleep 0.1; printf '{mark[5:]}\\n'; sha256sum; exit 0; }}\n"
    assert run(ssh, host.target(), script, mebibytes(1)).stdout.split()[-2].decode() == sha256(1)


def blocks(count: int, size: int = MIB) -> Iterator[bytes]:
    for number in range(count):
        yield number.to_bytes(4) * (size // 4)


def sha256(count: int) -> str:
    digest = hashlib.sha256()
    for block in blocks(count):
        digest.update(block)
    return digest.hexdigest()


def mebibytes(count: int) -> Payload:
    return Payload(mark=MARK, size=count * MIB, chunks=lambda: blocks(count))


def run(
    ssh: SshTransport, target: Target, script: str, payload: Payload, timeout: float = PATIENCE
) -> Output:
    return ssh.run(target, script.encode(), connect_timeout=PATIENCE, timeout=timeout, payload=payload)


@pytest.mark.ssh
def test_a_payload_arrives_whole(ssh_lab: SshLab, ssh: SshTransport) -> None:
    (host,) = ssh_lab()
    for count in (0, 1, 9):  # a window is 2 MiB
        output = run(ssh, host.target(), SUM, mebibytes(count))
        assert output.stdout.decode().split() == [*MARK.decode().split(), sha256(count), "-"]
        assert output.status == 0


@pytest.mark.ssh
def test_a_script_that_asks_for_nothing_gets_nothing(ssh_lab: SshLab, ssh: SshTransport) -> None:
    (host,) = ssh_lab()

    def chunks() -> Iterator[bytes]:
        raise AssertionError("nobody has asked")

    payload = Payload(mark=MARK, size=1, chunks=chunks)
    output = run(ssh, host.target(), "{ echo there already; exit 0; }\n", payload)
    assert (output.stdout, output.status) == (b"there already\n", 0)


@pytest.mark.ssh
def test_a_script_may_end_before_it_has_taken_everything(ssh_lab: SshLab, ssh: SshTransport) -> None:
    (host,) = ssh_lab()
    enough = f"{{ printf '%s\\n' '{MARK.decode()}'; head -c 10 | wc -c; exit 0; }}\n"
    output = run(ssh, host.target(), enough, mebibytes(8))
    assert output.stdout.split()[-1] == b"10"
    assert (
        run(ssh, host.target(), SUM, mebibytes(1)).status == 0
    )  # the connection still works for other calls


@pytest.mark.ssh
def test_an_unreadable_payload_is_a_local_error(ssh_lab: SshLab, ssh: SshTransport) -> None:
    (host,) = ssh_lab()

    def chunks() -> Iterator[bytes]:
        yield bytes(MIB)
        raise OSError(5, "Input/output error")

    with pytest.raises(NoAnswer, match="Input/output error") as caught:
        run(ssh, host.target(), SUM, Payload(mark=MARK, size=2 * MIB, chunks=chunks))
    assert caught.value.kind is SilenceKind.LOCAL


@pytest.mark.ssh
def test_a_host_that_accepts_no_more_input_times_out(ssh_lab: SshLab, ssh: SshTransport) -> None:
    (host,) = ssh_lab()
    never = f"{{ printf '%s\\n' '{MARK.decode()}'; exec sleep 1000; }}\n"
    with pytest.raises(NoAnswer) as caught:
        run(ssh, host.target(), never, mebibytes(64), timeout=2.0)
    assert caught.value.kind is SilenceKind.TIMEOUT


@pytest.mark.ssh
def test_each_piece_restarts_the_timeout(
    ssh_lab: SshLab, ssh: SshTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    (host,) = ssh_lab()
    pieces: list[float] = []
    monkeypatch.setattr(SshCall, "progressed", lambda _, latest: pieces.append(latest))
    run(ssh, host.target(), SUM, mebibytes(2))
    assert len(pieces) >= 2 * MIB // PIECE
    assert len(set(pieces)) == 1  # and ends at one time


def test_progress_moves_the_deadline_up_to_the_last_one() -> None:
    call = SshCall[None](PATIENCE, PATIENCE)
    call.connected()
    soon = time.monotonic() + 5.0
    call.progressed(soon)
    assert call.remaining() <= 5.0
    call.progressed(soon + 1000.0)
    assert call.remaining() > 6.0


@pytest.mark.ssh
@pytest.mark.parametrize("sent", [2_000, 200_000, 3_000_000])
def test_a_cut_in_a_payload_is_a_silence(ssh_lab: SshLab, ssh: SshTransport, sent: int) -> None:
    (host,) = ssh_lab()
    with relay(host.port, Fault(cut_up=sent)) as cut, pytest.raises(NoAnswer):
        run(ssh, host.target(port=cut.port), SUM, mebibytes(8))


@pytest.mark.ssh
def test_other_calls_are_answered_while_many_hosts_get_theirs(ssh_lab: SshLab, ssh: SshTransport) -> None:
    hosts = ssh_lab(4)
    sending, answered = threading.Event(), threading.Event()

    def chunks() -> Iterator[bytes]:
        for number, block in enumerate(blocks(24)):
            if number == 8:
                sending.set()
            if number == 16:
                assert answered.wait(PATIENCE)  # while all of them are sending
            yield block

    def upload(host: SshHost) -> bytes:
        return run(ssh, host.target(), SUM, Payload(mark=MARK, size=24 * MIB, chunks=chunks)).stdout.split()[
            -2
        ]

    def ask(host: SshHost) -> bytes:
        assert sending.wait(PATIENCE)
        output = ssh.run(host.target(), b"echo well", connect_timeout=PATIENCE, timeout=PATIENCE)
        answered.set()
        return output.stdout

    acts = [(upload, host) for host in hosts] + [(ask, hosts[0])]
    said = {
        index: out for (index, _), out in fan_out([*enumerate(acts)], lambda each: each[1][0](each[1][1]))
    }
    assert [said[index].decode() for index in range(5)] == [*[sha256(24)] * 4, "well\n"]


@pytest.mark.ssh
def test_an_abandoned_call_aborts_no_other(ssh_lab: SshLab, ssh: SshTransport) -> None:
    (host,) = ssh_lab()

    def chunks() -> Iterator[bytes]:
        for number, block in enumerate(blocks(4)):
            if number == 2:
                with pytest.raises(NoAnswer):
                    ssh.run(host.target(), b"exec sleep 60", connect_timeout=PATIENCE, timeout=1.0)
            yield block

    output = run(ssh, host.target(), SUM, Payload(mark=MARK, size=4 * MIB, chunks=chunks))
    assert output.stdout.split()[-2].decode() == sha256(4)
