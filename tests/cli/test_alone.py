"""`iris` without a command: where we are, and what to type next. Exits 0, asks nobody, changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iris_cli.cli import app
from iris_cli.core.events.events import WorkerForgotten
from iris_cli.core.ids import WorkerId
from iris_cli.errors import ExitCode
from iris_cli.journal.layout import LOG
from iris_cli.ops.cluster_handle import ClusterHandle
from iris_cli.ops.setup.next_steps import MAX_PER_KIND, next_steps
from tests.cli.test_init import NODE
from tests.render.scenes import busy, failed_gang, session_of
from tests.support.command_lines import parsed
from tests.support.lab import Lab

Said = Callable[..., str]
LAB = "cluster: {name: lab}\nworkers: [{id: cpu-0, host: nowhere.invalid}]\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory, at an empty home, with nothing to find but what the test puts there."""
    for name in ("IRIS_CONFIG", "IRIS_STATE_DIR", "IRIS_TASK_DIR", "IRIS_JOB_ID", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "home").mkdir()
    directory = tmp_path / "here"
    directory.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "home"))
    monkeypatch.chdir(directory)
    return directory


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    def say(*options: str) -> str:
        assert app.run(options) == ExitCode.OK
        out, err = capsys.readouterr()
        assert err == ""
        return out

    return say


def steps(said: Said) -> list[str]:
    return [step["command"] for step in json.loads(said("--json"))["steps"]]


def test_without_a_file_it_leads_to_one(here: Path, said: Said) -> None:
    assert said().splitlines()[0] == "no cluster.yaml in this directory"
    assert steps(said) == ["iris init", "iris demo"]
    (here / "tpus.json").write_text(f"[{NODE}]")
    assert [each for each in steps(said) if "iris cluster import" in each] != []
    assert said("--quiet").splitlines() == steps(said)
    assert sorted(path.name for path in here.iterdir()) == ["tpus.json"]


def test_with_a_file_and_nothing_done_it_leads_to_a_first_job(here: Path, said: Said) -> None:
    (here / "cluster.yaml").write_text(LAB)
    assert ": 1 host; no job has run yet" in said()
    assert steps(said) == ["iris doctor", "iris worker probe", "iris launch -- hostname"]
    assert [path.name for path in here.iterdir()] == ["cluster.yaml"]


def test_a_file_without_hosts_is_to_be_filled(here: Path, said: Said) -> None:
    assert app.run(["--quiet", "init"]) == ExitCode.OK
    said("--version")
    assert ": 0 hosts" in said()
    assert steps(said) == ["iris config validate"]


def test_a_file_that_can_not_be_read_is_to_be_validated(here: Path, said: Said) -> None:
    (here / "cluster.yaml").write_text("cluster: {nmae: lab}\n")
    assert steps(said) == ["iris config validate"]
    assert json.loads(said("--json"))["place"] == "broken"


def test_a_file_that_was_named_must_be_there(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["--config", str(here / "lab.yaml")]) == ExitCode.CONFIG
    assert "lab.yaml" in capsys.readouterr().err


def test_inside_a_task_it_tells_which(here: Path, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    task = {
        "TASK_DIR": str(here),
        "JOB_ID": "train",
        "TASK_INDEX": "3",
        "NUM_TASKS": "4",
        "WORKER_ID": "v5a-3",
    }
    for name, value in task.items():
        monkeypatch.setenv(f"IRIS_{name}", value)
    assert said().splitlines()[0] == "rank 3 of 4 of train, on v5a-3"
    assert steps(said)[0] == "iris status"
    assert list(here.iterdir()) == []


def test_a_damaged_log_leads_to_the_doctor(here: Path, said: Said) -> None:
    session_of(busy(), here / "state")
    (here / "cluster.yaml").write_text(LAB)
    log = here / "state" / LOG
    text = log.read_bytes()
    log.write_bytes(text[:2000] + b"#" + text[2001:])
    assert "iris doctor" in steps(said)


def test_what_is_wrong_comes_before_what_goes_on(here: Path, said: Said) -> None:
    session_of(failed_gang(), here / "state")
    (here / "cluster.yaml").write_text(LAB)
    before = {path.name: path.read_bytes() for path in (here / "state").iterdir()}
    found = json.loads(said("--json"))
    urgent = [step["urgent"] for step in found["steps"]]
    assert urgent == sorted(urgent, reverse=True)
    assert {path.name: path.read_bytes() for path in (here / "state").iterdir()} == before


GROUP = """scale_groups:
  - {name: g, max_slices: 1, slice_template: {provider: manual, type: v4-8, zone: us-central2-b}}
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (LAB, ["iris doctor", "iris worker probe"]),
        ("cluster: {name: lab}\n", ["iris config validate"]),
        (f"cluster: {{name: lab}}\n{GROUP}", ["iris launch -- COMMAND"]),
    ],
    ids=["hosts that are not known yet", "no hosts", "slices on demand"],
)
def test_a_cluster_without_workers_is_led_to_them_before_a_launch(
    here: Path, said: Said, text: str, expected: list[str]
) -> None:
    lab = Lab().worker("cpu-0").job("j").schedule().reports("j/* running").reports("j/* exited 0")
    session_of(lab.records(WorkerForgotten(worker=WorkerId("cpu-0"))), here / "state")
    (here / "cluster.yaml").write_text(text)
    assert "0 workers" in said()
    assert steps(said) == expected


@pytest.mark.parametrize("scene", [busy, failed_gang])
def test_each_step_can_be_typed(scene: Any, here: Path, tmp_path: Path) -> None:
    session_of(scene(), here / "state")
    (here / "cluster.yaml").write_text(LAB)
    found = next_steps(ClusterHandle(), {}, tmp_path / "home")
    for step in found.steps:
        parsed(step.command)
    kinds = [step.command.split()[1] for step in found.steps]
    assert all(kinds.count(kind) <= MAX_PER_KIND + 1 for kind in kinds)


def test_workers_that_only_stop_tasks_are_no_problem(here: Path, said: Said) -> None:
    lab = Lab().slice("a", workers=2).job("train", tpu="v4-16").schedule().reports("train/* running")
    (here / "cluster.yaml").write_text(LAB)
    session_of(lab.cancel("train").advance("1s"), here / "state")
    assert steps(said)[-2:] == ["iris logs train --follow", "iris watch"]
    assert not any("worker" in step for step in steps(said))


def test_a_message_that_names_a_command_leads_to_it(here: Path, said: Said) -> None:
    template = "{provider: local, zone: us-west4-a, type: v4-16}"
    group = f"scale_groups: [{{name: west, max_slices: 1, slice_template: {template}}}]\n"
    (here / "cluster.yaml").write_text(LAB + group)
    session_of(Lab().worker("cpu-0").job("train", tpu="v4-16", force=True), here / "state")
    assert steps(said)[0] == "iris autoscale"
    lines = (here / "state" / LOG).read_text().splitlines(keepends=True)
    (here / "state" / LOG).write_text("".join([*lines[:-1], lines[-1].replace("seq", "sew")]))
    assert not {"iris autoscale", "iris loop start", "iris launch -- COMMAND"} & set(steps(said))
