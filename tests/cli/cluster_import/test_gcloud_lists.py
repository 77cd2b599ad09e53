"""What is taken from lists of TPU VMs, and what is left out with which words."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from iris_cli.config.load import load_cluster_config
from iris_cli.core.attributes import PREEMPTIBLE_ATTRIBUTE_KEY, REGION_ATTRIBUTE_KEY, ZONE_ATTRIBUTE_KEY
from iris_cli.errors import UsageError
from iris_cli.ops.setup.cluster_import.nodes import read_nodes
from tests.cli.cluster_import.conftest import SAMPLES, Import


def found_in(sample: str) -> dict[str, tuple[str, int, bool | None]]:
    """Type, number of VMs and whether preemptible, by the name of each slice."""
    found = read_nodes((SAMPLES / f"{sample}.json").read_text())
    return {each.name: (each.type, len(each.internal), each.preemptible) for each in found.slices}


@pytest.mark.parametrize(
    ("sample", "slices"),
    [
        ("one_slice", {"v4a": ("v4-32", 4, False)}),
        ("rest_page", {"v5p-train": ("v5p-32", 4, False), "v6e-eval": ("v6e-8", 1, True)}),
        ("external", {"v5e-b": ("v5litepod-16", 4, True), "v5e-c": ("v5litepod-16", 4, False)}),
        ("states", {"tpu-ready": ("v4-32", 4, False), "tpu-ill": ("v4-32", 4, False)}),
        (
            "generations",
            {"v2": ("v2-8", 1, True), "v3": ("v3-32", 4, False), "v6e-asked": ("v6e-16", 4, True)},
        ),
        ("queued", {}),
        ("scale_group", {"v4a": ("v4-32", 4, False)}),
        ("hostile", {"ok": ("v4-32", 4, False), "label": ("v4-32", 4, False)}),
    ],
)
def test_slices_of_each_shape_of_the_list(
    sample: str, slices: dict[str, tuple[str, int, bool | None]]
) -> None:
    assert found_in(sample) == slices


@pytest.mark.parametrize(
    ("sample", "name", "why", "fix"),
    [
        ("states", "tpu-making", "it is being created (CREATING)", "import again when it is READY"),
        (
            "states",
            "tpu-taken",
            "PREEMPTED",
            "gcloud compute tpus tpu-vm delete tpu-taken --zone us-central2-b",
        ),
        ("states", "tpu-taken-spot", "PREEMPTED", "queued-resources delete ask-spot --force"),
        ("states", "tpu-over", "TERMINATED", "tpu-vm delete tpu-over"),
        ("states", "tpu-asleep", "STOPPED", "tpu-vm start tpu-asleep --zone us-central2-b --project tpu-lab"),
        ("states", "tpu-mended", "REPAIRING", "import again"),
        ("states", "tpu-half", "3 of its 4 VMs are listed", "import again"),
        ("states", "tpu-odd", "ASCENDING", ""),
        ("generations", "v6e-early", "its VMs are not listed", "import again when they are listed"),
        ("generations", "v6e-unplaced", "it is being created (CREATING)", "import again when it is READY"),
        ("states", "tpu-unsaid", "its state is unknown", ""),
        ("queued", "ask-1", "ACTIVE", "tpu-vm list"),
        (
            "queued",
            "ask-2",
            "a queued resource: it waits for capacity (WAITING_FOR_RESOURCES)",
            "when it is ACTIVE",
        ),
        ("queued", "ask-3", "FAILED", "queued-resources delete ask-3 --force"),
        ("queued", "ask-4", "SUSPENDED", "queued-resources delete ask-4 --force"),
        ("scale_group", "v5e-west-ab12-7", "iris created it for a scale group", ""),
        ("scale_group", "old", "legacy TPU Node", ""),
        ("hostile", "request", "PREEMPTED", "delete '`id`; x' --force"),
        ("hostile", "kind", "is not a TPU type", ""),
        ("hostile", "addr", "VM 0 has no address", ""),
        ("hostile", "scope", "VM 0 has no address", ""),
        ("hostile", "twice", "two of its VMs have the same address", ""),
        ("hostile", "entry 9", "it describes no TPU VM", ""),
    ],
)
def test_what_is_left_out_is_said_with_what_to_do(sample: str, name: str, why: str, fix: str) -> None:
    found = read_nodes((SAMPLES / f"{sample}.json").read_text())
    (left,) = [each for each in found.skipped if each.name == name]
    assert why in left.why
    assert fix in left.fix


@pytest.mark.parametrize(
    ("project", "taken"), [("p", True), ("MY_lab", True), ("old.org:lab", True), ("a;b", False)]
)
def test_a_project_may_be_called_as_anybody_likes_but_not_by_what_a_shell_reads(
    project: str, taken: bool
) -> None:
    name = f"projects/{project}/locations/us-central2-b/nodes/v4a"
    node = {
        "name": name,
        "acceleratorType": "v4-8",
        "state": "READY",
        "networkEndpoints": [{"ipAddress": "10.0.0.2"}],
    }
    found = read_nodes(json.dumps([node]))
    assert [each.name for each in found.slices] == (["v4a"] if taken else [])
    assert taken or repr(name) in found.skipped[0].why


def test_everything_of_a_list_is_either_taken_or_left_out() -> None:
    for path in SAMPLES.glob("*.json"):
        said = json.loads(path.read_text())
        items = said if isinstance(said, list) else said["nodes"]
        found = read_nodes(path.read_text())
        assert len(found.slices) + len(found.skipped) == len(items), path.name


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[", "not valid JSON: line 1"),
        ('{"error": {"code": 403, "message": "Permission denied"}}', "Permission denied"),
        ("[" * 100_000, "nested too deeply"),
        ("[1" + "0" * 10_000 + "]", "nested too deeply"),
        ('"text"', "not a list"),
    ],
)
def test_what_is_no_list_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=re.escape(why)):
        read_nodes(text)


def test_lists_of_several_zones_can_stand_one_behind_the_other() -> None:
    text = "".join((SAMPLES / f"{name}.json").read_text() for name in ("one_slice", "external"))
    assert [each.name for each in read_nodes(text).slices] == ["v4a", "v5e-b", "v5e-c"]
    assert read_nodes("[]").slices == read_nodes("{}").slices == ()


@pytest.mark.parametrize("sample", sorted(path.stem for path in SAMPLES.glob("*.json")))
def test_whatever_is_imported_loads_and_is_not_imported_twice(
    lab: Path, cluster_import: Import, sample: str
) -> None:
    first = cluster_import("--from", f"{sample}.json", "--yes")
    assert first.code == 0
    assert "\x1b" not in first.out + first.err
    path = lab / "cluster.yaml"
    if not found_in(sample):
        assert not path.exists()
        return
    before = path.read_bytes()
    assert cluster_import("--from", f"{sample}.json").code == 0
    assert path.read_bytes() == before
    named = {host.slice for host in load_cluster_config(path).hosts}
    assert set(found_in(sample)) <= named


def test_a_slice_says_where_it_is_and_whether_it_may_be_taken_away(lab: Path, cluster_import: Import) -> None:
    cluster_import("--from", "external.json", "--yes")
    config = load_cluster_config(lab / "cluster.yaml")
    host = next(each for each in config.hosts if each.worker == "v5e-b-3")
    said = {key: str(host.attributes[key]) for key in host.attributes}
    assert host.connection.host == "10.182.0.5"
    assert said[ZONE_ATTRIBUTE_KEY] == "us-west4-a"
    assert said[REGION_ATTRIBUTE_KEY] == "us-west4"
    assert said[PREEMPTIBLE_ATTRIBUTE_KEY] == "true"


def test_external_addresses_are_taken_on_demand_and_kept_then(lab: Path, cluster_import: Import) -> None:
    said = cluster_import("--from", "external.json", "--address", "external", "--yes")
    assert "v5e-c: not all of its VMs have an external address" in said.err
    hosts = [each.connection.host for each in load_cluster_config(lab / "cluster.yaml").hosts]
    assert hosts == [f"34.7.5.{number}" for number in range(10, 14)]
    cluster_import("--from", "external.json", "v5e-b", "--yes")
    assert [each.connection.host for each in load_cluster_config(lab / "cluster.yaml").hosts] == hosts
    cluster_import("--from", "external.json", "v5e-b", "--address", "internal", "--yes")
    hosts = [each.connection.host for each in load_cluster_config(lab / "cluster.yaml").hosts]
    assert hosts == [f"10.182.0.{number}" for number in range(2, 6)]


def test_slices_of_one_name_in_two_zones_are_told_apart(lab: Path, cluster_import: Import) -> None:
    cluster_import("--from", "two_zones.json", "--yes")
    slices = {each.slice for each in load_cluster_config(lab / "cluster.yaml").hosts}
    assert slices == {"v4a", "v4a-us-west4-a"}
    assert "nothing to change" in cluster_import("--from", "two_zones.json").out


def test_health_that_is_bad_or_not_told_is_said(cluster_import: Import) -> None:
    for source, words in (
        ("states.json", "ill: imported, but its health is UNHEALTHY_MAINTENANCE"),
        ("rest_page.json", "v6e-eval: imported, but its health is unknown"),
    ):
        assert words in cluster_import("--from", source, "--dry-run").err


def test_hostile_text_is_neither_written_nor_shown_as_it_is(lab: Path, cluster_import: Import) -> None:
    said = cluster_import("--from", "hostile.json", "--yes")
    text = (lab / "cluster.yaml").read_text()
    assert "evil" not in text
    assert "\x1b" not in said.out + said.err
    assert len({each.slice for each in load_cluster_config(lab / "cluster.yaml").hosts}) == 2


def test_a_hundred_slices_are_imported_at_once(lab: Path, cluster_import: Import) -> None:
    (model,) = json.loads((SAMPLES / "one_slice.json").read_text())
    nodes = []
    for number in range(100):
        hosts = [{"ipAddress": f"10.0.{number}.{vm}"} for vm in range(4)]
        name = f"projects/tpu-lab/locations/us-central2-b/nodes/s{number}"
        nodes.append({**model, "name": name, "id": str(number), "networkEndpoints": hosts})
    (lab / "tpus.json").write_text(json.dumps(nodes))
    assert cluster_import("--from", "tpus.json", "--yes").code == 0
    assert len(load_cluster_config(lab / "cluster.yaml").hosts) == 400
    for each in nodes:
        each["id"] += "-again"
    (lab / "tpus.json").write_text(json.dumps(nodes))
    said = cluster_import("--from", "tpus.json", "--yes")
    assert said.out.count("\n+    incarnation:") == 100
