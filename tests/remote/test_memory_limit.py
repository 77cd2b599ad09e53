"""Memory limits of tasks, which the kernel enforces on hosts with control groups."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path

import pytest

from iris_cli.core.messages.observations import AttemptReport, RemoteState
from iris_cli.core.model.task import FactKind
from iris_cli.remote.worker_script import HostPaths
from tests.remote.conftest import ProbedHost
from tests.support.local_transport import tools_of
from tests.support.oom import HUNGRY, no_kills
from tests.support.waiting import until
from tests.support.worker_host import WorkerHost, kill, marked

LIMIT = 32 << 20
AT_THE_LIMIT = "its control group counts 1 OOM kill at its limit of 32MiB (--memory)"


def group_of(host: WorkerHost, token: str) -> Path | None:
    """Return the group with the memory limit, of version 1 or 2."""
    for name, file in (("limited", "memory.limit_in_bytes"), ("group", "memory.max")):
        said = host.attempt_dir(token) / name  # type: ignore[arg-type]  # any text names a directory
        group = Path(said.read_text().strip()) if said.exists() else None
        if group is not None and (group / file).exists():
            assert (group / file).read_text().strip() == str(LIMIT)
            return group
    return None


@pytest.fixture
def host(host_shell: str, probed_host: ProbedHost) -> WorkerHost:
    """A worker whose kernel enforces limits; otherwise the test is skipped."""
    if not can_limit():
        pytest.skip("no memory control group can be created")
    return probed_host(host_shell)


@cache
def can_limit() -> bool:
    """Return True if a task gets a group here. A worker is asked once: that takes longer than many tests."""
    with tempfile.TemporaryDirectory() as directory:
        host = WorkerHost(Path(directory, "host"), tools_of("dash", Path(directory, "tools")))
        host.probe()
        try:
            token = host.running("sleep", "1000", memory=LIMIT)
            found = group_of(host, token) is not None
            host.stopped(token, grace=0)
            return found
        finally:
            host.clean_up()


@pytest.fixture
def alone() -> Iterator[None]:
    with no_kills():
        yield


def memory_fact(report: AttemptReport) -> tuple[bool, str] | None:
    return next(((each.proven, each.text) for each in report.facts if each.kind is FactKind.MEMORY), None)


@pytest.mark.usefixtures("alone")
def test_a_task_beyond_its_limit_is_killed_and_that_is_proven(host: WorkerHost) -> None:
    report = host.ended(*HUNGRY, memory=LIMIT)
    assert (report.exit_code, report.cause) == (137, "oom")
    assert memory_fact(report) == (True, AT_THE_LIMIT)


def test_a_task_within_its_limit_ends_by_itself_and_leaves_no_group(host: WorkerHost) -> None:
    token = host.launch(
        "sh", "-c", 'cat "$IRIS_TASK_DIR/limited" "$IRIS_TASK_DIR/group" 2>/dev/null; :', memory=LIMIT
    )
    assert host.wait(token).exit_code == 0
    groups = [Path(line) for line in host.output(token).decode().split()]
    assert groups
    assert not any(group.exists() for group in groups)


@pytest.mark.usefixtures("alone")
def test_a_kill_of_a_process_that_the_task_started_is_proven_too(host: WorkerHost) -> None:
    report = host.ended("sh", "-c", '"$@"; exit 3', "sh", *HUNGRY, memory=LIMIT)
    assert report.exit_code in (3, 137)  # version 2 kills the whole task
    assert memory_fact(report) == (True, AT_THE_LIMIT)


def test_the_group_is_removed_even_if_the_wrapper_was_killed(host: WorkerHost) -> None:
    token = host.running("sleep", "1000", memory=LIMIT)
    group = group_of(host, token)
    assert group is not None
    assert len((group / "cgroup.procs").read_text().split()) == 1  # the wrapper is not in the group
    kill(host.wrapper(token))
    assert host.stopped(token).state is RemoteState.STOPPED
    until(lambda: not group.exists())
    assert not marked(token)


def test_a_file_with_the_path_of_another_group_has_no_effect(host: WorkerHost) -> None:
    token, other = (host.running("sleep", "1000", memory=LIMIT) for _ in range(2))
    foreign = group_of(host, other)
    for name in (f"{foreign}", f"{foreign}/../{foreign.name if foreign else ''}", "/", "/proc"):
        (host.attempt_dir(token) / "limited").write_text(f"{name}\n")
        assert host.state(token) is RemoteState.RUNNING
    assert host.stopped(token, grace=0).state is RemoteState.STOPPED
    assert foreign is not None
    assert foreign.exists()
    assert host.stopped(other, grace=0).state is RemoteState.STOPPED
    assert not foreign.exists()


def test_a_host_that_can_not_limit_runs_the_task_all_the_same(
    host_shell: str, probed_host: ProbedHost, tmp_path: Path
) -> None:
    host = probed_host(host_shell, paths=HostPaths(sys=str(tmp_path / "sys")))
    token = host.launch(*HUNGRY, memory=LIMIT)
    assert host.wait(token).exit_code == 0
    assert (host.output(token, "out"), host.output(token, "err")) == (f"{4 * LIMIT}\n".encode(), b"")


def fake(tmp_path: Path, controllers: str) -> tuple[HostPaths, Path]:
    """Files like those of control groups of version 2, and the group of this process."""
    line = next(
        (each for each in Path("/proc/self/cgroup").read_text().splitlines() if each[:3] == "0::"), None
    )
    if line is None:
        pytest.skip("no cgroup v2 here")
    top = tmp_path / "sys/fs/cgroup"
    own = Path(f"{top}{line[3:]}").resolve()
    own.mkdir(parents=True)
    for group in {own, top}:
        (group / "cgroup.procs").touch()
        (group / "cgroup.subtree_control").write_text(controllers if group == top else "")
    return HostPaths(sys=str(tmp_path / "sys")), own


def with_files(host: WorkerHost, tmp_path: Path, *names: str) -> None:
    """Let new groups have these files, as the kernel would make them."""
    real = tmp_path / "mkdir"
    files = " ".join(f'"$1/{name}"' for name in names)
    real.write_text(f'#!/bin/sh\n/bin/mkdir "$@" || exit\ncase $1 in */iris-*) touch {files} ;; esac\n')
    real.chmod(0o755)
    (host.tools / "mkdir").unlink(missing_ok=True)
    (host.tools / "mkdir").symlink_to(real)


def test_version_2_limits_memory_and_swap_and_kills_the_task_as_a_whole(
    host_shell: str, probed_host: ProbedHost, tmp_path: Path
) -> None:
    paths, _ = fake(tmp_path, "cpu memory pids")
    host = probed_host(host_shell, paths=paths)
    with_files(host, tmp_path, "cgroup.procs", "memory.max", "memory.swap.max", "memory.oom.group")
    group = '"$(cat "$IRIS_TASK_DIR/group")"'
    script = f"cd {group}; echo $PWD; cat memory.max; echo; cat memory.swap.max; echo; cat memory.oom.group"
    token = host.launch("sh", "-c", script, memory=LIMIT)
    assert host.wait(token).exit_code == 0
    where, *said = host.output(token).decode().split()
    assert (where, said) == (f"{tmp_path}/sys/fs/cgroup/iris-{token}", [str(LIMIT), "0", "1"])
    unlimited = host.launch(
        "sh", "-c", 'cat "$IRIS_TASK_DIR/group"; test ! -s $(cat "$IRIS_TASK_DIR/group")/memory.max'
    )
    assert host.wait(unlimited).exit_code == 0
    assert host.output(unlimited).decode().endswith(f"/iris-{unlimited}\n")


@pytest.mark.parametrize("controllers", ["cpu pids", ""])
def test_without_the_controller_the_group_stays_below_our_own(
    host_shell: str, probed_host: ProbedHost, tmp_path: Path, controllers: str
) -> None:
    paths, own = fake(tmp_path, controllers)
    host = probed_host(host_shell, paths=paths)
    token = host.launch("sh", "-c", 'cat "$IRIS_TASK_DIR/group"', memory=LIMIT)
    assert host.wait(token).exit_code == 0
    assert host.output(token).decode() == f"{own}/iris-{token}\n"


@pytest.mark.parametrize(
    ("controllers", "found"),
    [
        ({"": "memory", "user": "memory pids", "user/0": "pids"}, "user"),
        ({"": "memory", "user": "", "user/0": ""}, ""),
        ({"": "cpu", "user": "cpu", "user/0": ""}, "user/0/session"),
        ({"": "memory", "user": "memory", "user/0": "memory", "user/0/session": "memory"}, "user/0/session"),
        ({"user": "memory"}, "user/0/session"),  # groups above an unreadable one are unknown
    ],
)
def test_the_nearest_group_above_whose_groups_can_be_limited_is_taken(
    host_shell: str, tmp_path: Path, controllers: dict[str, str], found: str
) -> None:
    top = tmp_path / "sys/fs/cgroup"
    (top / "user/0/session").mkdir(parents=True)
    for name in ("", "user", "user/0", "user/0/session"):
        (top / name / "cgroup.procs").touch()
    for name, said in controllers.items():
        (top / name / "cgroup.subtree_control").write_text(said and f"{said}\n")
    (top / "user/0/session/cgroup.subtree_control").touch()
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text("4:memory:/elsewhere\n0::/user/0/session\n")
    library = resources.files("iris_cli") / "remote/shell"
    script = "".join((library / f"{name}.sh").read_text() for name in ("group", "memory"))
    script += f"iris_proc={tmp_path} iris_sys={tmp_path}/sys\n"
    script += 'can_make_group && parent_group\nprintf %s "$parent_group"\n'
    shell = tools_of(host_shell, tmp_path / "tools") / "sh"
    told = subprocess.run([shell, "-c", script], capture_output=True, check=True, text=True).stdout
    assert told == str(top / found)


def test_the_limit_is_not_for_the_set_up(host: WorkerHost) -> None:
    hungry = f'{sys.executable} -c "print(len(bytearray({4 * LIMIT})))"'
    request = host.request("true", setup=hungry, memory=LIMIT)
    host.prepare(request)
    host.wait(request.token, {RemoteState.PREPARED})
    host.go(request.token)
    assert host.wait(request.token).exit_code == 0
