"""Facts that a worker gathers after a failed command, with real processes."""

from __future__ import annotations

import shutil
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from iris_cli.core.messages.observations import AttemptReport, RemoteState
from iris_cli.core.model.task import Fact, FactKind
from iris_cli.remote.frames import MAX_FACT, parse_facts
from iris_cli.remote.worker_script import HostPaths
from tests.remote.conftest import ProbedHost
from tests.support.local_transport import REQUIRED, only_tools
from tests.support.oom import HUNGRY, inside, limited_group, no_recent_kills


def fact(report: AttemptReport, kind: FactKind) -> Fact | None:
    return next((each for each in report.facts if each.kind is kind), None)


@pytest.fixture
def kernel_log() -> None:
    if subprocess.run(["dmesg"], capture_output=True).returncode != 0:
        pytest.skip("the kernel log can't be read")


@pytest.mark.usefixtures("kernel_log")
def test_an_oom_kill_is_proven_by_the_kernels_line_about_the_command(
    probed_host: ProbedHost, host_shell: str
) -> None:
    host = probed_host(host_shell)
    with limited_group(host_shell) as group:
        report = host.ended(*inside(group, *HUNGRY))
    assert (report.exit_code, report.cause) == (137, "oom")
    found = fact(report, FactKind.MEMORY)
    assert found is not None
    assert found.proven
    assert "Memory cgroup out of memory: Killed process" in found.text
    assert fact(report, FactKind.KILLED) is None


@pytest.mark.usefixtures("kernel_log")
def test_an_oom_kill_of_a_process_that_the_command_started_is_a_guess(
    probed_host: ProbedHost, host_shell: str
) -> None:
    host = probed_host(host_shell)
    with limited_group(host_shell) as group:
        report = host.ended("sh", "-c", '"$@"; exit $?', "sh", *inside(group, *HUNGRY))
    assert (report.exit_code, report.cause) == (137, "")
    found = fact(report, FactKind.MEMORY)
    assert found is not None
    assert not found.proven


@pytest.mark.usefixtures("kernel_log")
def test_a_kill_by_a_user_is_distinguished_from_one_by_the_kernel(
    probed_host: ProbedHost, host_shell: str
) -> None:
    host = probed_host(host_shell)
    with no_recent_kills():
        report = host.ended("sh", "-c", "kill -s KILL $$")
    assert (report.exit_code, report.cause) == (137, "signal")
    found = fact(report, FactKind.KILLED)
    assert found is not None
    assert found.proven


def own_group(tmp_path: Path) -> tuple[HostPaths, Path]:
    """A host with control groups for attempts, and the path of these groups."""
    line = next(
        (line for line in Path("/proc/self/cgroup").read_text().splitlines() if line[:3] == "0::"), None
    )
    if line is None:
        pytest.skip("no cgroup v2 here")
    place = Path(f"{tmp_path}/sys/fs/cgroup{line[3:]}")
    place.mkdir(parents=True)
    (place / "cgroup.procs").touch()
    return HostPaths(sys=str(tmp_path / "sys")), place


def test_the_counter_of_the_attempts_own_group_is_a_proof(probed_host: ProbedHost, tmp_path: Path) -> None:
    paths, place = own_group(tmp_path)
    host = probed_host(paths=paths)
    script = f'echo "oom_kill 2" >{place}/iris-$IRIS_ATTEMPT_TOKEN/memory.events; kill -s KILL $$'
    report = host.ended("sh", "-c", script)
    assert (report.exit_code, report.cause) == (137, "signal")  # the file did not exist at the beginning

    (tmp_path / "bin").mkdir()
    mkdir = tmp_path / "bin" / "mkdir"
    mkdir.write_text(
        '#!/bin/sh\n/bin/mkdir "$@" || exit\ncase $1 in */iris-*) echo oom_kill 0 >"$1/memory.events" ;; esac\n'
    )
    mkdir.chmod(0o755)
    (host.tools / "mkdir").unlink(missing_ok=True)
    (host.tools / "mkdir").symlink_to(mkdir)
    report = host.ended("sh", "-c", script)
    assert (report.exit_code, report.cause) == (137, "oom")
    assert fact(report, FactKind.MEMORY) == Fact(
        kind=FactKind.MEMORY, proven=True, text="its control group counts 2 OOM kills"
    )


def test_a_counter_that_others_share_is_a_guess(probed_host: ProbedHost, tmp_path: Path) -> None:
    paths, place = own_group(tmp_path)
    events = place / "memory.events"
    events.write_text("low 0\noom 4\noom_kill 4\n")
    (place / "cgroup.procs").unlink()
    host = probed_host(paths=paths)
    report = host.ended("sh", "-c", f"echo oom_kill 5 >{events}; kill -s KILL $$")
    assert (report.exit_code, report.cause) == (137, "signal")
    found = fact(report, FactKind.MEMORY)
    assert found is not None
    assert not found.proven


def test_a_success_and_a_stop_have_no_facts(probed_host: ProbedHost, host_shell: str) -> None:
    host = probed_host(host_shell)
    assert host.ended("true").facts == ()
    assert not (host.attempt_dir(host.tokens[-1]) / "facts").exists()
    token = host.running("sleep", "1000")
    assert host.stopped(token, grace=0).facts == ()


FORGED = "memory proven \x1b[2Jlies\nmemory proven the task itself wrote this\n.\n"


@pytest.mark.parametrize(
    "forgery",
    [
        f"printf '%s' '{FORGED}' >../facts",
        f"printf '%s' '{FORGED}' >../facts.pending",
        "rm ../facts.pending; mkfifo ../facts.pending ../facts",
        "rm ../facts.pending; ln -s /etc/passwd ../facts.pending; ln -s /etc/passwd ../facts",
        "rm ../facts.pending; mkdir ../facts.pending ../facts",
        "mkfifo ../task.pid.new; mv ../task.pid.new ../task.pid; exec 5<>../task.pid; exec 5>&-",
        "echo '1;exit' >../task.pid",
    ],
)
def test_a_task_can_write_no_facts_and_harm_no_answer(
    probed_host: ProbedHost, host_shell: str, forgery: str
) -> None:
    host = probed_host(host_shell)
    report = host.ended("sh", "-c", f"{forgery}; exit 3")
    assert (report.state, report.exit_code) == (RemoteState.EXITED, 3)
    assert not any(each.proven and each.kind is FactKind.MEMORY for each in report.facts)
    assert not any("itself wrote" in each.text for each in report.facts)


def test_forged_facts_of_a_task_that_killed_its_wrapper_are_cleaned_and_read_once(
    probed_host: ProbedHost, host_shell: str
) -> None:
    """It could really have ended like that; its text must have no other effect."""
    host = probed_host(host_shell)
    script = (
        f"printf '%s' '{FORGED}' >../facts; wrapper=$(cut -d' ' -f1 ../pid); kill -s KILL $wrapper; "
        "cd ..; mv reserve.end end.5.3; mv x.pending x.3"
    )
    report = host.wait(host.launch("sh", "-c", script))
    assert (report.state, report.exit_code) == (RemoteState.EXITED, 3)
    assert report.facts == (Fact(kind=FactKind.MEMORY, proven=True, text="the task itself wrote this"),)


@pytest.mark.parametrize(
    "line",
    [
        b"memory proven " + b"x" * (MAX_FACT + 1),
        b"memory proven \x1b[2Jx",
        b"memory proven \xff\xfe",
        b"memory proven \xc2\x9b2J",
        b"memory proven x\ry",
        b"memory sure x",
        b"colour guess x",
        b"memory guess",
        b" memory guess x",
    ],
)
def test_a_malformed_fact_is_skipped(line: bytes) -> None:
    kept = Fact(kind=FactKind.CRASH, text="[red]kept[/red] \\x1b[2J")
    data = b"crash guess " + kept.text.encode() + b"\n" + line + b"\n.\n"
    assert parse_facts(data) == (kept,)
    assert parse_facts(data.removesuffix(b".\n")) == ()


@pytest.mark.parametrize(
    ("answer", "proven"), [("TRUE", True), ("FALSE", None), ("TRUE\nmemory proven x", None)]
)
def test_a_preemption_notice_of_the_metadata_server_is_read(
    probed_host: ProbedHost, metadata: tuple[str, dict[str, str]], answer: str, proven: bool | None
) -> None:
    address, said = metadata
    said["preempted"] = answer
    host = probed_host(env={"GCE_METADATA_IP": address})
    found = fact(host.ended("sh", "-c", "exit 3"), FactKind.PREEMPTED)
    assert (found and found.proven) == proven


def test_a_preemption_notice_is_read_after_a_failed_set_up_too(
    probed_host: ProbedHost, metadata: tuple[str, dict[str, str]]
) -> None:
    address, said = metadata
    said["preempted"] = "TRUE"
    host = probed_host(env={"GCE_METADATA_IP": address})
    request = host.request("true", setup="exit 9")
    host.prepare(request)
    report = host.wait(request.token, {RemoteState.NOSTART})
    found = fact(report, FactKind.PREEMPTED)
    assert (report.state, report.cause, found and found.proven) == (RemoteState.NOSTART, "setup", True)


def test_a_metadata_server_that_does_not_answer_delays_no_end(
    probed_host: ProbedHost, tmp_path: Path
) -> None:
    """Without curl, wget tries 20 times."""
    if shutil.which("wget") is None:
        pytest.skip("no wget here")
    tools = only_tools("dash", tmp_path / "tools", (*REQUIRED, "timeout", "wget"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        env = {"PATH": str(tools), "GCE_METADATA_IP": f"127.0.0.1:{server.getsockname()[1]}"}
        host = probed_host(env=env)
        server.setblocking(False)
        waiting(server)
        assert fact(host.ended("sh", "-c", "exit 3"), FactKind.PREEMPTED) is None
        assert 0 < waiting(server) < 10


def waiting(server: socket.socket) -> int:
    """Return the number of connections since the last call."""
    count = 0
    with suppress(BlockingIOError):
        while True:
            server.accept()[0].close()
            count += 1
    return count
