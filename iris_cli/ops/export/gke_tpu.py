"""TPU types on GKE: node labels, topology, and VMs of a slice.

Sources: GKE's tables of TPU versions and machine types ("Plan TPUs in GKE"), and the slice shapes in XPK, Google's tool
for TPU clusters on GKE. Some types differ from the types of the TPU API. For example, `v5litepod-8` and `v6e-8` are two
VMs with 4 chips each on GKE, but one VM with 8 chips in the API.
"""

from functools import cache
from math import prod

from msgspec import Struct

from iris_cli.core.text import did_you_mean
from iris_cli.errors import UsageError

_V4 = """
2x2x1 2x2x2 2x2x4 2x4x4 4x4x4 4x4x8 4x4x12 4x8x8 4x4x20 4x4x24 4x4x28 8x8x8 4x4x36 4x4x40 4x4x44
8x8x12 4x4x52 4x4x56 4x4x60 8x8x16 4x4x68 4x4x72 4x4x76 4x4x80 4x4x84 4x4x88 4x4x92 4x4x96 4x4x100
4x4x104 4x4x108 4x4x112 4x4x116 4x4x120 4x4x124 8x16x16 4x4x132 4x4x136 4x4x140 4x4x144 4x4x148
4x4x152 4x4x156 4x4x160 4x4x164 4x4x168 4x4x172 4x4x176 4x4x180 4x4x184 4x4x188 4x4x192 4x4x196
4x4x200 4x4x204 4x4x208 4x4x212 4x4x216 4x4x220 4x4x224 4x4x228 4x4x232 4x4x236 4x4x240 4x4x244
4x4x248 4x4x252 4x4x256
"""
_V5P_AND_V7 = """
2x2x1 2x2x2 2x2x4 2x4x4 4x4x4 4x4x8 4x4x12 4x8x8 4x4x20 4x8x12 4x4x28 8x8x8 4x12x12 4x8x20 4x4x44
8x8x12 4x4x52 4x8x28 4x12x20 8x8x16 4x4x68 8x12x12 4x4x76 8x8x20 4x12x28 4x8x44 4x4x92 8x12x16
4x20x20 4x8x52 12x12x12 8x8x28 4x4x116 8x12x20 4x4x124 8x16x16 4x12x44 4x8x68 4x20x28 12x12x16
4x4x148 4x8x76 4x12x52 8x16x20 4x4x164 8x12x28 4x4x172 8x8x44 12x12x20 4x8x92 4x4x188 12x16x16
4x28x28 8x20x20 4x12x68 8x8x52 4x4x212 12x12x24 4x20x44 8x16x28 4x12x76 4x8x116 4x4x236 12x16x20
4x4x244 4x8x124 12x12x28 16x16x16 4x20x52 8x12x44 8x8x68 4x12x92 8x20x28 12x16x24 4x8x148 12x20x20
8x8x76 4x28x44 8x12x52 16x16x20 12x12x36 4x8x164 12x16x28 4x20x68 4x8x172 4x12x116 8x16x44 12x20x24
4x28x52 8x8x92 4x12x124 4x8x188 4x20x76 16x16x24 4x8x196 4x12x132 4x8x200 4x8x204 4x8x208 4x12x140
4x8x212 12x24x24 4x8x220 4x12x148 4x8x224 4x8x228 4x20x92 4x8x232 4x12x156 4x8x236 4x28x68 4x8x240
4x44x44 4x8x244 4x12x164 4x8x248 4x20x100 4x8x252 4x12x172 4x20x104 4x12x176 4x28x76 4x12x180
4x16x136 4x12x184 16x20x28
"""
_V7_SMALL = "1x1x1 2x2x1 2x2x2 2x2x4 2x4x4 4x4x4 4x4x8 4x4x12 4x8x8"

# Node label and topologies of each family. The number in the name of a type is the number of chips, or of TensorCores
# (two per chip).
_FAMILIES = {
    "v4": ("tpu-v4-podslice", _V4),
    "v5litepod": ("tpu-v5-lite-podslice", "2x4 4x4 4x8 8x8 8x16 16x16"),
    "v5p": ("tpu-v5p-slice", "4x8x256" + _V5P_AND_V7),
    "v6e": ("tpu-v6e-slice", "1x1 2x2 2x4 4x4 4x8 8x8 8x16 16x16"),
    "tpu7": ("tpu7", _V7_SMALL),
    "tpu7x": ("tpu7x", "1x1x1 16x16x32 4x12x188 4x44x52 16x24x24" + _V5P_AND_V7),
}
_NAMED_BY_CHIPS = frozenset({"v5litepod", "v6e"})


class GkeTpu(Struct, frozen=True):
    """One TPU type on GKE. `accelerator` and `topology` are the values of its node labels, `vms` the VMs of a slice."""

    name: str
    accelerator: str
    topology: str
    vms: int
    chips_per_vm: int


def gke_tpu(name: str) -> GkeTpu:
    """Return the type with this canonical name. Raises UsageError if GKE does not have it."""
    found = gke_types().get(name)
    if found is None:
        near = did_you_mean(name, gke_types()) or "docs/leaving.md names the families that GKE has"
        raise UsageError(f"GKE has no TPU type {name}", hint=near)
    return found


@cache
def gke_types() -> dict[str, GkeTpu]:
    entries = (
        _entry(family, accelerator, topology)
        for family, (accelerator, topologies) in _FAMILIES.items()
        for topology in topologies.split()
    )
    return {entry.name: entry for entry in entries}


def _entry(family: str, accelerator: str, topology: str) -> GkeTpu:
    chips = prod(int(side) for side in topology.split("x"))
    per_vm = min(chips, 4)
    size = chips if family in _NAMED_BY_CHIPS else 2 * chips
    return GkeTpu(f"{family}-{size}", accelerator, topology, chips // per_vm, per_vm)
