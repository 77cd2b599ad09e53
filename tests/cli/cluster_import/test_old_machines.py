"""A slice was re-created: what the log knows of its old machines, with and without the operator's consent."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from iris_cli.config.load import load_cluster_config
from iris_cli.core.ids import WorkerId
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.task import EndReason
from iris_cli.errors import ExitCode
from tests.cli.cluster_import.conftest import SAMPLES, Import
from tests.house.rules import ROOT
from tests.ops.world import World
from tests.support.lab import START, Lab
from tests.support.terminal import Terminal

KEYS = "".join(
    f"{owner} ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{'A' * 42}{last}\n"
    for owner, last in (("v4a-0", "A"), ("cpu", "B"))
)


@pytest.fixture
def world(lab: Path, cluster_import: Import) -> World:
    """An imported slice, a gang that runs there, and a task elsewhere."""
    cluster_import("--from", "one_slice.json", "cpu", "--yes")
    cluster_import("--from", "one_slice.json", "--yes")
    inside = Lab().slice("v4a", "v4-32").worker("cpu")
    inside.job("train", tpu="v4-32").schedule().reports("train/* running")
    inside.advance("1h").job("other", cpu=1).schedule()
    world = World(inside, lab / "state")
    world.write()
    (lab / "state" / "known_hosts").write_text(KEYS)
    (lab / "state" / "known_hosts").chmod(0o600)
    return world


def recreated(lab: Path, at: float, **otherwise: Any) -> str:
    """A list in which the slice has another id."""
    from datetime import UTC, datetime

    (model,) = json.loads((SAMPLES / "one_slice.json").read_text())
    made = datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")
    (lab / "tpus.json").write_text(json.dumps([{**model, "id": "77", "createTime": made, **otherwise}]))
    return "tpus.json"


ELSEWHERE = {"name": "projects/tpu-lab/locations/us-central2-c/nodes/v4a"}


def asked(lab: Path, source: str) -> Terminal:
    """The import in a terminal, where it can ask."""
    words = [sys.executable, "-m", "iris_cli", "cluster", "import", "--from", source]
    paths = {"PYTHONPATH": str(ROOT), "HOME": str(lab.parent), "IRIS_CONFIG": "", "IRIS_STATE_DIR": ""}
    return Terminal(words, env=paths, cwd=lab, columns=300, lines=80)


def now(world: World) -> Cluster:
    loaded = world._state().load().cluster
    assert loaded is not None
    return loaded


def test_with_consent_nothing_of_the_old_machines_is_left_on_the_books(
    lab: Path, world: World, cluster_import: Import
) -> None:
    said = cluster_import("--from", recreated(lab, START + 7200), "--yes")
    assert said.code == 0, said.err
    assert "4 attempts of train ran on the old VMs" in said.err
    assert "forgot 4 old VMs: v4a-[0-3]" in said.out
    cluster = now(world)
    assert set(cluster.workers) == {"cpu"}
    assert cluster.ghosts == {}
    ends = [task.attempts[0].end for task in cluster.tasks.values() if task.id.job == "train"]
    assert {end.reason for end in ends if end} == {EndReason.WORKER_FAILED}
    assert (lab / "state" / "known_hosts").read_text() == KEYS.splitlines(keepends=True)[1]


@pytest.mark.usefixtures("world")
def test_what_comes_next_is_said_when_all_questions_are_answered(lab: Path, cluster_import: Import) -> None:
    said = cluster_import("--from", recreated(lab, START + 7200), "--yes")
    lines = [line.partition(":")[0].split()[0] for line in said.out.splitlines()[-3:]]
    assert lines == ["wrote", "forgot", "next"]


@pytest.mark.parametrize(
    ("keys", "code", "moved"),
    [("n\r", ExitCode.FAILED, False), ("\x03", ExitCode.INTERRUPTED, True)],
    ids=["re-created", "moved"],
)
def test_one_question_is_asked_and_all_but_a_yes_loses_nothing(
    lab: Path, world: World, keys: str, code: ExitCode, moved: bool
) -> None:
    before, text = now(world), (lab / "cluster.yaml").read_bytes()
    source = recreated(lab, START + 7200, **(ELSEWHERE if moved else {}))
    with asked(lab, source) as shown:
        shown.until(lambda screen: screen.text.endswith("[y/N]:"), "the question")
        screen = shown.screen.text
        assert screen.index("+    incarnation:") < screen.index("4 attempts of train ran on the old VMs")
        question = f"Write {lab}/cluster.yaml and forget the old VMs of v4a-[0-3], with their host keys and attempts?"
        assert screen.endswith(f"{question} [y/N]:")
        shown.type(keys)
        assert shown.end() == code
        assert shown.screen.text.count("[y/N]") == 1
    assert now(world) == before
    assert (lab / "cluster.yaml").read_bytes() == text
    assert (lab / "state" / "known_hosts").read_text() == KEYS


def test_one_yes_writes_the_file_and_forgets_the_old_machines(lab: Path, world: World) -> None:
    with asked(lab, recreated(lab, START + 7200)) as shown:
        shown.until(lambda screen: screen.text.endswith("[y/N]:"), "the question")
        shown.type("y\r")
        assert shown.end() == 0
        assert shown.screen.text.count("[y/N]") == 1
    assert set(now(world).workers) == {"cpu"}
    assert "tpu-lab 77 " in (lab / "cluster.yaml").read_text()


def test_where_nobody_can_be_asked_nothing_is_written_or_forgotten(
    lab: Path, world: World, cluster_import: Import
) -> None:
    before, text = now(world), (lab / "cluster.yaml").read_bytes()
    said = cluster_import("--from", recreated(lab, START + 7200))
    assert (said.code, "pass --yes to write" in said.err) == (ExitCode.USAGE, True)
    assert now(world) == before
    assert (lab / "cluster.yaml").read_bytes() == text


def test_a_dry_run_says_it_and_changes_nothing(lab: Path, world: World, cluster_import: Import) -> None:
    before = now(world)
    said = cluster_import("--from", recreated(lab, START + 7200), "--dry-run")
    assert "4 attempts of train ran on the old VMs" in said.err
    assert now(world) == before
    assert "77" not in (lab / "cluster.yaml").read_text()


@pytest.mark.parametrize(
    "otherwise", [{}, {"createTime": "a-while-ago"}], ids=["made before that", "nobody knows when"]
)
def test_what_may_run_on_the_new_machines_is_never_taken_for_dead(
    lab: Path, world: World, cluster_import: Import, otherwise: dict[str, str]
) -> None:
    before = now(world)
    source = recreated(lab, START - 7200, **otherwise)
    said = cluster_import("--from", source, "--yes")
    assert said.code == 0
    assert "v4a-0: not forgotten, train/task-0/attempt-0 was placed there since then" in said.err
    assert now(world) == before
    assert (lab / "state" / "known_hosts").read_text() == KEYS


def test_ghosts_of_the_old_machines_do_not_haunt_the_new_ones(
    lab: Path, world: World, cluster_import: Import
) -> None:
    world.lab.forget_dead("v4a-0")
    world.write()
    assert WorkerId("v4a-0") in now(world).ghosts
    cluster_import("--from", recreated(lab, START + 7200), "--yes")
    assert now(world).ghosts == {}


def test_ghosts_that_may_be_on_the_new_machines_stay(lab: Path, world: World, cluster_import: Import) -> None:
    world.lab.forget_dead("v4a-0")
    world.write()
    cluster_import("--from", recreated(lab, START - 7200), "--yes")
    assert WorkerId("v4a-0") in now(world).ghosts


def test_where_there_is_no_log_there_is_nothing_to_forget(lab: Path, cluster_import: Import) -> None:
    cluster_import("--from", "one_slice.json", "--yes")
    said = cluster_import("--from", recreated(lab, START), "--yes")
    assert said.code == 0
    assert "was re-created" in said.err
    assert "forgot" not in said.out


# Moved: other machines have the addresses


def slices(lab: Path) -> dict[str, tuple[str, ...]]:
    """The workers of each slice that the file has, with zone and addresses."""
    found: dict[str, tuple[str, ...]] = {}
    for each in load_cluster_config(lab / "cluster.yaml").hosts:
        if each.slice:
            before = found.get(each.slice, (str(each.attributes["zone"].value),))
            found[each.slice] = (*before, each.connection.host)
    return found


def test_a_slice_that_moved_to_another_zone_takes_one_consent(
    lab: Path, world: World, cluster_import: Import
) -> None:
    hosts = slices(lab)["v4a"][1:]
    source = recreated(lab, START + 7200, **ELSEWHERE)
    said = cluster_import("--from", source, "--yes")
    assert said.code == 0, said.err
    assert "-    zone: us-central2-b\n+    zone: us-central2-c\n" in said.out
    assert (
        "v4a moved from us-central2-b to us-central2-c: its VMs differ from those in cluster.yaml" in said.err
    )
    assert "4 attempts of train ran on the old VMs" in said.err
    assert "forgot 4 old VMs: v4a-[0-3]" in said.out
    assert slices(lab) == {"v4a": ("us-central2-c", *hosts)}
    assert set(now(world).workers) == {"cpu"}
    assert (lab / "state" / "known_hosts").read_text() == KEYS.splitlines(keepends=True)[1]
    assert cluster_import("--from", source, "--yes").out.startswith("nothing to change")


def test_a_slice_of_another_name_with_the_same_addresses_takes_one_consent(
    lab: Path, world: World, cluster_import: Import
) -> None:
    path = lab / "cluster.yaml"
    path.write_text(path.read_text().replace("    zone:", "    env: {A: b}  # kept\n    zone:"))
    hosts = slices(lab)["v4a"][1:]
    ends = [{"ipAddress": address} for address in reversed(hosts)]
    name = {"name": "projects/tpu-lab/locations/us-central2-b/nodes/v4b", "networkEndpoints": ends}
    said = cluster_import("--from", recreated(lab, START + 7200, **name), "--yes")
    assert said.code == 0, said.err
    assert "-  - name: v4a\n+  - name: v4b\n" in said.out
    assert "v4b took the addresses of v4a: its VMs differ from those in cluster.yaml" in said.err
    assert "forgot 4 old VMs: v4a-[0-3]" in said.out
    assert slices(lab) == {"v4b": ("us-central2-b", *reversed(hosts))}
    assert "    env: {A: b}  # kept\n" in path.read_text()
    assert set(now(world).workers) == {"cpu"}


def test_a_name_that_is_taken_gets_its_zone_when_a_slice_moves(lab: Path, cluster_import: Import) -> None:
    (lab / "cluster.yaml").write_text(
        "slices:\n  - {name: v4b, type: v4-8, hosts: 10.9.9.9, zone: us-east1-d}\n"
    )
    cluster_import("--from", "one_slice.json", "--yes")
    name = {"name": "projects/tpu-lab/locations/us-central2-b/nodes/v4b"}
    assert cluster_import("--from", recreated(lab, START, **name), "--yes").code == 0
    assert set(slices(lab)) == {"v4b", "v4b-us-central2-b"}


@pytest.mark.parametrize(
    "otherwise",
    [
        {"name": "projects/prod/locations/us-central2-c/nodes/v4a"},
        {"name": "projects/tpu-lab/locations/us-central2-c/nodes/v4b"},
        {**ELSEWHERE, "id": ""},
        {**ELSEWHERE, "networkEndpoints": [{"ipAddress": f"10.130.0.{last}"} for last in (5, 6, 7, 8)]},
    ],
    ids=["another project", "another name and zone", "which machine is not told", "some addresses"],
)
def test_addresses_alone_make_no_slice_another_one(
    lab: Path, world: World, cluster_import: Import, otherwise: dict[str, Any]
) -> None:
    """Two networks may have the same addresses, and what runs in the other one may be alive."""
    before, text = now(world), (lab / "cluster.yaml").read_text()
    said = cluster_import("--from", recreated(lab, START + 7200, **otherwise), "--yes")
    assert "already belongs to slice v4a" in said.err
    assert (lab / "cluster.yaml").read_text() == text
    assert now(world) == before


def test_a_slice_that_is_still_listed_where_it_was_did_not_move(
    lab: Path, world: World, cluster_import: Import
) -> None:
    before, text = now(world), (lab / "cluster.yaml").read_text()
    (model,) = json.loads((SAMPLES / "one_slice.json").read_text())
    (other,) = json.loads((lab / recreated(lab, START + 7200, **ELSEWHERE)).read_text())
    for state in ("READY", "REPAIRING"):
        (lab / "tpus.json").write_text(json.dumps([{**model, "state": state}, other]))
        said = cluster_import("--from", "tpus.json", "--yes")
        assert "skipped v4a: 10.130.0.2 already belongs to slice v4a" in said.err
    assert (lab / "cluster.yaml").read_text() == text
    assert now(world) == before


@pytest.mark.parametrize("kept", ["{zone: us-central2-b}", "{region: us-central2, zone: us-central2-b}"])
def test_a_zone_among_the_attributes_is_the_operators(lab: Path, cluster_import: Import, kept: str) -> None:
    cluster_import("--from", "one_slice.json", "--yes")
    path = lab / "cluster.yaml"
    path.write_text(path.read_text().replace("zone: us-central2-b", f"attributes: {kept}"))
    said = cluster_import("--from", recreated(lab, START, **ELSEWHERE), "--yes")
    assert "v4a: its attributes say zone: us-central2-b, which is wrong" in said.err
    assert f"attributes: {kept}" in path.read_text()
