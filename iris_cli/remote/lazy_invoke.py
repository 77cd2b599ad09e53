"""Load paramiko without invoke, which takes almost as long to load as the rest of paramiko."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


class _Invoke(ModuleType):
    """Stands for the module `invoke`, and loads it at its first use after the context."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get("invoke") is self:
            raise AttributeError(name)
        import invoke

        return getattr(invoke, name)


@contextmanager
def loading_invoke_on_use() -> Iterator[None]:
    """Let modules that are imported in this context load invoke at its first use.

    paramiko imports invoke, but uses it only for `Match exec` in ~/.ssh/config. importlib's LazyLoader is no help: in
    Python 3.11, the import itself counts as a use.
    """
    if "invoke" in sys.modules:
        yield
        return
    stand_in = sys.modules["invoke"] = _Invoke("invoke")
    try:
        yield
    finally:
        if sys.modules.get("invoke") is stand_in:
            del sys.modules["invoke"]
