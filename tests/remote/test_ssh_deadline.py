"""Servers that hang, stop answering or are cut off: the call ends in time, never with a wrong answer."""

from __future__ import annotations

import re
import socket
import threading
from functools import partial
from typing import Any

import pytest
from paramiko import Transport

from iris_cli.core.messages.observations import SilenceKind
from iris_cli.remote.ssh import SshTransport
from iris_cli.remote.transport import NoAnswer, Script, ScriptResult, Target
from tests.support.fan_out import fan_out
from tests.support.relay import Fault, closed_port, deaf_port, relay
from tests.support.sshd import SshHost, SshLab
from tests.support.waiting import LIMITS, PATIENCE, until

pytestmark = pytest.mark.ssh

SCRIPT = b"{ echo before; sleep 0.1; echo after; echo error >&2; exit 7; }\n"
UP_OR_DOWN = ("cut_up", "cut_down")
ANSWER = ScriptResult(stdout=b"before\nafter\n", stderr=b"error\n", status=7)


def silence(ssh: SshTransport, target: Target, step: str, script: bytes = SCRIPT) -> NoAnswer:
    """Return the NoAnswer of an unanswered call, with timeouts long enough to reach that step."""
    for limit in LIMITS:
        with pytest.raises(NoAnswer) as caught:
            ssh.run(target, Script(text=script, connect_timeout=limit, timeout=limit))
        if caught.value.step == step:
            return caught.value
    raise AssertionError(f"never got to {step}: {caught.value}")


def outcome(lab: SshLab, host: SshHost, fault: Fault, *, timeout: float) -> ScriptResult | NoAnswer:
    """Return the result of a call over a new connection through a faulty relay."""
    ssh = SshTransport(lab.known_hosts, ssh_config=None, user_known_hosts=None)
    with relay(host.port, fault) as way:
        try:
            return ssh.run(
                host.target(port=way.port), Script(text=SCRIPT, connect_timeout=timeout, timeout=timeout)
            )
        except NoAnswer as error:
            return error
        finally:
            ssh.close()


def bytes_of_a_call(lab: SshLab, host: SshHost) -> tuple[int, int]:
    """Return the bytes that a complete call sends up and down."""
    ssh = SshTransport(lab.known_hosts, ssh_config=None, user_known_hosts=None)
    with relay(host.port) as way:
        answer = ssh.run(
            host.target(port=way.port), Script(text=SCRIPT, connect_timeout=PATIENCE, timeout=PATIENCE)
        )
        ssh.close()
        assert answer == ANSWER
        return way.up, way.down


def test_a_port_without_a_listener_is_unreachable(ssh_lab: SshLab, ssh: SshTransport) -> None:
    (host,) = ssh_lab()
    error = silence(ssh, host.target(port=closed_port()), "connect")
    assert (error.kind, error.sent) == (SilenceKind.UNREACHABLE, False)
    assert "refused" in error.detail


def test_a_name_that_does_not_exist_is_unreachable(ssh_lab: SshLab, ssh: SshTransport) -> None:
    (host,) = ssh_lab()
    error = silence(ssh, host.target(host="no-such-host.invalid"), "resolve")
    assert (error.kind, error.sent) == (SilenceKind.UNREACHABLE, False)


def test_a_resolver_that_hangs_is_left_behind_and_connects_nowhere_later(
    ssh_lab: SshLab, ssh: SshTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    (host,) = ssh_lab()
    released, resolve = threading.Event(), socket.getaddrinfo

    def getaddrinfo(*args: Any, **kwargs: Any) -> list[Any]:
        released.wait(PATIENCE)
        return resolve(*args, **kwargs)

    with relay(host.port) as way:
        with monkeypatch.context() as patch:
            patch.setattr(socket, "getaddrinfo", getaddrinfo)
            error = silence(ssh, host.target(port=way.port), "resolve")
        assert (error.kind, error.sent) == (SilenceKind.UNREACHABLE, False)
        released.set()
        let_late_work_end()
        assert way.connections == 0


def test_a_late_connection_runs_nothing(ssh_lab: SshLab, ssh: SshTransport) -> None:
    (host,) = ssh_lab()
    with relay(host.port, Fault(delay=0.3)) as way:
        with pytest.raises(NoAnswer) as caught:
            ssh.run(
                host.target(port=way.port),
                Script(text=b'touch "$HOME/ran"', connect_timeout=1.0, timeout=1.0),
            )
        assert not caught.value.sent
        let_late_work_end()
    assert not (host.home / "ran").exists()


def let_late_work_end() -> None:
    """Wait for the abandoned threads of a call."""
    until(lambda: not any(each.name == "iris-ssh-call" for each in threading.enumerate()))


def test_a_listener_that_never_takes_the_connection_is_unreachable(
    ssh_lab: SshLab, ssh: SshTransport
) -> None:
    (host,) = ssh_lab()
    with deaf_port() as port:
        error = silence(ssh, host.target(port=port), "connect")
    assert (error.kind, error.sent) == (SilenceKind.UNREACHABLE, False)


def test_a_silent_server_times_out_at_the_banner(ssh_lab: SshLab, ssh: SshTransport) -> None:
    (host,) = ssh_lab()
    with relay(host.port, Fault(hang=True)) as way:
        error = silence(ssh, host.target(port=way.port), "SSH banner")
    assert (error.kind, error.sent) == (SilenceKind.TIMEOUT, False)


def test_a_server_that_hangs_up_at_once_is_tried_once_more(ssh_lab: SshLab, ssh: SshTransport) -> None:
    (host,) = ssh_lab()
    with relay(host.port, Fault(cut_down=0, only_first=1)) as way:
        answer = ssh.run(
            host.target(port=way.port), Script(text=SCRIPT, connect_timeout=PATIENCE, timeout=PATIENCE)
        )
        assert answer == ANSWER
        assert way.connections == 2


def test_a_server_that_hangs_up_twice_is_not_tried_a_third_time(ssh_lab: SshLab, ssh: SshTransport) -> None:
    (host,) = ssh_lab()
    with relay(host.port, Fault(cut_down=0)) as way:
        with pytest.raises(NoAnswer, match="SSH banner") as caught:
            ssh.run(
                host.target(port=way.port), Script(text=SCRIPT, connect_timeout=PATIENCE, timeout=PATIENCE)
            )
        assert way.connections == 2
    assert (caught.value.kind, caught.value.step, caught.value.sent) == (
        SilenceKind.PROTOCOL,
        "SSH banner",
        False,
    )
    assert "MaxStartups" in caught.value.hint


def test_a_server_that_is_not_an_ssh_server_is_recognized(ssh_lab: SshLab, ssh: SshTransport) -> None:
    (host,) = ssh_lab()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            for _ in range(2):
                client, _ = listener.accept()
                client.sendall(b"220 mail.example.org\x1b[2J\r\n" * 200)
                client.close()

        threading.Thread(target=greet, daemon=True).start()
        target = host.target(port=listener.getsockname()[1])
        with pytest.raises(NoAnswer) as caught:
            ssh.run(target, Script(text=SCRIPT, connect_timeout=PATIENCE, timeout=PATIENCE))
    error = caught.value
    assert (error.kind, error.step, error.sent) == (SilenceKind.PROTOCOL, "SSH banner", False)
    assert error.detail.isprintable()


def test_silence_at_any_byte_ends_by_the_deadline_and_names_the_phase(ssh_lab: SshLab) -> None:
    (host,) = ssh_lab(options=["MaxStartups 100"])
    up, down = bytes_of_a_call(ssh_lab, host)
    faults = [Fault(silent_down=n) for n in range(0, down, down // 16)]
    faults += [Fault(silent_up=n) for n in range(0, up, up // 16)]
    wanted, steps = {"SSH banner", "key exchange", "authentication", "SSH channel", "output"}, set[str]()
    for limit in LIMITS[1:]:  # until the timeout is long enough for this machine to reach each step
        results = fan_out(faults, partial(outcome, ssh_lab, host, timeout=limit))
        for _, result in results:
            if result != ANSWER:  # the last bytes do not matter
                assert isinstance(result, NoAnswer)
                assert result.kind in (SilenceKind.TIMEOUT, SilenceKind.UNREACHABLE), result
                steps.add(result.step)
        if wanted <= steps:
            return
    raise AssertionError(f"never got to {wanted - steps}")


@pytest.mark.parametrize(
    ("direction", "reset", "count"),
    [
        ("cut_up", False, 5),
        ("cut_down", True, 5),
        *(
            pytest.param(way, reset, 15, marks=pytest.mark.soak)
            for way in UP_OR_DOWN
            for reset in (False, True)
        ),
    ],
)
def test_a_cut_at_any_byte_never_gives_a_wrong_answer(
    ssh_lab: SshLab, direction: str, reset: bool, count: int
) -> None:
    (host,) = ssh_lab(options=["MaxStartups 100"])
    up, down = bytes_of_a_call(ssh_lab, host)
    total = up if direction == "cut_up" else down
    # A sample of all offsets, mostly within the answer, and one beyond the end.
    offsets = sorted(
        {*range(0, total, total // count), *range(total - 16 * count, total + 16, 16), 2 * total}
    )
    faults = [Fault(**{direction: n, "reset": reset}) for n in offsets]
    complete = 0
    for fault, result in fan_out(
        faults, lambda fault: outcome(ssh_lab, host, fault, timeout=PATIENCE), parallelism=8
    ):
        if isinstance(result, ScriptResult) and result.status != -1:
            assert result == ANSWER, fault
            complete += 1
        elif isinstance(result, NoAnswer):
            assert result.kind in (SilenceKind.PROTOCOL, SilenceKind.UNREACHABLE), fault
    assert 0 < complete < len(faults)


def test_a_cut_before_anything_was_sent_is_known_to_be_so(ssh_lab: SshLab) -> None:
    (host,) = ssh_lab()
    result = outcome(ssh_lab, host, Fault(cut_down=1500), timeout=PATIENCE)
    assert isinstance(result, NoAnswer)
    assert not result.sent


def test_a_script_that_takes_too_long_times_out_as_sent(ssh_lab: SshLab, ssh: SshTransport) -> None:
    (host,) = ssh_lab()
    error = silence(ssh, host.target(), "output", b"echo started; exec sleep 1000\n")
    assert (error.kind, error.sent) == (SilenceKind.TIMEOUT, True)
    assert re.search(r"timeout after [0-9.]+ s", error.detail)


def test_a_script_that_takes_no_input_times_out_while_it_is_sent(ssh_lab: SshLab, ssh: SshTransport) -> None:
    (host,) = ssh_lab()
    error = silence(ssh, host.target(), "script", b"sleep 1000\n" + b"# padding\n" * 1_000_000)
    assert (error.kind, error.sent) == (SilenceKind.TIMEOUT, True)


def test_a_background_child_that_keeps_the_channel_open_ends_by_the_deadline(
    ssh_lab: SshLab, ssh: SshTransport
) -> None:
    (host,) = ssh_lab()
    error = silence(ssh, host.target(), "output", b"sleep 1000 & echo done\n")
    assert (error.kind, error.sent) == (SilenceKind.TIMEOUT, True)


def test_after_a_timeout_the_next_call_opens_a_new_connection(ssh_lab: SshLab, ssh: SshTransport) -> None:
    (host,) = ssh_lab()
    with relay(host.port) as way:
        target = host.target(port=way.port)
        with pytest.raises(NoAnswer):
            ssh.run(target, Script(text=b"exec sleep 1000\n", connect_timeout=PATIENCE, timeout=0.5))
        assert ssh.run(target, Script(text=SCRIPT, connect_timeout=PATIENCE, timeout=PATIENCE)) == ANSWER
        assert way.connections == 2


def test_a_server_that_hangs_leaves_no_thread_behind(ssh_lab: SshLab, ssh: SshTransport) -> None:
    """The library has a timer for the key exchange, which would continue."""
    (host,) = ssh_lab()
    before = set(threading.enumerate())
    with relay(host.port, Fault(silent_down=100)) as way:
        silence(ssh, host.target(port=way.port), "key exchange")
        until(lambda: not [each for each in set(threading.enumerate()) - before if is_of_a_call(each)])


def is_of_a_call(thread: threading.Thread) -> bool:
    return isinstance(thread, (threading.Timer, Transport)) or thread.name.startswith("iris-ssh")


def test_a_slow_network_is_not_a_silent_one(ssh_lab: SshLab) -> None:
    (host,) = ssh_lab()
    assert outcome(ssh_lab, host, Fault(delay=0.05), timeout=PATIENCE) == ANSWER


def test_one_silent_host_does_not_delay_the_others(ssh_lab: SshLab, ssh: SshTransport) -> None:
    silent, *others = ssh_lab(4)
    over = threading.Event()
    with relay(silent.port, Fault(hang=True)) as way:
        targets = [silent.target(port=way.port), *(host.target() for host in others)]

        def act(target: Target) -> bool:
            try:
                ssh.run(target, Script(text=SCRIPT, connect_timeout=PATIENCE, timeout=PATIENCE))
            except NoAnswer:
                assert over.is_set(), "given up by itself"
                return False
            return True

        results = fan_out(targets, act)
        answered = [next(results) for _ in others]
        over.set()
        way.fault = Fault(cut_down=0)
        way.drop()
        last, is_answered = next(results)
    assert (last.worker, is_answered) == (silent.worker, False)
    assert {target.worker: each for target, each in answered} == {host.worker: True for host in others}
