"""`iris autoscale --dry-run` and the scale groups in `iris status`, word for word; nobody is asked for anything."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from time import time

import pytest

from iris_cli.capacity.provider import instructions
from iris_cli.cli import app
from iris_cli.config.load import load_cluster_config
from iris_cli.core import AttributeValue
from iris_cli.core.events.events import SliceRequested
from iris_cli.core.ids import JobId
from iris_cli.core.model.slice import Provider, SliceTemplate
from iris_cli.journal.state_dir import StateDir

CLUSTER = """
cluster: {name: lab}
scale_groups:
  - name: west
    priority: 1
    max_slices: 2
    slice_template: {provider: local, zone: us-west4-a, type: v5litepod-16, preemptible: true}
  - name: lab
    priority: 2
    slice_template: {provider: manual, zone: us-central2-b, type: v4-32}
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("IRIS_CONFIG", raising=False)
    monkeypatch.delenv("IRIS_STATE_DIR", raising=False)
    for name, words in {
        "train": ["--tpu", "v5e-16", "--slices", "2"],
        "large": ["--tpu", "v4-32"],
        "far": ["--force", "--tpu", "v5e-16", "-c", "region=eu-west4"],
    }.items():
        assert app.run(["launch", "--no-schedule", "--name", name, *words, "--", "true"]) == 0
    capsys.readouterr()
    return tmp_path


def lines(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert app.run(list(words)) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("command", ["autoscale", "schedule"])
def test_once_and_again_and_again_is_not_both_possible(
    site: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (site / "state" / "events.jsonl").read_bytes()
    assert app.run([command, "--once", "--interval", "5"]) == 2
    assert "--once and --interval can't be combined" in capsys.readouterr().err
    assert (site / "state" / "events.jsonl").read_bytes() == before


def test_a_dry_run_says_who_wants_what_who_makes_it_and_why_not(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    owner = json.loads((site / "state" / "events.jsonl").read_text().splitlines()[0])["cluster_id"][:4]
    assert lines(capsys, "autoscale", "--dry-run") == [
        "train (2 slices of v5litepod-16) is served by scale group west",
        "large (1 slice of v4-32) is served by scale group lab",
        "far (1 slice of v5litepod-16) is not served: needs region=eu-west4, "
        "but the otherwise suitable scale group west has us-west4 (did you mean us-west4?)",
        f"create west-{owner}-1 in scale group west",
        f"create west-{owner}-2 in scale group west",
        "scale group lab has provider manual: create 1 slice of v4-32 (16 chips, 4 VMs) in us-central2-b yourself,",
        "then add it under slices in cluster.yaml, with your NAME and HOST:",
        '- {"name": "NAME", "type": "v4-32", "hosts": ["HOST-[0-3]"], "zone": "us-central2-b"}',
    ]
    assert lines(capsys, "--quiet", "autoscale", "--dry-run") == [
        f"create west-{owner}-1",
        f"create west-{owner}-2",
    ]


def test_a_dry_run_as_json_has_all_of_it(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads("\n".join(lines(capsys, "autoscale", "--dry-run", "--json")))
    assert found["schema_version"] == 1
    assert found["demand"][2] == {
        "id": "far",
        "slices": 1,
        "constraints": ["region=eu-west4"],
        "preemptible": None,
        "required_regions": ["eu-west4"],
        "invalid_reason": "",
    }
    assert found["routed"] == {"west": ["train"], "lab": ["large"]}
    assert [each["reason"] for each in found["unmet"]] == ["region"]
    assert [(each["name"], each["wanted"], each["provider"]) for each in found["groups"]] == [
        ("west", 2, "local"),
        ("lab", 1, "manual"),
    ]


def test_status_shows_groups_and_what_is_unmet(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = lines(capsys, "status")
    start = next(number for number, line in enumerate(shown) if line.startswith("SCALE GROUP"))
    assert [line.split() for line in shown[start : start + 3]] == [
        ["SCALE", "GROUP", "TYPE", "WHERE", "SLICES", "TO", "ADD"],
        ["west", "v5litepod-16", "us-west4,", "preemptible", "0", "(max", "2)", "2"],
        ["lab", "v4-32", "us-central2", "0", "(max", "1)", "1"],
    ]
    assert any(line.startswith("no scale group serves far: needs region=eu-west4") for line in shown)


@pytest.mark.parametrize("tpu", ["v4-32", "v4-8"])
def test_the_line_to_add_to_the_configuration_is_valid_there(
    site: Path, tpu: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = CLUSTER.replace("type: v4-32", f"type: {tpu}")
    (site / "cluster.yaml").write_text(config)
    assert app.run(["launch", "--no-schedule", "--name", "more", "--tpu", tpu, "--", "true"]) == 0
    [entry] = [line for line in lines(capsys, "autoscale", "--dry-run") if line.startswith("- ")]
    (site / "cluster.yaml").write_text(f"{config}slices:\n  {entry}\n")
    assert app.run(["config", "validate"]) == 0
    workers = load_cluster_config(site / "cluster.yaml").hosts
    assert [each.worker for each in workers] == [
        f"NAME-{index}" for index in range(4 if tpu == "v4-32" else 1)
    ]


def test_without_scale_groups_nothing_is_said_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cluster.yaml").write_text("workers: [{id: w, host: w.example.org}]\n")
    monkeypatch.chdir(tmp_path)
    assert lines(capsys, "autoscale", "--dry-run") == ["demand: none"]
    assert not any("GROUP" in line for line in lines(capsys, "status"))


def test_why_says_of_a_job_that_waits_what_a_pass_would_say(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    demand_outcomes = {
        line.split()[0]: line.partition(") is ")[2]
        for line in lines(capsys, "autoscale", "--dry-run")
        if ") is " in line
    }
    assert demand_outcomes["far"].startswith("not served: needs region=eu-west4")
    for job, fate in demand_outcomes.items():
        [wait] = json.loads("\n".join(lines(capsys, "--json", "why", job)))["waits"]
        assert wait["demand"] == fate
        [line] = [line for line in lines(capsys, "why", job) if line.startswith("demand ")]
        assert line.split()[1:4] == fate.split()[:3]


def test_why_says_all_that_becomes_of_the_tasks_of_a_job(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """There are slices for some of them only."""
    assert app.run(["cancel", "train"]) == 0
    wanted = ("--cpu", "60", "--replicas", "12", "-c", "region=us-west4")
    assert app.run(["launch", "--no-schedule", "--name", "many", *wanted, "--", "true"]) == 0
    capsys.readouterr()
    [wait] = json.loads("\n".join(lines(capsys, "--json", "why", "many")))["waits"]
    assert wait["demand"] == (
        "served by scale group west; "
        "not served: needs 1 slice, but scale group west is at its limit of 2 slices (max_slices)"
    )


def test_why_says_how_far_the_slice_is_that_is_made_for_a_job(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = StateDir(site / "state", now=time, actor="me@laptop")
    template = SliceTemplate(provider=Provider.LOCAL, type="v5litepod-16", zone="us-west4-a")
    with state.locked("iris autoscale") as writer:
        asked = [
            SliceRequested(
                slice=f"west-c0ff-{n}", group="west", template=template, wanted_by=(JobId("train"),)
            )
            for n in (1, 2)
        ]
        writer.append(asked, at=time())
    [wait] = json.loads("\n".join(lines(capsys, "--json", "why", "train/task-3")))["waits"]
    assert wait["demand"] == "west-c0ff-1 is requested, west-c0ff-2 is requested"


# A copy of the state directory


@pytest.fixture
def copy(site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """The directory of somebody who has copied another one, in which a slice was asked for."""
    app.run(["autoscale"])
    shutil.copytree(site, site / "copy")
    monkeypatch.chdir(site / "copy")
    capsys.readouterr()
    return site / "copy"


def test_a_copy_asks_for_nothing_and_says_what_to_type(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host = os.uname().nodename
    what = f"slices are managed from {host}:{copy.parent}/state"
    log = (copy / "state" / "events.jsonl").read_bytes()
    assert app.run(["autoscale"]) == 3
    said = capsys.readouterr().err
    assert f"{what}; this state directory was copied or moved" in said
    assert "use that state directory; if it is gone for good: iris autoscale --adopt" in said
    assert (copy / "state" / "events.jsonl").read_bytes() == log
    assert app.run(["autoscale", "--dry-run"]) == 0
    assert f"no slices are created or deleted: {what}" in capsys.readouterr().err
    assert app.run(["schedule", "--once", "--autoscale"]) == 0
    assert f"no slices are created or deleted: {what}" in capsys.readouterr().err
    assert app.run(["--json", "schedule", "--once", "--autoscale"]) == 0
    assert what in json.loads(capsys.readouterr().out)["scaling"]["problems"][0]


def test_it_is_adopted_with_the_operators_consent_only(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(["autoscale", "--adopt"]) == 1
    said = capsys.readouterr().err
    assert f"from {os.uname().nodename}:{copy.parent}/state to this state directory?" in said
    assert "pass --yes to adopt the slices" in said
    assert app.run(["autoscale"]) == 3
    capsys.readouterr()
    assert lines(capsys, "autoscale", "--adopt", "--yes") == ["this state directory now manages the slices"]
    assert lines(capsys, "autoscale", "--adopt") == ["this state directory already manages the slices"]
    assert app.run(["autoscale"]) == 0
    assert "SlicesAdopted" in "".join(lines(capsys, "--json", "history"))  # a table folds long paths


def test_cycles_create_slices_by_themselves_only_if_the_configuration_says_so(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "scaling" not in json.loads("\n".join(lines(capsys, "--json", "schedule", "--once")))
    (site / "cluster.yaml").write_text(f"{CLUSTER}\nautoscale: auto\n")
    assert "scaling" in json.loads("\n".join(lines(capsys, "--json", "schedule", "--once")))


@pytest.mark.parametrize(
    "words", [["--adopt", "--once"], ["--adopt", "--dry-run"], ["--adopt", "--interval", "5"], ["--yes"]]
)
def test_what_can_not_be_meant_is_refused(site: Path, words: list[str]) -> None:
    assert app.run(["autoscale", *words]) == 2


def test_the_entry_to_write_by_hand_gives_workers_the_attributes_of_the_group(tmp_path: Path) -> None:
    (tmp_path / "groups.yaml").write_text(
        "cluster: {name: lab}\n"
        "scale_groups:\n"
        "  - name: west\n"
        "    slice_template: {provider: manual, zone: us-west4-a, type: v5litepod-16, preemptible: true}\n"
        "    worker:\n"
        '      attributes: {pool: p, rack: 3, w: 1.0, v: "7", t: true, "a/b:c": "x, y: {z}", n: "no", z: "null"}\n'
        "      taints: [slow, x]\n"
        "  - name: anywhere\n"
        "    slice_template: {provider: manual, type: v6e-8}\n"
        "    worker: {attributes: {region: mars}}\n"
    )
    groups = load_cluster_config(tmp_path / "groups.yaml").scale_groups
    entries = [list(instructions(group, 1))[-1] for group in groups]
    by_hand = tmp_path / "by-hand.yaml"
    by_hand.write_text("cluster: {name: lab}\nslices:\n" + "".join(f"  {each}\n" for each in entries))
    by_hand.write_text(
        by_hand.read_text().replace("NAME", "b", 1).replace("NAME", "c").replace("HOST]", "h]")
    )
    workers = load_cluster_config(by_hand).hosts
    for group, worker in zip(groups, (workers[0], workers[-1]), strict=True):
        wanted = {key: value for key, value in group.attributes.items() if key != "scale-group"}
        assert wanted.items() <= {"preemptible": AttributeValue(False), **worker.attributes}.items()
