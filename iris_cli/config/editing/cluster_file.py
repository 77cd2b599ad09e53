"""A `cluster.yaml` that is to be changed: its entries as they are written, and edits of them.

What is written in a way that can't be changed safely is left as it is, and what to write there is kept in `by_hand`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from iris_cli.config.editing.marked import Edit, Marked, apply, marked, overlapping, unified_diff
from iris_cli.config.entry_text import label_value, labelled, listed, quoted
from iris_cli.config.load import load_cluster_config
from iris_cli.config.schema import ClusterConfig, HostConfig
from iris_cli.core.text import pattern
from iris_cli.errors import ConfigError

_PORT = pattern(r"[^:]+(:[0-9]{1,5})")
SLICES = "slices"
WORKERS = "workers"
_KEYS = {SLICES: ("name", "type", "hosts"), WORKERS: ("id", "tpu", "host")}
_COMMENT_OR_NOTHING = pattern(r"[ \t]*(#[^\n]*)?\r?\n?")
_END_OF_DOCUMENT = pattern(r"(^|\n)(\.\.\.|---)")


class Unusual(Exception):  # noqa: N818 - not an error: the caller reports it
    """Text that can't be edited safely; the message completes a sentence that begins with its name."""


def host_edits(text: str, hosts: Marked, addresses: Sequence[str]) -> list[Edit]:
    """The list, or the one host, says these addresses. Raises Unusual."""
    items = hosts.items or (hosts,)
    if len(items) == len(addresses) and not any("[" in _host(each) for each in items):
        pairs = zip(items, addresses, strict=True)
        return [
            _one(each, address)
            for each, address in pairs
            if _host(each).removesuffix(_port(_host(each))) != address
        ]
    if "#" in text[hosts.start : hosts.end] or any(each.pairs for each in items):
        raise Unusual("has comments or settings in it")
    if hosts.items and not hosts.flow:
        indent = " " * hosts.column
        lines = f"\n{indent}".join(f"- {quoted(each)}" for each in addresses)
        return [Edit(hosts.start, hosts.end, lines)]
    return [Edit(hosts.start, hosts.end, listed(addresses) if len(addresses) > 1 else quoted(addresses[0]))]


def _host(item: Marked) -> str:
    return item.text("host") if item.pairs else str(item.value)


def _one(item: Marked, address: str) -> Edit:
    place = item.pairs["host"].value if item.pairs else item
    return Edit(place.start, place.end, quoted(address + _port(_host(item))))


def _port(host: str) -> str:
    """`:22` of a host with a port, else ''."""
    match = _PORT.fullmatch(host)
    return match[1] if match else ""


class Entry(Struct, frozen=True, kw_only=True):
    """One entry of `slices` or `workers`, and the workers that it is."""

    kind: str
    name: str
    node: Marked
    workers: tuple[HostConfig, ...]

    @property
    def type(self) -> str:
        """Canonically spelled; '' for a single host without a TPU."""
        device = self.workers[0].device
        return device.variant if device is not None and device.kind == "tpu" else ""

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(worker.connection.host for worker in self.workers)

    @property
    def incarnation(self) -> str:
        return self.node.text("incarnation")

    @property
    def labels(self) -> dict[str, str]:
        """The labels that an import wrote, as text."""
        pair = self.node.pairs.get("labels")
        return {key: pair.value.text(key) for key in pair.value.pairs} if pair is not None else {}

    def says(self, key: str) -> str:
        """What is written for a key, in the entry or under its attributes; '' for nothing."""
        attributes = self.node.pairs.get("attributes")
        return self.node.text(key) or (attributes.value.text(key) if attributes else "")


class ClusterFile:
    """The text of a file, and the edits of it so far. Raises ConfigError for one that is not valid."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.path, self.data = path, data
        self.edits: list[Edit] = []
        self.by_hand: list[str] = []
        self._sections: list[Edit] = []  # new ones, behind all else that is new at the end
        self._touched: set[str] = set()
        self.config = load_cluster_config(self.path, self.data)
        self._mark = "\ufeff" if self.data.startswith(b"\xef\xbb\xbf") else ""
        self.text = self.data.decode("utf-8-sig")
        self._break = "\r\n" if "\r\n" in self.text else "\n"
        self._root = marked(self.text)
        self.entries = self._entries()

    def _entries(self) -> list[Entry]:
        members: dict[tuple[str, str], list[HostConfig]] = {}
        for host in self.config.hosts:
            is_member = host.slice is not None and host.worker != host.slice
            key = (SLICES, str(host.slice)) if is_member else (WORKERS, host.worker)
            members.setdefault(key, []).append(host)
        found = []
        for kind, (name_key, _, _) in _KEYS.items():
            for node in self._list(kind):
                name = node.text(name_key)
                found.append(Entry(kind=kind, name=name, node=node, workers=tuple(members[kind, name])))
        return found

    def _list(self, kind: str) -> tuple[Marked, ...]:
        pair = self._root.pairs.get(kind)
        return pair.value.items if pair is not None else ()

    # Changes

    def add(self, kind: str, entries: Sequence[Sequence[str]]) -> None:
        """New entries behind those that are there; each as lines, its dash at the start of the first."""
        try:
            self._add(kind, entries)
        except Unusual as unusual:
            lines = [f"  {line}" for each in entries for line in each]
            self._refuse(f"under {kind}, which {unusual}", lines)

    def _add(self, kind: str, entries: Sequence[Sequence[str]]) -> None:
        if self._root.flow:
            raise Unusual("can't be written in a file that is one { }")
        pair = self._root.pairs.get(kind)
        if pair is None:
            gap = [""] * (not self.text.endswith("\n\n"))
            self._sections.append(self._lines(self._end(), [*gap, f"{kind}:", *_indented(entries, 2)]))
        elif pair.value.items and pair.value.flow:
            raise Unusual("is written in [ ]")
        elif pair.value.items:
            column = pair.value.column
            self.edits.append(self._lines(self._behind(pair.value.end, column), _indented(entries, column)))
        else:
            if "\n" in self.text[pair.value.start : pair.value.end]:
                raise Unusual("is an empty list of several lines")
            self.edits.append(Edit(pair.value.start, pair.value.end, ""))
            self.edits.append(self._lines(self._line_end(pair.value.end), _indented(entries, 2)))

    def set_text(self, entry: Entry, key: str, value: str) -> None:
        """A key of an entry says this text from now on."""
        self._set(entry, key, quoted(value))

    def set_flag(self, entry: Entry, key: str, *, value: bool) -> None:
        self._set(entry, key, "true" if value else "false")

    def rename(self, entry: Entry, name: str) -> Entry:
        """The entry under another name."""
        self._set(entry, _KEYS[entry.kind][0], quoted(name))
        return replace(entry, name=name)

    def set_type(self, entry: Entry, value: str) -> None:
        self._set(entry, _KEYS[entry.kind][1], quoted(value))

    def _set(self, entry: Entry, key: str, written: str) -> None:
        self._touched.add(entry.name)
        pair = entry.node.pairs.get(key)
        anchor = entry.node.pairs[_KEYS[entry.kind][2]].value
        if pair is not None:
            gap = "" if pair.value.end > pair.value.start else " "
            self.edits.append(Edit(pair.value.start, pair.value.end, gap + written))
        elif entry.node.flow:
            end = entry.node.end - 1  # the brace
            last = max(each.value.end for each in entry.node.pairs.values())
            self.edits.append(Edit(min(last, end), min(last, end), f", {key}: {written}"))
        else:
            line = f"{' ' * entry.node.column}{key}: {written}"
            self.edits.append(self._lines(self._line_end(anchor.end), [line]))

    def set_labels(self, entry: Entry, labels: Mapping[str, str]) -> None:
        """The labels of an entry are these from now on. Values change in place if the names stay."""
        pair = entry.node.pairs.get("labels")
        before = entry.labels
        if pair is not None and before and before.keys() == labels.keys():
            self._touched.add(entry.name)
            for key, label in pair.value.pairs.items():
                if before[key] != labels[key]:
                    gap = " " * (label.value.start == label.value.end)
                    self.edits.append(
                        Edit(label.value.start, label.value.end, gap + label_value(labels[key]))
                    )
        elif pair is not None and not pair.value.flow and "#" in self.text[pair.value.start : pair.value.end]:
            self._refuse(f"in {entry.name}, where labels has comments in it", [f"labels: {labelled(labels)}"])
        else:
            self._set(entry, "labels", labelled(labels))

    def set_addresses(self, entry: Entry, addresses: Sequence[str]) -> None:
        """The hosts of an entry are these from now on, in order; their ports stay."""
        self._touched.add(entry.name)
        try:
            self.edits += host_edits(self.text, entry.node.pairs[_KEYS[entry.kind][2]].value, addresses)
        except Unusual as unusual:
            self._refuse(f"in {entry.name}, where the list {unusual}", [f"hosts: [{', '.join(addresses)}]"])

    def remove(self, entry: Entry) -> None:
        """An entry with the comments in it; those above it stay."""
        self._touched.add(entry.name)
        whole = self._root.pairs[entry.kind].value
        if whole.flow:
            self._refuse(f"{entry.kind} is written in [ ]", [f"without {entry.name}"])
            return
        start = self._dash(entry.node.start, whole.column)
        self.edits.append(Edit(start, self._behind(entry.node.end, whole.column), ""))

    def _refuse(self, where: str, lines: Sequence[str]) -> None:
        self.by_hand += [f"{where}:", *lines]

    # The outcome

    def new_text(self) -> str:
        return apply(self.text, self._all())

    def _all(self) -> list[Edit]:
        return [*self.edits, *self._sections]

    def diff(self) -> list[str]:
        """The edits as `diff -u` shows them."""
        return unified_diff(self.text, self._all(), self.path.name)

    def outcome(
        self, addresses: Mapping[str, tuple[str, ...]], labels: Mapping[str, Mapping[str, str]] | None = None
    ) -> tuple[bytes, ClusterConfig]:
        """The new file, and what it says.

        Raises ConfigError if that would not be valid, or is not what was meant: each entry that was touched has these
        addresses and labels, and all that was not is as it was.
        """
        data = (self._mark + self.new_text()).encode("utf-8")
        if overlapping(self._all()):
            raise _not_safe(self.path)
        try:
            found = ClusterFile(self.path, data)
        except ConfigError as error:
            message = f"{self.path} would become invalid"
            raise ConfigError(message, problems=error.problems, hint=error.hint) from error
        before = {
            (each.kind, each.name): each.workers for each in self.entries if each.name not in self._touched
        }
        after = {(each.kind, each.name): each.workers for each in found.entries}
        is_written = {each.name: each.addresses for each in found.entries}
        has_labels = {each.name: each.labels for each in found.entries}
        if (
            _without_hosts(found.config) != _without_hosts(self.config)
            or any(after.get(key) != workers for key, workers in before.items())
            or any(is_written.get(name) != wanted for name, wanted in addresses.items())
            or any(has_labels.get(name) != wanted for name, wanted in (labels or {}).items())
        ):
            raise _not_safe(self.path)
        return data, found.config

    # Places in the text

    def _line_end(self, position: int) -> int:
        """Behind the line feed of a line, or at the end of the text."""
        end = self.text.find("\n", position)
        return len(self.text) if end < 0 else end + 1

    def _behind(self, position: int, column: int) -> int:
        """Behind the last line of an item whose dash is in this column, and behind its own comments."""
        end = at = self._line_end(position)
        while at < len(self.text):
            after = self._line_end(at)
            line = self.text[at:after]
            if not _COMMENT_OR_NOTHING.fullmatch(line):
                break
            at = after
            if line.strip() and len(line) - len(line.lstrip(" ")) > column:
                end = after
        return end

    def _dash(self, position: int, column: int) -> int:
        """The start of the line with the dash of an item."""
        start = self.text.rfind("\n", 0, position) + 1
        while self.text[start : start + column].strip() or self.text[start + column] != "-":
            start = self.text.rfind("\n", 0, start - 1) + 1
        return start

    def _end(self) -> int:
        """Where the document ends."""
        last = self._root.end
        found = _END_OF_DOCUMENT.search(self.text, last)
        return self._line_end(last) if found else len(self.text)

    def _lines(self, position: int, lines: Sequence[str]) -> Edit:
        """Lines before the one that begins at the position."""
        text = "".join(line + self._break for line in lines)
        if position == len(self.text) and self.text and not self.text.endswith("\n"):
            text = self._break + text.removesuffix(self._break)
        return Edit(position, position, text)


def _indented(entries: Sequence[Sequence[str]], column: int) -> list[str]:
    return [" " * column + line for entry in entries for line in entry]


def _without_hosts(config: ClusterConfig) -> ClusterConfig:
    return replace(config, hosts=(), warnings=())


def _not_safe(path: Path) -> ConfigError:
    return ConfigError(f"{path} can't be edited safely", hint="edit it by hand")
