"""Reports of slice providers: lists of slices, and answers to requests."""

from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct

from iris_cli.core.model.slice import Provider, SliceHost, SliceTemplate

LABEL_PREFIX: Final = "iris-"
"""Prefix of all labels by which iris recognizes its slices in a provider's list."""


class Scope(NamedTuple):
    """The provider, project and zone that one list of slices covers. For Slurm the project is the login host."""

    provider: Provider
    project: str
    zone: str

    @classmethod
    def of(cls, template: SliceTemplate) -> "Scope":
        return cls(template.provider, template.project or template.slurm.login, template.zone)

    def __str__(self) -> str:
        return " ".join(filter(None, (self.provider.value, self.project, self.zone)))


class CloudState(StrEnum):
    """State of a slice, the same for all providers."""

    CREATING = "creating"  # also waiting for capacity, or being repaired
    READY = "ready"
    FAILED = "failed"  # the slice will never be ready, and uses quota until it is deleted
    STOPPED = "stopped"  # preempted or suspended: no process runs on it, and it never returns
    DELETING = "deleting"
    ENDED = "ended"  # nothing is left to delete; processes may have outlived it


class CloudSlice(Struct, frozen=True, kw_only=True):
    """One iris slice as its provider lists it. `detail` explains its state.

    `quota`: it failed because quota or capacity was missing. `remark` and `ends_at` are as in `Slice`.
    `processes_gone`: the slice has ended, and all processes that the provider tracked are gone.
    """

    name: str
    state: CloudState
    group: str = ""
    hosts: tuple[SliceHost, ...] = ()
    incarnation: str = ""
    detail: str = ""
    quota: bool = False
    remark: str = ""
    ends_at: float | None = None
    processes_gone: bool = False


class Refusal(StrEnum):
    """Why the provider refused a request. Only an `UNANSWERED` request may still have taken effect."""

    QUOTA = "quota"
    STOCKOUT = "stockout"
    INVALID = "invalid"  # the request is malformed
    DENIED = "denied"  # authentication or permission
    UNANSWERED = "unanswered"  # a time-out, a server error, or no network


class CallOutcome(Struct, frozen=True, kw_only=True):
    """A provider's answer to one request to create or delete a slice. `refusal` None: it accepted the request."""

    slice: str
    refusal: Refusal | None = None
    error: str = ""
