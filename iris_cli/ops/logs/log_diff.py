"""Log diff of ranks: show only lines that differ from the majority of ranks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from iris_cli.ops.logs.log_reading import BOTH
from iris_cli.ops.logs.logs import TaskLog

TAIL = 500
"""Lines of each rank and stream that are compared (default)."""
MOST_SHOWN = 8
"""Most groups of ranks compared line by line with the majority, smallest first."""
MOST_LINES = 20
"""Most lines of a difference that are kept."""
_MOST_PAIRS = 1 << 22  # pairs of lines to compare: about a second

_MASKS = (
    (re.compile(r"\x1b\[[0-9;:]*m"), ""),
    (re.compile(r"\d{4}-\d\d-\d\d"), "DATE"),
    (re.compile(r"(?:T| )?\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"), " TIME"),
    (re.compile(r"\b[IWEF]\d{4}\b"), "DATE"),  # glog
    (re.compile(r"0x[0-9a-fA-F]+"), "ADDRESS"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"), "HOST"),
    (
        re.compile(
            r"(?i)\b(rank|task|process|proc|worker|host|node|replica|shard|pid|device)([-_ =:#/\[(]{0,2})\d+"
        ),
        r"\1\2N",
    ),
    (re.compile(r"^\[\d+\]"), "[N]"),
)
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


class Deviation(Struct, frozen=True, kw_only=True):
    """Ranks that agree with each other and differ from the majority; the diff is that of the lowest rank.

    `behind` or `ahead` counts lines if nothing else differs; else `diff` has lines that begin with `-`
    (majority) or `+`, and `more` counts those not shown. `compared` is false if there were too many groups.
    `idle`: seconds since the last line of any running rank among them, None if unknown.
    """

    ranks: tuple[int, ...]
    behind: int = 0
    ahead: int = 0
    diff: tuple[str, ...] = ()
    more: int = 0
    compared: bool = True
    idle: float | None = None


class StreamDiff(Struct, frozen=True, kw_only=True):
    """One stream: the ranks of the majority, and the ranks that differ.

    `lines` counts the lines of the majority. `coarse`: numbers were ignored, because all ranks differ in
    them. `idle`: as in a deviation, of the majority.
    """

    stream: str
    majority: tuple[int, ...]
    lines: int
    deviations: tuple[Deviation, ...]
    coarse: bool = False
    idle: float | None = None


def diff(logs: Sequence[TaskLog], tail: int | None) -> list[StreamDiff]:
    """Compare the ranks by stream; ranks without any log are omitted.

    Times, addresses, and numbers of ranks, workers and processes are ignored.
    """
    known = [log for log in logs if log.lines or not log.note]
    found = []
    for stream in BOTH:
        said = {log.task.index: [line.text for line in log.lines if line.stream == stream] for log in known}
        if any(said.values()):
            idle = {log.task.index: log.idle[stream] for log in known if stream in log.idle}
            found.append(_dated(_diff(stream, said, tail), idle))
    return found


def _dated(found: StreamDiff, idle: Mapping[int, float]) -> StreamDiff:
    """Return the diff with the idle time of each group."""

    def last(ranks: Sequence[int]) -> float | None:
        return min((idle[rank] for rank in ranks if rank in idle), default=None)

    return structs.replace(
        found,
        idle=last(found.majority),
        deviations=tuple(structs.replace(one, idle=last(one.ranks)) for one in found.deviations),
    )


def masked(line: str, *, coarse: bool = False) -> str:
    """Return a line with the parts masked that differ between equal ranks."""
    for pattern, instead in _MASKS:
        line = pattern.sub(instead, line)
    return _NUMBER.sub("N", line) if coarse else line


def _diff(stream: str, said: dict[int, list[str]], tail: int | None) -> StreamDiff:
    for coarse in (False, True):
        groups: dict[tuple[str, ...], list[int]] = {}
        for rank, lines in said.items():
            groups.setdefault(tuple(masked(line, coarse=coarse) for line in lines), []).append(rank)
        majority = max(groups, key=lambda each: (len(groups[each]), -groups[each][0]))
        if 2 * len(groups[majority]) > len(said):
            break
    ranks = groups.pop(majority)
    others = sorted(groups.items(), key=lambda each: (len(each[1]), each[1]))
    shown = said[ranks[0]]
    deviations = [
        _deviation((majority, shown), (lines, said[own[0]]), tuple(own), tail)
        if number < MOST_SHOWN
        else Deviation(ranks=tuple(own), compared=False)
        for number, (lines, own) in enumerate(others)
    ]
    return StreamDiff(
        stream=stream, majority=tuple(ranks), lines=len(shown), deviations=tuple(deviations), coarse=coarse
    )


Said = tuple[Sequence[str], Sequence[str]]
"""Masked lines, and the same lines as shown."""


def _changes(most: Sequence[str], few: Sequence[str]) -> list[tuple[str, int, int, int, int]]:
    """Return opcodes like `SequenceMatcher.get_opcodes`. Above _MOST_PAIRS pairs, frequent lines are not matched."""
    from difflib import SequenceMatcher  # rarely needed

    if len(most) * len(few) <= _MOST_PAIRS:
        return list(SequenceMatcher(None, most, few, autojunk=False).get_opcodes())
    head = _common(most, few)
    tail = _common(most[head:][::-1], few[head:][::-1])
    end, stop = len(most) - tail, len(few) - tail
    found = SequenceMatcher(None, most[head:end], few[head:stop]).get_opcodes()
    codes = [(kind, a + head, b + head, c + head, d + head) for kind, a, b, c, d in found]
    before, after = ("equal", 0, head, 0, head), ("equal", end, len(most), stop, len(few))
    return [*([before] if head else []), *codes, *([after] if tail else [])]


def _common(some: Sequence[str], others: Sequence[str]) -> int:
    """Return the length of the common prefix."""
    least = min(len(some), len(others))
    return next((at for at in range(least) if some[at] != others[at]), least)


def _deviation(most: Said, few: Said, ranks: tuple[int, ...], tail: int | None) -> Deviation:
    codes = _changes(most[0], few[0])
    same = any(code[0] == "equal" for code in codes)
    # If only the ends were read, a rank that is ahead or behind also begins at another line.
    cut = tail is not None and tail in (len(most[0]), len(few[0]))
    if same and cut and codes[0][0] in ("delete", "insert"):
        codes = codes[1:]
    changes = [code for code in codes if code[0] != "equal"]
    if same and changes == codes[-1:] and changes[0][0] in ("delete", "insert"):
        kind, start, end, begin, stop = changes[0]
        return (
            Deviation(ranks=ranks, behind=end - start)
            if kind == "delete"
            else Deviation(ranks=ranks, ahead=stop - begin)
        )
    lines = [
        line
        for _, start, end, begin, stop in changes
        for line in (
            *(f"-{text}" for text in most[1][start:end]),
            *(f"+{text}" for text in few[1][begin:stop]),
        )
    ]
    return Deviation(ranks=ranks, diff=tuple(lines[:MOST_LINES]), more=max(0, len(lines) - MOST_LINES))
