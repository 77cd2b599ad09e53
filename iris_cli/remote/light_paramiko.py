"""paramiko without `invoke`, which is more than a third of the time that loading both takes.

It runs the commands of `Match exec` in an SSH configuration, and serves nothing else: it is loaded when there is one.
Whatever loads paramiko later finds it loaded already.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

__all__ = ["SSHConfig", "SSHConfigDict"]


class _Later(ModuleType):
    """Stands for a module, which is loaded when something of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # the machinery of imports looks for these
        self.step_aside()
        return getattr(import_module(self.__name__), name)

    def step_aside(self) -> None:
        """Whoever else imports that module gets it itself."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]


_invoke = _Later("invoke")
sys.modules.setdefault("invoke", _invoke)
try:
    from paramiko.config import SSHConfig, SSHConfigDict
finally:
    _invoke.step_aside()
