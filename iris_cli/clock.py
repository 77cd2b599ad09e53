"""The only module that reads a clock or sleeps."""

from __future__ import annotations

import time
from typing import Final, Protocol

_LONGEST_SLEEP = 0.5  # seconds


class Clock(Protocol):
    """A source of time."""

    def now(self) -> float:
        """Return seconds since the Unix epoch, rounded to milliseconds as in the log."""
        ...

    def monotonic(self) -> float:
        """Return monotonic seconds, for deadlines within one invocation."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for that many seconds."""
        ...


def local_minute(at: float, now: float) -> str:
    """Return the first whole minute not before `at`: `14:31 CET`; with the date if it is not the day of `now`."""
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
        """Sleep in pieces, because Python notices a Ctrl-C just before a system call only after the call."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > _LONGEST_SLEEP:
            time.sleep(_LONGEST_SLEEP)
        time.sleep(max(0.0, left))


SYSTEM_CLOCK: Final = SystemClock()
"""The clock for waits on real hosts, disks and locks, even if the session has another clock."""
