"""A slice was re-created: what the log knows of its old machines, with and without the operator's consent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from iris_cli.core.cluster import Cluster
from iris_cli.core.ids import WorkerId
from iris_cli.core.outcome import EndReason
from tests.cli.cluster_import.conftest import SAMPLES, Import
from tests.ops.world import World
from tests.support.lab import START, Lab

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


def now(world: World) -> Cluster:
    loaded = world._state().load().cluster
    assert loaded is not None
    return loaded


def test_with_consent_nothing_of_the_old_machines_is_left_on_the_books(
    lab: Path, world: World, cluster_import: Import
) -> None:
    said = cluster_import("--from", recreated(lab, START + 7200), "--accept-recreated", "--yes")
    assert said.code == 0, said.err
    assert "on the old machines ran 4 attempts of train" in said.err
    assert "forgot 4 old machines: v4a-[0-3]" in said.out
    cluster = now(world)
    assert set(cluster.workers) == {"cpu"}
    assert cluster.ghosts == {}
    ends = [task.attempts[0].end for task in cluster.tasks.values() if task.id.job == "train"]
    assert {end.reason for end in ends if end} == {EndReason.WORKER_FAILED}
    assert (lab / "state" / "known_hosts").read_text() == KEYS.splitlines(keepends=True)[1]


@pytest.mark.usefixtures("world")
def test_what_comes_next_is_said_when_all_questions_are_answered(lab: Path, cluster_import: Import) -> None:
    said = cluster_import("--from", recreated(lab, START + 7200), "--accept-recreated", "--yes")
    lines = [line.partition(":")[0].split()[0] for line in said.out.splitlines()[-3:]]
    assert lines == ["wrote", "forgot", "next"]


def test_without_consent_nothing_is_taken_for_dead(lab: Path, world: World, cluster_import: Import) -> None:
    before = now(world)
    said = cluster_import("--from", recreated(lab, START + 7200), "--yes")
    assert said.code == 0
    assert "iris worker probe --accept-key v4a-0" in said.err
    assert now(world) == before
    assert (lab / "state" / "known_hosts").read_text() == KEYS


def test_a_dry_run_says_it_and_changes_nothing(lab: Path, world: World, cluster_import: Import) -> None:
    before = now(world)
    said = cluster_import("--from", recreated(lab, START + 7200), "--accept-recreated", "--dry-run")
    assert "on the old machines ran 4 attempts of train" in said.err
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
    said = cluster_import("--from", source, "--accept-recreated", "--yes")
    assert said.code == 0
    assert "v4a-0: train/task-0/attempt-0 was placed there since then" in said.err
    assert now(world) == before
    assert (lab / "state" / "known_hosts").read_text() == KEYS


def test_ghosts_of_the_old_machines_do_not_haunt_the_new_ones(
    lab: Path, world: World, cluster_import: Import
) -> None:
    world.lab.forget_dead("v4a-0")
    world.write()
    assert WorkerId("v4a-0") in now(world).ghosts
    cluster_import("--from", recreated(lab, START + 7200), "--accept-recreated", "--yes")
    assert now(world).ghosts == {}


def test_ghosts_that_may_be_on_the_new_machines_stay(lab: Path, world: World, cluster_import: Import) -> None:
    world.lab.forget_dead("v4a-0")
    world.write()
    cluster_import("--from", recreated(lab, START - 7200), "--accept-recreated", "--yes")
    assert WorkerId("v4a-0") in now(world).ghosts


def test_where_there_is_no_log_there_is_nothing_to_forget(lab: Path, cluster_import: Import) -> None:
    cluster_import("--from", "one_slice.json", "--yes")
    said = cluster_import("--from", recreated(lab, START), "--accept-recreated", "--yes")
    assert said.code == 0
    assert "was re-created" in said.err
    assert "forgot" not in said.out
