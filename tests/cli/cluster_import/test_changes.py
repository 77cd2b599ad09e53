"""An import into a file that is there: what changes, and what stays."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from iris_cli.config.load import load_cluster_config
from tests.cli.cluster_import.conftest import OURS, SAMPLES, Import


def write(path: Path, *nodes: dict[str, Any]) -> None:
    path.write_text(json.dumps(nodes))


def node(**otherwise: Any) -> dict[str, Any]:
    """The slice of the sample, with some of it otherwise."""
    (model,) = json.loads((SAMPLES / "one_slice.json").read_text())
    return {**model, **otherwise}


def named(vm: str, last: int, **otherwise: Any) -> dict[str, Any]:
    """A single VM in the zone of the sample."""
    path = f"projects/tpu-lab/locations/us-central2-b/nodes/{vm}"
    hosts = [{"ipAddress": f"10.77.0.{last}"}]
    return node(**{"name": path, "id": vm, "acceleratorType": "v4-8", "networkEndpoints": hosts, **otherwise})


AGAIN = {"id": "77", "createTime": "2027-02-01T00:00:00Z"}


def test_a_slice_that_was_written_by_hand_is_known_and_completed(lab: Path, cluster_import: Import) -> None:
    path = lab / "cluster.yaml"
    path.write_text(OURS)
    said = cluster_import("--from", "one_slice.json", "--yes")
    assert said.code == 0
    new = [line for line in path.read_text().splitlines() if line not in OURS.splitlines()]
    assert new == [
        "    zone: us-central2-b",
        "    labels: {team: speech}",
        '    incarnation: "tpu-lab 4611686018427387904 2026-03-02T09:14:31.214098325Z"',
    ]
    assert [line for line in path.read_text().splitlines() if line not in new] == OURS.splitlines()


def test_a_slice_that_was_re_created_is_said_and_followed(lab: Path, cluster_import: Import) -> None:
    path = lab / "cluster.yaml"
    path.write_text(OURS)
    cluster_import("--from", "one_slice.json", "--yes")
    before = path.read_text()
    ends = [{"ipAddress": f"10.130.0.{number}"} for number in (2, 30, 4, 5)]
    write(lab / "tpus.json", node(**AGAIN, networkEndpoints=ends))
    said = cluster_import("--from", "tpus.json", "--yes")
    assert "v4a was re-created" in said.err
    assert path.read_text() == before.replace("10.130.0.3,", "10.130.0.30,").replace(
        "4611686018427387904 2026-03-02T09:14:31.214098325Z", "77 2027-02-01T00:00:00Z"
    )
    assert "re-created" not in cluster_import("--from", "tpus.json").err


def test_other_types_and_counts_of_hosts_are_followed(lab: Path, cluster_import: Import) -> None:
    path = lab / "cluster.yaml"
    path.write_text(OURS)
    write(lab / "tpus.json", node(acceleratorType="v4-8", networkEndpoints=[{"ipAddress": "10.130.0.9"}]))
    said = cluster_import("--from", "tpus.json", "--yes")
    assert "v4a: changed type v4-32 → v4-8, addresses" in said.err
    assert "    hosts: 10.130.0.9   # by worker number" in path.read_text()


def test_names_of_hosts_are_left_to_the_ssh_configuration(lab: Path, cluster_import: Import) -> None:
    path = lab / "cluster.yaml"
    path.write_text(OURS.replace("[10.130.0.2, 10.130.0.3, 10.130.0.4, 10.130.0.5]", "v4a-w-[0-3]"))
    cluster_import("--from", "one_slice.json", "--yes")
    assert "hosts: v4a-w-[0-3]" in path.read_text()
    assert "incarnation: " in path.read_text()


def test_a_slice_under_another_name_is_known_by_its_addresses(lab: Path, cluster_import: Import) -> None:
    path = lab / "cluster.yaml"
    path.write_text(OURS.replace("v4a", "main"))
    cluster_import("--from", "one_slice.json", "--yes")
    assert {each.slice for each in load_cluster_config(path).hosts} == {"main", None}


def test_a_single_vm_among_the_workers_is_known(lab: Path, cluster_import: Import) -> None:
    path = lab / "cluster.yaml"
    path.write_text("workers:\n  - {id: solo, host: 10.0.0.1, tpu: v4-8}  # mine\n")
    write(lab / "tpus.json", named("solo", 5))
    cluster_import("--from", "tpus.json", "--yes")
    assert path.read_text().startswith(
        "workers:\n  - {id: solo, host: 10.77.0.5, tpu: v4-8, zone: us-central2-b, "
    )


def test_an_address_that_was_anothers_before_confuses_nobody(lab: Path, cluster_import: Import) -> None:
    write(lab / "tpus.json", named("a", 1), named("b", 2))
    cluster_import("--from", "tpus.json", "--yes")
    write(lab / "tpus.json", named("new", 1), named("a", 2, id="a-again"), named("b", 1 + 2))
    cluster_import("--from", "tpus.json", "--yes")
    hosts = load_cluster_config(lab / "cluster.yaml").hosts
    assert {each.slice: each.connection.host[-1] for each in hosts} == {"a": "2", "b": "3", "new": "1"}


def test_an_address_of_a_slice_that_is_gone_is_free_once_that_is_removed(
    lab: Path, cluster_import: Import
) -> None:
    ends = [{"ipAddress": f"10.77.0.{number}"} for number in range(4)]
    write(lab / "tpus.json", named("a", 1, acceleratorType="v4-32", networkEndpoints=ends))
    cluster_import("--from", "tpus.json", "--yes")
    write(lab / "tpus.json", named("b", 1))
    assert "skipped b: 10.77.0.1 already belongs to slice a" in cluster_import("--from", "tpus.json").err
    cluster_import("--from", "tpus.json", "--prune", "--yes")
    assert [each.slice for each in load_cluster_config(lab / "cluster.yaml").hosts] == ["b"]


def test_an_address_that_another_entry_has_is_not_written_twice(lab: Path, cluster_import: Import) -> None:
    (lab / "cluster.yaml").write_text("workers:\n  - {id: a, host: 10.130.0.3}\n")
    said = cluster_import("--from", "one_slice.json", "--yes")
    assert "skipped v4a: 10.130.0.3 already belongs to slice a" in said.err


@pytest.mark.parametrize("columns", ["60", "100", "200"])
def test_what_is_shown_is_a_patch_at_any_width(
    lab: Path, cluster_import: Import, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    """IRIS_REWRITE=1 writes what is expected anew: read the diff before it is committed."""
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("FORCE_COLOR", "1")
    (lab / "cluster.yaml").write_text(OURS)
    write(lab / "tpus.json", node(), named("gone", 1), named("new-address", 2))
    cluster_import("--from", "tpus.json", "--yes")
    nodes = [
        node(**AGAIN, health="UNHEALTHY_MAINTENANCE"),
        named("new-address", 3, health=None),
        named("spot", 4, health=None, schedulingConfig={"spot": True}),
        named("taken", 5, state="PREEMPTED"),
        named("evil\n  - {name: x}\x1b[31m", 6),
    ]
    write(lab / "tpus.json", *nodes)
    said = cluster_import("--from", "tpus.json", "--dry-run", "--prune")
    expected = Path(__file__).parent / "expected.txt"
    shown = f"{said.out}---- beside that\n{said.err}"
    if "IRIS_REWRITE" in os.environ:
        expected.write_text(shown)
    assert shown == expected.read_text()


# What is no longer there


def test_what_is_no_longer_listed_is_shown_and_removed_on_demand_alone(
    lab: Path, cluster_import: Import
) -> None:
    path = lab / "cluster.yaml"
    path.write_text(OURS)
    write(lab / "tpus.json", node(), named("a", 1), named("b", 2), named("c", 3))
    cluster_import("--from", "tpus.json", "--yes")
    before = path.read_text()
    write(lab / "tpus.json", named("b", 2), named("c", 3, state="PREEMPTED"))
    said = cluster_import("--from", "tpus.json")
    assert "no longer listed: v4a, a (--prune removes" in said.err
    assert "c: its entry is not changed" in said.err
    assert path.read_text() == before
    assert "wrote" in cluster_import("--from", "tpus.json", "--prune", "--yes").out
    assert {each.slice for each in load_cluster_config(path).hosts} == {"b", "c", None}
    assert "  # the old one, by hand\n" in path.read_text()


@pytest.mark.parametrize(
    "listed",
    [
        {"nodes": [named("b", 2)], "nextPageToken": "x"},
        {"nodes": [named("b", 2)], "unreachable": ["projects/tpu-lab/locations/us-central2-b"]},
        named("b", 2),
        [named("b", 2, name="projects/tpu-lab/locations/us-west4-a/nodes/b")],
        [named("b", 2, name="projects/other/locations/us-central2-b/nodes/b")],
        [],
    ],
    ids=["a page", "some did not answer", "one alone", "another zone", "another project", "none"],
)
def test_a_list_that_may_not_be_whole_makes_nothing_go(
    lab: Path, cluster_import: Import, listed: object
) -> None:
    write(lab / "tpus.json", named("a", 1))
    cluster_import("--from", "tpus.json", "--yes")
    (lab / "tpus.json").write_text(json.dumps(listed))
    cluster_import("--from", "tpus.json", "--prune", "--yes")
    assert "a" in {each.slice for each in load_cluster_config(lab / "cluster.yaml").hosts}


def test_of_an_empty_list_the_operator_says_what_it_lists(lab: Path, cluster_import: Import) -> None:
    write(lab / "tpus.json", named("a", 1))
    cluster_import("--from", "tpus.json", "--yes")
    write(lab / "tpus.json")
    words = ("--from", "tpus.json", "--prune", "--yes", "--project", "tpu-lab", "--zone", "us-central2-b")
    cluster_import(*words)
    assert load_cluster_config(lab / "cluster.yaml").hosts == ()


def test_what_was_never_imported_is_never_gone(lab: Path, cluster_import: Import) -> None:
    (lab / "cluster.yaml").write_text(OURS)
    write(lab / "tpus.json", named("b", 2))
    assert "no longer" not in cluster_import("--from", "tpus.json", "--prune", "--yes").err
