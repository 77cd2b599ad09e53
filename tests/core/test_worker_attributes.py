"""From probe and configuration to attributes: a blank worker id is never worker 0."""

from __future__ import annotations

from typing import Any

import pytest

from iris_cli.core.constraints import AttributeValue, build_worker_attributes

TPU_VM = {
    "accelerator-type": "v5litepod-16",
    "agent-worker-number": "2",
    "instance-id": "pod-a",
    "zone": "projects/123/zones/us-west4-a",
    "preemptible": "TRUE",
}


def raw(attributes: Any) -> dict[str, str | int | float]:
    return {key: value.value for key, value in attributes.items()}


def test_a_tpu_vm_describes_itself_by_its_metadata() -> None:
    built = build_worker_attributes(TPU_VM)
    assert raw(built) == {
        "device-type": "tpu",
        "device-variant": "v5litepod-16",
        "tpu-topology": "v5litepod-16",
        "tpu-name": "pod-a",
        "tpu-worker-id": 2,
        "tpu-vm-count": 4,
        "zone": "us-west4-a",
        "region": "us-west4",
        "preemptible": "true",
    }
    assert built.errors == built.warnings == ()


def test_a_plain_host_is_a_cpu_that_is_not_preemptible() -> None:
    built = build_worker_attributes({})
    assert raw(built) == {"device-type": "cpu", "preemptible": "false"}
    assert built.errors == ()


def test_a_gpu_host_reports_its_model() -> None:
    built = build_worker_attributes({"device-type": "gpu", "device-variant": "h100"})
    assert raw(built) == {"device-type": "gpu", "device-variant": "h100", "preemptible": "false"}


@pytest.mark.parametrize("odd", ["", "  ", None, "two", "2.0", 2.0, "-1", "0x2", "٢", True])
def test_a_slice_member_without_a_whole_numbered_id_has_an_error_and_no_id(odd: object) -> None:
    metadata: dict[str, object] = {**TPU_VM, "agent-worker-number": odd}
    if odd is None:
        del metadata["agent-worker-number"]
    built = build_worker_attributes(metadata)
    assert "tpu-worker-id" not in built
    assert len(built.errors) == 1
    assert "pod-a" in built.errors[0]


@pytest.mark.parametrize("number", ["0", "3", " 3\n", 3])
def test_a_whole_number_is_taken_as_it_is(number: object) -> None:
    built = build_worker_attributes({**TPU_VM, "agent-worker-number": number})
    assert built["tpu-worker-id"] == AttributeValue(int(str(number)))
    assert not built.errors


def test_a_single_vm_tpu_needs_no_worker_id_but_a_nonsensical_one_is_an_error() -> None:
    assert not build_worker_attributes({"accelerator-type": "v6e-8", "instance-id": "solo"}).errors
    assert build_worker_attributes({"accelerator-type": "v6e-8", "agent-worker-number": "x"}).errors


def test_a_slice_of_unknown_size_needs_worker_ids() -> None:
    assert build_worker_attributes({"tpu-name": "pod"}).errors
    assert build_worker_attributes({"accelerator-type": "v9-64"}).errors


def test_an_unknown_type_is_a_warning_and_the_slice_itself_says_how_many_vms_it_has() -> None:
    built = build_worker_attributes(
        {
            "accelerator-type": "V9-64",
            "agent-worker-number": "0",
            "worker-network-endpoints": "10.0.0.1,10.0.0.2",
        }
    )
    assert built["tpu-vm-count"] == AttributeValue(2)
    assert built["device-variant"] == AttributeValue("v9-64")
    assert not built.errors
    assert "v9-64" in built.warnings[0]


def test_the_endpoints_of_the_slice_win_over_the_table() -> None:
    endpoints = "unknown:unknown:10.0.0.1,unknown:unknown:10.0.0.2"
    built = build_worker_attributes(
        {"accelerator-type": "v5litepod-8", "agent-worker-number": "1", "worker-network-endpoints": endpoints}
    )
    assert built["tpu-vm-count"] == AttributeValue(2)
    assert "should have 1 VMs" in built.warnings[0]


def test_what_is_declared_wins_over_what_is_probed_and_stays_whole() -> None:
    declared = {
        "tpu-name": AttributeValue("v4a"),
        "tpu-worker-id": AttributeValue(1),
        "zone": AttributeValue("europe-west4-b"),
        "pool": AttributeValue("large"),
    }
    built = build_worker_attributes({**TPU_VM, "agent-worker-number": ""}, declared)
    assert {key: built[key] for key in declared} == declared
    assert built["region"] == AttributeValue("europe-west4")
    assert not built.errors


def test_booleans_and_blanks_of_a_probe() -> None:
    assert build_worker_attributes({"preemptible": True})["preemptible"] == AttributeValue("true")
    assert build_worker_attributes({"preemptible": " "})["preemptible"] == AttributeValue("false")
    odd = build_worker_attributes({"preemptible": "perhaps"})
    assert odd["preemptible"] == AttributeValue("false")
    assert odd.warnings


def test_keys_of_the_metadata_server_are_not_attributes() -> None:
    assert "accelerator-type" not in build_worker_attributes({**TPU_VM, "tpu-env": "X: 1"})
    assert "tpu-env" not in build_worker_attributes({**TPU_VM, "tpu-env": "X: 1"})
