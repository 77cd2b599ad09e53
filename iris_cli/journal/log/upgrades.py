"""Logs of older formats: each line becomes one of the next format when it is read, and so on up to today's.

A file has one format, that of its first line, and its lines are never rewritten. Before this program adds to a file
of an older format, it begins a new one: the old lines go to the archive as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Line = dict[str, Any]

UPGRADES: dict[int, Callable[[Line], Line]] = {}
"""By its number, the way from a format to the next: a line as JSON, before its events are looked at.

`seq`, `prev`, `crc`, `format` and `cluster_id` stay as they are, for they say what stands in the file. What raises
ValueError, KeyError or TypeError is no line of that format.
"""


def upgraded(line: Line, number: int, today: int) -> Line:
    """A line of format `number` as one of the format `today`. Raises ValueError for one that never was."""
    for each in range(number, today):
        if each not in UPGRADES:
            raise ValueError(f"the log has format {number}, which this program doesn't know")
        line = UPGRADES[each](line)
    return line
