"""Content of an import source: slices, hosts, and skipped entries with reasons."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from iris_cli.config.entry_text import NewHost


class FoundSlice(Struct, frozen=True, kw_only=True):
    """An existing slice. Addresses are in the order of worker numbers; `external` may be empty.

    `incarnation` is `PROJECT ID CREATED` of the node, '' if the source does not contain it; `made_at` in
    seconds since the epoch. `labels` are those that become attributes, None if the source has no labels;
    `skipped` has the reason for each other label.
    """

    name: str
    type: str
    internal: tuple[str, ...]
    external: tuple[str, ...] = ()
    project: str = ""
    zone: str = ""
    preemptible: bool | None = None
    incarnation: str = ""
    made_at: float | None = None
    health: str = ""  # the provider's value, '' if unknown
    labels: Mapping[str, str] | None = None
    skipped: tuple[str, ...] = ()


class LeftOut(Struct, frozen=True):
    """An entry that is not imported, why, and how to fix it if possible."""

    name: str
    why: str
    fix: str = ""
    zone: str = ""


class Found(Struct, frozen=True, kw_only=True):
    """Content of a source. `scopes`: the projects and zones that it lists completely."""

    slices: tuple[FoundSlice, ...] = ()
    hosts: tuple[NewHost, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    scopes: frozenset[tuple[str, str]] = frozenset()
    notes: tuple[str, ...] = ()
