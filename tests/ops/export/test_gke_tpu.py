"""The TPU types of GKE."""

from __future__ import annotations

from hashlib import sha256
from math import prod

import pytest

from iris_cli.errors import UsageError
from iris_cli.ops.export.gke_tpu import gke_tpu, gke_types

_SHAPES = "d9319a8488ab1602b87d8b8b482ce80e0436c5b80d3d3e84d6d7196ed656dcdd"
"""SHA-256 of XPK's list of shapes: `type,accelerator,topology,VMs,chips of a VM`, sorted, one a line."""


def test_the_table_has_every_shape_of_the_public_list() -> None:
    rows = sorted(
        f"{each.name},{each.accelerator},{each.topology},{each.vms},{each.chips_per_vm}"
        for each in gke_types().values()
    )
    assert (len(rows), sha256("\n".join(rows).encode()).hexdigest()) == (349, _SHAPES)


def test_the_chips_of_the_vms_are_those_of_the_topology() -> None:
    for each in gke_types().values():
        assert each.vms * each.chips_per_vm == prod(map(int, each.topology.split("x")))


def test_types_that_the_tpu_api_has_as_one_vm_of_eight_chips_are_two_of_four() -> None:
    assert [(gke_tpu(name).vms, gke_tpu(name).chips_per_vm) for name in ("v5litepod-8", "v6e-8")] == [
        (2, 4)
    ] * 2


def test_a_type_that_gke_does_not_have_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="GKE has no TPU type v5p-14") as refused:
        gke_tpu("v5p-14")
    assert "v5p-" in refused.value.hint
