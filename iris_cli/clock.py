"""The only module that reads a clock, sleeps, or converts times to text."""

import time
from typing import Final, Protocol

_LONGEST_SLEEP = 0.5  # seconds
_FIRST, _LAST = -62_135_596_800, 253_402_300_799  # start of year 1, end of year 9999


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
    """Return `at`, rounded up to a minute, as local time: `14:31 CET`. Add the date if `now` is on another day."""
    minute = time.localtime(-(-at // 60) * 60)
    same_day = minute[:3] == time.localtime(now)[:3]
    return time.strftime("%H:%M %Z" if same_day else "%Y-%m-%d %H:%M %Z", minute)


def iso_time(at: float) -> str:
    """Return a time in UTC, such as `2026-11-20T14:03:09.120Z`. Raises OverflowError outside the years 1 to 9999."""
    seconds, milliseconds = divmod(round(at * 1000), 1000)
    if not _FIRST <= seconds <= _LAST:
        raise OverflowError(f"{at} is in no year of four digits")
    year, month, day, hour, minute, second, *_ = time.gmtime(seconds)
    return f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z"


def file_stamp(at: float) -> str:
    """Format a time for a file name: `20261120T140309.120Z`."""
    return iso_time(at).replace("-", "").replace(":", "")


class SystemClock:
    """The clock of this machine."""

    def now(self) -> float:
        return round(time.time(), 3)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Sleep in short intervals, because a Ctrl-C just before a system call has no effect until the call returns."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > _LONGEST_SLEEP:
            time.sleep(_LONGEST_SLEEP)
        time.sleep(max(0.0, left))


SYSTEM_CLOCK: Final = SystemClock()
"""The clock for waits on real hosts, disks and locks, even if the session's clock is simulated."""
