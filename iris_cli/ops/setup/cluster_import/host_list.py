"""Hosts from a list: `[USER@]HOST[:PORT]` with ranges, or `NAME=TYPE:HOST,...` for a slice."""

from __future__ import annotations

from collections.abc import Iterable

from iris_cli.config.entry_text import NewHost
from iris_cli.config.hosts import MOST_HOSTS, expanded
from iris_cli.core.ids import clip
from iris_cli.errors import UsageError
from iris_cli.ops.setup.cluster_import.found import Found, FoundSlice
from iris_cli.ops.setup.init import read_host, read_slice


def read_host_list(text: str) -> Found:
    """One or more on each line, with blanks between; `#` begins a comment. Raises UsageError with the line."""
    words = []
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), start=1):
        words += [(f"line {number}: ", word) for word in line.partition("#")[0].split()]
    if not words:
        raise UsageError(
            "there are no hosts in it", hint="write [USER@]HOST[:PORT] on each line, or v4a-w-[0-3]"
        )
    return _read(words)


def read_host_words(words: Iterable[str]) -> Found:
    """The same from the command line."""
    return _read([("", word) for word in words])


def _read(words: Iterable[tuple[str, str]]) -> Found:
    hosts: dict[NewHost, None] = {}
    slices: dict[str, FoundSlice] = {}
    for where, word in words:
        try:
            if "=" in word:
                found = _slice(word)
                slices[found.name] = found
            else:
                hosts.update(dict.fromkeys(_hosts(word)))
        except UsageError as error:
            raise UsageError(f"{where}{error.message}", hint=error.hint) from error
        if len(hosts) > MOST_HOSTS:
            raise UsageError(f"these are more than {MOST_HOSTS} hosts")
    return Found(hosts=tuple(hosts), slices=tuple(slices.values()))


def _hosts(word: str) -> list[NewHost]:
    user, at, place = word.rpartition("@")
    if any(character in clip(place) for character in "{}\"'"):
        raise UsageError(f"{clip(word)!r} is not a host", hint="a range is written like host-[0-3]")
    return [read_host(f"{user}{at}{each}") for each in expanded(place)]


def _slice(word: str) -> FoundSlice:
    said = read_slice(word)
    hosts = [host for each in said.hosts for host in expanded(each)]
    return FoundSlice(name=said.name, type=said.type, internal=tuple(hosts))
