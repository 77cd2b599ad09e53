"""Which `cluster.yaml` is used."""

from __future__ import annotations

from pathlib import Path

import pytest

from iris_cli.config.load import find_config
from iris_cli.errors import ConfigError


@pytest.fixture
def everywhere(tmp_path: Path) -> dict[str, Path]:
    """A file in each place that is looked at, in order of precedence."""
    places = {
        "explicit": tmp_path / "given.yaml",
        "environment": tmp_path / "env.yaml",
        "here": tmp_path / "cwd" / "cluster.yaml",
        "user": tmp_path / "home" / ".config" / "iris" / "cluster.yaml",
    }
    for path in places.values():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("cluster: {name: a}\n")
    return places


def test_the_most_explicit_one_wins(tmp_path: Path, everywhere: dict[str, Path]) -> None:
    home, cwd = {"HOME": str(tmp_path / "home")}, tmp_path / "cwd"
    named = {**home, "IRIS_CONFIG": str(everywhere["environment"])}
    assert find_config(everywhere["explicit"], named, cwd) == everywhere["explicit"]
    assert find_config(None, named, cwd) == everywhere["environment"]
    assert find_config(None, {**home, "IRIS_CONFIG": ""}, cwd) == everywhere["here"]
    everywhere["here"].unlink()
    assert find_config(None, home, cwd) == everywhere["user"]


def test_the_users_directory_can_be_elsewhere(tmp_path: Path, everywhere: dict[str, Path]) -> None:
    other = tmp_path / "xdg" / "iris" / "cluster.yaml"
    other.parent.mkdir(parents=True)
    other.write_text("")
    environ = {"HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path / "xdg")}
    assert find_config(None, environ, tmp_path) == other
    assert find_config(None, {**environ, "XDG_CONFIG_HOME": "relative"}, tmp_path) == everywhere["user"]


def test_a_relative_name_starts_at_the_working_directory(tmp_path: Path, everywhere: dict[str, Path]) -> None:
    assert find_config(Path("given.yaml"), {}, tmp_path) == everywhere["explicit"]
    assert find_config(None, {"IRIS_CONFIG": "env.yaml"}, tmp_path) == everywhere["environment"]


@pytest.mark.parametrize(
    ("explicit", "environ"), [(Path("no.yaml"), {}), (None, {"IRIS_CONFIG": "no.yaml"}), (Path("cwd"), {})]
)
def test_a_file_that_was_named_must_be_there(
    tmp_path: Path, everywhere: dict[str, Path], explicit: Path | None, environ: dict[str, str]
) -> None:
    problem = "not a regular file" if explicit == Path("cwd") else "no such file"
    with pytest.raises(ConfigError, match=problem):
        find_config(explicit, {**environ, "HOME": str(tmp_path / "home")}, tmp_path)


def test_without_any_file_the_way_to_one_is_shown(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        find_config(None, {"HOME": str(tmp_path)}, tmp_path)
    assert "iris init" in refused.value.hint
    assert str(tmp_path / "cluster.yaml") in refused.value.message
