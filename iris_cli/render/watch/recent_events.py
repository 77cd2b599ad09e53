"""Recent events. Events that differ only in the numbers of names are folded into one line."""

from collections.abc import Iterable

from msgspec import Struct

from iris_cli.core import group_pairs, pattern
from iris_cli.ops.views.history import Entry
from iris_cli.render.tables import fold

# A name with a number that may differ: `v5a-3`, `train/task-3`, or the task's number in `train/task-3/attempt-0`.
_NAME = pattern(r"(.{0,200}?[A-Za-z_.-])([0-9]{1,6})((?:/attempt-[0-9]{1,6})?[,:;]?)")


class RecentEvent(Struct, frozen=True):
    """One event, or several folded events. `at`: time of the newest event."""

    at: float
    text: str


def fold_events(entries: Iterable[Entry]) -> list[RecentEvent]:
    """Fold events. The result has the order in which the first event of each fold occurred."""
    alike = group_pairs(((entry.type, _shape(entry.text)), entry) for entry in entries)
    return [RecentEvent(max(each.at for each in group), _folded_text(group)) for group in alike.values()]


def _shape(text: str) -> tuple[str, ...]:
    """Return the words of an event's text, with `#` in place of the number in a name."""
    return tuple(_parts(word)[0] + "#" + _parts(word)[2] for word in text.split(" "))


def _parts(word: str) -> tuple[str, str, str]:
    """Split a word into name, number and suffix. Number and suffix are empty if the word has no number."""
    match = _NAME.fullmatch(word)
    return (match[1], match[2], match[3]) if match is not None else (word, "", "")


def _folded_text(group: list[Entry]) -> str:
    words = [[_parts(word) for word in entry.text.split(" ")] for entry in group]
    return " ".join(_word(list(each)) for each in zip(*words, strict=True))


def _word(forms: list[tuple[str, str, str]]) -> str:
    stem, _, rest = forms[0]
    numbers = dict.fromkeys(number for _, number, _ in forms)
    if numbers == {"": None}:
        return stem
    return fold(f"{stem}{number}" for number in numbers) + rest
