"""A state directory on a network file system: known, said once, and refused where its locks keep nobody out."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from iris_cli.core.events.events import WorkerDrained
from iris_cli.core.ids import WorkerId
from iris_cli.errors import NotWritableError
from iris_cli.files import opened
from iris_cli.journal import access
from iris_cli.journal.access import network_file_system, parse_mount_command
from tests.journal.samples import NOON, filled, state_in

MOUNTS = r"""/dev/vda / ext4 rw 0 0
bastion:/home /home nfs4 rw,vers=4.2 0 0
/dev/vdb /home/me/local\040disk ext4 rw 0 0
gcsfuse /home/me/bucket fuse.gcsfuse rw 0 0
//nas/x /home/me/bucket/nas cifs rw 0 0
//nas/y /mnt/y smb3 rw 0 0
host0 /mnt/share 9p rw,trans=virtio 0 0
host1 /mnt/v virtiofs rw 0 0
/dev/vdc /mnt/twice nfs rw 0 0
/dev/vdc /mnt/twice xfs rw 0 0
/dev/vdd /mnt/y/disk ext4 rw 0 0
"""

ON_A_MAC = """/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)
devfs on /dev (devfs, local, nobrowse)
/dev/disk3s5 on /System/Volumes/Data (apfs, local, journaled, nobrowse, protect)
//me@nas._smb._tcp.local/work on /Volumes/work on nas (smbfs, nodev, nosuid, mounted by me)
bastion:/export on /Volumes/home (nfs)
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/srv/state", ""),
        ("/home/me/state", "nfs4"),
        ("/home", "nfs4"),
        ("/homestead/state", ""),
        ("/home/me/local disk/state", ""),
        ("/home/me/bucket/state", "fuse.gcsfuse"),
        ("/home/me/bucket/nas/state", "cifs"),
        ("/mnt/y/state", "smb3"),
        ("/mnt/y/disk/state", ""),
        ("/mnt/share/state", "9p"),
        ("/mnt/v", "virtiofs"),
        ("/mnt/twice/state", ""),  # what was mounted last is what is seen
    ],
)
def test_a_network_file_system_is_known_by_its_mount(tmp_path: Path, path: str, kind: str) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    assert network_file_system(Path(path), mounts) == kind


def test_the_mounts_of_macos_are_read_from_its_command() -> None:
    assert parse_mount_command(ON_A_MAC) == [
        ("/", "apfs"),
        ("/dev", "devfs"),
        ("/System/Volumes/Data", "apfs"),
        ("/Volumes/work on nas", "smbfs"),
        ("/Volumes/home", "nfs"),
    ]


def test_without_a_list_of_mounts_nothing_is_said(tmp_path: Path) -> None:
    assert network_file_system(tmp_path, tmp_path / "missing") == ""


def test_mounts_of_this_machine_are_detected(tmp_path: Path) -> None:
    """The real list: it has the root directory, and what is on the disk of tests is a file system of some type."""
    if not sys.platform.startswith("linux"):
        pytest.skip("only Linux has /proc/mounts")
    points = dict(access._mounts(Path("/proc/mounts")))
    assert points["/"]
    shown = subprocess.run(
        ["stat", "-f", "-c", "%T", "/proc"], capture_output=True, text=True, check=False
    ).stdout.strip()
    assert shown in ("", points["/proc"])


@pytest.fixture
def on_nfs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "network_file_system", lambda path: "nfs4")


DRAINED = [WorkerDrained(worker=WorkerId("v4a-0"))]


@pytest.mark.usefixtures("on_nfs")
def test_the_operator_is_warned_once_for_a_cluster_and_not_at_every_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = state_in(tmp_path / "state")
    (warning,) = state.create("lab")
    assert warning.startswith(f"{state.path} is on nfs4, where locks are unreliable")
    assert (state.path / "network-file-system").stat().st_mode & 0o777 == 0o600
    for _ in range(2):  # each a command of its own
        with state_in(state.path).locked("iris drain") as writer:
            assert writer.messages == ()
            writer.append(DRAINED, at=NOON)
    monkeypatch.setattr(access, "network_file_system", lambda path: "cifs")  # moved to another one
    with state_in(state.path).locked("iris drain") as writer:
        assert "is on cifs" in writer.messages[0]
    with state_in(state.path).locked("iris drain") as writer:
        assert writer.messages == ()
    assert state.read().warnings == ()


def test_on_a_local_disk_nothing_is_noted(tmp_path: Path) -> None:
    state = filled(tmp_path / "state", 3)
    assert not (state.path / "network-file-system").exists()


@pytest.mark.usefixtures("on_nfs")
def test_a_lock_granted_twice_is_rejected_before_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = state_in(tmp_path / "state")
    state.create("lab")
    before = (state.path / "events.jsonl").read_bytes()
    monkeypatch.setattr(fcntl, "flock", lambda fd, operation: None)
    with (
        pytest.raises(NotWritableError, match="does not support locks") as caught,
        state.locked("iris drain"),
    ):
        pass
    assert "--state-dir" in caught.value.hint
    assert (state.path / "events.jsonl").read_bytes() == before


@pytest.mark.usefixtures("on_nfs")
def test_a_warning_that_cannot_be_recorded_is_repeated(tmp_path: Path) -> None:
    state = state_in(tmp_path / "state")
    state.create("lab")
    (state.path / "network-file-system").unlink()
    (state.path / "network-file-system").mkdir()
    for _ in range(2):
        with state_in(state.path).locked("iris drain") as writer:
            assert writer.messages


_LEASE = """
import fcntl, os, sys, time
fcntl.fcntl(os.open(sys.argv[1], os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_RDLCK)
print("leased", flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(not hasattr(fcntl, "F_SETLEASE"), reason="only Linux has leases")
def test_a_file_that_a_server_leases_is_opened_when_the_server_gives_it_back(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    log.write_text("")
    server = subprocess.Popen([sys.executable, "-c", _LEASE, log], stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == b"leased\n"
        with opened(log, os.O_WRONLY | os.O_APPEND) as fd:
            assert os.write(fd, b"line") == 4
        assert server.wait() == -signal.SIGIO  # so it gave the lease back
    finally:
        server.kill()
        server.communicate()
