"""Payloads: sent when the script requests them, as fast as it reads, and cut at any byte."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator

import pytest

from iris_cli.remote.ssh import SshTransport
from iris_cli.remote.ssh.call import PIECE, SshCall
from iris_cli.remote.transport import NoAnswer, Payload, Script, ScriptResult, Target
from tests.support.fan_out import fan_out
from tests.support.relay import Fault, relay
from tests.support.sshd import SshHost, SshLab
from tests.support.waiting import PATIENCE

MARK = b"READY 0123456789abcdef"
SUM = f"{{ printf '%s\\n' '{MARK.decode()}'; sha256sum; exit 0; }}\n"
MIB = 1 << 20


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
) -> ScriptResult:
    return ssh.run(
        target, Script(text=script.encode(), connect_timeout=PATIENCE, timeout=timeout, payload=payload)
    )


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
        for number, block in enumerate(blocks(3)):
            if number == 1:
                sending.set()
            if number == 2:
                assert answered.wait(PATIENCE)  # while all of them are sending
            yield block

    def upload(host: SshHost) -> bytes:
        return run(ssh, host.target(), SUM, Payload(mark=MARK, size=3 * MIB, chunks=chunks)).stdout.split()[
            -2
        ]

    def ask(host: SshHost) -> bytes:
        assert sending.wait(PATIENCE)
        output = ssh.run(host.target(), Script(text=b"echo well", connect_timeout=PATIENCE, timeout=PATIENCE))
        answered.set()
        return output.stdout

    acts = [(upload, host) for host in hosts] + [(ask, hosts[0])]
    said = {
        index: out for (index, _), out in fan_out([*enumerate(acts)], lambda each: each[1][0](each[1][1]))
    }
    assert [said[index].decode() for index in range(5)] == [*[sha256(3)] * 4, "well\n"]


@pytest.mark.ssh
def test_an_abandoned_call_aborts_no_other(ssh_lab: SshLab, ssh: SshTransport) -> None:
    (host,) = ssh_lab()

    def chunks() -> Iterator[bytes]:
        for number, block in enumerate(blocks(4)):
            if number == 2:
                with pytest.raises(NoAnswer):
                    ssh.run(
                        host.target(), Script(text=b"exec sleep 60", connect_timeout=PATIENCE, timeout=1.0)
                    )
            yield block

    output = run(ssh, host.target(), SUM, Payload(mark=MARK, size=4 * MIB, chunks=chunks))
    assert output.stdout.split()[-2].decode() == sha256(4)
