"""What a host of this machine that plays a VM leaves behind: what runs at home there, and the files of that."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def end_inhabitants(homes: Iterable[Path]) -> bool:
    """End it, as a machine does that is turned off; whether there was something. On Linux only."""
    theirs = {f"HOME={home}".encode() for home in homes}
    found = False
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if theirs & set((entry / "environ").read_bytes().split(b"\0")):
                os.kill(int(entry.name), signal.SIGKILL)
                found = True
    return found


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
