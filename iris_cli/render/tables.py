"""Tables, banners and folded names. Text from users, workers and files is never interpreted as markup or escapes."""

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from iris_cli.clock import iso_time, local_minute
from iris_cli.core import format_duration, format_indexes, group_pairs
from iris_cli.ops.views.cycles import Cycles, cycles_words
from iris_cli.render.layout import Table, Text, clean, clean_line

if TYPE_CHECKING:
    from iris_cli.core.scheduling import ExpectedStart

T = TypeVar("T")

NARROW = 80  # width in columns below which tables omit less important columns

FOLD_ABOVE = 16  # maximum number of tasks or attempts that get a line each; more of them are folded

STYLES = {
    "RUNNING": "green",
    "SUCCEEDED": "dim",
    "FAILED": "bold red",
    "WORKER_FAILED": "red",
    "UNSCHEDULABLE": "bold red",
    "KILLED": "dim",
    "PENDING": "yellow",
    "ASSIGNED": "cyan",
    "STOPPING": "yellow",
    "RETRYING": "yellow",
    "STOPPED": "dim",
    "healthy": "green",
    "lost": "bold red",
    "untrusted": "bold red",
    "auth_failed": "red",
    "quarantined": "red",
    "unusable": "red",
    "suspect": "yellow",
    "cooling": "yellow",
    "stopping": "yellow",
}

_RIGHT = frozenset({"AGE", "RAN", "VMS FREE", "ATTEMPT", "SEQ"})
_COLOURED = frozenset({"STATE", "STATUS"})

Row = tuple[str, ...]
_MAX_DIGITS = 9  # in the number at the end of a name
MAX_PARTS = 6


def table(
    headers: Sequence[str],
    rows: Iterable[Row],
    *,
    only: Collection[str] = (),
    right: Collection[str] = _RIGHT,
) -> Table:
    """Return a table of one-line cells. `only`: headers of the columns to show (default: all).

    `right`: headers of the columns that are aligned right. A column without text in any row is omitted.
    """
    rows = list(rows)
    shown = [
        (column, header)
        for column, header in enumerate(headers)
        if (not only or header in only) and any(row[column] for row in rows)
    ]
    return Table(
        headers=[header for _, header in shown],
        right=[header in right for _, header in shown],
        rows=[
            [state(row[column]) if header in _COLOURED else text(row[column]) for column, header in shown]
            for row in rows
        ],
    )


def resubmission_words(origin: str | None, resubmissions: Sequence[str]) -> str:
    """Return `resubmitted as train-2`, or `resubmission of train`, or '' for a job that was never resubmitted."""
    if resubmissions:
        return f"resubmitted as {fold(resubmissions)}"
    return f"resubmission of {origin}" if origin is not None else ""


def folded_rows(
    rows: Iterable[T], name: Callable[[T], str], cells: Callable[[T], Row], per_row: Collection[int] = ()
) -> list[Row]:
    """Return the rows, with one folded row for all rows that differ only in name. The first cell has the folded names.

    `per_row`: indexes of the columns whose value belongs to one row. In a folded row these values end with `each`.
    """
    return [
        (
            fold(names),
            *(
                f"{cell} each" if column in per_row and len(names) > 1 and cell not in ("", "-") else cell
                for column, cell in enumerate(line, 1)
            ),
        )
        for line, names in group_pairs((cells(row), name(row)) for row in rows).items()
    ]


def facts(pairs: Iterable[tuple[str, str]]) -> Table:
    """Return a table of labels and contents, without the pairs that have no content."""
    return Table(
        styles=("dim", ""), rows=[(text(label), text(content)) for label, content in pairs if content]
    )


def text(content: str, style: str = "") -> Text:
    """Return untrusted text as one line."""
    return Text(((clean_line(content), style),))


def block(content: str, style: str = "") -> Text:
    """Return untrusted text of several lines."""
    return Text(((clean(content), style),))


def state(word: str) -> Text:
    """Return a state, a display or a condition in the colour of its first word."""
    return Text(((clean_line(word), style_of(word)),), no_wrap=True)


def style_of(word: str) -> str:
    return STYLES.get(word.partition(" ")[0], "")


def clock_time(at: float | None) -> str:
    """Return a time in UTC: `2026-11-20 14:03:09`; '' for None, `?` if out of range."""
    if at is None:
        return ""
    try:
        return iso_time(at)[:19].replace("T", " ")
    except OverflowError:
        return "?"


def expected_words(expected: "ExpectedStart | None", now: float) -> str:
    """Return `not before 14:31 CET (estimate): train ends by its time limit`, in local time; '' for None."""
    if expected is None:
        return ""
    start = local_minute(expected.not_before_at, now)
    ends = "ends by its time limit" if len(expected.jobs) == 1 else "end by their time limits"
    return f"not before {start} (estimate): {fold(expected.jobs)} {ends}"


def duration(seconds: float | None) -> str:
    """Return a duration in seconds as text: `2h10m`; '' for None."""
    return "" if seconds is None else format_duration(seconds)


def duration_range(durations: Sequence[float]) -> str:
    """Return the shortest and the longest duration: `1m to 11m`, or `1m` if both are shown alike; '' without any."""
    if not durations:
        return ""
    shortest, longest = duration(min(durations)), duration(max(durations))
    return shortest if shortest == longest else f"{shortest} to {longest}"


def time_range(times: Sequence[float]) -> str:
    """Return the first and the last time in UTC: `2026-11-20 14:03:09 to 14:05:00`, or one time if both are equal."""
    first, last = clock_time(min(times)), clock_time(max(times))
    same_day = first.split(" ")[0] == last.split(" ")[0]
    return first if first == last else f"{first} to {last.split(' ')[-1] if same_day else last}"


def fold(names: Iterable[str], max_parts: int = MAX_PARTS) -> str:
    """Fold names that differ only in the number at their end: `w-[0-3,7], v`. The part before the number is the stem.

    Stems keep the order of first appearance; numbers ascend. After `max_parts` stems, and after `max_parts` ranges of
    numbers of a stem, an ellipsis follows. Leading zeros belong to the stem: `w-01` does not become `w-1`.
    """
    stems: dict[tuple[str, bool], set[int]] = {}
    for name in names:
        digits = name[len(name.rstrip("0123456789")) :]
        if not digits:
            stems[name, False] = set()
            continue
        number = digits[-_MAX_DIGITS:].lstrip("0") or "0"
        stems.setdefault((name[: -len(number)], True), set()).add(int(number))
    shown = islice(stems.items(), max_parts)
    words = [_folded_word(stem, numbers, max_parts) for (stem, _), numbers in shown]
    return ", ".join(words) + (", …" if len(stems) > max_parts else "")


def group_by_text(pairs: Iterable[tuple[str, str]]) -> list[tuple[list[str], str]]:
    """Group pairs of name and text by text, in the order of first appearance."""
    names = group_pairs((content, name) for name, content in pairs)
    return [(group, content) for content, group in names.items()]


def _folded_word(stem: str, numbers: set[int], max_parts: int) -> str:
    runs = format_indexes(sorted(numbers)).split(",")
    if len(numbers) < 2:
        return stem + "".join(runs)
    return f"{stem}[{','.join(runs[:max_parts])}{',…' if len(runs) > max_parts else ''}]"


def banner(messages: Sequence[str], cycles: Cycles | None) -> list[Text]:
    """Return a line for each problem of the log and of the background loop, to print before a view."""
    troubles = [f"background loop: {each}" for each in cycles.troubles] if cycles else []
    return [text(each, "bold red") for each in (*messages, *troubles)]


def cycle_words(cycles: Cycles | None, at: float) -> Text:
    """Return what runs cycles, and the age of the last cycle. If `cycles` is None (a view of the past), return `at`."""
    if cycles is None:
        return text(f"as of {clock_time(at)} UTC", "yellow")
    is_fine = cycles.has_next_cycle or not (cycles.needed or cycles.last is None)
    return text(cycles_words(cycles), "dim" if is_fine else "bold red")


def cycle_parts(cycles: Cycles | None, at: float) -> tuple[str, Text]:
    """Return a separator and `cycle_words`. The separator is a line break; in a view of the past it is two blanks."""
    return "  " if cycles is None else "\n", cycle_words(cycles, at)


def next_line(command: str) -> Text:
    """Return the line that names the command to type next."""
    return Text.assemble(("next: ", "dim"), text(command))
