"""Times as text: `2026-11-20T14:03:09.120Z`, always UTC, always milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LENGTH = len("2026-11-20T14:03:09.120Z")


def iso_time(at: float) -> str:
    """Seconds since the epoch as text. Raises OverflowError for a time beyond the year 9999."""
    moment = _EPOCH + timedelta(milliseconds=round(at * 1000))
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def parse_time(text: str) -> float:
    """What `iso_time` wrote. Raises ValueError for anything else."""
    # Between the signs there are but digits, or fromisoformat refuses it.
    if len(text) != _LENGTH or text[4:20:3] != "--T::." or text[-1] != "Z":
        raise ValueError(f"{text!r:.80} is not a time")
    return (datetime.fromisoformat(text) - _EPOCH).total_seconds()


def file_stamp(at: float) -> str:
    """The time as a part of a file name: `20261120T140309.120Z`."""
    return iso_time(at).replace("-", "").replace(":", "")
