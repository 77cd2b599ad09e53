"""What the VMs of a TPU type have beside their chips, for slices that nobody has seen yet.

Facts from Google's TPU documentation ("TPU configurations", one page per version): vCPUs and GB of memory. Once a
slice is there, what its probes found counts.
"""

from __future__ import annotations

from iris_cli.core.capacity import Amounts
from iris_cli.core.topology import lookup

_GB = 10**9

_SIZES = {  # by family and chips of the VM: vCPUs, GB
    ("v2", 4): (96, 334),
    ("v3", 4): (96, 334),
    ("v4", 4): (240, 407),
    ("v5p", 4): (208, 448),
    ("v5litepod", 1): (24, 48),
    ("v5litepod", 4): (112, 192),
    ("v5litepod", 8): (224, 384),
    ("v6e", 1): (44, 176),
    ("v6e", 4): (180, 720),
    ("v6e", 8): (180, 1440),
    ("tpu7x", 4): (224, 960),
}


def vm_amounts(accelerator_type: str) -> Amounts | None:
    """What one VM of a canonical type offers, or None where that isn't known."""
    known = lookup(accelerator_type)
    size = _SIZES.get((known.family, known.chips_per_vm)) if known else None
    if size is None:
        return None
    cores, memory = size
    return Amounts(cpu_millis=cores * 1000, memory=memory * _GB, gpus=0, chips=1)
