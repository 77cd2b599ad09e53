"""Facts that a worker gathers when a command has failed, in real processes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from iris_cli.core.messages.observations import AttemptReport, RemoteState
from iris_cli.core.model.task import Fact, FactKind
from iris_cli.remote.worker_script import HostPaths
from tests.remote.conftest import MakeHost, ProbedHost
from tests.support.local_transport import tools_of
from tests.support.oom import HUNGRY, inside, limited_group

pytestmark = pytest.mark.two_shells


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
def test_a_kill_by_somebody_is_told_apart_from_one_by_the_kernel(
    probed_host: ProbedHost, host_shell: str
) -> None:
    host = probed_host(host_shell)
    report = host.ended("sh", "-c", "kill -s KILL $$")
    assert (report.exit_code, report.cause) == (137, "signal")
    assert fact(report, FactKind.KILLED) or fact(report, FactKind.MEMORY)  # of another test


def own_group(tmp_path: Path) -> tuple[HostPaths, Path]:
    """A host on which an attempt can have a control group of its own, and where such groups are."""
    line = next(
        (line for line in Path("/proc/self/cgroup").read_text().splitlines() if line[:3] == "0::"), None
    )
    if line is None:
        pytest.skip("no cgroup v2 here")
    place = Path(f"{tmp_path}/sys/fs/cgroup{line[3:]}")
    place.mkdir(parents=True)
    (place / "cgroup.procs").touch()
    return HostPaths(sys=str(tmp_path / "sys")), place


def test_the_counter_of_the_attempts_own_group_is_a_proof(make_host: MakeHost, tmp_path: Path) -> None:
    paths, place = own_group(tmp_path)
    host = make_host(paths=paths)
    host.probe()
    script = f'echo "oom_kill 2" >{place}/iris-$IRIS_ATTEMPT_TOKEN/memory.events; kill -s KILL $$'
    report = host.ended("sh", "-c", script)
    assert (report.exit_code, report.cause) == (137, "signal")  # the file was not there at the beginning

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


def test_a_counter_that_others_share_is_a_guess(make_host: MakeHost, tmp_path: Path) -> None:
    paths, place = own_group(tmp_path)
    events = place / "memory.events"
    events.write_text("low 0\noom 4\noom_kill 4\n")
    (place / "cgroup.procs").unlink()
    host = make_host(paths=paths)
    host.probe()
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
    """It could have ended like that as well; what it writes must be no more than text."""
    host = probed_host(host_shell)
    script = (
        f"printf '%s' '{FORGED}' >../facts; wrapper=$(cut -d' ' -f1 ../pid); kill -s KILL $wrapper; "
        "cd ..; mv end.pending end.5.3; mv x.pending x.3"
    )
    report = host.wait(host.launch("sh", "-c", script))
    assert (report.state, report.exit_code) == (RemoteState.EXITED, 3)
    assert report.facts == (Fact(kind=FactKind.MEMORY, proven=True, text="the task itself wrote this"),)


@pytest.mark.parametrize(
    ("answer", "proven"), [("TRUE", True), ("FALSE", None), ("TRUE\nmemory proven x", None)]
)
def test_a_preemption_notice_of_the_metadata_server_is_read(
    make_host: MakeHost, metadata: tuple[str, dict[str, str]], answer: str, proven: bool | None
) -> None:
    address, said = metadata
    said["preempted"] = answer
    host = make_host(env={"GCE_METADATA_IP": address})
    host.probe()
    found = fact(host.ended("sh", "-c", "exit 3"), FactKind.PREEMPTED)
    assert (found and found.proven) == proven


LINES = {
    "memory guess": "Out of memory: Killed process 1 (x) total-vm:1kB",
    "crash guess": "python3[1]: segfault at 0 ip 0000 sp 0000 error 4 in libtpu.so[7f00+1000]",
    "hardware guess": "pcieport 0000:80:01.1: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
    "": "python3[1]: Killed process 1 \x1b[2J (Out of memory: Killed process",
}


@pytest.mark.parametrize("journal", [False, True])
@pytest.mark.parametrize(("wanted", "text"), LINES.items())
def test_lines_of_the_kernel_log_are_guesses_unless_they_name_the_command(
    make_host: MakeHost, tmp_path: Path, wanted: str, text: str, journal: bool
) -> None:
    tools = tools_of("dash", tmp_path / "tools")
    name, host = ("journalctl", " lab kernel:") if journal else ("dmesg", "")
    script = f"""#!/bin/sh
read -r now _ </proc/uptime
printf '[    1.000000]%s Out of memory: Killed process 2 (old) total-vm:1kB\\n' '{host}'
printf '[ %s0000]%s %s\\n' "$now" '{host}' '{text}'
"""
    for program in ("dmesg", "journalctl"):
        (tools / program).unlink(missing_ok=True)
        (tools / program).write_text(script if program == name else "#!/bin/sh\nexit 1\n")
        (tools / program).chmod(0o755)
    worker = make_host(tools=tools)
    worker.probe()
    report = worker.ended("sh", "-c", "exit 139")
    kernel = [each for each in report.facts if each.text.startswith("kernel: ")]
    assert [f"{each.kind} {'proven' if each.proven else 'guess'}" for each in kernel] == [wanted] * bool(
        wanted
    )
    assert all(each.text == f"kernel: {text}" for each in kernel)


@pytest.mark.parametrize(
    ("text", "code", "wanted", "cause"),
    [
        ("python3[$process]: segfault at 0 ip 0000", 139, ["crash proven"], ""),
        ("python3[$process]: segfault at 0 ip 0000", 1, [], ""),
        ("x[$process]: trap [999]: segfault at 0", 139, ["crash guess"], ""),
        ("memory proven x[999]: segfault at 0", 137, ["crash guess"], ""),
        ("Out of memory: Killed process $process (python3)", 137, ["memory proven"], "oom"),
    ],
)
def test_the_name_of_another_process_proves_nothing(
    make_host: MakeHost, tmp_path: Path, text: str, code: int, wanted: list[str], cause: str
) -> None:
    """A process chooses its own name, and the kernel log shows it."""
    tools = tools_of("dash", tmp_path / "tools")
    (tools / "dmesg").unlink(missing_ok=True)
    (tools / "dmesg").write_text(
        "#!/bin/sh\nread -r now _ </proc/uptime\nread -r process <task.pid\n"
        "printf '[    1.000000] Linux version 6\\n'\n"
        f'printf "[ %s0000] %s\\n" "$now" "{text}"\n'
    )
    (tools / "dmesg").chmod(0o755)
    worker = make_host(tools=tools)
    worker.probe()
    report = worker.ended("sh", "-c", f"exit {code}")
    kernel = [each for each in report.facts if each.text.startswith("kernel: ")]
    assert [f"{each.kind} {'proven' if each.proven else 'guess'}" for each in kernel] == wanted
    assert report.cause == cause
