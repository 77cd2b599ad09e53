"""Jobs that no worker of the cluster could ever run, refused when they are submitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from iris_cli.core.capacity import Amounts
from iris_cli.core.constraint_syntax import format_constraint
from iris_cli.core.constraints import (
    DEVICE_TYPE_ATTRIBUTE_KEY,
    DEVICE_VARIANT_ATTRIBUTE_KEY,
    TAINT_KEY_PREFIX,
    AttributeValue,
    Constraint,
)
from iris_cli.core.job import Job
from iris_cli.core.lifecycle.near_misses import near_misses
from iris_cli.core.resources import AUTO, Device, device_compatible
from iris_cli.errors import UnschedulableError

_FORCE = "--force queues it anyway"
_LISTED = 5


class Offer(NamedTuple):
    """A worker that exists or that a scale group can create. `idle` is None if nobody knows how large it is."""

    attributes: Mapping[str, AttributeValue]
    idle: Amounts | None


def check_possible(job: Job, offers: Sequence[Offer]) -> None:
    """Raise UnschedulableError if every offer is known and none of them could ever run a task of the job.

    Only facts count that no job and no operator changes for a while: device, attributes and sizes. A worker of
    unknown size may have any of them.
    """
    serving = [each for each in offers if _has(job.resources.device, each)]
    if not serving:
        return  # there is no worker yet; an unknown accelerator was refused before
    required = [each for each in job.constraints if each.required and not _may_change(each)]
    right = [each for each in serving if all(_may_match(constraint, each) for constraint in required)]
    if not right:
        raise _unmatched(required, serving)
    if any(each.idle is None for each in right):
        return
    sizes = [each.idle for each in right if each.idle is not None]
    need = Amounts.needed(job.resources)
    if not any(size.covers(need) for size in sizes):
        raise _too_large(need, sizes)


def _has(device: Device | None, offer: Offer) -> bool:
    kind = str(offer.attributes.get(DEVICE_TYPE_ATTRIBUTE_KEY, AttributeValue("cpu")).value)
    if offer.idle is None and DEVICE_TYPE_ATTRIBUTE_KEY not in offer.attributes:
        return True  # its probe may find any device
    if not device_compatible(device.kind if device else "cpu", kind):
        return False
    if device is None or device.variant == AUTO:
        return True
    return offer.attributes.get(DEVICE_VARIANT_ATTRIBUTE_KEY) == AttributeValue(device.variant)


def _may_change(constraint: Constraint) -> bool:
    return constraint.key.startswith(TAINT_KEY_PREFIX)  # set and removed by hand, at any time


def _may_match(constraint: Constraint, offer: Offer) -> bool:
    unknown = offer.idle is None and constraint.key not in offer.attributes
    return unknown or constraint.matches(offer.attributes)


def _unmatched(required: Sequence[Constraint], serving: Sequence[Offer]) -> UnschedulableError:
    never = [each for each in required if not any(_may_match(each, offer) for offer in serving)]
    blamed = never or required
    names = " and ".join(map(format_constraint, blamed[:_LISTED]))
    together = "" if never or len(blamed) == 1 else "all of "
    fleet = [offer.attributes for offer in serving]
    meant = next(near_misses(never, fleet), "").rpartition("; ")[2]
    hint = meant or _values(blamed[0], fleet)
    return UnschedulableError(
        f"no worker satisfies {together}{names}: not submitted", hint="; ".join(filter(None, (hint, _FORCE)))
    )


def _values(constraint: Constraint, fleet: Sequence[Mapping[str, AttributeValue]]) -> str:
    """The values that the workers have for the key of a constraint: `region is us-east1 or us-west4`."""
    found = sorted({str(each[constraint.key].value) for each in fleet if constraint.key in each})
    if not found:
        return f"no worker has an attribute {constraint.key}"
    more = f" or {len(found) - _LISTED} others" if len(found) > _LISTED else ""
    return f"{constraint.key} is {' or '.join(found[:_LISTED])}{more}"


def _too_large(need: Amounts, sizes: Sequence[Amounts]) -> UnschedulableError:
    from iris_cli.core.scheduling.capacity import AMOUNT_KINDS  # only a refusal pays for it
    from iris_cli.core.scheduling.wording import amount

    asked = [amount(kind, wanted) for kind, wanted in zip(AMOUNT_KINDS, need, strict=True)]
    largest = [max(each) for each in zip(*sizes, strict=True)]
    for number, (wanted, most) in enumerate(zip(need, largest, strict=True)):
        if wanted > most:
            there = amount(AMOUNT_KINDS[number], most)
            return UnschedulableError(
                f"no worker has {asked[number]} (largest: {there}): not submitted",
                hint=f"ask for {there} or less; {_FORCE}",
            )
    together = " and ".join(text for text, wanted in zip(asked, need, strict=True) if wanted)
    return UnschedulableError(f"no worker has {together}: not submitted", hint=_FORCE)
