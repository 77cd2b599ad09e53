"""What a probe finds out on a node of a Slurm job."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from iris_cli.remote.worker_script import HostPaths
from tests.remote.conftest import MakeHost


@pytest.mark.parametrize(
    ("cgroups", "job"),
    [
        ("0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n", "12"),
        ("0::/system.slice/n0_slurmstepd.scope/job_7/step_extern/user/task_special\n", "7"),
        ("12:freezer:/slurm/uid_0/job_12/step_batch\n3:cpu:/\n0::/\n", "12"),
        ("9:cpuacct:/slurm/uid_0/job_12/step_0/task_0\n4:freezer:/\n", ""),  # counts, and tracks nothing
        ("0::/user.slice/user-1000.slice/session-3.scope\n", ""),
        ("", ""),
    ],
)
def test_a_probe_tells_the_slurm_job_whose_cgroup_contains_it(
    make_host: MakeHost, tmp_path: Path, cgroups: str, job: str
) -> None:
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "sys").symlink_to("/proc/sys")
    for name in ("uptime", "meminfo", "mounts"):
        (proc / name).write_text(Path("/proc", name).read_text())
    (proc / "self" / "cgroup").write_text(cgroups)
    found = dict(make_host(paths=HostPaths(proc=str(proc))).probe().metadata)
    assert found.get("slurm-cgroup", "") == job


def test_a_directory_in_tmp_that_another_user_made_is_refused(make_host: MakeHost) -> None:
    """Its name can be guessed. Only root can make a directory of another user's."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    taken = Path(f"/tmp/iris-test-{os.getpid()}")
    taken.mkdir(mode=0o777)
    try:
        os.chown(taken, 65534, 65534)
        refused = make_host(remote_dir=f"{taken}/pool-1").probe()
        assert any("another user may control" in each for each in refused.warnings)
        os.chown(taken, 0, 0)
        assert make_host(name="other", remote_dir=f"{taken}/pool-1").probe().warnings == ()
    finally:
        shutil.rmtree(taken)
