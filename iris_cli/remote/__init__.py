"""Access to workers: SSH, host keys, and the shell library that runs on them. Makes no decisions."""

import sys
from threading import Lock
from types import ModuleType
from typing import Any


class _Invoke(ModuleType):
    """Stands for the module `invoke`, and loads it at its first use.

    paramiko imports it, which takes almost as long as the rest of paramiko, but uses it only for `Match exec` in
    ~/.ssh/config. importlib's LazyLoader would load it at that import.
    """

    def __init__(self) -> None:
        super().__init__("invoke")
        self._lock = Lock()  # several hosts may be looked up at once

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        with self._lock:
            if sys.modules.get("invoke") is self:
                del sys.modules["invoke"]
            import invoke
        return getattr(invoke, name)


sys.modules.setdefault("invoke", _Invoke())
