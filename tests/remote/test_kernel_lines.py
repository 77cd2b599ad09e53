"""What lines of the kernel log say of an end: which are proofs, which are guesses, and which are about others."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest

from iris_cli.core.messages.observations import AttemptReport
from iris_cli.core.model.task import FactKind
from iris_cli.remote.worker_script import HostPaths
from tests.remote.conftest import ProbedHost
from tests.remote.test_deaths import fact
from tests.support.local_transport import tools_of
from tests.support.worker_host import WorkerHost

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
    cases: list[tuple[str, int, list[str], str]] = [
        ("python3[$process]: segfault at 0 ip 0000", 139, ["crash proven"], ""),
        ("python3[$process]: segfault at 0 ip 0000", 1, [], ""),
        ("x[$process]: trap [999]: segfault at 0", 139, ["crash guess"], ""),
        ("memory proven x[999]: segfault at 0", 139, ["crash guess"], ""),
        ("x[999]: segfault at 0", 137, [], ""),
        ("Out of memory: Killed process $process (python3)", 137, ["memory proven"], "oom"),
    ]
    reports = ended_with(worker, *((code, [text]) for text, code, *_ in cases))
    found = [(of_the_kernel(report), report.cause) for report in reports]
    assert found == [(wanted, cause) for *_, wanted, cause in cases]


SUSPENDS = {
    "suspend_stats/success": {"0": False, "1": True},
    "state": {"": False, "mem": True},
    "": {"": False},
}
"""Whether the host was suspended, by the files in /sys/power and what is in them."""

OF_THE_COMMAND = (
    ("Out of memory: Killed process $process (x)", 137, ["memory proven"]),
    ("x[$process]: segfault at 0 ip 0000", 139, ["crash proven"]),
)
"""A line about the command, its exit code, and the facts."""


@pytest.mark.parametrize(
    ("name", "text", "suspended"),
    [(name, *each) for name, texts in SUSPENDS.items() for each in texts.items()],
)
def test_an_old_line_about_the_command_counts_only_if_the_clock_of_the_log_is_behind(
    probed_host: ProbedHost, tmp_path: Path, name: str, text: str, suspended: bool
) -> None:
    """That clock stops during suspend. Otherwise the line is about an earlier process with the same pid."""
    worker = worker_with_power(probed_host, tmp_path, name, text)
    let_log(worker, OF_THE_COMMAND[0][0], at="2.00")
    report = worker.ended("sh", "-c", "exit 137")
    assert of_the_kernel(report) == (["memory proven"] if suspended else [])
    assert fact(report, FactKind.KILLED) is None


@pytest.mark.parametrize(("text", "suspended"), SUSPENDS["state"].items())
def test_each_old_line_about_the_command_counts_if_the_clock_of_the_log_is_that_far_behind(
    probed_host: ProbedHost, tmp_path: Path, text: str, suspended: bool
) -> None:
    worker = worker_with_power(probed_host, tmp_path, "state", text)
    a_bit_behind = '$(awk "BEGIN { printf \\"%.2f\\", $now * 0.9995 - 0.5 }")'
    cases = list(product(OF_THE_COMMAND, (("2.00", suspended), (a_bit_behind, True))))
    other = "Out of memory: Killed process 1 (x)"
    *reports, of_other = ended_with(
        worker, *((code, [line], at) for (line, code, _), (at, _) in cases), (137, [other], "2.00")
    )
    for report, ((line, _, wanted), (at, counts)) in zip(reports, cases, strict=True):
        assert (line, at, of_the_kernel(report)) == (line, at, wanted if counts else [])
        assert fact(report, FactKind.KILLED) is None
    assert (of_the_kernel(of_other), fact(of_other, FactKind.KILLED) is None) == ([], False)


def worker_with_power(probed_host: ProbedHost, tmp_path: Path, name: str, text: str) -> WorkerHost:
    """Return a worker with this file in /sys/power."""
    file = tmp_path / "sys/power" / (name or "other")
    file.parent.mkdir(parents=True)
    file.write_text(f"{text}\n")
    return worker_that_logs(probed_host, tmp_path, paths=HostPaths(sys=str(tmp_path / "sys")))


def worker_that_logs(
    probed_host: ProbedHost, tmp_path: Path, *lines: str, paths: HostPaths | None = None
) -> WorkerHost:
    """Return a worker with these lines in its kernel log, of the time when a command ended."""
    worker = probed_host(tools=tools_of("dash", tmp_path / "tools"), paths=paths or HostPaths())
    let_log(worker, *lines)
    return worker


def let_log(worker: WorkerHost, *lines: str, at: str = "$now") -> None:
    replace_tool(
        worker,
        "dmesg",
        "read -r now _ </proc/uptime\nread -r process <task.pid\ntoken=${PWD##*/}\n"
        f"printf '[    1.000000] Linux version 6\\n'\n{printing(lines, at)}[ ! -e said ] || . ./said",
    )


def printing(lines: Sequence[str], at: str = "$now") -> str:
    return "".join(f'printf "[ %s0000] %s\\n" "{at}" "{line}"\n' for line in lines)


def ended_with(
    worker: WorkerHost, *cases: tuple[int, Sequence[str], *tuple[str, ...]]
) -> list[AttemptReport]:
    """Run commands to their ends, each with its exit code, lines in the kernel log, and perhaps their time."""
    requests = [worker.request("sh", "-c", f"exit {code}") for code, *_ in cases]
    worker.prepare(*requests)
    for request, (_, lines, *at) in zip(requests, cases, strict=True):
        (worker.attempt_dir(request.token) / "said").write_text(printing(lines, *at))
    tokens = [request.token for request in requests]
    worker.go(*tokens)
    return worker.wait_for_all(tokens)


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
    places = PLACES if controllers == "4:memory:" else PLACES[2:5]
    oom_kill = "oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg={0},task_memcg={0},task={1},pid=999,uid=0"
    reports = ended_with(worker, *((code, [oom_kill.format(*each), KILLED]) for *each, code, _ in places))
    for report, (place, name, _, wanted) in zip(reports, places, strict=True):
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
