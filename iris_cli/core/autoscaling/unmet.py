"""Why an entry gets no slice: typed, with the culprit by name."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class UnmetKind(StrEnum):
    """In the order in which a reason is looked for: the first thing that no group has is the culprit."""

    INVALID = "invalid"
    NO_GROUPS = "no_groups"
    DEVICE = "device"
    SHAPE = "shape"
    REGION = "region"
    PREEMPTIBLE = "preemptible"
    CONSTRAINT = "constraint"
    TAINT = "taint"
    SIZE = "size"
    MAX_SLICES = "max_slices"
    BACK_OFF = "back_off"


class UnmetReason(Struct, frozen=True, kw_only=True):
    """One reason in words. The last two kinds pass; the others stay until somebody changes something."""

    kind: UnmetKind
    text: str

    def __str__(self) -> str:
        return self.text
