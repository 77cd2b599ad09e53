"""The memory of a container as a limit of its own, and its end by the kernel, told by runtime and kernel log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.remote.conftest import ProbedHost
from tests.remote.test_memory_limit import AT_THE_LIMIT, LIMIT
from tests.support.containers import Podman, is_gone, running
from tests.support.oom import no_kills
from tests.support.worker_host import WorkerHost


@pytest.fixture
def host(podman: Podman, host_shell: str, probed_host: ProbedHost) -> WorkerHost:
    return probed_host(host_shell, env=podman.env)


def test_the_runtime_proves_that_memory_ran_out(host: WorkerHost, podman: Podman) -> None:
    token = running(
        host, "echo ready; while [ ! -e gate ]; do sleep 0.1; done; exec dd if=/dev/zero of=/dev/null bs=256M"
    )
    group = memory_group(json.loads(podman("inspect", f"iris-{token}"))[0]["State"]["Pid"])
    with no_kills():
        group.write_text(str(32 << 20))
        (host.attempt_dir(token) / "work/gate").touch()
        report = host.wait(token)
    assert (report.exit_code, report.cause) == (137, "oom")
    assert [(fact.kind, fact.proven) for fact in report.facts if fact.kind == "memory"] == [("memory", True)]
    assert is_gone(podman, token)


@pytest.mark.parametrize(
    ("script", "code"),
    [("exec {}", 137), pytest.param("{}; exit 3", 3, marks=pytest.mark.soak)],
    ids=["program", "child"],
)
def test_the_memory_of_a_container_is_limited_and_the_limit_is_named(
    host: WorkerHost, podman: Podman, script: str, code: int
) -> None:
    hungry = script.format("dd if=/dev/zero of=/dev/null bs=256M count=1")
    wait = "echo ready; while [ ! -e gate ]; do sleep 0.1; done"
    token = running(host, f"{wait}; {hungry}", memory=LIMIT)
    group = memory_group(json.loads(podman("inspect", f"iris-{token}"))[0]["State"]["Pid"])
    assert group.read_text() == f"{LIMIT}\n"
    swap = group.with_name("memory.memsw.limit_in_bytes")
    assert not swap.exists() or swap.read_text() == f"{LIMIT}\n"
    with no_kills():
        (host.attempt_dir(token) / "work/gate").touch()
        report = host.wait(token)
    assert (report.exit_code, report.cause) == (code, "oom" if code == 137 else "")
    assert [(fact.kind, fact.proven, fact.text) for fact in report.facts if fact.kind == "memory"] == [
        ("memory", True, AT_THE_LIMIT)
    ]
    assert is_gone(podman, token)


def memory_group(pid: int) -> Path:
    """The file for the memory limit of the process's own group. Skips the test if it has none."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for file in (
            f"/sys/fs/cgroup/memory{path}/memory.limit_in_bytes",
            f"/sys/fs/cgroup{path}/memory.max",
        ):
            if "libpod" in path and controllers in ("memory", "") and Path(file).exists():
                return Path(file)
    pytest.skip("the container has no memory control group here")
