"""The only place that reads a clock of this machine, or sleeps."""

from __future__ import annotations

import time
from typing import Final, Protocol

_DEAFEST = 0.5  # seconds


class Clock(Protocol):
    """Where time comes from."""

    def now(self) -> float:
        """Wall-clock time in seconds since the Unix epoch, rounded to milliseconds as the log stores it."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow; for deadlines within one invocation."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for that many seconds."""
        ...


def local_minute(at: float, now: float) -> str:
    """`14:31 CET`, the first whole minute that is not before `at`; with its date if that is not the day of `now`."""
    minute = time.localtime(-(-at // 60) * 60)
    same_day = minute[:3] == time.localtime(now)[:3]
    return time.strftime("%H:%M %Z" if same_day else "%Y-%m-%d %H:%M %Z", minute)


class SystemClock:
    """The clock of this machine."""

    def now(self) -> float:
        return round(time.time(), 3)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """In pieces: a Ctrl-C between Python's last look for signals and the system call is only seen behind that."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > _DEAFEST:
            time.sleep(_DEAFEST)
        time.sleep(max(0.0, left))


SYSTEM_CLOCK: Final = SystemClock()
"""For code whose waits and deadlines are those of real hosts, disks and locks, whatever clock a session has."""
