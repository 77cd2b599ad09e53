"""The processes, keys and files of local hosts, and the temporary directory of a demo."""

import fcntl
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from iris_cli.clock import SYSTEM_CLOCK

MODULE = "iris_cli.demo.host"
_MAX_ROUNDS = 500  # several rounds are needed if a process starts another process before it is killed


def spawn_host() -> subprocess.Popen[str]:
    """Start a process that `configure_host` turns into a host. Until then, the process ends with its parent."""
    return subprocess.Popen(  # noqa: S603 - our own interpreter and module
        [sys.executable, "-m", MODULE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def configure_host(
    process: subprocess.Popen[str],
    directory: Path,
    *,
    metadata: Mapping[str, str],
    stay: bool,
    client_key: str = "",
    client_key_file: str = "",
) -> None:
    """Create the directory of a host, and let the process serve as that host until its stdin is closed.

    With `stay` the host outlives this process. The host accepts one key: `client_key` (the public key in base64), or
    the key in `client_key_file` (the file of the private key).
    """
    directory.mkdir(mode=0o700, parents=True)
    settings = {"directory": str(directory), "metadata": metadata, "stay": stay}
    settings |= {"client_key": client_key, "client_key_file": client_key_file}
    assert process.stdin is not None
    process.stdin.write(json.dumps(settings) + "\n")
    process.stdin.flush()
    if stay:
        process.stdin.close()


def await_host(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait until the host is ready. Return its `pid`, `port` and `key`. Raises ValueError if the process has ended."""
    assert process.stdout is not None
    with process.stdout:
        answer: dict[str, Any] = json.loads(process.stdout.readline())
    return {"pid": process.pid, "port": answer["port"], "key": f"ssh-ed25519 {answer['key']}"}


def vm_metadata(
    accelerator_type: str, zone: str, slice_name: str, index: int, vms: int, *, preemptible: bool
) -> dict[str, str]:
    """Return the answers of a TPU VM's metadata server, by path."""
    return {
        "instance/attributes/accelerator-type": accelerator_type,
        "instance/attributes/agent-worker-number": str(index),
        "instance/attributes/instance-id": slice_name,
        "instance/attributes/worker-network-endpoints": ",".join(["127.0.0.1"] * vms),
        "instance/zone": f"projects/1/zones/{zone}",
        "instance/scheduling/preemptible": str(preemptible).upper(),
    }


def live_hosts(pids: Sequence[int]) -> list[int]:
    """Return the pids that belong to hosts. Another process may have the pid of an ended host."""
    if not pids:
        return []
    shown = subprocess.run(  # noqa: S603 - fixed program, the pids are integers
        ["ps", "-o", "pid=,stat=,command=", "-p", ",".join(map(str, pids))],  # noqa: S607 - ps is where PATH says
        capture_output=True,
        text=True,
        check=False,
    )
    rows = [line.split() for line in shown.stdout.splitlines()]
    return [int(row[0]) for row in rows if not row[1].startswith("Z") and MODULE in row]


def kill_hosts(pids: Path) -> int:
    """Kill the hosts whose pids are in the JSON file `pids`. Return their number; 0 if the file can't be read."""
    try:
        hosts = live_hosts([int(pid) for pid in json.loads(pids.read_text(encoding="utf-8"))])
    except (OSError, ValueError, TypeError):
        return 0
    for pid in hosts:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(hosts)


class _Process(NamedTuple):
    """A process. `started`: start time in clock ticks since boot; it differs if another process gets the same pid."""

    pid: int
    parent: int
    started: int


def end_processes(root: Path) -> None:
    """Kill the processes with a `HOME` below `root`, and their descendants. Linux only.

    Only processes of demo hosts have a `HOME` below `root`. `root` itself may be the home of the user.
    """
    for _ in range(_MAX_ROUNDS):
        killed = [_kill(each) for each in _processes_below(root)]
        if not any(killed):
            return
        SYSTEM_CLOCK.sleep(0.01)  # a killed process takes a moment to end


def _processes_below(root: Path) -> list[_Process]:
    """Return the processes with a `HOME` below `root`, and their descendants, whatever their `HOME` is."""
    children: dict[int, list[_Process]] = {}
    found: list[_Process] = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            process = _read_process(int(entry.name))
            children.setdefault(process.parent, []).append(process)
            if _has_home(process.pid, root):
                found.append(process)
    seen = set(found)
    for parent in found:  # the loop adds the children to `found`
        new = [each for each in children.get(parent.pid, ()) if each not in seen]
        seen.update(new)
        found += new
    return found


def _read_process(pid: int) -> _Process:
    """Read a process. Raises OSError or ValueError if it has ended."""
    # Skip the program's name, because it may contain any character: see proc(5).
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    if len(fields) < 20 or fields[0] in (b"Z", b"X"):
        raise ValueError(f"{pid} has ended")
    return _Process(pid, parent=int(fields[1]), started=int(fields[19]))


def _has_home(pid: int, root: Path) -> bool:
    """Return whether the process has a `HOME` below `root`. Raises OSError."""
    words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return any(word.startswith(b"HOME=") and root in Path(os.fsdecode(word[5:])).parents for word in words)


def _kill(process: _Process) -> bool:
    """Kill a process. Return False if it had already ended."""
    with suppress(OSError, ValueError):
        if _read_process(process.pid).started == process.started:
            os.kill(process.pid, signal.SIGKILL)
            return True
    return False


def remove_tree(root: Path) -> None:
    """Remove a directory, including read-only directories such as workspaces. Follow no links. Raises OSError."""
    if root.is_symlink():
        raise NotADirectoryError(f"{root} is a link")
    for directory, names, _ in os.walk(root):
        for name in names:
            path = Path(directory, name)
            if not path.is_symlink():
                path.chmod(0o700)
    shutil.rmtree(root)


_HOME_PREFIX = "iris-demo-"
_HOME_LOCK = ".iris-demo-runs"
_HOME_CONTENT = "lab"


@contextmanager
def demo_home() -> Iterator[Path]:
    """Create a directory, yield it, and remove it at the end of the block. First remove directories of killed demos.

    Each demo locks a file next to its directory. A file without a lock belongs to a killed demo.
    """
    _remove_killed_demos()
    root = Path(tempfile.mkdtemp(prefix=_HOME_PREFIX))
    draft = root / f"{_HOME_LOCK}.draft"
    with draft.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        draft.rename(root / _HOME_LOCK)  # rename only a locked file
        try:
            (root / _HOME_CONTENT).mkdir()
            yield root / _HOME_CONTENT
        finally:
            _remove_home(root)


def _remove_home(root: Path) -> None:
    """Remove the content and then the directory with its lock file. If this fails, the next demo tries again."""
    with suppress(OSError):
        if (root / _HOME_CONTENT).exists():
            remove_tree(root / _HOME_CONTENT)
        remove_tree(root)


def _remove_killed_demos() -> None:
    """Kill the processes that this user's killed demos have left, and remove their directories."""
    for root in sorted(Path(tempfile.gettempdir()).glob(f"{_HOME_PREFIX}*")):
        with suppress(OSError):
            status = root.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                continue
            fd = os.open(root / _HOME_LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if stat.S_ISREG(os.fstat(fd).st_mode):
                    end_processes(root / _HOME_CONTENT)
                    _remove_home(root)
            finally:
                os.close(fd)


# Keys for hosts on this machine.


def make_key(path: Path) -> str:
    """Write a new Ed25519 private key (0600, OpenSSH format). Return the public key in base64."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(private)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return public.split()[1].decode("ascii")
