"""Fold equal lines of several ranks. Consecutive lines of the same ranks form a block."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter

from msgspec import Struct, field

Block = tuple[tuple[int, ...], str]
"""Ranks in ascending order, and the lines that each of them wrote."""


def merge_lines(texts: Mapping[int, str]) -> Iterator[Block]:
    """Merge the lines of ranks. Equal lines of several ranks become one line. The lines of each rank stay in order.

    A rank's next line waits while another rank has the same line later. The lowest rank whose next line need not wait
    comes first; if all must wait, the lowest rank comes first.
    """
    texts = {rank: texts[rank] for rank in sorted(texts) if texts[rank]}
    if len(texts) > 1 and (common := _common_beginning(list(texts.values()))):
        yield tuple(texts), common
        texts = {rank: text[len(common) :] for rank, text in texts.items() if len(text) > len(common)}
    lines = {rank: text.split("\n")[:-1] for rank, text in texts.items()}
    shared = _shared_lines(list(lines.values()))
    if not shared:
        yield from (((rank,), text) for rank, text in texts.items())
        return
    parts = {rank: _parts(each, shared) for rank, each in lines.items()}
    for ranks, group in groupby(_merge(parts), key=itemgetter(0)):
        yield ranks, "".join(text for _, text in group)


def _common_beginning(texts: Sequence[str]) -> str:
    """Return the lines with which all texts begin, by comparing the smallest and the largest text."""
    first, last = min(texts), max(texts)
    same, different = 0, min(len(first), len(last)) + 1
    while different - same > 1:
        middle = (same + different) // 2
        if first.startswith(last[same:middle], same):
            same = middle
        else:
            different = middle
    return first[: first.rfind("\n", 0, same) + 1]


def _shared_lines(lines: Sequence[Sequence[str]]) -> set[str]:
    """Return the lines that more than one rank wrote."""
    if not _has_shared_line(lines):
        return set()
    seen: set[str] = set()
    shared: set[str] = set()
    for each in lines:
        own = set(each)
        shared |= own & seen
        seen |= own
    return shared


def _has_shared_line(lines: Sequence[Sequence[str]]) -> bool:
    """Return whether several ranks wrote the same line. This check is cheaper than `_shared_lines`."""
    seen: set[str] = set()
    for each in lines:
        same = len(seen)
        seen.update(each)
        new = len(seen) - same
        if new != len(each) and new != len(set(each)):
            return True
    return False


def _parts(lines: Sequence[str], shared: set[str]) -> list[str]:
    """Split lines into parts. A shared line is a part; so is each run of lines between shared lines."""
    parts = []
    for is_shared, group in groupby(lines, key=shared.__contains__):
        texts = [f"{line}\n" for line in group]
        parts += texts if is_shared else ["".join(texts)]
    return parts


def _merge(parts: Mapping[int, Sequence[str]]) -> Iterator[Block]:
    rest = {rank: deque(texts) for rank, texts in parts.items()}
    unprinted = {rank: Counter(texts) for rank, texts in rest.items()}
    holders = Counter(text for counts in unprinted.values() for text in counts)
    at_head: defaultdict[str, list[int]] = defaultdict(list)
    for rank, texts in rest.items():
        at_head[texts[0]].append(rank)
    while rest:
        heads = (texts[0] for texts in rest.values())
        ready = (text for text in heads if holders[text] == len(at_head[text]))
        text = next(ready, next(iter(rest.values()))[0])
        ranks = sorted(at_head.pop(text))
        yield tuple(ranks), text
        for rank in ranks:
            rest[rank].popleft()
            unprinted[rank][text] -= 1
            holders[text] -= not unprinted[rank][text]
            if rest[rank]:
                at_head[rest[rank][0]].append(rank)
            else:
                del rest[rank]


class LiveFold(Struct):
    """Folds output that arrives in pieces. The peers of a rank are the ranks that recently wrote the same lines.

    The newest lines of a rank wait for its peers until the next `add`. A rank without peers never waits.
    """

    _waiting_texts: dict[int, str] = field(default_factory=dict)
    _peers: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """By rank, the largest group of ranks, itself included, that wrote the same line in the last `add`."""

    def add(self, texts: Mapping[int, str]) -> list[Block]:
        """Add new texts. Return the blocks to show now, including texts that have waited."""
        waiting_texts, self._waiting_texts = self._waiting_texts, {}
        pending = {
            rank: waiting_texts.get(rank, "") + texts.get(rank, "")
            for rank in sorted(waiting_texts.keys() | texts.keys())
        }
        common = len(_common_beginning(list(pending.values()))) if len(pending) > 1 else 0
        if common and all(common >= len(waiting_texts.get(rank, "")) for rank in pending):
            ranks = tuple(pending)
            self._waiting_texts = {
                rank: text[common:] for rank, text in pending.items() if len(text) > common
            }
            self._peers |= dict.fromkeys(ranks, ranks)
            return [(ranks, pending[ranks[0]][:common])]
        return self._show(list(merge_lines(pending)), {rank: len(text) for rank, text in texts.items()})

    def flush(self) -> list[Block]:
        """Return the blocks that still wait."""
        waiting_texts, self._waiting_texts = self._waiting_texts, {}
        return list(merge_lines(waiting_texts))

    def _show(self, blocks: list[Block], new: dict[int, int]) -> list[Block]:
        """Return the blocks to show. Hold a rank's last block if it is new and a peer may still write the same lines.

        `new`: for each rank, the number of characters that have not waited yet.
        """
        peer_groups = dict(self._peers)
        for ranks, _ in blocks:
            peer_groups |= {rank: ranks for rank in ranks if len(ranks) > len(peer_groups.get(rank, ()))}
        shown: list[Block] = []
        last: dict[int, tuple[int, ...]] = {}
        for ranks, text in reversed(blocks):
            if last.keys().isdisjoint(ranks) and all(len(peer_groups[rank]) > len(ranks) for rank in ranks):
                text = self._hold(ranks, text, new)
            if text:
                shown.append((ranks, text))
                last |= {rank: ranks for rank in ranks if len(ranks) > len(last.get(rank, ()))}
        self._peers |= last
        return shown[::-1]

    def _hold(self, ranks: tuple[int, ...], text: str, new: dict[int, int]) -> str:
        """Hold the end of `text`, as far as it is new for all `ranks`. Return the beginning of `text`."""
        cut = max(0, len(text) - min(new.get(rank, 0) for rank in ranks))
        for rank in ranks:
            self._waiting_texts[rank] = text[cut:] + self._waiting_texts.get(rank, "")
            new[rank] = new.get(rank, 0) - (len(text) - cut)
        return text[:cut]
