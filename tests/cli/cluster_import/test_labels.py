"""Google's labels become attributes: which do, what is said of the others, and what an operator wrote stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from iris_cli.config.load import load_cluster_config
from iris_cli.core.constraint_syntax import parse_constraint
from tests.cli.cluster_import.conftest import OURS, SAMPLES, Import

SOURCE = ("--from", "tpus.json", "--yes")


def listed(lab: Path, labels: object, **otherwise: Any) -> None:
    """The slice of the sample with these labels is what Google lists."""
    (model,) = json.loads((SAMPLES / "one_slice.json").read_text())
    (lab / "tpus.json").write_text(json.dumps([{**model, "labels": labels, **otherwise}]))


def attributes(lab: Path) -> dict[str, object]:
    """Attributes of the slice's first worker."""
    return {
        key: each.value for key, each in load_cluster_config(lab / "cluster.yaml").hosts[0].attributes.items()
    }


@pytest.mark.parametrize(
    ("label", "written"),
    [
        ("speech", "speech"),
        ("7", "7"),
        ("017", '"017"'),
        ("1.5", "1.5"),
        ("-3", "-3"),
        ("true", '"true"'),
        ("null", '"null"'),
        ("1e999", '"1e999"'),
        ("", '""'),
        ("tschüß", '"tschüß"'),
        ("𠀋", '"𠀋"'),
        ('"},{: #', '"\\"},{: #"'),
        ("a" * 63, "a" * 63),
    ],
)
def test_a_value_means_what_it_would_mean_in_a_constraint(
    lab: Path, cluster_import: Import, label: str, written: str
) -> None:
    listed(lab, {"team": label})
    assert cluster_import(*SOURCE).code == 0
    assert f"    labels: {{team: {written}}}\n" in (lab / "cluster.yaml").read_text()
    found = load_cluster_config(lab / "cluster.yaml").hosts[0].attributes["team"]
    quotes = {"": '""', '"},{: #': "'\"},{: #'"}
    assert parse_constraint(f"team={quotes.get(label, label)}").operands == (found,)


@pytest.mark.parametrize("first", [True, False], ids=["a new file", "a file that is there"])
def test_labels_that_can_not_be_attributes_are_skipped_with_a_word(
    lab: Path, cluster_import: Import, *, first: bool
) -> None:
    if not first:
        (lab / "cluster.yaml").write_text(OURS)
    place, reserved = "iris takes it from the slice", "the name is reserved"
    key, value = "not a valid attribute name", "the value is not printable"
    faults: dict[str, tuple[object, str]] = {
        "zone": ("us-east5-a", place),
        "region": ("us-east5", place),
        "preemptible": ("true", place),
        "worker-id": ("7", reserved),
        "tpu-name": ("other", reserved),
        "scale-group": ("g", reserved),
        "taint:gpu": ("true", reserved),
        "größe": ("1", key),
        "-c": ("1", key),
        "a b": ("1", key),
        "\x1b[31mred\n- x": ("1", key),
        "escape": ("\x1b[2J", value),
        "lines": ("a\nb", value),
        "half": ("\ud800", value),
        "list": (["a"], value),
        "number": (7, value),
        "long": ("a" * 64, "the value is longer than 63 characters"),
    }
    listed(lab, {"team": "speech", **{name: said for name, (said, _) in faults.items()}})
    said = cluster_import(*SOURCE)
    assert said.code == 0, said.err
    shown = {"\x1b[31mred\n- x": "\\x1b[31mred⏎- x"}
    assert sorted(line for line in said.err.splitlines() if "skipped" in line) == sorted(
        f"v4a: skipped label {shown.get(name, name)}: {why}" for name, (_, why) in faults.items()
    )
    assert "labels: {team: speech}" in (lab / "cluster.yaml").read_text()
    assert "\x1b" not in said.out + said.err
    assert {key: attributes(lab)[key] for key in ("region", "zone")} == {
        "region": "us-central2",
        "zone": "us-central2-b",
    }


@pytest.mark.parametrize("labels", [None, [], "x", {}])
def test_labels_that_are_none_leave_no_trace(lab: Path, cluster_import: Import, labels: object) -> None:
    listed(lab, labels)
    said = cluster_import(*SOURCE)
    assert "labels:" not in said.out
    assert said.err == ""


def test_more_labels_than_google_allows_are_skipped_together(lab: Path, cluster_import: Import) -> None:
    listed(lab, {f"key-{number}": "x" for number in range(65)})
    said = cluster_import(*SOURCE)
    assert "v4a: skipped all labels: more than 64" in said.err
    assert "labels" not in (lab / "cluster.yaml").read_text()


def test_what_several_slices_have_skipped_is_said_once(lab: Path, cluster_import: Import) -> None:
    (model,) = json.loads((SAMPLES / "one_slice.json").read_text())
    nodes = [
        {
            **model,
            "name": f"projects/tpu-lab/locations/us-central2-b/nodes/{name}",
            "acceleratorType": "v4-8",
            "id": name,
            "labels": {"zone": "x"},
            "networkEndpoints": [{"ipAddress": address}],
        }
        for name, address in (("a", "10.0.0.1"), ("b", "10.0.0.2"))
    ]
    (lab / "tpus.json").write_text(json.dumps(nodes))
    assert "a, b: skipped label zone: iris takes it from the slice" in cluster_import(*SOURCE).err


# Again


def test_a_label_that_changed_shows_in_the_diff(lab: Path, cluster_import: Import) -> None:
    listed(lab, {"team": "speech", "level": "3"})
    cluster_import(*SOURCE)
    assert cluster_import(*SOURCE).out.startswith("nothing to change")
    listed(lab, {"team": "vision", "level": "3"})
    said = cluster_import(*SOURCE)
    assert "-    labels: {level: 3, team: speech}\n+    labels: {level: 3, team: vision}\n" in said.out
    assert "v4a: changed labels" in said.err
    assert attributes(lab)["team"] == "vision"


def test_labels_that_are_gone_are_no_attributes_any_more(lab: Path, cluster_import: Import) -> None:
    listed(lab, {"team": "speech", "level": "3"})
    cluster_import(*SOURCE)
    listed(lab, {"level": "3"})
    cluster_import(*SOURCE)
    assert "team" not in attributes(lab)
    assert attributes(lab)["level"] == 3
    listed(lab, {})
    cluster_import(*SOURCE)
    assert "    labels: {}\n" in (lab / "cluster.yaml").read_text()


def test_what_the_operator_wrote_stays_and_wins(lab: Path, cluster_import: Import) -> None:
    own = "    attributes: {team: nlp, pool: large, level: 4}  # ours\n"
    (lab / "cluster.yaml").write_text(OURS.replace("    env: {HF", f"{own}    env: {{HF"))
    listed(lab, {"team": "speech", "level": "4"})
    for _ in range(2):
        said = cluster_import(*SOURCE)
        assert "v4a: label team is overridden by its attributes: team: nlp" in said.err
        assert "label level" not in said.err
        assert own in (lab / "cluster.yaml").read_text()
        assert {key: attributes(lab)[key] for key in ("team", "pool", "level")} == {
            "team": "nlp",
            "pool": "large",
            "level": 4,
        }


def test_a_source_without_labels_leaves_them_alone(lab: Path, cluster_import: Import) -> None:
    listed(lab, {"team": "speech"})
    cluster_import(*SOURCE)
    before = (lab / "cluster.yaml").read_text()
    cluster_import("v4a=v4-32:10.130.0.[2-5]", "--yes")
    assert (lab / "cluster.yaml").read_text() == before


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{team: speech,  level: 3}  # Google's", "{team: vision,  level: 3}  # Google's"),
        (
            "\n      team: speech  # theirs\n      level: 3",
            "\n      team: vision  # theirs\n      level: 3",
        ),
        ("{level: 4}", "{level: 3, team: vision}"),
        ("\n      level: 4", "\n      {level: 3, team: vision}"),
    ],
)
def test_labels_are_changed_in_the_way_they_are_written(
    lab: Path, cluster_import: Import, before: str, after: str
) -> None:
    frame = (
        "slices:\n  - name: v4a\n    type: v4-32\n    hosts: 10.130.0.[2-5]\n    labels: {}\n    env: {{}}\n"
    )
    (lab / "cluster.yaml").write_text(frame.format(before))
    listed(lab, {"team": "vision", "level": "3"}, id="", createTime="")
    assert cluster_import(*SOURCE).code == 0
    text = (lab / "cluster.yaml").read_text().replace("    zone: us-central2-b\n", "")
    assert text == frame.format(after)


def test_labels_with_comments_are_left_to_a_person(lab: Path, cluster_import: Import) -> None:
    listed(lab, {"team": "speech"})
    cluster_import(*SOURCE)
    path = lab / "cluster.yaml"
    path.write_text(path.read_text().replace("{team: speech}", "\n      level: 3  # theirs\n      pool: a"))
    before = path.read_text()
    said = cluster_import(*SOURCE)
    assert said.code == 3
    assert "labels: {team: speech}" in said.err
    assert path.read_text() == before
