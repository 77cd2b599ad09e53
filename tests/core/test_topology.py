"""TPU types: spellings, the table, and what is shown of them."""

from __future__ import annotations

import pytest

from iris_cli.core.text import nearest
from iris_cli.core.topology import canonical_type, describe, known_types, lookup, type_from_user
from iris_cli.errors import UsageError


@pytest.mark.parametrize(
    ("spelling", "canonical"),
    [
        ("v5litepod-16", "v5litepod-16"),
        ("v5e-16", "v5litepod-16"),
        ("v5lite-16", "v5litepod-16"),
        ("V5LITE-16", "v5litepod-16"),
        (" v4-32 ", "v4-32"),
        ("V5P-8", "v5p-8"),
        ("v7x-8", "tpu7x-8"),
        ("v9x-64", "v9x-64"),
    ],
)
def test_spellings_become_one_canonical_form(spelling: str, canonical: str) -> None:
    assert canonical_type(spelling) == canonical
    assert canonical_type(canonical) == canonical


@pytest.mark.parametrize(
    "odd", ["", "v4", "v4-", "v4-0", "v4-032", "v4_32", "4-32", "v4-32-1", "v4 -32", "v4-3٢"]
)
def test_what_is_not_a_type_is_refused_with_a_hint(odd: str) -> None:
    with pytest.raises(UsageError) as refused:
        canonical_type(odd)
    assert refused.value.hint


def test_a_near_miss_is_named() -> None:
    with pytest.raises(UsageError) as refused:
        canonical_type("v4_32")
    assert refused.value.hint == "did you mean 'v4-32'?"


@pytest.mark.parametrize(
    ("accelerator_type", "chips", "vms", "chips_per_vm", "topology"),
    [
        ("v2-8", 4, 1, 4, "2x2"),
        ("v3-2048", 1024, 256, 4, "32x32"),
        ("v4-8", 4, 1, 4, "2x2x1"),
        ("v4-32", 16, 4, 4, "2x2x4"),
        ("v4-768", 384, 96, 4, ""),
        ("v5p-12288", 6144, 1536, 4, "16x16x24"),
        ("v5litepod-1", 1, 1, 1, "1x1"),
        ("v5litepod-8", 8, 1, 8, "2x4"),
        ("v5litepod-16", 16, 4, 4, "4x4"),
        ("v6e-8", 8, 1, 8, "2x4"),
        ("v6e-256", 256, 64, 4, "16x16"),
        ("v4-16", 8, 2, 4, "2x2x2"),
        ("tpu7x-2", 1, 1, 1, "1x1x1"),
        ("tpu7x-4096", 2048, 512, 4, "8x16x16"),
    ],
)
def test_a_type_has_the_chips_vms_and_topology_of_the_table(
    accelerator_type: str, chips: int, vms: int, chips_per_vm: int, topology: str
) -> None:
    found = lookup(accelerator_type)
    assert found is not None
    assert (found.chips, found.vms, found.chips_per_vm, found.topology) == (
        chips,
        vms,
        chips_per_vm,
        topology,
    )


def test_every_type_of_the_table_is_consistent() -> None:
    assert len(known_types()) == 73
    for name in known_types():
        found = lookup(name)
        assert found is not None
        assert found.chips == found.vms * found.chips_per_vm
        assert canonical_type(name) == name == f"{found.family}-{name.rpartition('-')[2]}"


def test_an_unknown_type_is_not_in_the_table() -> None:
    assert lookup("v9x-64") is None
    assert lookup("") is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("v4-32",), "v4-32 (16 chips, 4 VMs)"),
        (("v5litepod-1",), "v5litepod-1 (1 chip, 1 VM)"),
        (("v5litepod-8", 2), "v5litepod-8 (8 chips, 2 VMs)"),
        (("v9-64", 8), "v9-64 (chips unknown, 8 VMs)"),
        (("v9-64",), "v9-64 (chips unknown, VMs unknown)"),
    ],
)
def test_output_says_type_chips_and_vms(arguments: tuple[str, int], words: str) -> None:
    assert describe(*arguments) == words


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("US-West4", "us-west4"),
        ("us-wset4", "us-west4"),
        ("europe-west", "europe-west4"),
        ("tokyo", None),
        ("", None),
    ],
)
def test_a_misspelt_word_is_answered_with_the_nearest_one(word: str, found: str | None) -> None:
    assert nearest(word, ["us-west4", "europe-west4", "us-central2"]) == found


def test_every_type_is_found_by_its_family_and_topology() -> None:
    for name in known_types():
        found = lookup(name)
        assert found is not None
        assert not found.topology or type_from_user(found.family, found.topology) == name


@pytest.mark.parametrize(
    ("family", "topology", "name"),
    [("v5e", "4x4", "v5litepod-16"), ("V4", "4x4x8_twisted_torus", "v4-256"), ("v6e", "2x4", "v6e-8")],
)
def test_families_and_topologies_have_several_spellings_too(family: str, topology: str, name: str) -> None:
    assert type_from_user(family, topology) == name


@pytest.mark.parametrize(
    ("family", "topology", "words"),
    [
        ("v9", "2x2", "'v9' is not a TPU family"),
        ("v4", "4x4", "'4x4' is not a topology of v4"),
        ("v6e", "2x2x2", "'2x2x2' is not a topology of v6e"),
        ("v6e", "0x2", "'0x2' is not a topology"),
    ],
)
def test_what_is_no_topology_is_refused(family: str, topology: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        type_from_user(family, topology)
