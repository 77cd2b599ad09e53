"""Lines that several ranks say alike, joined: whole blocks at a time where nothing has to be decided line by line."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter

from msgspec import Struct, field

Block = tuple[tuple[int, ...], str]
"""The ranks that said it, ascending, and whole lines, each with its line feed."""


def merged(texts: Mapping[int, str]) -> Iterator[Block]:
    """Merge what ranks said: each rank's order stays, and equal lines of several ranks become one.

    A line waits while another rank has the same one still to come; the lowest rank that need not wait goes
    first, and where all wait for each other the lowest of all.
    """
    texts = {rank: texts[rank] for rank in sorted(texts) if texts[rank]}
    if len(texts) > 1 and (common := _common_beginning(list(texts.values()))):
        yield tuple(texts), common
        texts = {rank: text[len(common) :] for rank, text in texts.items() if len(text) > len(common)}
    lines = {rank: text.split("\n")[:-1] for rank, text in texts.items()}
    shared = _shared(list(lines.values()))
    if not shared:
        yield from (((rank,), text) for rank, text in texts.items())
        return
    parts = {rank: _parts(said, shared) for rank, said in lines.items()}
    for ranks, group in groupby(_merge(parts), key=itemgetter(0)):
        yield ranks, "".join(text for _, text in group)


def _common_beginning(texts: Sequence[str]) -> str:
    """The lines with which all begin. What the first and the last in order share, all between them share, too."""
    first, last = min(texts), max(texts)
    known, beyond = 0, min(len(first), len(last)) + 1
    while beyond - known > 1:
        middle = (known + beyond) // 2
        if first.startswith(last[known:middle], known):
            known = middle
        else:
            beyond = middle
    return first[: first.rfind("\n", 0, known) + 1]


def _shared(lines: Sequence[Sequence[str]]) -> set[str]:
    """The lines that several have."""
    if not _any_shared(lines):
        return set()
    seen: set[str] = set()
    shared: set[str] = set()
    for each in lines:
        own = set(each)
        shared |= own & seen
        seen |= own
    return shared


def _any_shared(lines: Sequence[Sequence[str]]) -> bool:
    """Often nothing is: that is known at a third of the cost."""
    seen: set[str] = set()
    for each in lines:
        known = len(seen)
        seen.update(each)
        new = len(seen) - known
        if new != len(each) and new != len(set(each)):
            return True
    return False


def _parts(lines: Sequence[str], shared: set[str]) -> list[str]:
    """Shared lines one by one, and what is between them in one part each: nothing in it waits for anybody."""
    parts = []
    for is_shared, group in groupby(lines, key=shared.__contains__):
        some = [f"{line}\n" for line in group]
        parts += some if is_shared else ["".join(some)]
    return parts


def _merge(parts: Mapping[int, Sequence[str]]) -> Iterator[Block]:
    rest = {rank: deque(texts) for rank, texts in parts.items()}
    left = {rank: Counter(texts) for rank, texts in rest.items()}
    holders = Counter(text for counts in left.values() for text in counts)
    at_head: defaultdict[str, list[int]] = defaultdict(list)
    for rank, texts in rest.items():
        at_head[texts[0]].append(rank)
    while rest:
        heads = (texts[0] for texts in rest.values())
        ready = (text for text in heads if holders[text] == len(at_head[text]))
        text = next(ready, next(iter(rest.values()))[0])
        together = sorted(at_head.pop(text))
        yield tuple(together), text
        for rank in together:
            rest[rank].popleft()
            left[rank][text] -= 1
            holders[text] -= not left[rank][text]
            if rest[rank]:
                at_head[rest[rank][0]].append(rank)
            else:
                del rest[rank]


class LiveFold(Struct):
    """Folds what comes little by little: of ranks that say the same, who is ahead waits for the others.

    It waits for no more than one `add`: then its lines are shown without them. Who says something of its own
    never waits.
    """

    _held: dict[int, str] = field(default_factory=dict)
    _company: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """With whom each rank said what it said last, itself too: of all it said in one `add` the most of them."""

    def add(self, texts: Mapping[int, str]) -> list[Block]:
        """What can be shown now, of these texts and of those that waited."""
        held, self._held = self._held, {}
        said = {rank: held.get(rank, "") + texts.get(rank, "") for rank in sorted(held.keys() | texts.keys())}
        common = len(_common_beginning(list(said.values()))) if len(said) > 1 else 0
        if common and all(common >= len(held.get(rank, "")) for rank in said):
            ranks = tuple(said)
            self._held = {rank: text[common:] for rank, text in said.items() if len(text) > common}
            self._company |= dict.fromkeys(ranks, ranks)
            return [(ranks, said[ranks[0]][:common])]
        return self._show(list(merged(said)), {rank: len(text) for rank, text in texts.items()})

    def flush(self) -> list[Block]:
        """What still waits."""
        held, self._held = self._held, {}
        return list(merged(held))

    def _show(self, blocks: list[Block], new: dict[int, int]) -> list[Block]:
        """Of the last blocks of each rank those stay that are new, and that others may still say.

        `new`: how many characters of each rank did not wait yet.
        """
        company = dict(self._company)
        for ranks, _ in blocks:
            company |= {rank: ranks for rank in ranks if len(ranks) > len(company.get(rank, ()))}
        shown: list[Block] = []
        last: dict[int, tuple[int, ...]] = {}
        for ranks, text in reversed(blocks):
            if last.keys().isdisjoint(ranks) and all(len(company[rank]) > len(ranks) for rank in ranks):
                text = self._hold(ranks, text, new)
            if text:
                shown.append((ranks, text))
                last |= {rank: ranks for rank in ranks if len(ranks) > len(last.get(rank, ()))}
        self._company |= last
        return shown[::-1]

    def _hold(self, ranks: tuple[int, ...], text: str, new: dict[int, int]) -> str:
        """Keep of a text what is new of all of them; the rest comes back."""
        cut = max(0, len(text) - min(new.get(rank, 0) for rank in ranks))
        for rank in ranks:
            self._held[rank] = text[cut:] + self._held.get(rank, "")
            new[rank] = new.get(rank, 0) - (len(text) - cut)
        return text[:cut]
