"""What a host of this machine that plays a VM leaves behind: what runs at home there, and the files of that."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from iris_cli.clock import SYSTEM_CLOCK

_ROUNDS = 500  # as many generations of processes may each begin another one


class _Process(NamedTuple):
    """`started` in clock ticks since boot: a pid alone is used again."""

    pid: int
    parent: int
    started: int


def end_inhabitants(root: Path) -> None:
    """End what has its home below `root`, and what that has begun, as a machine does that is turned off.

    Nothing else has such a `HOME`; `root` itself may be the home of whoever asks for this. On Linux only.
    """
    for _ in range(_ROUNDS):
        ended = [_end(each) for each in _inhabitants(root)]
        if not any(ended):
            return
        SYSTEM_CLOCK.sleep(0.01)  # they need a moment to go


def _inhabitants(root: Path) -> list[_Process]:
    """Those at home there, and what descends from them: that may have another environment."""
    children: dict[int, list[_Process]] = {}
    found: list[_Process] = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            process = _look(int(entry.name))
            children.setdefault(process.parent, []).append(process)
            if _is_at_home(process.pid, root):
                found.append(process)
    seen = set(found)
    for parent in found:  # which grows meanwhile
        new = [each for each in children.get(parent.pid, ()) if each not in seen]
        seen.update(new)
        found += new
    return found


def _look(pid: int) -> _Process:
    """Raises OSError and ValueError."""
    # Behind its name, which may be anything, as in proc(5).
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    if len(fields) < 20 or fields[0] in (b"Z", b"X"):
        raise ValueError(f"{pid} has ended")
    return _Process(pid, parent=int(fields[1]), started=int(fields[19]))


def _is_at_home(pid: int, root: Path) -> bool:
    """Raises OSError."""
    words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return any(word.startswith(b"HOME=") and root in Path(os.fsdecode(word[5:])).parents for word in words)


def _end(process: _Process) -> bool:
    """Whether it was still there, and ended."""
    with suppress(OSError, ValueError):
        if _look(process.pid).started == process.started:
            os.kill(process.pid, signal.SIGKILL)
            return True
    return False


def remove_tree(root: Path) -> None:
    """Remove a directory in which nothing runs any more, with what was made read-only there, as workspaces are.

    No link is followed. Raises OSError.
    """
    if root.is_symlink():
        raise NotADirectoryError(f"{root} is a link")
    for directory, names, _ in os.walk(root):
        for name in names:
            below = Path(directory, name)
            if not below.is_symlink():
                below.chmod(0o700)
    shutil.rmtree(root)
