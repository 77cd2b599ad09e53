"""Disks without a free byte or inode: no attempt starts, and running ones end as usual."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from iris_cli.core.messages.observations import RemoteState
from tests.remote.conftest import MakeHost
from tests.support.waiting import until
from tests.support.worker_host import marked


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A mounted ext4 file system that can be filled to the last byte."""
    disk, image = tmp_path / "disk", tmp_path / "image"
    disk.mkdir()
    with image.open("wb") as file:
        file.truncate(4 << 20)
    if os.geteuid() != 0 or not shutil.which("mkfs.ext4"):
        pytest.skip("needs root and mkfs.ext4")
    subprocess.run(["mkfs.ext4", "-q", "-N", "256", "-m", "0", str(image)], check=True)
    if subprocess.run(["mount", "-o", "loop", str(image), str(disk)], capture_output=True).returncode != 0:
        pytest.skip("nothing can be mounted here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                pass


def fill_inodes(disk: Path) -> None:
    (disk / "filler").mkdir()
    for number in range(10_000):
        try:
            (disk / f"filler/{number}").touch()
        except OSError:
            return


def empty(disk: Path) -> None:
    filler = disk / "filler"
    if filler.is_file():
        return filler.unlink()
    for path in filler.iterdir():
        path.unlink()
    return None


@pytest.mark.parametrize("exhaust", [fill, fill_inodes])
def test_a_full_disk_refuses_launches_and_hinders_neither_ends_nor_fences(
    make_host: MakeHost, tmp_path: Path, small_disk: Path, host_shell: str, exhaust: Callable[[Path], None]
) -> None:
    host = make_host(host_shell, remote_dir=str(small_disk))
    host.probe()
    at_disk = small_disk / "c1/w0/a"
    gate = tmp_path / "gate"
    ending = host.running("sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.1; done; exit 6")
    stopping = host.running("sleep", "1000", lease=100_000.0)
    prepared, waiting = (host.request("touch", str(tmp_path / "ran")) for _ in range(2))
    host.prepare(prepared, waiting)
    exhaust(small_disk)

    host.go(waiting.token)
    assert (host.wait(waiting.token).state, host.poll(waiting.token)[0].cause) == (
        RemoteState.NOSTART,
        "disk",
    )
    refused, absent = host.request("touch", str(tmp_path / "ran")), host.request("true")
    (report,) = host.prepare(refused, go=True)
    assert (report.state, report.cause) == (RemoteState.NOSTART, "disk")
    assert host.stop(absent.token).state is RemoteState.STOPPED
    assert (at_disk / absent.token).is_file()
    before = list(at_disk.glob(f"{stopping}/lease.*"))
    until(lambda: host.poll(stopping) and list(at_disk.glob(f"{stopping}/lease.*")) != before)
    gate.touch()
    report = host.wait(ending)
    assert (report.state, report.exit_code) == (RemoteState.EXITED, 6)
    assert host.stopped(stopping).state is RemoteState.STOPPED
    assert host.stopped(prepared.token).state is RemoteState.STOPPED
    assert not marked(stopping)

    empty(small_disk)
    late = host.prepare(refused, absent, prepared, go=True)
    assert {each.state for each in late} <= {RemoteState.NOSTART, RemoteState.STOPPED}
    host.go(refused.token, absent.token, prepared.token)
    assert host.ended("true").state is RemoteState.EXITED
    assert not (tmp_path / "ran").exists()
