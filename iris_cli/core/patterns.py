"""Regular expressions that are compiled when they are first used: a command uses few of those that it loads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast


def pattern(regex: str, flags: int = 0) -> re.Pattern[str]:
    """As `re.compile`, but at the first use."""
    return cast("re.Pattern[str]", _Uncompiled(regex, flags))


class _Uncompiled:
    """What is asked of it is asked of the compiled pattern, and kept."""

    def __init__(self, regex: str, flags: int) -> None:
        self._given = regex, flags

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            found = self.__dict__[name] = getattr(re.compile(*self._given), name)
            return found
