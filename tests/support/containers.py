"""Real podman with a store of its own, and one image of a few programs: it needs no registry."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tarfile
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from iris_cli.core.ids import Token
from iris_cli.core.messages.observations import RemoteState
from tests.support.strays import pids
from tests.support.waiting import PATIENCE, until
from tests.support.worker_host import WorkerHost, command_line, marked

IMAGE = "localhost/iris-test/box:1"
STARTED = {RemoteState.PREPARED, RemoteState.NOSTART}
_PROGRAMS = ("sh", "sleep", "env", "cat", "id", "setsid", "dd", "tail", "ls")

_CONF = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]
[engine]
cgroup_manager = "cgroupfs"
runtime = "{runtime}"
events_logger = "none"
tmp_dir = "{run}/tmp"
"""
_STORE = """
[storage]
driver = "vfs"
graphroot = "{directory}/graph"
runroot = "{run}"
"""


NOBODY = 12345
"""A user id without an account: podman maps only this id."""


class Podman:
    """With its `env` hosts use this store, and find no docker. `user` runs it if the tests run as root."""

    def __init__(self, directory: Path, user: int | None = None) -> None:
        self.directory, self._user = directory, user
        runtime = "runc" if shutil.which("runc") else "crun"
        # Podman's clean-up fails if this path exceeds 50 characters: each run would then take 20 seconds longer.
        self._run = TemporaryDirectory(prefix="run-")
        run = self._run.name
        (directory / "containers.conf").write_text(_CONF.format(run=run, runtime=runtime))
        (directory / "storage.conf").write_text(_STORE.format(directory=directory, run=run))
        if user is not None:
            (directory / "home").mkdir(mode=0o700)
            for path in (directory, *directory.iterdir(), Path(run)):
                os.chown(path, user, user)
        self.env = {
            **({} if user is None else {"HOME": f"{directory}/home", "XDG_RUNTIME_DIR": run}),
            "CONTAINERS_CONF": str(directory / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(directory / "storage.conf"),
            "DOCKER_HOST": f"unix://{directory}/no-docker",
        }

    def __call__(self, *words: str, stdin: bytes = b"") -> str:
        done = subprocess.run(
            [*as_user(self._user), "podman", *words],
            input=stdin,
            cwd=self.directory,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
            env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", **self.env},
        )
        if done.returncode:
            raise RuntimeError(f"podman {words}: {done.stderr.decode(errors='replace')}")
        return done.stdout.decode()

    def containers(self) -> list[str]:
        """Return the names of all containers, in any state."""
        return [
            name
            for each in json.loads(self("ps", "-a", "--format", "json") or "[]")
            for name in each["Names"]
        ]

    def remove_all(self) -> None:
        self("rm", "-f", "-a")

    def close(self) -> None:
        """Remove all containers, and the directory of running ones."""
        self.remove_all()
        self._run.cleanup()


def as_user(user: int | None) -> list[str]:
    """Return the beginning of a command line that runs as this user."""
    return [] if user is None else ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]


def podman_with_image(directory: Path, user: int | None = None) -> Podman:
    """Import the image and run it once. Skip the test if podman can't run containers."""
    for program in ("podman", "busybox"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program} on this machine (scripts/install-test-tools.sh installs it as root)")
    podman = Podman(directory, user)
    try:
        podman("import", "-", IMAGE, stdin=_root_file_system())
        podman("run", "--rm", "--network", "host", "--pid", "host", IMAGE, "sh", "-c", "exit 0")
    except RuntimeError as error:
        pytest.skip(f"podman can't run containers here: {error}")
    return podman


def conmons(token: Token) -> list[int]:
    """Return podman's monitor processes of an attempt's container."""
    found = ((pid, command_line(pid)) for pid in pids())
    return [pid for pid, words in found if words and words[0].endswith("conmon") and f"iris-{token}" in words]


def launched(host: WorkerHost, *argv: str, **settings: object) -> Token:
    """Start an attempt once its image is there."""
    request = host.request(*argv, **{"image": IMAGE} | settings)
    host.prepare(request)
    host.wait(request.token, STARTED)
    host.go(request.token)
    return request.token


def running(host: WorkerHost, script: str, **settings: object) -> Token:
    """Start a script that says `ready`, and wait until it does."""
    token = launched(host, "sh", "-c", script, **settings)
    out = host.attempt_dir(token) / "out"
    until(lambda: b"ready\n" in out.read_bytes(), lambda: (host.poll(token), host.output(token, "err")))
    return token


def command_lines() -> set[bytes]:
    """The arguments of all processes."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.add(path.read_bytes())
    return found


def is_gone(podman: Podman, token: Token) -> bool:
    return not (marked(token) or conmons(token) or f"iris-{token}" in podman.containers())


def _root_file_system() -> bytes:
    """A tar file with busybox, the libraries that it needs, and links for its programs."""
    busybox = shutil.which("busybox") or ""
    listed = subprocess.run(["ldd", busybox], capture_output=True, text=True, check=False).stdout
    out = BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for path in {"/bin/busybox", *re.findall(r"(/\S+) \(", listed)}:
            tar.add(Path(busybox if path == "/bin/busybox" else path).resolve(), path)
        for name in _PROGRAMS:
            link = tarfile.TarInfo(f"/bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        for name in ("/tmp", "/proc", "/etc"):
            directory = tarfile.TarInfo(name)
            directory.type, directory.mode = tarfile.DIRTYPE, 0o1777
            tar.addfile(directory)
    return out.getvalue()
