"""`iris config validate`: offline, and every problem at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from iris_cli.cli.app import run

GOOD = """cluster: {name: lab}
slices:
  - {name: a, type: v4-16, hosts: [h0, h1]}
  - {name: b, type: v4-16, hosts: [h2, h3]}
workers:
  - {id: cpu-0, host: h4}
"""
BAD = """cluster: {name: lab}
slices:
  - {name: a, type: v4-16, hosts: [h0]}
workrs: []
workers:
  - {id: cpu-0}
"""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("IRIS_CONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_good_file_is_counted(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (directory / "cluster.yaml").write_text(GOOD)
    assert run(["config", "validate"]) == 0
    assert capsys.readouterr().out == f"{directory}/cluster.yaml: ok, cluster lab: 2 slices, 5 workers\n"


def test_every_problem_is_named_with_its_line(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (directory / "cluster.yaml").write_text(BAD)
    assert run(["config", "validate"]) == 3
    error = capsys.readouterr().err
    for line, path in ((3, "slices[0].hosts"), (4, "workrs"), (6, "workers[0]")):
        assert f"cluster.yaml:{line}: {path}" in error


def test_problems_are_json_too(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (directory / "lab.yaml").write_text(BAD)
    assert run(["config", "validate", "--json", "--config", "lab.yaml"]) == 3
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert (found["valid"], len(found["problems"])) == (False, 3)


def test_a_file_that_is_missing_comes_with_the_way_to_make_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "validate"]) == 3
    assert "iris init" in capsys.readouterr().err


def test_an_unusual_but_valid_setting_is_a_warning(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (directory / "cluster.yaml").write_text(GOOD.replace("v4-16, hosts: [h2, h3]", "v99-4, hosts: [h2]"))
    assert run(["config", "validate"]) == 0
    assert "warning: " in capsys.readouterr().err


def test_no_state_directory_is_made(directory: Path) -> None:
    (directory / "cluster.yaml").write_text(GOOD)
    run(["config", "validate"])
    assert [path.name for path in directory.iterdir()] == ["cluster.yaml"]
