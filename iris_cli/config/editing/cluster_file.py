"""A `cluster.yaml` to edit: its entries, which are the items of `slices` and `workers`, and the edits.

Text that can't be edited safely is not changed. `by_hand` collects the edits that the user must make instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from iris_cli.config.editing.text_nodes import Edit, TextNode, apply, overlapping, parse_nodes, unified_diff
from iris_cli.config.entry_text import label_value, labelled, listed, quoted
from iris_cli.config.load import load_cluster_config
from iris_cli.config.schema import ClusterConfig, HostConfig
from iris_cli.core.text import pattern
from iris_cli.errors import ConfigError

_PORT = pattern(r"[^:]+(:[0-9]{1,5})")
SLICES = "slices"
WORKERS = "workers"
_KEYS = {SLICES: ("name", "type", "hosts"), WORKERS: ("id", "tpu", "host")}
_COMMENT_OR_BLANK = pattern(r"[ \t]*(#[^\n]*)?\r?\n?")
_END_OF_DOCUMENT = pattern(r"(^|\n)(\.\.\.|---)")


class NotEditable(Exception):  # noqa: N818 - not an error: the caller reports it
    """The text can't be edited safely. The message is the second half of a sentence, after the name of the text."""


def host_edits(text: str, hosts: TextNode, addresses: Sequence[str]) -> list[Edit]:
    """Return the edits that replace the hosts of a list, or a single host, by these addresses. Raises NotEditable."""
    items = hosts.items or (hosts,)
    if len(items) == len(addresses) and not any("[" in _host(each) for each in items):
        pairs = zip(items, addresses, strict=True)
        return [
            _host_edit(each, address)
            for each, address in pairs
            if _host(each).removesuffix(_port(_host(each))) != address
        ]
    if "#" in text[hosts.start : hosts.end] or any(each.pairs for each in items):
        raise NotEditable("has comments or settings in it")
    if hosts.items and not hosts.flow:
        indent = " " * hosts.column
        lines = f"\n{indent}".join(f"- {quoted(each)}" for each in addresses)
        return [Edit(hosts.start, hosts.end, lines)]
    return [Edit(hosts.start, hosts.end, listed(addresses) if len(addresses) > 1 else quoted(addresses[0]))]


def _host(item: TextNode) -> str:
    return item.text("host") if item.pairs else str(item.value)


def _host_edit(item: TextNode, address: str) -> Edit:
    node = item.pairs["host"].value if item.pairs else item
    return Edit(node.start, node.end, quoted(address + _port(_host(item))))


def _port(host: str) -> str:
    """Return the `:22` of a host with a port, otherwise ""."""
    match = _PORT.fullmatch(host)
    return match[1] if match else ""


class Entry(Struct, frozen=True, kw_only=True):
    """One entry: an item of the list `slices` or `workers` (`kind`), and the workers that it defines."""

    kind: str
    name: str
    node: TextNode
    workers: tuple[HostConfig, ...]

    @property
    def type(self) -> str:
        """The canonical TPU type; "" for a single host without a TPU."""
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
        """The labels written by an import, as text."""
        pair = self.node.pairs.get("labels")
        return {key: pair.value.text(key) for key in pair.value.pairs} if pair is not None else {}

    def text_of(self, key: str) -> str:
        """Return the text of a key in the entry or its attributes; "" if neither has it."""
        attributes = self.node.pairs.get("attributes")
        return self.node.text(key) or (attributes.value.text(key) if attributes else "")


class ClusterFile:
    """The text of a file, and the edits to apply. Raises ConfigError for an invalid file."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.path, self.data = path, data
        self.edits: list[Edit] = []
        self.by_hand: list[str] = []
        self._sections: list[Edit] = []  # new sections, written after other edits at the end
        self._edited: set[str] = set()
        self.config = load_cluster_config(self.path, self.data)
        self._mark = "\ufeff" if self.data.startswith(b"\xef\xbb\xbf") else ""
        self.text = self.data.decode("utf-8-sig")
        self._break = "\r\n" if "\r\n" in self.text else "\n"
        self._root = parse_nodes(self.text)
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

    def _list(self, kind: str) -> tuple[TextNode, ...]:
        pair = self._root.pairs.get(kind)
        return pair.value.items if pair is not None else ()

    # Changes

    def add(self, kind: str, entries: Sequence[Sequence[str]]) -> None:
        """Add entries after the existing ones. An entry is a list of lines, the first of which begins with a dash."""
        try:
            self._add(kind, entries)
        except NotEditable as reason:
            lines = [f"  {line}" for each in entries for line in each]
            self._add_by_hand(f"under {kind}, which {reason}", lines)

    def _add(self, kind: str, entries: Sequence[Sequence[str]]) -> None:
        if self._root.flow:
            raise NotEditable("can't be written in a file that is one { }")
        pair = self._root.pairs.get(kind)
        if pair is None:
            gap = [""] * (not self.text.endswith("\n\n"))
            self._sections.append(self._lines(self._end(), [*gap, f"{kind}:", *_indented(entries, 2)]))
        elif pair.value.items and pair.value.flow:
            raise NotEditable("is written in [ ]")
        elif pair.value.items:
            column = pair.value.column
            end = self._after_item(pair.value.end, column)
            self.edits.append(self._lines(end, _indented(entries, column)))
        else:
            if "\n" in self.text[pair.value.start : pair.value.end]:
                raise NotEditable("is an empty list of several lines")
            self.edits.append(Edit(pair.value.start, pair.value.end, ""))
            self.edits.append(self._lines(self._line_end(pair.value.end), _indented(entries, 2)))

    def set_text(self, entry: Entry, key: str, value: str) -> None:
        """Set a key of an entry to this text."""
        self._set(entry, key, quoted(value))

    def set_flag(self, entry: Entry, key: str, *, value: bool) -> None:
        self._set(entry, key, "true" if value else "false")

    def rename(self, entry: Entry, name: str) -> Entry:
        """Rename an entry and return it."""
        self._set(entry, _KEYS[entry.kind][0], quoted(name))
        return replace(entry, name=name)

    def set_type(self, entry: Entry, value: str) -> None:
        self._set(entry, _KEYS[entry.kind][1], quoted(value))

    def _set(self, entry: Entry, key: str, text: str) -> None:
        self._edited.add(entry.name)
        pair = entry.node.pairs.get(key)
        anchor = entry.node.pairs[_KEYS[entry.kind][2]].value
        if pair is not None:
            gap = "" if pair.value.end > pair.value.start else " "
            self.edits.append(Edit(pair.value.start, pair.value.end, gap + text))
        elif entry.node.flow:
            end = entry.node.end - 1  # before the closing brace
            last = max(each.value.end for each in entry.node.pairs.values())
            self.edits.append(Edit(min(last, end), min(last, end), f", {key}: {text}"))
        else:
            line = f"{' ' * entry.node.column}{key}: {text}"
            self.edits.append(self._lines(self._line_end(anchor.end), [line]))

    def set_labels(self, entry: Entry, labels: Mapping[str, str]) -> None:
        """Set the labels of an entry. If the keys are the same, only values are edited."""
        pair = entry.node.pairs.get("labels")
        before = entry.labels
        if pair is not None and before and before.keys() == labels.keys():
            self._edited.add(entry.name)
            for key, label in pair.value.pairs.items():
                if before[key] != labels[key]:
                    gap = " " * (label.value.start == label.value.end)
                    self.edits.append(
                        Edit(label.value.start, label.value.end, gap + label_value(labels[key]))
                    )
        elif pair is not None and not pair.value.flow and "#" in self.text[pair.value.start : pair.value.end]:
            self._add_by_hand(
                f"in {entry.name}, where labels has comments in it", [f"labels: {labelled(labels)}"]
            )
        else:
            self._set(entry, "labels", labelled(labels))

    def set_addresses(self, entry: Entry, addresses: Sequence[str]) -> None:
        """Set the addresses of an entry's hosts, in order. Ports are kept."""
        self._edited.add(entry.name)
        try:
            self.edits += host_edits(self.text, entry.node.pairs[_KEYS[entry.kind][2]].value, addresses)
        except NotEditable as reason:
            self._add_by_hand(
                f"in {entry.name}, where the list {reason}", [f"hosts: [{', '.join(addresses)}]"]
            )

    def remove(self, entry: Entry) -> None:
        """Remove an entry with the comments inside it. Comments above it are kept."""
        self._edited.add(entry.name)
        section = self._root.pairs[entry.kind].value
        if section.flow:
            self._add_by_hand(f"{entry.kind} is written in [ ]", [f"without {entry.name}"])
            return
        start = self._dash(entry.node.start, section.column)
        self.edits.append(Edit(start, self._after_item(entry.node.end, section.column), ""))

    def _add_by_hand(self, where: str, lines: Sequence[str]) -> None:
        self.by_hand += [f"{where}:", *lines]

    # The result

    def new_text(self) -> str:
        return apply(self.text, self._all())

    def _all(self) -> list[Edit]:
        return [*self.edits, *self._sections]

    def diff(self) -> list[str]:
        """Return the edits in the format of `diff -u`."""
        return unified_diff(self.text, self._all(), self.path.name)

    def outcome(
        self, addresses: Mapping[str, tuple[str, ...]], labels: Mapping[str, Mapping[str, str]] | None = None
    ) -> tuple[bytes, ClusterConfig]:
        """Return the new content and its configuration.

        Raises ConfigError if the new content is invalid or not as intended: edited entries must have these addresses
        and labels, and all other entries must be unchanged.
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
            (each.kind, each.name): each.workers for each in self.entries if each.name not in self._edited
        }
        after = {(each.kind, each.name): each.workers for each in found.entries}
        new_addresses = {each.name: each.addresses for each in found.entries}
        new_labels = {each.name: each.labels for each in found.entries}
        if (
            _without_hosts(found.config) != _without_hosts(self.config)
            or any(after.get(key) != workers for key, workers in before.items())
            or any(new_addresses.get(name) != wanted for name, wanted in addresses.items())
            or any(new_labels.get(name) != wanted for name, wanted in (labels or {}).items())
        ):
            raise _not_safe(self.path)
        return data, found.config

    # Positions in the text

    def _line_end(self, position: int) -> int:
        """Return the position after the line feed of a line, or the end of the text."""
        end = self.text.find("\n", position)
        return len(self.text) if end < 0 else end + 1

    def _after_item(self, position: int, column: int) -> int:
        """Return the position after the item and its comments. The item ends at `position`, its dash is in `column`."""
        end = at = self._line_end(position)
        while at < len(self.text):
            after = self._line_end(at)
            line = self.text[at:after]
            if not _COMMENT_OR_BLANK.fullmatch(line):
                break
            at = after
            if line.strip() and len(line) - len(line.lstrip(" ")) > column:
                end = after
        return end

    def _dash(self, position: int, column: int) -> int:
        """Return the start of the line with the dash of the item around `position`. `column` is the dash's column."""
        start = self.text.rfind("\n", 0, position) + 1
        while self.text[start : start + column].strip() or self.text[start + column] != "-":
            start = self.text.rfind("\n", 0, start - 1) + 1
        return start

    def _end(self) -> int:
        """Return the end of the document."""
        last = self._root.end
        found = _END_OF_DOCUMENT.search(self.text, last)
        return self._line_end(last) if found else len(self.text)

    def _lines(self, position: int, lines: Sequence[str]) -> Edit:
        """Return an edit that inserts lines at `position`, the beginning of a line or the end of the text."""
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
