"""At submission, refuse jobs that no worker of the cluster could ever run."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from iris_cli.core import Amounts, AttributeValue, Constraint, Job, clip, constraints, count, did_you_mean
from iris_cli.core.attributes import int_attribute
from iris_cli.core.constraint_syntax import format_constraint, typo_warnings
from iris_cli.core.resources import AUTO, Device, device_compatible
from iris_cli.errors import UnschedulableError

_FORCE = "--force submits the job anyway"
_MAX_LISTED = 5


class Offer(NamedTuple):
    """A worker that may run jobs: registered, declared in the configuration, or of a scale group.

    `idle`: its resources while it runs no tasks; None if unknown. `slices`: for a worker of a scale group the maximum
    number of slices of the group, otherwise 0.
    """

    attributes: Mapping[str, AttributeValue]
    idle: Amounts | None
    slices: int = 0


def check_possible(job: Job, offers: Sequence[Offer]) -> None:
    """Raise UnschedulableError if no offer could ever run a task of the job, or no group is large enough for a gang.

    Device, attributes and sizes count, because they rarely change. Load, health, taints and the number of groups for
    `--slices` don't count. A worker of unknown size may have any device, attribute and size.
    """
    equipped = [each for each in offers if _may_have(job.resources.device, each)]
    if not equipped:
        return  # no worker is known yet, because `submit.accept` refuses accelerators that no worker has
    taint = constraints.TAINT_KEY_PREFIX  # the operator may remove a taint at any time
    required = [each for each in job.constraints if each.required and not each.key.startswith(taint)]
    matching = [each for each in equipped if all(_may_match(constraint, each) for constraint in required)]
    if not matching:
        raise _unmatched_error(required, equipped)
    need = Amounts.needed(job.resources)
    fitting = [each for each in matching if each.idle is None or each.idle.covers(need)]
    if not fitting:
        raise _too_large_error(need, [each.idle for each in matching if each.idle is not None])
    if job.coscheduling is not None:
        _check_groups(job, job.coscheduling.group_by, required, matching, equipped)


def _may_have(device: Device | None, offer: Offer) -> bool:
    kind = offer.attributes.get(constraints.DEVICE_TYPE_ATTRIBUTE_KEY)
    if offer.idle is None and kind is None:
        return True  # its probe may find any device
    if not device_compatible(device.kind if device else "cpu", str(kind or "cpu")):
        return False
    if device is None or device.variant == AUTO:
        return True
    return offer.attributes.get(constraints.DEVICE_VARIANT_ATTRIBUTE_KEY) == AttributeValue(device.variant)


def _may_match(constraint: Constraint, offer: Offer) -> bool:
    unknown = offer.idle is None and constraint.key not in offer.attributes
    return unknown or constraint.matches(offer.attributes)


def _check_groups(
    job: Job, key: str, required: Sequence[Constraint], matching: Sequence[Offer], equipped: Sequence[Offer]
) -> None:
    """Raise UnschedulableError if no group could ever have a worker for each rank of the gang.

    `equipped` are the offers with the job's device. `matching` are the equipped offers that satisfy the constraints.
    """
    ranks = job.replicas // job.slices
    is_tpu = job.resources.device is not None and job.resources.device.kind == "tpu"
    if is_tpu and key == constraints.TPU_NAME_ATTRIBUTE_KEY:
        slice_sizes = _slice_sizes(equipped)
        if slice_sizes and ranks not in slice_sizes:
            existing = " or ".join(map(str, sorted(slice_sizes)))
            raise UnschedulableError(
                f"no slice has {ranks} VMs (slices have {existing}): not submitted",
                hint=f"drop --replicas, or ask for a multiple of {existing}; {_FORCE}",
            )
    groups = _Groups(key, ranks, Amounts.needed(job.resources), equipped)
    largest = groups.largest(groups.select_large_enough(matching))
    if largest is None or largest[1] >= ranks:
        return
    name, size = largest
    known_keys = {each for offer in equipped for each in offer.attributes}
    if not name and key not in known_keys:
        raise UnschedulableError(
            f"no worker has an attribute {clip(key)}: not submitted",
            hint=_or_force(did_you_mean(key, known_keys)),
        )
    if is_tpu and key != constraints.TPU_NAME_ATTRIBUTE_KEY:
        return
    conditions = " and ".join(map(format_constraint, required[:_MAX_LISTED]))
    described, offers = _describe_exclusions(groups, conditions, matching)
    name, size_of_largest = groups.largest(offers) or largest
    largest_text = f"largest: {name} with {size_of_largest}" if name else f"none has {key}"
    fixes = _possible_fixes(groups, conditions, matching)
    if not fixes and size and not is_tpu:
        fewer = count(size * job.slices, "replica")
        fixes = [f"ask for {fewer}{' or fewer' if size * job.slices > 1 else ''}"]
    noun = "slice" if key == constraints.TPU_NAME_ATTRIBUTE_KEY else f"{clip(key)} group"
    raise UnschedulableError(
        f"no {noun} has {ranks} {described} ({largest_text}): not submitted",
        hint=_or_force(", or ".join(fixes)),
    )


class _Groups(NamedTuple):
    """The groups for a gang: workers with the same value of the attribute `key`. `need` is the need of each rank."""

    key: str
    ranks: int
    need: Amounts
    equipped: Sequence[Offer]

    def largest(self, offers: Sequence[Offer]) -> tuple[str, int] | None:
        """Return the value of `key` and the size of the largest possible group of these workers; None if unknown.

        Unprobed workers may join any group. So may unregistered VMs of a slice, unless groups are slices.
        """
        sizes: Counter[AttributeValue] = Counter()  # by value and type: 1 and "1" are different groups
        ungrouped = 0
        for each in offers:
            value = each.attributes.get(self.key)
            if not each.slices:
                if value is not None:
                    sizes[value] += 1
                elif each.idle is None:
                    ungrouped += 1
                continue
            vms = int_attribute(each.attributes, constraints.TPU_VM_COUNT_ATTRIBUTE_KEY)
            if vms is None:
                return None
            if value is not None:
                sizes[value] += vms * each.slices
            elif self.key == constraints.TPU_NAME_ATTRIBUTE_KEY:
                new = AttributeValue(f"a slice of {each.attributes[constraints.SCALE_GROUP_ATTRIBUTE_KEY]}")
                sizes[new] = max(sizes[new], vms)
            else:
                return None
        named = (each.attributes.get(constraints.TPU_NAME_ATTRIBUTE_KEY) for each in offers)
        missing = _unregistered_vms(self.equipped, {name for name in named if name is not None})
        if self.key == constraints.TPU_NAME_ATTRIBUTE_KEY:
            sizes.update(missing)
        else:
            ungrouped += sum(missing.values())
        if ungrouped and not sizes:
            return None
        largest = ((str(value), size) for value, size in sizes.items())
        name, size = min(largest, key=lambda item: (-item[1], item[0]), default=("", 0))
        return name, size + ungrouped

    def fit_the_gang(self, offers: Sequence[Offer]) -> bool:
        largest = self.largest(offers)
        return largest is not None and largest[1] >= self.ranks

    def select_large_enough(self, offers: Sequence[Offer], need: Amounts | None = None) -> list[Offer]:
        """Return the offers that have the needed resources (default: those of a rank), or are of unknown size."""
        size = need or self.need
        return [each for each in offers if each.idle is None or each.idle.covers(size)]

    def scarce_resources(self, offers: Sequence[Offer]) -> list[int]:
        """Return the resources that no group has for all ranks, as indexes in `Amounts`.

        Without such a resource, return the resources of which some offers have too little for a rank.
        """
        sizes = [each.idle for each in offers if each.idle is not None]
        excluding = [at for at, wanted in enumerate(self.need) if any(size[at] < wanted for size in sizes)]

        def fits_with(number: int) -> bool:
            need = Amounts(*(wanted if at == number else 0 for at, wanted in enumerate(self.need)))
            return self.fit_the_gang(self.select_large_enough(offers, need))

        return [each for each in excluding if not fits_with(each)] or excluding

    def largest_possible_need(self, offers: Sequence[Offer]) -> str:
        """Return the largest request of one scarce resource with which the gang would fit (`8 cores`), or ''."""
        for number in self.scarce_resources(offers):
            sizes = {each.idle[number] for each in offers if each.idle is not None}
            for size in sorted((each for each in sizes if 0 < each < self.need[number]), reverse=True):
                smaller = Amounts(*(size if at == number else wanted for at, wanted in enumerate(self.need)))
                if self.fit_the_gang(self.select_large_enough(offers, smaller)):
                    return _amount(number, size)
        return ""


def _possible_fixes(groups: _Groups, conditions: str, matching: Sequence[Offer]) -> list[str]:
    """Return the changes after which a group could run the gang: fewer constraints, a smaller need, or both."""
    fixes = []
    largest = groups.largest(groups.select_large_enough(groups.equipped))
    if conditions and largest is not None and largest[1] >= groups.ranks:
        fixes.append(f"{largest[0]} has {largest[1]} without {conditions}")
    if smaller := groups.largest_possible_need(matching):
        fixes.append(f"ask for {smaller} or less")
    if conditions and not fixes and (smaller := groups.largest_possible_need(groups.equipped)):
        fixes.append(f"ask for {smaller} or less without {conditions}")
    return fixes


def _describe_exclusions(
    groups: _Groups, conditions: str, matching: Sequence[Offer]
) -> tuple[str, Sequence[Offer]]:
    """Return a text such as `workers with 8 cores that satisfy zone=z`, and the offers that it describes.

    The text names the conditions that exclude too many workers.
    """
    large_enough = groups.select_large_enough(groups.equipped)
    fits_without_sizes = groups.fit_the_gang(matching)
    fits_without_constraints = groups.fit_the_gang(large_enough)
    words, offers = "workers", groups.equipped
    is_of_size = fits_without_sizes or not fits_without_constraints
    if is_of_size and (scarce := groups.scarce_resources(matching)):
        words += f" with {' and '.join(_amount(each, groups.need[each]) for each in scarce)}"
        offers = large_enough
    if conditions and (fits_without_constraints or not fits_without_sizes):
        words += f" that satisfy {conditions}"
        offers = groups.select_large_enough(matching) if is_of_size else matching
    return words, offers


def _unregistered_vms(
    equipped: Sequence[Offer], names: Iterable[AttributeValue]
) -> dict[AttributeValue, int]:
    """Return the number of VMs of each named slice that are neither registered nor declared."""
    registered: Counter[AttributeValue] = Counter()
    slice_sizes: dict[AttributeValue, int] = {}
    for each in equipped:
        name = each.attributes.get(constraints.TPU_NAME_ATTRIBUTE_KEY)
        if name is not None:
            registered[name] += 1
            vms = int_attribute(each.attributes, constraints.TPU_VM_COUNT_ATTRIBUTE_KEY)
            if vms is not None:
                slice_sizes[name] = vms
    return {name: max(0, slice_sizes[name] - registered[name]) for name in names if name in slice_sizes}


def _slice_sizes(equipped: Sequence[Offer]) -> set[int]:
    """Return the sizes of slices, in VMs; empty if the size of any slice is unknown."""
    sizes = [each.attributes.get(constraints.TPU_VM_COUNT_ATTRIBUTE_KEY) for each in equipped]
    known = {each.value for each in sizes if each is not None and isinstance(each.value, int)}
    return set() if any(each is None for each in sizes) else known


def _unmatched_error(required: Sequence[Constraint], equipped: Sequence[Offer]) -> UnschedulableError:
    unmatched = [each for each in required if not any(_may_match(each, offer) for offer in equipped)]
    blamed = unmatched or required
    names = " and ".join(map(format_constraint, blamed[:_MAX_LISTED]))
    prefix = "" if unmatched or len(blamed) == 1 else "all of "
    fleet = [offer.attributes for offer in equipped]
    suggestion = next(typo_warnings(unmatched, fleet), "").rpartition("; ")[2]
    hint = suggestion or _existing_values(blamed[0], fleet)
    return UnschedulableError(f"no worker satisfies {prefix}{names}: not submitted", hint=_or_force(hint))


def _or_force(hint: str) -> str:
    """Return a hint that also names --force."""
    return f"{hint}{' ' if hint.endswith('?') else '; '}{_FORCE}" if hint else _FORCE


def _existing_values(constraint: Constraint, fleet: Sequence[Mapping[str, AttributeValue]]) -> str:
    """Return the values that workers have for the key of a constraint: `region is us-east1 or us-west4`."""
    found = sorted({str(each[constraint.key].value) for each in fleet if constraint.key in each})
    if not found:
        return f"no worker has an attribute {constraint.key}"
    rest = f" or {count(len(found) - _MAX_LISTED, 'other')}" if len(found) > _MAX_LISTED else ""
    return f"{constraint.key} is {' or '.join(found[:_MAX_LISTED])}{rest}"


def _too_large_error(need: Amounts, sizes: Sequence[Amounts]) -> UnschedulableError:
    requested = [_amount(number, wanted) for number, wanted in enumerate(need)]
    maxima = [max(each) for each in zip(*sizes, strict=True)]
    for number, (wanted, maximum) in enumerate(zip(need, maxima, strict=True)):
        if wanted > maximum:
            largest = _amount(number, maximum)
            return UnschedulableError(
                f"no worker has {requested[number]} (largest: {largest}): not submitted",
                hint=f"ask for {largest} or less; {_FORCE}",
            )
    amounts = " and ".join(text for text, wanted in zip(requested, need, strict=True) if wanted)
    return UnschedulableError(f"no worker has {amounts}: not submitted", hint=_FORCE)


def _amount(number: int, size: int) -> str:
    """Return `8 cores` or `16GiB of memory`: the amount of one resource. `number` is its index in `Amounts`."""
    from iris_cli.core.scheduling.explain.wording import format_amount  # slow to import, and rare
    from iris_cli.core.scheduling.sets import AMOUNT_KINDS

    return format_amount(AMOUNT_KINDS[number], size)
