"""How to call this very iris from another process."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def this_program() -> tuple[str, ...]:
    """The words that call this very iris.

    The name it is called by is kept: it still leads to iris after an upgrade.
    """
    called = Path(sys.argv[0])
    for path in (called, Path(sys.executable).with_name("iris")):
        if path.name == "iris" and path.is_file() and os.access(path, os.X_OK):
            return (str(path.absolute()),)
    return (sys.executable, "-m", "iris_cli")
