"""TPU types: the numbers of chips and VMs of each accelerator type, and the spellings of type names.

Numbers are from Google's TPU documentation ("TPU architecture", one page per version), for validation and messages.
Numbers that workers report override them.
"""

from functools import cache
from math import prod

from msgspec import Struct

from iris_cli.core.text import did_you_mean, pattern
from iris_cli.core.units import count
from iris_cli.errors import UsageError


class Topology(Struct, frozen=True):
    """One accelerator type. `topology` is the arrangement of its chips (`2x2x4`), '' if several exist."""

    accelerator_type: str
    family: str
    chips: int
    vms: int
    chips_per_vm: int
    topology: str


# Arrangements of chips, by family. The number in a type's name counts TensorCores (two per chip); for v5e and v6e it
# counts chips. A single number in these lists is a number of chips for which several arrangements exist.
_V4 = "2x2x1 2x2x2 2x2x4 2x4x4 4x4x4 4x4x8 4x4x12 4x8x8 384 8x8x8 8x8x12 8x8x16 8x16x16"
_V5P = (
    "2x2x1 2x2x2 2x2x4 2x4x4 4x4x4 4x4x8 4x4x12 4x8x8 4x4x20 4x8x12 4x4x28 8x8x8 4x8x20 8x8x12 4x8x28 "
    "8x8x16 8x12x16 8x16x16 16x16x16 16x16x24"
)
_LITE = "1x1 2x2 2x4 4x4 4x8 8x8 8x16 16x16"
_ARRANGEMENTS = {
    "v2": "2x2 4x4 8x8 8x16 16x16",
    "v3": "2x2 4x4 4x8 8x8 8x16 16x16 16x32 32x32",
    "v4": _V4,
    "v5p": _V5P,
    "v5litepod": _LITE,
    "v6e": _LITE,
    "tpu7x": "1x1x1 2x2x1 2x2x2 2x2x4 2x4x4 4x4x4 4x4x8 4x8x8 8x8x8 8x8x16 8x16x16",
}
_NAMED_BY_CHIPS = frozenset({"v5litepod", "v6e"})
_SPELLINGS = {"v5e": "v5litepod", "v5lite": "v5litepod", "v7x": "tpu7x"}
_ARRANGED = pattern(r"([1-9][0-9]{0,3}(?:x[1-9][0-9]{0,3}){1,2})(_[a-z_]{1,40})?")  # such as `4x4x8_twisted`
_WELL_FORMED = pattern(r"([a-z][a-z0-9]{0,19})-([1-9][0-9]{0,6})")


def canonical_type(text: str) -> str:
    """Return the canonical spelling of a type (`V5LITE-16` -> `v5litepod-16`), known or not. Raises UsageError."""
    match = _WELL_FORMED.fullmatch(text.strip().lower())
    if match is None:
        raise UsageError(
            f"{text[:80]!r} is not a TPU type",
            hint=did_you_mean(text[:80], known_types()) or "write it like v4-32 or v5litepod-16",
        )
    family, size = match.groups()
    return f"{_SPELLINGS.get(family, family)}-{size}"


def family_of(text: str) -> str:
    """Return the canonical name of a family (`v5e` -> `v5litepod`). Raises UsageError."""
    family = _SPELLINGS.get(text.lower(), text.lower())
    if family not in _ARRANGEMENTS:
        raise UsageError(f"{text[:80]!r} is not a TPU family", hint=f"there are {', '.join(_ARRANGEMENTS)}")
    return family


def lookup(accelerator_type: str) -> Topology | None:
    """Return the table's entry for a type in its canonical spelling, or None."""
    return _table().get(accelerator_type)


def known_types() -> tuple[str, ...]:
    return tuple(_table())


def describe(accelerator_type: str, vms: int | None = None) -> str:
    """Return `v4-32 (16 chips, 4 VMs)`. `vms` is the observed number of VMs of the slice; None if unknown."""
    known = lookup(accelerator_type)
    chips = count(known.chips, "chip") if known else "chips unknown"
    vm_count = vms if vms is not None else known.vms if known else None
    return f"{accelerator_type} ({chips}, {'VMs unknown' if vm_count is None else count(vm_count, 'VM')})"


def type_from_api(family: str, arrangement: str) -> str:
    """Return the type of an API's `acceleratorConfig` (`V5LITE_POD`, `4x4` -> `v5litepod-16`). Raises UsageError."""
    name = family.lower().replace("_", "")
    sides = arrangement.split("x")
    if not all(side.isascii() and side.isdecimal() and len(side) < 5 and int(side) for side in sides):
        raise UsageError(f"{arrangement[:80]!r} is not a chip topology", hint="write it like 2x2x2")
    return canonical_type(_entry(_SPELLINGS.get(name, name), arrangement).accelerator_type)


def type_from_user(family: str, arrangement: str) -> str:
    """Return the type for a family and arrangement from a user (`v4`, `2x2x4` -> `v4-32`). Raises UsageError."""
    family = family_of(family)
    match = _ARRANGED.fullmatch(arrangement)
    example = _ARRANGEMENTS[family].split()[1]
    if match is None or match[1].count("x") != example.count("x"):
        raise UsageError(
            f"{arrangement[:80]!r} is not a topology of {family}", hint=f"write it like {example}"
        )
    return type_from_api(family, match[1])


@cache
def _table() -> dict[str, Topology]:
    entries = (_entry(family, each) for family, listed in _ARRANGEMENTS.items() for each in listed.split())
    return {entry.accelerator_type: entry for entry in entries}


def _entry(family: str, arrangement: str) -> Topology:
    chips = prod(int(side) for side in arrangement.split("x"))
    # A VM has four chips. Types with fewer chips, and v5e and v6e types with eight chips, have one VM.
    per_vm = chips if chips < 4 or (chips == 8 and family in _NAMED_BY_CHIPS) else 4
    size = chips if family in _NAMED_BY_CHIPS else 2 * chips
    topology = arrangement if "x" in arrangement else ""
    return Topology(f"{family}-{size}", family, chips, chips // per_vm, per_vm, topology)
