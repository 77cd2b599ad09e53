"""Import the SSH library in less time."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


def load_paramiko() -> None:
    """Import paramiko without `invoke`, a third of its import time; `Match exec` imports that when it runs a command.

    Only for a process that runs no other program: another thread must not import `invoke` meanwhile.
    """
    if "paramiko" in sys.modules or "invoke" in sys.modules:
        return
    sys.modules["invoke"] = _Invoke("invoke")
    try:
        import paramiko  # noqa: F401 - later imports find it
    finally:
        del sys.modules["invoke"]


class _Invoke(ModuleType):
    """What paramiko uses of `invoke`."""

    @staticmethod
    def run(*words: Any, **options: Any) -> Any:
        """Run a command."""
        import invoke

        return invoke.run(*words, **options)
