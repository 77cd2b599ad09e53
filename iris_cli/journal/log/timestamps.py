"""Times as text: `2026-11-20T14:03:09.120Z`, always UTC with milliseconds."""

from __future__ import annotations

from time import gmtime

_FIRST, _LAST = -62_135_596_800, 253_402_300_799  # start of year 1, end of year 9999


def iso_time(at: float) -> str:
    """Format seconds since the epoch as text. Raises OverflowError outside the years 1 to 9999."""
    seconds, milliseconds = divmod(round(at * 1000), 1000)
    if not _FIRST <= seconds <= _LAST:
        raise OverflowError(f"{at} is in no year of four digits")
    year, month, day, hour, minute, second, *_ = gmtime(seconds)
    return f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z"


def file_stamp(at: float) -> str:
    """Format a time for a file name: `20261120T140309.120Z`."""
    return iso_time(at).replace("-", "").replace(":", "")
