"""New addresses in a list of hosts, in the way it is written."""

from __future__ import annotations

from collections.abc import Sequence

from iris_cli.config.editing.edits import Edit
from iris_cli.config.editing.marked import Marked
from iris_cli.config.entry_text import listed, quoted
from iris_cli.core.patterns import pattern

_PORT = pattern(r"[^:]+(:[0-9]{1,5})")


class Unusual(Exception):  # noqa: N818 - it is no error, and whoever edits turns it into words
    """What can't be edited safely; its text goes on behind the name of what it is about."""


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
