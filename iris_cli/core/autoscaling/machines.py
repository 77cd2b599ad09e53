"""What the VMs of a TPU type have beside their chips, for slices that nobody has seen yet: vCPUs and GB of memory.

v5e: Compute Engine's list of machine types (`ct5lp-hightpu-1t`, `-4t`, `-8t`), as it is recorded in
github.com/Cyclenerd/google-cloud-pricing-cost-calculator, issue 89. v2 and v3: 96 vCPUs and 335 GB were seen on the
first TPU VMs (trisongz.medium.com, June 2021). Of the others no public list was found: until the first slice has shown
it, they are taken to have plenty of both.
"""

from __future__ import annotations

from iris_cli.core.model.capacity import Amounts
from iris_cli.core.resources.topology import lookup

_GB = 10**9

_SIZES = {  # by family and chips of the VM
    ("v2", 4): (96, 334),
    ("v3", 4): (96, 334),
    ("v5litepod", 1): (24, 48),
    ("v5litepod", 4): (112, 192),
    ("v5litepod", 8): (224, 384),
}


def vm_amounts(accelerator_type: str) -> Amounts | None:
    """What one VM of a canonical type offers, or None where that isn't known."""
    known = lookup(accelerator_type)
    size = _SIZES.get((known.family, known.chips_per_vm)) if known else None
    if size is None:
        return None
    cores, memory = size
    return Amounts(cpu_millis=cores * 1000, memory=memory * _GB, gpus=0, chips=1)
