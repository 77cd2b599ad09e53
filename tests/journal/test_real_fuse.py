"""A file system that is really mounted through FUSE is known as one: its server has nothing but a root directory."""

from __future__ import annotations

import ctypes
import os
import signal
import stat
import struct
import threading
import traceback
from pathlib import Path

import pytest

from iris_cli.journal.access import network_file_system

CLONE_NEWNS = 0x20000
MS_PRIVATE, MS_REC = 0x40000, 0x4000
LOOKUP, FORGET, GETATTR, INIT = 1, 2, 3, 26
HEADER = struct.Struct("=IIQQIIII")  # of a request: length, what, which one, inode, uid, gid, pid, nothing
REFUSED = 99


def serve(device: int) -> None:
    """Answer the kernel until the file system goes."""
    while True:
        try:
            request = os.read(device, 1 << 18)
        except OSError:
            return
        _, what, which, *_ = HEADER.unpack_from(request)
        error, body = -38, b""  # "not implemented"
        if what == INIT:
            error, body = 0, struct.pack("=IIIIHHIIHH32x", 7, 31, 4096, 0, 1, 1, 4096, 1, 0, 0)
        elif what == GETATTR:
            mode = stat.S_IFDIR | 0o700
            error, body = 0, struct.pack("=QI4xQ5Q3I7I", 60, 0, 1, *[0] * 5, *[0] * 3, mode, 2, *[0] * 5)
        elif what == LOOKUP:
            error = -2  # "no such file"
        elif what == FORGET:
            continue
        os.write(device, struct.pack("=IiQ", 16 + len(body), error, which) + body)


def mounted(directory: Path) -> bool:
    """In a mount namespace of our own, so that nothing is left of it."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        device = os.open("/dev/fuse", os.O_RDWR)
    except OSError:
        return False
    if not hasattr(libc, "unshare") or libc.unshare(CLONE_NEWNS) != 0:
        return False
    if libc.mount(b"none", b"/", None, MS_PRIVATE | MS_REC, None) != 0:
        return False
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}".encode()
    if libc.mount(b"iris-test", os.fsencode(directory), b"fuse.iristest", 0, options) != 0:
        return False
    threading.Thread(target=serve, args=(device,), daemon=True).start()
    return True


def test_a_real_fuse_mount_is_seen(tmp_path: Path) -> None:
    (tmp_path / "far away").mkdir()
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(120)  # whatever happens, it ends
            if not mounted(tmp_path / "far away"):
                os._exit(REFUSED)
            assert network_file_system(tmp_path / "far away") == "fuse.iristest"
            assert network_file_system(tmp_path / "far away" / "state") == "fuse.iristest"
            assert network_file_system(tmp_path / "near") == ""
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == REFUSED:
        pytest.skip("nothing can be mounted through FUSE here (needs root and /dev/fuse)")
    assert code == 0
