"""`iris cluster import --from gcp`: what the API lists, whoever made it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from iris_cli.cli.app import run
from iris_cli.config.load import load_cluster_config
from tests.capacity.gcp_place import ZONE, GcpPlace
from tests.support.desk import Interrupted
from tests.support.tpu_emulator import shapes
from tests.support.tpu_emulator.records import Node
from tests.support.tpu_emulator.settings import Fault


@pytest.fixture(autouse=True)
def lab(place: GcpPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for variable in ("IRIS_CONFIG", "IRIS_STATE_DIR", "CLOUDSDK_CORE_PROJECT", "GOOGLE_CLOUD_PROJECT"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


def made_by_hand(place: GcpPlace, name: str, zone: str = ZONE, **more: Any) -> None:
    from google.cloud import tpu_v2

    from iris_cli.capacity.gcp.api import Api

    node = tpu_v2.Node(accelerator_type="v4-16", runtime_version="tpu-ubuntu2204-base", **more)
    assert Api("lab", zone).create_node(name, node)


def ask_by_hand(name: str) -> None:
    from google.cloud import tpu_v2

    from iris_cli.capacity.gcp.api import Api

    node = tpu_v2.Node(accelerator_type="v4-16", runtime_version="tpu-ubuntu2204-base")
    api = Api("lab", ZONE)
    spec = tpu_v2.QueuedResource.Tpu.NodeSpec(parent=api.parent, node_id=name, node=node)
    wanted = tpu_v2.QueuedResource(tpu=tpu_v2.QueuedResource.Tpu(node_spec=[spec]))
    assert api.create_queued_resource(name, wanted)


def test_labels_of_a_node_become_attributes(place: GcpPlace, lab: Path) -> None:
    made_by_hand(place, "mine", labels={"team": "speech", "level": "3", "zone": "elsewhere"})
    assert run(["cluster", "import", "--from", "gcp", "--project", "lab", "--zone", ZONE, "--yes"]) == 0
    found = load_cluster_config(lab / "cluster.yaml").hosts[0].attributes
    assert (found["team"].value, found["level"].value, found["zone"].value) == ("speech", 3, ZONE)


def test_slices_of_the_project_are_written_into_the_configuration(place: GcpPlace, lab: Path) -> None:
    made_by_hand(place, "mine", scheduling_config={"spot": True})
    place.create("west-1")
    assert run(["cluster", "import", "--from", "gcp", "--project", "lab", "--zone", ZONE, "--yes"]) == 0
    text = (lab / "cluster.yaml").read_text()
    hosts = [machine.host for node in place.cloud.nodes.values() for machine in node.machines]
    assert [host in text for host in hosts] == [True, True, False, False]
    assert [str(each.worker) for each in load_cluster_config(lab / "cluster.yaml").hosts] == [
        "mine-0",
        "mine-1",
    ]


def test_without_a_zone_all_zones_are_listed_and_those_out_of_reach_are_named(
    place: GcpPlace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "lab")
    made_by_hand(place, "here")
    made_by_hand(place, "there", "us-east5-a")
    made_by_hand(place, "faraway", "us-south1-a")
    place.cloud.settings.unreachable.append("us-south1-a")
    assert run(["cluster", "import", "--from", "gcp", "--dry-run"]) == 0
    said = capsys.readouterr()
    shown = said.out + said.err
    assert [name in shown for name in ("here", "there", "faraway")] == [True, True, False]
    assert "the list is incomplete: no answer from us-south1-a" in shown


def test_a_queued_resource_that_waits_is_named_and_one_of_iris_is_not(
    place: GcpPlace, capsys: pytest.CaptureFixture[str]
) -> None:
    place.cloud.settings.queue_seconds = 3600.0
    ask_by_hand("theirs")
    place.create("west-1", queued=True)
    run(["cluster", "import", "--from", "gcp", "--project", "lab", "--zone", ZONE, "--dry-run"])
    said = capsys.readouterr()
    assert "theirs" in said.out + said.err
    assert "it waits for capacity" in said.out + said.err
    assert "west-1" not in said.out + said.err


def test_a_request_whose_node_is_there_is_found_also_where_its_project_is_a_number(
    place: GcpPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    from iris_cli.capacity.gcp.api import nodes_as_json

    as_it_is = shapes.node

    def with_number(each: Node) -> dict[str, Any]:
        said = as_it_is(each)
        return {**said, "queuedResource": said["queuedResource"].replace("projects/lab", "projects/4711")}

    ask_by_hand("theirs")
    place.provider().list()
    monkeypatch.setattr(shapes, "node", with_number)
    found = nodes_as_json("lab", ZONE)
    assert [each["queuedResource"] for each in found["nodes"]] == [
        f"projects/4711/locations/{ZONE}/queuedResources/theirs"
    ]
    assert found["queuedResources"] == []


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [("PERMISSION_DENIED", 2, "roles/tpu.admin"), ("UNAVAILABLE", 7, "503 the emulator was told to fail")],
)
def test_an_unavailable_list_is_an_error(
    place: GcpPlace,
    capsys: pytest.CaptureFixture[str],
    status: str,
    code: int,
    words: str,
) -> None:
    at_once = Interrupted(lambda: None)
    place.cloud.faults.append(Fault(kind="error", status=status, times=9))
    words_typed = ["cluster", "import", "--from", "gcp", "--project", "lab", "--zone", ZONE]
    assert run(words_typed, at_once) == code
    said = capsys.readouterr().err
    assert words in said
    assert f"gcloud compute tpus tpu-vm list --zone {ZONE} --project lab --format json" in said


def test_the_project_is_required_without_a_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cluster", "import", "--from", "gcp"]) == 2
    assert "no Google Cloud project is set" in capsys.readouterr().err
