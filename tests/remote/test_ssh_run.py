"""Running scripts over SSH: streams, status, limits, noise, and number of connections."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from paramiko import Channel, Transport

from iris_cli.core.messages.observations import SilenceKind
from iris_cli.remote.ssh import SshTransport, dialer, link
from iris_cli.remote.ssh.link import MAX_SESSIONS, Link
from iris_cli.remote.transport import NoAnswer, Script, ScriptResult, Target
from tests.support.fan_out import fan_out
from tests.support.relay import Fault, relay
from tests.support.sshd import SshLab
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.ssh


def run(ssh: SshTransport, target: Target, script: str, *, limit: int = 1 << 20) -> ScriptResult:
    return ssh.run(
        target, Script(text=script.encode(), connect_timeout=PATIENCE, timeout=PATIENCE, limit=limit)
    )


def test_each_host_has_its_own_home_and_environment(ssh_lab: SshLab, ssh: SshTransport) -> None:
    hosts = ssh_lab(2, env={"GCE_METADATA_HOST": "127.0.0.1:9"})
    for host in hosts:
        output = run(ssh, host.target(), 'echo "$HOME $GCE_METADATA_HOST"')
        assert output.stdout.decode().split() == [str(host.home), "127.0.0.1:9"]


def test_noise_of_the_login_shell_arrives_with_the_output(ssh_lab: SshLab, ssh: SshTransport) -> None:
    (host,) = ssh_lab(options=['ForceCommand echo welcome; eval "$SSH_ORIGINAL_COMMAND"'])
    (host.home / ".bashrc").write_text("echo noise\n")
    output = run(ssh, host.target(), "echo answer")
    assert output.status == 0
    assert output.stdout.endswith(b"welcome\nanswer\n")


def test_three_calls_share_one_connection(ssh_lab: SshLab, ssh: SshTransport) -> None:
    (host,) = ssh_lab()
    with relay(host.port) as way:
        target = host.target(port=way.port)
        assert [run(ssh, target, f"exit {n}").status for n in range(3)] == [0, 1, 2]
        assert way.connections == 1


def test_calls_at_the_same_time_share_one_connection(ssh_lab: SshLab, ssh: SshTransport) -> None:
    (host,) = ssh_lab()
    with relay(host.port) as way:
        target = host.target(port=way.port)
        results = dict(fan_out(range(6), lambda n: run(ssh, target, f"exit {n}").status))
        assert results == {n: n for n in range(6)}
        assert way.connections == 1


def test_more_calls_at_the_same_time_than_sshd_has_sessions_wait_for_each_other(
    ssh_lab: SshLab, ssh: SshTransport
) -> None:
    (host,) = ssh_lab()  # MaxSessions is 10
    results = dict(fan_out(range(16), lambda n: run(ssh, host.target(), f"sleep 0.2; exit {n}").status))
    assert results == {n: n for n in range(16)}


def test_a_session_that_is_refused_disturbs_no_other(ssh_lab: SshLab, ssh: SshTransport) -> None:
    (host,) = ssh_lab(options=["MaxSessions 1"])
    gate = host.home / "gate"
    started = host.home / "started"

    def wait_for_it() -> ScriptResult:
        return run(ssh, host.target(), f"touch {started}; until [ -e {gate} ]; do sleep 0.1; done; exit 3")

    with ThreadPoolExecutor() as pool:
        first = pool.submit(wait_for_it)
        until(started.exists)
        with pytest.raises(NoAnswer) as caught:
            run(ssh, host.target(), "true")
        gate.touch()
        assert first.result().status == 3
    assert (caught.value.kind, caught.value.step, caught.value.sent) == (
        SilenceKind.PROTOCOL,
        "SSH channel",
        False,
    )


def test_a_call_that_times_out_in_the_queue_aborts_no_other(ssh_lab: SshLab, ssh: SshTransport) -> None:
    (host,) = ssh_lab()
    gate = host.home / "gate"

    def wait_for_it(number: int) -> ScriptResult:
        wait = f"touch {host.home}/started-{number}; until [ -e {gate} ]; do sleep 0.1; done; exit 3"
        return run(ssh, host.target(), wait)

    with ThreadPoolExecutor() as pool:
        busy = [pool.submit(wait_for_it, number) for number in range(MAX_SESSIONS)]
        try:
            until(lambda: len(list(host.home.glob("started-*"))) == MAX_SESSIONS)
            with pytest.raises(NoAnswer) as caught:
                ssh.run(host.target(), Script(text=b"true", connect_timeout=PATIENCE, timeout=0.2))
        finally:
            gate.touch()
        assert [call.result().status for call in busy] == [3] * MAX_SESSIONS
    assert (caught.value.step, caught.value.sent) == ("session", False)


@pytest.fixture
def shells(monkeypatch: pytest.MonkeyPatch) -> list[Channel]:
    """All opened shells."""
    opened: list[Channel] = []
    open_one = Transport.open_session

    def note(transport: Transport, *, timeout: float) -> Channel:
        opened.append(open_one(transport, timeout=timeout))
        return opened[-1]

    monkeypatch.setattr(Transport, "open_session", note)
    return opened


def started_ahead(link: Link) -> bool:
    """Return True if the shell of the next call was started."""
    return any(spare.is_decided.is_set() for spare in link._spares)


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> list[Link]:
    """All opened connections."""
    made: list[Link] = []
    initialize = Link.__init__

    def note(link: Link, *args: Any) -> None:
        initialize(link, *args)
        made.append(link)

    monkeypatch.setattr(Link, "__init__", note)
    return made


def test_the_shell_of_the_next_call_is_started_ahead(
    ssh_lab: SshLab, ssh: SshTransport, shells: list[Channel], links: list[Link]
) -> None:
    (host,) = ssh_lab()
    for number in range(3):
        assert run(ssh, host.target(), f"exit {number}").status == number
        until(lambda: started_ahead(links[0]))
        assert len(shells) == number + 2
    assert [shell.closed for shell in shells] == [True, True, True, False]


def test_a_lost_spare_shell_is_replaced(ssh_lab: SshLab, ssh: SshTransport, links: list[Link]) -> None:
    (host,) = ssh_lab()
    run(ssh, host.target(), "true")
    until(lambda: started_ahead(links[0]))
    (spare,) = links[0]._spares
    assert spare.channel is not None
    spare.channel.close()
    assert run(ssh, host.target(), "exit 3").status == 3


def test_with_many_connections_nothing_is_started_ahead(
    ssh_lab: SshLab, ssh: SshTransport, shells: list[Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialer, "MAX_WITH_SPARES", 0)
    (host,) = ssh_lab()
    assert [run(ssh, host.target(), f"exit {n}").status for n in range(3)] == [0, 1, 2]
    assert len(shells) == 3


def test_a_dead_connection_is_replaced_once(ssh_lab: SshLab, ssh: SshTransport) -> None:
    (host,) = ssh_lab()
    with relay(host.port) as way:
        target = host.target(port=way.port)
        run(ssh, target, "true")
        way.drop()
        assert run(ssh, target, "echo again").stdout == b"again\n"
        assert way.connections == 2


def test_a_connection_that_dies_when_it_is_used_again_is_replaced_too(
    ssh_lab: SshLab, ssh: SshTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialer, "MAX_WITH_SPARES", 0)
    (host,) = ssh_lab()
    with relay(host.port) as way:
        run(ssh, host.target(port=way.port), "true")
        of_one_call = way.up
    with relay(host.port, Fault(cut_up=of_one_call + 100, only_first=1)) as way:
        target = host.target(port=way.port)
        run(ssh, target, "true")
        assert run(ssh, target, "echo again").stdout == b"again\n"
        assert way.connections == 2


@pytest.mark.parametrize(("believed_for", "is_sent"), [(0.0, False), (3600.0, True)])
def test_a_connection_that_was_quiet_is_sent_nothing_before_it_has_proven_to_be_alive(
    ssh_lab: SshLab,
    ssh: SshTransport,
    links: list[Link],
    monkeypatch: pytest.MonkeyPatch,
    *,
    believed_for: float,
    is_sent: bool,
) -> None:
    monkeypatch.setattr(link, "ALIVE_FOR", believed_for)
    (host,) = ssh_lab()
    with relay(host.port) as way:
        target = host.target(port=way.port)
        run(ssh, target, "true")
        until(lambda: started_ahead(links[0]))
        way.freeze()
        with pytest.raises(NoAnswer) as caught:
            # Time for sending it on a busy machine; the other call needs none.
            ssh.run(target, Script(text=b"true", connect_timeout=PATIENCE, timeout=4 if is_sent else 1))
    assert (caught.value.kind, caught.value.sent) == (SilenceKind.TIMEOUT, is_sent)


def test_a_quiet_connection_that_is_alive_serves_again(
    ssh_lab: SshLab, ssh: SshTransport, links: list[Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "ALIVE_FOR", 0.0)
    (host,) = ssh_lab()
    assert [run(ssh, host.target(), f"exit {n}").status for n in range(3)] == [0, 1, 2]
    assert len(links) == 1


def test_after_close_nothing_is_connected_and_closing_again_is_fine(
    ssh_lab: SshLab, ssh: SshTransport
) -> None:
    (host,) = ssh_lab()
    with relay(host.port) as way:
        target = host.target(port=way.port)
        run(ssh, target, "true")
        ssh.close()
        ssh.close()
        run(ssh, target, "true")
        assert way.connections == 2


def test_close_also_ends_a_connection_that_nothing_else_refers_to(ssh_lab: SshLab, ssh: SshTransport) -> None:
    """Otherwise its thread and the shell started in advance would stay for ever."""
    (host,) = ssh_lab()
    before = set(threading.enumerate())

    def new(name: type | str) -> bool:
        found = set(threading.enumerate()) - before
        return any(each.name == name if isinstance(name, str) else isinstance(each, name) for each in found)

    run(ssh, host.target(), "true")
    until(lambda: not new("iris-ssh-spare"))
    assert new(Transport)
    gc.collect()
    ssh.close()
    until(lambda: not new(Transport))


@pytest.mark.parametrize("count", [8, pytest.param(64, marks=pytest.mark.soak)])
def test_many_hosts_at_once(ssh_lab: SshLab, ssh: SshTransport, count: int) -> None:
    hosts = ssh_lab(count)
    results = fan_out(hosts, lambda host: run(ssh, host.target(), 'echo "$HOME"').stdout.decode().strip())
    assert {host.name: home for host, home in results} == {host.name: str(host.home) for host in hosts}


LOADING = """
import sys
from pathlib import Path
from iris_cli.core.ids import WorkerId
from iris_cli.core.model.worker import Connection
from iris_cli.remote.ssh import SshTransport
from iris_cli.remote.transport import Target

def told(words):
    print(words, *(name in sys.modules for name in ("paramiko", "invoke", "invoke.config")))

place, worker = Path(sys.argv[1]), Target(worker=WorkerId("w"), connection=Connection(host="w"))
transports = {name: SshTransport(place / "known_hosts", ssh_config=place / name) for name in ("plain", "exec")}
told("transport")
for name, transport in transports.items():
    transport.known_keys(worker)
    told(name)
"""


def test_the_ssh_library_is_loaded_at_the_first_use_and_invoke_when_a_configuration_runs_a_command(
    tmp_path: Path,
) -> None:
    (tmp_path / "plain").write_text("Host w\n Port 6\n")
    (tmp_path / "exec").write_text(f"Match exec 'touch {tmp_path}/executed'\n Port 7\n")
    command = [sys.executable, "-c", LOADING, str(tmp_path)]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == [
        "transport False False False",
        "plain True False False",
        "exec True True True",
    ]
    assert (tmp_path / "executed").exists()


def test_a_broken_ssh_config_is_a_local_error_with_its_name(ssh_lab: SshLab, tmp_path: Path) -> None:
    (host,) = ssh_lab()
    config = tmp_path / "config"
    config.write_text("Host *\n  Port\n")
    ssh = SshTransport(ssh_lab.known_hosts, ssh_config=config, user_known_hosts=None)
    with pytest.raises(NoAnswer, match="config: Unparsable line Port") as caught:
        run(ssh, host.target(), "true")
    assert caught.value.kind is SilenceKind.LOCAL
    assert not caught.value.sent


def test_beyond_the_limit_the_least_recently_used_connections_close(
    ssh_lab: SshLab, ssh: SshTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialer, "MAX_UNUSED", 2)
    hosts = ssh_lab(3)
    with ExitStack() as stack:
        ways = [stack.enter_context(relay(host.port)) for host in hosts]
        targets = [host.target(port=way.port) for host, way in zip(hosts, ways, strict=True)]
        for number in (0, 1, 0, 2, 0, 1):  # the connection to 1 is closed for that to 2
            assert run(ssh, targets[number], f"exit {number}").status == number
        assert [way.connections for way in ways] == [1, 2, 1]


def test_a_connection_in_use_is_not_closed(
    ssh_lab: SshLab, ssh: SshTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialer, "MAX_UNUSED", 1)
    hosts = ssh_lab(4)
    results = fan_out(hosts, lambda host: run(ssh, host.target(), "sleep 0.2; exit 3").status)
    assert [status for _, status in results] == [3] * 4
