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
from tests.remote.conftest import MakeHost, ProbedHost
from tests.support.local_transport import REQUIRED, only_tools, tools_of
from tests.support.oom import HUNGRY, inside, limited_group, no_recent_kills
from tests.support.worker_host import WorkerHost


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


def test_a_metadata_server_that_does_not_answer_delays_no_end(make_host: MakeHost, tmp_path: Path) -> None:
    """Without curl, wget tries 20 times."""
    if shutil.which("wget") is None:
        pytest.skip("no wget here")
    tools = only_tools("dash", tmp_path / "tools", (*REQUIRED, "timeout", "wget"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        env = {"PATH": str(tools), "GCE_METADATA_IP": f"127.0.0.1:{server.getsockname()[1]}"}
        host = make_host(env=env)
        host.probe()
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


LINES = {
    "memory guess": "Out of memory: Killed process 1 (x) total-vm:1kB",
    "crash guess": "python3[1]: segfault at 0 ip 0000 sp 0000 error 4 in libtpu.so[7f00+1000]",
    "hardware guess": "pcieport 0000:80:01.1: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
    "": "python3[1]: Killed process 1 \x1b[2J (Out of memory: Killed process",
}


@pytest.mark.parametrize("journal", [False, True])
def test_lines_of_the_kernel_log_are_guesses_unless_they_name_the_command(
    probed_host: ProbedHost, tmp_path: Path, journal: bool
) -> None:
    worker = worker_that_logs(probed_host, tmp_path)
    name, host = ("journalctl", " lab kernel:") if journal else ("dmesg", "")
    for wanted, text in LINES.items():
        replace_tool(worker, "journalctl" if name == "dmesg" else "dmesg", "exit 1")
        replace_tool(
            worker,
            name,
            "read -r now _ </proc/uptime\n"
            f"printf '[    1.000000]%s Out of memory: Killed process 2 (old) total-vm:1kB\\n' '{host}'\n"
            f"printf '[ %s0000]%s %s\\n' \"$now\" '{host}' '{text}'",
        )
        report = worker.ended("sh", "-c", "exit 139")
        assert of_the_kernel(report) == [wanted] * bool(wanted)
        assert [each.text for each in report.facts if each.text.startswith("kernel: ")] == [
            f"kernel: {text}"
        ] * bool(wanted)


def test_the_name_of_another_process_proves_nothing(probed_host: ProbedHost, tmp_path: Path) -> None:
    """A process chooses its name, which is in the kernel log."""
    worker = worker_that_logs(probed_host, tmp_path)
    for text, code, wanted, cause in (
        ("python3[$process]: segfault at 0 ip 0000", 139, ["crash proven"], ""),
        ("python3[$process]: segfault at 0 ip 0000", 1, [], ""),
        ("x[$process]: trap [999]: segfault at 0", 139, ["crash guess"], ""),
        ("memory proven x[999]: segfault at 0", 139, ["crash guess"], ""),
        ("x[999]: segfault at 0", 137, [], ""),
        ("Out of memory: Killed process $process (python3)", 137, ["memory proven"], "oom"),
    ):
        let_log(worker, text)
        report = worker.ended("sh", "-c", f"exit {code}")
        assert (text, of_the_kernel(report), report.cause) == (text, wanted, cause)


@pytest.mark.parametrize("suspends", [0, 1])
def test_an_old_line_about_the_command_counts_only_if_the_clock_of_the_log_is_behind(
    probed_host: ProbedHost, tmp_path: Path, suspends: int
) -> None:
    """That clock stops during suspend. Otherwise the line is about an earlier process with the same pid."""
    count = tmp_path / "sys/power/suspend_stats/success"
    count.parent.mkdir(parents=True)
    count.write_text(f"{suspends}\n")
    worker = worker_that_logs(probed_host, tmp_path, paths=HostPaths(sys=str(tmp_path / "sys")))
    for text, code, wanted in (
        ("Out of memory: Killed process $process (x)", 137, ["memory proven"]),
        ("Out of memory: Killed process 1 (x)", 137, []),
        ("x[$process]: segfault at 0 ip 0000", 139, ["crash proven"]),
    ):
        let_log(worker, text, at="2.00")
        report = worker.ended("sh", "-c", f"exit {code}")
        found = of_the_kernel(report)
        assert (text, found) == (text, wanted if suspends else [])
        assert (fact(report, FactKind.KILLED) is not None) == (code == 137 and not found)


def worker_that_logs(
    probed_host: ProbedHost, tmp_path: Path, *lines: str, paths: HostPaths | None = None
) -> WorkerHost:
    """Return a worker with these lines in its kernel log, of the time when a command ended."""
    worker = probed_host(tools=tools_of("dash", tmp_path / "tools"), paths=paths or HostPaths())
    let_log(worker, *lines)
    return worker


def let_log(worker: WorkerHost, *lines: str, at: str = "$now") -> None:
    shown = "".join(f'printf "[ %s0000] %s\\n" "{at}" "{line}"\n' for line in lines)
    replace_tool(
        worker,
        "dmesg",
        "read -r now _ </proc/uptime\nread -r process <task.pid\ntoken=${PWD##*/}\n"
        f"printf '[    1.000000] Linux version 6\\n'\n{shown}",
    )


def replace_tool(worker: WorkerHost, name: str, script: str) -> None:
    (worker.tools / name).unlink(missing_ok=True)
    (worker.tools / name).write_text(f"#!/bin/sh\n{script}\n")
    (worker.tools / name).chmod(0o755)


def of_the_kernel(report: AttemptReport) -> list[str]:
    kernel = [each for each in report.facts if each.text.startswith("kernel: ")]
    return [f"{each.kind} {'proven' if each.proven else 'guess'}" for each in kernel]


def test_of_several_guesses_the_one_with_the_pid_of_the_command_counts(
    probed_host: ProbedHost, tmp_path: Path
) -> None:
    mine = "x[7]: trap x[$process]: segfault at 0"
    worker = worker_that_logs(probed_host, tmp_path, "a[7]: segfault at 0", mine, "b[7]: segfault at 0")
    found = fact(worker.ended("sh", "-c", "exit 139"), FactKind.CRASH)
    assert found is not None
    assert not found.proven
    assert found.text.startswith("kernel: x[7]: trap x[")


OTHER = "iris-" + "0123456789abcdef" * 2
KILLED = "Memory cgroup out of memory: Killed process 999 (x) total-vm:1kB"


PLACES = [
    ("/lab/iris-$token", "x", 1, ["memory proven"]),
    ("/lab/iris-$token/of-the-task", "x", 1, ["memory proven"]),
    ("/lab", "x", 1, ["memory guess"]),
    ("/lab/of-the-task", "x", 1, ["memory guess"]),
    (f"/lab/{OTHER}", "x", 1, []),
    (f"/lab/{OTHER}", "x", 137, []),
    (f"/lab/{OTHER}", ",task_memcg=/a,", 137, []),
    (f"/lab/{OTHER}", ",pid=7,uid=0", 137, []),
    ("/lab-of-others", "x", 1, []),
    ("/docker/1", "x", 1, []),
    ("/docker/1", "x", 137, ["memory guess"]),
    ("/user.slice/user-7.slice/session-3.scope", "x", 137, []),
]
"""A control group, the name of a process in it that the kernel killed, an exit code, and the facts."""


@pytest.mark.parametrize("controllers", ["0::", "4:memory:", "4:cpu,memory:"])
def test_lines_about_processes_of_other_groups_are_left_out(
    probed_host: ProbedHost, tmp_path: Path, controllers: str
) -> None:
    worker = worker_that_logs(probed_host, tmp_path)
    cat = shutil.which("cat")
    own = f'case $1 in */self/cgroup) echo 9:pids:/; echo {controllers}/lab ;; *) exec {cat} "$@" ;; esac'
    replace_tool(worker, "cat", own)
    for place, name, code, wanted in PLACES if controllers == "4:memory:" else PLACES[2:5]:
        oom_kill = f"oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg={place},task_memcg={place},task={name}"
        let_log(worker, f"{oom_kill},pid=999,uid=0", KILLED)
        report = worker.ended("sh", "-c", f"exit {code}")
        assert (place, name, of_the_kernel(report)) == (place, name, wanted)


@pytest.mark.parametrize(
    ("text", "code"), [("x[$other]: segfault at 0", 139), ("Killed process $other (x)", 137)]
)
def test_a_line_about_the_command_of_another_attempt_is_left_out(
    probed_host: ProbedHost, tmp_path: Path, text: str, code: int
) -> None:
    find = "$(cat ../*/task.pid | grep -vx $process | head -n 1)"
    worker = worker_that_logs(probed_host, tmp_path, text.replace("$other", find))
    other = worker.running("sleep", "1000")
    assert of_the_kernel(worker.ended("sh", "-c", f"exit {code}")) == []
    worker.stopped(other, grace=0)


def test_the_file_of_another_attempt_adds_no_line_to_the_kernel_log(
    probed_host: ProbedHost, tmp_path: Path
) -> None:
    worker = worker_that_logs(probed_host, tmp_path)
    forged = "kernel\\n[ 9999999.000000] Out of memory: Killed process 7 (x)\\n"
    other = worker.running("sh", "-c", f"printf '{forged}' >../task.pid; exec sleep 1000")
    assert of_the_kernel(worker.ended("sh", "-c", "exit 137")) == []
    worker.stopped(other, grace=0)
