"""Content of an import source: slices, hosts, and skipped items with reasons."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from iris_cli.config.yaml_text import NewHost


class FoundSlice(Struct, frozen=True, kw_only=True):
    """An existing slice. `internal` and `external` are the addresses of its VMs, in order of the worker numbers.

    `external` may be empty. `incarnation` is `PROJECT ID CREATED` of the node, '' if unknown. `created_at` is the time
    of the node's creation in seconds since the epoch. `labels` are the labels that become attributes, None if the
    source has no labels. `skipped` has the reason for each label that can't become an attribute.
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
    """A slice or host that is not imported: the reason, and the fix if there is one."""

    name: str
    why: str
    fix: str = ""
    zone: str = ""


class Found(Struct, frozen=True, kw_only=True):
    """Content of a source. `scopes`: pairs of project and zone for which the source lists all slices."""

    slices: tuple[FoundSlice, ...] = ()
    hosts: tuple[NewHost, ...] = ()
    left_out: tuple[SkippedEntry, ...] = ()
    scopes: frozenset[tuple[str, str]] = frozenset()
    notes: tuple[str, ...] = ()
