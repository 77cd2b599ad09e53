"""Compare the logs of ranks, and find the lines that differ from the majority of ranks."""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from iris_cli.core.grouping import group_pairs
from iris_cli.ops.logs.log_reading import BOTH
from iris_cli.ops.logs.logs import TaskLog

TAIL = 500  # default number of lines of each rank and stream that are compared
MAX_GROUPS = 8
"""Maximum number of groups of ranks compared line by line with the majority, smallest group first."""
MAX_LINES = 20  # maximum number of lines of a difference
_MAX_PAIRS = 1 << 22  # maximum pairs of lines for an exact comparison, which takes about a second

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
Texts = tuple[Sequence[str], Sequence[str]]
"""Masked lines for the comparison, and the same lines without masks for the output."""


class Deviation(Struct, frozen=True, kw_only=True):
    """Ranks with equal logs that differ from the majority.

    The lowest of these ranks is compared with the majority. `behind`: number of lines at the end that only the majority
    has. `ahead`: number of lines at the end that only this rank has. For other differences, `diff` has lines that begin
    with `-` (majority) or `+` (this rank), and `more` is the number of further lines. `compared` is False if there were
    too many groups. `idle`: seconds since the last line of any running rank of the group, or None if unknown.
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

    `lines` is the number of lines of the majority. `coarse`: True if all numbers were ignored, because otherwise no
    majority of ranks is equal. `idle`: seconds since the last line of any running rank of the majority, or None if
    unknown.
    """

    stream: str
    majority: tuple[int, ...]
    lines: int
    deviations: tuple[Deviation, ...]
    coarse: bool = False
    idle: float | None = None


def diff(logs: Sequence[TaskLog], tail: int | None) -> list[StreamDiff]:
    """Compare the ranks, each stream separately. Ranks without a log are omitted.

    Times, addresses, and the numbers of ranks, workers and processes are ignored. `tail`: the number of lines that were
    read of each stream, or None for all lines.
    """
    available = [log for log in logs if log.lines or not log.note]
    diffs = []
    for stream in BOTH:
        texts = {
            log.task.index: [line.text for line in log.lines if line.stream == stream] for log in available
        }
        if any(texts.values()):
            idle = {log.task.index: log.idle[stream] for log in available if stream in log.idle}
            diffs.append(_diff(stream, texts, idle, tail))
    return diffs


def mask(line: str, *, coarse: bool = False) -> str:
    """Return a line with placeholders for times and other parts that differ between ranks; `coarse`: all numbers."""
    for pattern, replacement in _MASKS:
        line = pattern.sub(replacement, line)
    return _NUMBER.sub("N", line) if coarse else line


def _diff(
    stream: str, texts: dict[int, list[str]], idle: Mapping[int, float], tail: int | None
) -> StreamDiff:
    """Compare one stream. `texts` and `idle`: the lines and the idle time of each rank."""

    def idle_time(ranks: Sequence[int]) -> float | None:
        return min((idle[rank] for rank in ranks if rank in idle), default=None)

    for coarse in (False, True):
        groups = group_pairs(
            (tuple(mask(line, coarse=coarse) for line in lines), rank) for rank, lines in texts.items()
        )
        majority = max(groups, key=lambda each: (len(groups[each]), -groups[each][0]))
        if 2 * len(groups[majority]) > len(texts):
            break
    ranks = groups.pop(majority)
    other_groups = sorted(groups.items(), key=lambda each: (len(each[1]), each[1]))
    majority_lines = texts[ranks[0]]
    deviations = [
        _deviation((majority, majority_lines), (lines, texts[others[0]]), tuple(others), tail)
        if number < MAX_GROUPS
        else Deviation(ranks=tuple(others), compared=False)
        for number, (lines, others) in enumerate(other_groups)
    ]
    return StreamDiff(
        stream=stream,
        majority=tuple(ranks),
        lines=len(majority_lines),
        deviations=tuple(structs.replace(each, idle=idle_time(each.ranks)) for each in deviations),
        coarse=coarse,
        idle=idle_time(ranks),
    )


def _changes(majority: Sequence[str], deviating: Sequence[str]) -> list[tuple[str, int, int, int, int]]:
    """Return opcodes as `SequenceMatcher.get_opcodes` does. With more than _MAX_PAIRS pairs, they are approximate."""
    from difflib import SequenceMatcher  # rarely needed

    if len(majority) * len(deviating) <= _MAX_PAIRS:
        return list(SequenceMatcher(None, majority, deviating, autojunk=False).get_opcodes())
    head = _common_prefix(majority, deviating)
    tail = _common_prefix(majority[head:][::-1], deviating[head:][::-1])
    majority_end, deviating_end = len(majority) - tail, len(deviating) - tail
    found = SequenceMatcher(None, majority[head:majority_end], deviating[head:deviating_end]).get_opcodes()
    codes = [(kind, a + head, b + head, c + head, d + head) for kind, a, b, c, d in found]
    before = ("equal", 0, head, 0, head)
    after = ("equal", majority_end, len(majority), deviating_end, len(deviating))
    return [*([before] if head else []), *codes, *([after] if tail else [])]


def _common_prefix(first: Sequence[str], second: Sequence[str]) -> int:
    limit = min(len(first), len(second))
    return next((index for index in range(limit) if first[index] != second[index]), limit)


def _deviation(majority: Texts, deviating: Texts, ranks: tuple[int, ...], tail: int | None) -> Deviation:
    codes = _changes(majority[0], deviating[0])
    has_equal_lines = any(code[0] == "equal" for code in codes)
    # If only the ends of the logs were read, the log of a rank that is ahead or behind begins with a different line.
    is_cut = tail is not None and tail in (len(majority[0]), len(deviating[0]))
    if has_equal_lines and is_cut and codes[0][0] in ("delete", "insert"):
        codes = codes[1:]
    changes = [code for code in codes if code[0] != "equal"]
    if has_equal_lines and changes == codes[-1:] and changes[0][0] in ("delete", "insert"):
        kind, start, end, other_start, other_end = changes[0]
        return (
            Deviation(ranks=ranks, behind=end - start)
            if kind == "delete"
            else Deviation(ranks=ranks, ahead=other_end - other_start)
        )
    lines = [
        line
        for _, start, end, other_start, other_end in changes
        for line in (
            *(f"-{text}" for text in majority[1][start:end]),
            *(f"+{text}" for text in deviating[1][other_start:other_end]),
        )
    ]
    return Deviation(ranks=ranks, diff=tuple(lines[:MAX_LINES]), more=max(0, len(lines) - MAX_LINES))
