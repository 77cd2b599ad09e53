"""A `cluster.yaml` to edit. Its entries are the items of the lists `slices` and `workers`.

iris does not change text that it can't edit safely. Then the user must edit the file: `by_hand` lists these edits.
"""

import difflib
from collections.abc import Mapping, Sequence
from io import StringIO
from itertools import pairwise
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from iris_cli.config.load import load_cluster_config
from iris_cli.config.schema import ClusterConfig, HostConfig
from iris_cli.config.yaml_source import Node, Report, read_yaml
from iris_cli.config.yaml_text import format_label, format_labels, format_list, quote
from iris_cli.core.text import pattern
from iris_cli.errors import ConfigError

_PORT = pattern(r"[^:]+(:[0-9]{1,5})")
SLICES = "slices"
WORKERS = "workers"
_KEYS = {SLICES: ("name", "type", "hosts"), WORKERS: ("id", "tpu", "host")}
"""For each kind of entry, the keys with the entry's name, its TPU type and its addresses."""
_COMMENT_OR_BLANK = pattern(r"[ \t]*(#[^\n]*)?\r?\n?")
_END_OF_DOCUMENT = pattern(r"(^|\n)(\.\.\.|---)")


class Edit(Struct, frozen=True):
    """Replace the text from `start` to `end` by `text`."""

    start: int
    end: int
    text: str


def apply_edits(text: str, edits: Sequence[Edit]) -> str:
    """Return the text with all edits applied. Edits at the same position are applied in order."""
    pieces, position = [], 0
    for edit in _sorted_edits(edits):
        pieces += [text[position : edit.start], edit.text]
        position = edit.end
    return "".join([*pieces, text[position:]])


def have_overlap(edits: Sequence[Edit]) -> bool:
    return any(before.end > after.start for before, after in pairwise(_sorted_edits(edits)))


def _sorted_edits(edits: Sequence[Edit]) -> list[Edit]:
    return sorted(edits, key=lambda edit: (edit.start, edit.end))


def unified_diff(text: str, edits: Sequence[Edit], name: str) -> list[str]:
    """Return the edits in the format of `diff -u`, line by line; [] if nothing changes."""
    # StringIO splits only at line feeds, unlike `splitlines`.
    old, new = StringIO(text), StringIO(apply_edits(text, edits))
    shown: list[str] = []
    for line in difflib.unified_diff([*old], [*new], name if text else "/dev/null", name):
        shown.append(line.removesuffix("\n").removesuffix("\r"))
        if not line.endswith("\n"):
            shown.append("\\ No newline at end of file")
    return shown


class NotEditable(Exception):  # noqa: N818 - not an error: the caller reports it
    """A part of the file can't be edited safely. The message is a predicate, such as `is written in [ ]`."""


def host_edits(text: str, hosts: Node, addresses: Sequence[str]) -> list[Edit]:
    """Return the edits that replace the addresses of `hosts`, a list or a single host. Raises NotEditable."""
    items = hosts.items or (hosts,)
    nodes = [each.entries.get("host", each) for each in items]
    if len(nodes) == len(addresses) and not any("[" in node.text for node in nodes):
        found = [(node, address + _port(node.text)) for node, address in zip(nodes, addresses, strict=True)]
        return [Edit(node.start, node.end, quote(text)) for node, text in found if node.text != text]
    if "#" in text[hosts.start : hosts.end] or any(each.entries for each in items):
        raise NotEditable("has comments or settings in it")
    if hosts.items and not hosts.flow:
        indent = " " * hosts.column
        lines = f"\n{indent}".join(f"- {quote(each)}" for each in addresses)
        return [Edit(hosts.start, hosts.end, lines)]
    return [
        Edit(hosts.start, hosts.end, format_list(addresses) if len(addresses) > 1 else quote(addresses[0]))
    ]


def _port(host: str) -> str:
    """Return the port of a host with its colon, such as `:22`; "" if the host has no port."""
    match = _PORT.fullmatch(host)
    return match[1] if match else ""


class Entry(Struct, frozen=True, kw_only=True):
    """One item of the list `slices` or `workers`. `kind`: the list. `workers`: the workers that the item defines."""

    kind: str
    name: str
    node: Node
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
        return self.node.text_of("incarnation")

    @property
    def labels(self) -> dict[str, str]:
        """The labels written by an import, as text."""
        labels = self.node.entries.get("labels")
        return {key: labels.text_of(key) for key in labels.entries} if labels is not None else {}

    def text_of(self, key: str) -> str:
        """Return the text of a key in the entry or in its attributes; "" if neither has the key."""
        attributes = self.node.entries.get("attributes")
        return self.node.text_of(key) or (attributes.text_of(key) if attributes else "")


class ClusterFile:
    """The text of a file, and the edits to apply. Raises ConfigError for an invalid file."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.path = path
        self.edits: list[Edit] = []
        self.by_hand: list[str] = []
        self._sections: list[Edit] = []  # new sections, written after other edits at the end of the file
        self._edited: set[str] = set()  # names of entries
        self.config = load_cluster_config(path, data)
        self._byte_order_mark = "\ufeff" if data.startswith(b"\xef\xbb\xbf") else ""
        self.text = data.decode("utf-8-sig")
        self._line_break = "\r\n" if "\r\n" in self.text else "\n"
        self._root = read_yaml(path, Report(path), data) or Node(1, {})
        self.entries = self._entries()

    def _entries(self) -> list[Entry]:
        members: dict[tuple[str, str], list[HostConfig]] = {}
        for host in self.config.hosts:
            is_member = host.slice is not None and host.worker != host.slice
            key = (SLICES, str(host.slice)) if is_member else (WORKERS, host.worker)
            members.setdefault(key, []).append(host)
        found = []
        for kind, (name_key, _, _) in _KEYS.items():
            section = self._root.entries.get(kind)
            for node in section.items if section is not None else ():
                name = node.text_of(name_key)
                found.append(Entry(kind=kind, name=name, node=node, workers=tuple(members[kind, name])))
        return found

    # Changes

    def add(self, kind: str, entries: Sequence[Sequence[str]]) -> None:
        """Add entries after the existing entries. Each new entry is a list of lines with a dash in the first line."""
        try:
            self._add(kind, entries)
        except NotEditable as reason:
            lines = [f"  {line}" for each in entries for line in each]
            self._add_by_hand(f"under {kind}, which {reason}", lines)

    def _add(self, kind: str, entries: Sequence[Sequence[str]]) -> None:
        if self._root.flow:
            raise NotEditable("can't be written in a file that is one { }")
        section = self._root.entries.get(kind)
        if section is None:
            gap = [""] * (not self.text.endswith("\n\n"))
            self._sections.append(
                self._insertion(self._document_end(), [*gap, f"{kind}:", *_indent(entries, 2)])
            )
        elif section.items and section.flow:
            raise NotEditable("is written in [ ]")
        elif section.items:
            end = self._item_end(section.end, section.column)
            self.edits.append(self._insertion(end, _indent(entries, section.column)))
        else:
            if "\n" in self.text[section.start : section.end]:
                raise NotEditable("is an empty list of several lines")
            self.edits.append(Edit(section.start, section.end, ""))
            self.edits.append(self._insertion(self._line_end(section.end), _indent(entries, 2)))

    def set_value(self, entry: Entry, key: str, value: str | bool) -> None:
        """Set a key of an entry to this text, or to `true` or `false`."""
        self._set(entry, key, quote(value) if isinstance(value, str) else str(value).lower())

    def rename(self, entry: Entry, name: str) -> Entry:
        self._set(entry, _KEYS[entry.kind][0], quote(name))
        return replace(entry, name=name)

    def set_type(self, entry: Entry, value: str) -> None:
        self._set(entry, _KEYS[entry.kind][1], quote(value))

    def _set(self, entry: Entry, key: str, text: str) -> None:
        self._edited.add(entry.name)
        value = entry.node.entries.get(key)
        if value is not None:
            self.edits.append(_value_edit(value, text))
        elif entry.node.flow:
            last = max(each.end for each in entry.node.entries.values())
            end = min(last, entry.node.end - 1)  # before the closing brace
            self.edits.append(Edit(end, end, f", {key}: {text}"))
        else:
            line = f"{' ' * entry.node.column}{key}: {text}"
            self.edits.append(self._insertion(self._line_end(self._addresses_node(entry).end), [line]))

    def _addresses_node(self, entry: Entry) -> Node:
        return entry.node.entries[_KEYS[entry.kind][2]]

    def set_labels(self, entry: Entry, labels: Mapping[str, str]) -> None:
        """Set the labels of an entry. If it already has labels with exactly these keys, edit only the values."""
        node = entry.node.entries.get("labels")
        before = entry.labels
        if node is not None and before and before.keys() == labels.keys():
            self._edited.add(entry.name)
            for key, value in node.entries.items():
                if before[key] != labels[key]:
                    self.edits.append(_value_edit(value, format_label(labels[key])))
        elif node is not None and not node.flow and "#" in self.text[node.start : node.end]:
            self._add_by_hand(
                f"in {entry.name}, where labels has comments in it", [f"labels: {format_labels(labels)}"]
            )
        else:
            self._set(entry, "labels", format_labels(labels))

    def set_addresses(self, entry: Entry, addresses: Sequence[str]) -> None:
        """Set the addresses of an entry's hosts, in the order of the hosts. Keep the ports."""
        self._edited.add(entry.name)
        try:
            self.edits += host_edits(self.text, self._addresses_node(entry), addresses)
        except NotEditable as reason:
            self._add_by_hand(
                f"in {entry.name}, where the list {reason}", [f"hosts: [{', '.join(addresses)}]"]
            )

    def remove(self, entry: Entry) -> None:
        """Remove an entry and the comments inside it. Keep the comments above it."""
        self._edited.add(entry.name)
        section = self._root.entries[entry.kind]
        if section.flow:
            self._add_by_hand(f"{entry.kind} is written in [ ]", [f"without {entry.name}"])
            return
        start = self._dash_line(entry.node.start, section.column)
        self.edits.append(Edit(start, self._item_end(entry.node.end, section.column), ""))

    def _add_by_hand(self, where: str, lines: Sequence[str]) -> None:
        self.by_hand += [f"{where}:", *lines]

    # The result

    def new_text(self) -> str:
        return apply_edits(self.text, self._all_edits())

    def _all_edits(self) -> list[Edit]:
        return [*self.edits, *self._sections]

    def diff(self) -> list[str]:
        """Return the edits in the format of `diff -u`."""
        return unified_diff(self.text, self._all_edits(), self.path.name)

    def new_content(
        self, addresses: Mapping[str, tuple[str, ...]], labels: Mapping[str, Mapping[str, str]] | None = None
    ) -> tuple[bytes, ClusterConfig]:
        """Return the new content and its configuration. `addresses`, `labels`: the new values of the edited entries.

        Raises ConfigError if the new content is invalid, if an edited entry does not have its `addresses` or `labels`,
        or if any other entry has changed.
        """
        data = (self._byte_order_mark + self.new_text()).encode("utf-8")
        if have_overlap(self._all_edits()):
            raise _unsafe_edit_error(self.path)
        try:
            found = ClusterFile(self.path, data)
        except ConfigError as error:
            message = f"{self.path} would become invalid"
            raise ConfigError(message, problems=error.problems, hint=error.hint) from error
        after = {(each.kind, each.name): each.workers for each in found.entries}
        new_addresses = {each.name: each.addresses for each in found.entries}
        new_labels = {each.name: each.labels for each in found.entries}
        unedited = (each for each in self.entries if each.name not in self._edited)
        if (
            _other_settings(found.config) != _other_settings(self.config)
            or any(after.get((each.kind, each.name)) != each.workers for each in unedited)
            or any(new_addresses.get(name) != wanted for name, wanted in addresses.items())
            or any(new_labels.get(name) != wanted for name, wanted in (labels or {}).items())
        ):
            raise _unsafe_edit_error(self.path)
        return data, found.config

    # Positions in the text

    def _line_end(self, position: int) -> int:
        """Return the position after the line feed of a line, or the end of the text."""
        end = self.text.find("\n", position)
        return len(self.text) if end < 0 else end + 1

    def _item_end(self, position: int, column: int) -> int:
        """Return the position after an item (its dash is in `column`, its end at `position`) and its comments."""
        end = line_start = self._line_end(position)
        while line_start < len(self.text):
            line_end = self._line_end(line_start)
            line = self.text[line_start:line_end]
            if not _COMMENT_OR_BLANK.fullmatch(line):
                break
            line_start = line_end
            if line.strip() and len(line) - len(line.lstrip(" ")) > column:
                end = line_end
        return end

    def _dash_line(self, position: int, column: int) -> int:
        """Return the start of the line with the dash, in `column`, of the item around `position`."""
        start = self.text.rfind("\n", 0, position) + 1
        while self.text[start : start + column].strip() or self.text[start + column] != "-":
            start = self.text.rfind("\n", 0, start - 1) + 1
        return start

    def _document_end(self) -> int:
        last = self._root.end
        found = _END_OF_DOCUMENT.search(self.text, last)
        return self._line_end(last) if found else len(self.text)

    def _insertion(self, position: int, lines: Sequence[str]) -> Edit:
        """Return an edit that inserts lines at `position`, the beginning of a line or the end of the text."""
        text = "".join(line + self._line_break for line in lines)
        if position == len(self.text) and self.text and not self.text.endswith("\n"):
            text = self._line_break + text.removesuffix(self._line_break)
        return Edit(position, position, text)


def _value_edit(value: Node, text: str) -> Edit:
    """Return the edit that replaces a value. If the old value is empty, insert a blank after the colon of the key."""
    gap = " " if value.start == value.end else ""
    return Edit(value.start, value.end, gap + text)


def _indent(entries: Sequence[Sequence[str]], column: int) -> list[str]:
    return [" " * column + line for entry in entries for line in entry]


def _other_settings(config: ClusterConfig) -> ClusterConfig:
    return replace(config, hosts=(), warnings=())


def _unsafe_edit_error(path: Path) -> ConfigError:
    return ConfigError(f"{path} can't be edited safely", hint="edit it by hand")
