"""What providers of slices say: what there is, and what became of a request."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct

from iris_cli.core.model.slice import Provider, SliceHost, SliceTemplate

LABEL_PREFIX: Final = "iris-"
"""With this begin the keys of all labels by which a provider's list tells what iris made."""


class Scope(NamedTuple):
    """Where slices are listed: all that one provider has in one place."""

    provider: Provider
    project: str
    zone: str

    @classmethod
    def of(cls, template: SliceTemplate) -> Scope:
        return cls(template.provider, template.project, template.zone)

    def __str__(self) -> str:
        return " ".join(filter(None, (self.provider.value, self.project, self.zone)))


class CloudState(StrEnum):
    """What the many words of providers come to."""

    CREATING = "creating"  # also waiting for room, or being mended
    READY = "ready"
    FAILED = "failed"  # it will never be ready, and eats quota until it is deleted
    STOPPED = "stopped"  # preempted or suspended: nothing runs there any more, and it never comes back
    DELETING = "deleting"


class CloudSlice(Struct, frozen=True, kw_only=True):
    """One slice of ours as its provider lists it. `quota`: what it failed for was quota, or a lack of machines."""

    name: str
    state: CloudState
    group: str = ""
    hosts: tuple[SliceHost, ...] = ()
    incarnation: str = ""
    detail: str = ""
    quota: bool = False


class Refusal(StrEnum):
    """What kind of no it was. Only `UNANSWERED` leaves open whether the provider did what it was asked."""

    QUOTA = "quota"
    STOCKOUT = "stockout"
    INVALID = "invalid"  # the request can't be meant
    DENIED = "denied"  # who we are, or what we may
    UNANSWERED = "unanswered"  # a time-out, a server's error, no network


class CallOutcome(Struct, frozen=True, kw_only=True):
    """What a provider said to one request about one slice; without a refusal it took it on."""

    slice: str
    refusal: Refusal | None = None
    error: str = ""
