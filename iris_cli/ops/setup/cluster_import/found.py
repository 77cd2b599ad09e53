"""Content of an import source: slices, hosts, and skipped entries with reasons."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from iris_cli.config.entry_text import NewHost


class FoundSlice(Struct, frozen=True, kw_only=True):
    """An existing slice. Its addresses are in the order of worker numbers; `external` may be empty.

    `incarnation` is `PROJECT ID CREATED` of the node, '' if the source does not contain it; `created_at` is the time of
    its creation in seconds since the epoch. `labels` are the labels that become attributes, None if the source has no
    labels; `skipped` gives a reason for each other label.
    """

    name: str
    type: str
    internal: tuple[str, ...]
    external: tuple[str, ...] = ()
    project: str = ""
    zone: str = ""
    preemptible: bool | None = None
    incarnation: str = ""
    created_at: float | None = None
    health: str = ""  # the provider's value, '' if unknown
    labels: Mapping[str, str] | None = None
    skipped: tuple[str, ...] = ()


class SkippedEntry(Struct, frozen=True):
    """An entry that is not imported: the reason, and the fix if there is one."""

    name: str
    why: str
    fix: str = ""
    zone: str = ""


class Found(Struct, frozen=True, kw_only=True):
    """Content of a source. `scopes`: the projects and zones of which it lists all slices."""

    slices: tuple[FoundSlice, ...] = ()
    hosts: tuple[NewHost, ...] = ()
    left_out: tuple[SkippedEntry, ...] = ()
    scopes: frozenset[tuple[str, str]] = frozenset()
    notes: tuple[str, ...] = ()
