"""What a source names: slices and hosts, and what can't be taken from it and why."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from iris_cli.config.entry_text import NewHost


class FoundSlice(Struct, frozen=True, kw_only=True):
    """A slice that is there. Addresses are in the order of worker numbers; `external` ones may be none at all.

    `incarnation` is `PROJECT ID CREATED` of the node, '' where the source doesn't tell; `made_at` in seconds since the
    epoch. `labels` are those that become attributes, None where the source has no labels; `skipped` says of each other
    one why not.
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
    health: str = ""  # the provider's word, '' where it says none
    labels: Mapping[str, str] | None = None
    skipped: tuple[str, ...] = ()


class LeftOut(Struct, frozen=True):
    """An entry that is not imported, why, and how to fix it if possible."""

    name: str
    why: str
    fix: str = ""
    zone: str = ""


class Found(Struct, frozen=True, kw_only=True):
    """All that a source says. `scopes`: the projects and zones of which it lists everything there is."""

    slices: tuple[FoundSlice, ...] = ()
    hosts: tuple[NewHost, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    scopes: frozenset[tuple[str, str]] = frozenset()
    notes: tuple[str, ...] = ()
