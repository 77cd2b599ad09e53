"""What every transport does: streams, status, limits, deadlines and payloads, over SSH and by real steps of Slurm."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from iris_cli.core.messages.observations import SilenceKind
from iris_cli.remote.srun import SrunTransport
from iris_cli.remote.ssh import SshTransport
from iris_cli.remote.transport import NoAnswer, Payload, Script, ScriptResult, Target, Transport
from tests.remote.test_ssh_payload import MARK, MIB, SUM, mebibytes, sha256
from tests.support.allocation import Allocation
from tests.support.fan_out import fan_out
from tests.support.sshd import SshLab
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.ssh

BIG = 3_000_000  # a window of SSH is 2 MiB


@dataclass
class Way:
    """A transport, and a host that it reaches."""

    transport: Transport
    target: Target

    def run(
        self,
        script: str,
        payload: Payload | None = None,
        *,
        limit: int = 1 << 20,
        timeout: float = PATIENCE,
        connect_timeout: float = PATIENCE,
    ) -> ScriptResult:
        return self.transport.run(
            self.target,
            Script(
                text=script.encode(),
                connect_timeout=connect_timeout,
                timeout=timeout,
                limit=limit,
                payload=payload,
            ),
        )

    def silence(self, script: str, payload: Payload | None = None, **settings: float) -> NoAnswer:
        with pytest.raises(NoAnswer) as caught:
            self.run(script, payload, **settings)  # type: ignore[arg-type]  # one of those above
        return caught.value


LOGIN = "srun-on-a-login-host"


@pytest.fixture(
    scope="module", params=["ssh", *(pytest.param(kind, marks=pytest.mark.soak) for kind in ("srun", LOGIN))]
)
def kind(request: pytest.FixtureRequest) -> str:
    """In the scope of the module: tests by srun are in few test processes, each of which starts a Slurm."""
    return str(request.param)


@pytest.fixture
def way(
    request: pytest.FixtureRequest, kind: str, ssh_lab: SshLab, ssh: SshTransport, tmp_path: Path
) -> Iterator[Way]:
    if kind == "ssh":
        (host,) = ssh_lab()
        yield Way(ssh, host.target())
        return
    allocation: Allocation = request.getfixturevalue("shared_allocation")
    if kind == "srun":
        yield Way(allocation.transport, allocation.target())
        return
    environ = {name: allocation.slurm.environ[name] for name in ("SLURM_CONF", "PATH")}
    (login,) = ssh_lab(env=environ)
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text(login.known_hosts_line)
    over_ssh = SshTransport(tmp_path / "ours", ssh_config=None, user_known_hosts=known_hosts)
    settings = {name: getattr(login.connection(), name) for name in ("port", "user", "key")}
    yield Way(SrunTransport(over_ssh, {}), allocation.target(login=login.address, **settings))
    over_ssh.close()


all_ways = pytest.mark.parametrize("kind", ["ssh", "srun", LOGIN], indirect=True)
"""Other tests run over SSH, and in the soak by srun, too."""
both_transports = pytest.mark.parametrize(
    "kind", ["ssh", "srun", pytest.param(LOGIN, marks=pytest.mark.soak)], indirect=True
)


def nothing() -> Iterator[bytes]:
    raise AssertionError("no call asked for it")


@both_transports
def test_a_script_gives_back_both_streams_and_its_status(way: Way) -> None:
    output = way.run("echo out; echo err >&2; exit 3\n")
    assert output == ScriptResult(stdout=b"out\n", stderr=b"err\n", status=3)


@both_transports
def test_a_shell_that_dies_by_a_signal_has_no_status(way: Way) -> None:
    assert way.run("echo before; kill -9 $$\n") == ScriptResult(stdout=b"before\n", stderr=b"", status=-1)


def test_a_shell_that_ends_before_it_has_read_everything_is_no_error(way: Way) -> None:
    assert way.run("exit 4\n" + "# padding\n" * 500_000).status == 4


@both_transports
def test_megabytes_in_both_directions_at_once_do_not_deadlock(way: Way) -> None:
    # Both outputs are written while the script still arrives; cat gets the part that the shell has not read.
    output = way.run(f"head -c {BIG} /dev/zero >&2\nexec cat\n" + "x" * BIG, limit=2 * BIG)
    assert output.status == 0
    assert output.stderr == b"\0" * BIG
    assert len(output.stdout) > BIG * 0.9
    assert set(output.stdout) == {ord("x")}


@both_transports
def test_more_output_than_the_limit_is_no_answer(way: Way) -> None:
    for script, stream in (("cat /dev/zero", "stdout"), ("head -c 10001 /dev/zero >&2", "stderr")):
        error = way.silence(script, limit=10_000)
        assert (error.kind, error.sent) == (SilenceKind.PROTOCOL, True)
        assert error.detail.endswith(f" bytes on {stream}")
    assert way.run("echo well").stdout == b"well\n"


def test_exactly_the_limit_is_an_answer(way: Way) -> None:
    assert len(way.run("head -c 10000 /dev/zero", limit=10_000).stdout) == 10_000


@both_transports
def test_a_script_that_hangs_is_left_at_the_deadline(way: Way) -> None:
    way.run("true")  # connect before
    error = way.silence("exec sleep 1000", connect_timeout=2.0, timeout=2.0)
    assert (error.kind, error.step, error.sent) == (SilenceKind.TIMEOUT, "output", True)
    assert way.run("echo well").stdout == b"well\n"


@both_transports
def test_calls_at_the_same_time_are_all_answered(way: Way) -> None:
    count = 12 if isinstance(way.transport, SshTransport) else 4  # sshd serves ten by one connection
    results = dict(fan_out(range(count), lambda n: way.run(f"sleep 0.2; exit {n}").status))
    assert results == {n: n for n in range(count)}


def test_closing_twice_is_fine_and_the_next_call_connects_again(way: Way) -> None:
    way.run("true")
    way.transport.close()
    way.transport.close()
    assert way.run("echo again").stdout == b"again\n"


# What a script asks for once it runs: sent then and not before.


@pytest.mark.parametrize("said", ["x%s\\n", "%s", "\\n%sx\\n"])
def test_only_a_complete_line_requests_the_payload(way: Way, said: str) -> None:
    payload = Payload(mark=MARK, size=MIB, chunks=nothing)
    output = way.run(f"{{ printf '{said}' '{MARK.decode()}'; exit 3; }}\n", payload)
    assert (output.status, MARK in output.stdout) == (3, True)


def test_a_line_received_in_pieces_requests_the_payload(way: Way) -> None:
    mark = MARK.decode()
    script = f"{{ printf 'hello\\n{mark[:5]}'; sleep 0.1; printf '{mark[5:]}\\n'; sha256sum; exit 0; }}\n"
    assert way.run(script, mebibytes(1)).stdout.split()[-2].decode() == sha256(1)


@all_ways
def test_a_payload_arrives_whole(way: Way) -> None:
    for count in (0, 1, 3):  # a window of SSH is 2 MiB
        output = way.run(SUM, mebibytes(count))
        assert output.stdout.decode().split() == [*MARK.decode().split(), sha256(count), "-"]
        assert output.status == 0


def test_a_payload_after_another_is_sent_when_it_is_asked_for(way: Way) -> None:
    second = Payload(mark=b"MORE", size=4, chunks=lambda: [b"more"])
    first = Payload(mark=MARK, size=4, chunks=lambda: [b"some"], next=second)
    script = f"{{ echo '{MARK.decode()}'; dd bs=1 count=4 2>/dev/null; echo; %s exit 0; }}\n"
    asked = way.run(script % "echo MORE; cat;", first)
    assert asked.stdout.split(b"\n")[1:] == [b"some", b"MORE", b"more"]
    second = Payload(mark=b"MORE", size=4, chunks=nothing)
    first = Payload(mark=MARK, size=4, chunks=lambda: [b"some"], next=second)
    assert way.run(script % "", first).stdout.split(b"\n")[1:] == [b"some", b""]


def test_a_script_that_asks_for_nothing_gets_nothing(way: Way) -> None:
    payload = Payload(mark=MARK, size=1, chunks=nothing)
    output = way.run("{ echo there already; exit 0; }\n", payload)
    assert (output.stdout, output.status) == (b"there already\n", 0)


def test_a_script_may_end_before_it_has_taken_everything(way: Way) -> None:
    enough = f"{{ printf '%s\\n' '{MARK.decode()}'; head -c 10 | wc -c; exit 0; }}\n"
    assert way.run(enough, mebibytes(8)).stdout.split()[-1] == b"10"
    assert way.run(SUM, mebibytes(1)).status == 0  # the connection serves others as before


def test_an_unreadable_payload_is_a_local_error(way: Way) -> None:
    def chunks() -> Iterator[bytes]:
        yield bytes(MIB)
        raise OSError(5, "Input/output error")

    error = way.silence(SUM, Payload(mark=MARK, size=2 * MIB, chunks=chunks))
    assert (error.kind, "Input/output error" in error.detail) == (SilenceKind.LOCAL, True)


@both_transports
def test_a_host_that_accepts_no_more_input_times_out(way: Way) -> None:
    way.run("true")
    never = f"{{ printf '%s\\n' '{MARK.decode()}'; exec sleep 1000; }}\n"
    error = way.silence(never, mebibytes(64), connect_timeout=2.0, timeout=2.0)
    assert error.kind is SilenceKind.TIMEOUT
