"""What is released is whole, holds nothing else, and works where only it is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
import tarfile
import tomllib
from collections.abc import Mapping, Sequence
from email.message import Message
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

from iris_cli import __version__
from tests.support.wheel import ROOT, Built, Installed, find_python, run

NEWER = ("3.14", "3.13", "3.12")
"""Versions of Python that may be installed besides the one that runs the tests, newest first."""

LOG = ROOT / "tests" / "journal" / "museum" / "format-1.jsonl"


def files_below(directory: Path, at: Path) -> set[str]:
    found = (path.relative_to(at) for path in directory.rglob("*") if path.is_file())
    return {str(path) for path in found if "__pycache__" not in path.parts}


def metadata_of(wheel: Path) -> Message:
    with ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def test_the_wheel_holds_the_package_and_nothing_else(built: Built) -> None:
    with ZipFile(built.wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        notes = {name.partition("/")[2] for name in archive.namelist() if ".dist-info/" in name}
    assert names == files_below(ROOT / "iris_cli", ROOT)
    assert [name for name in names if re.search(r"(^|/)(tests?|bench|conftest)[/._]", name)] == []
    assert {Path(name).suffix for name in names} == {".py", ".sh", ".css", ".js", ".typed"}
    assert notes == {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}


def test_the_sdist_holds_what_the_wheel_is_made_of_and_what_one_reads(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {name for name in names if name.startswith("iris_cli/")} == files_below(ROOT / "iris_cli", ROOT)
    assert {name for name in names if name.startswith("docs/")} == files_below(ROOT / "docs", ROOT)
    assert {name for name in names if "/" not in name} == {
        *("pyproject.toml", "PKG-INFO", "README.md", "CHANGELOG.md", "LICENSE", "cluster.example.yaml"),
        ".gitignore",
    }
    assert {name.partition("/")[0] for name in names if "/" in name} == {"iris_cli", "docs", "examples"}


def test_the_metadata_say_what_it_is_and_what_it_needs(built: Built) -> None:
    said = metadata_of(built.wheel)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert (said["Name"], said["Version"]) == ("iris-cli", __version__)
    assert said["License-Expression"] == "Apache-2.0"
    assert said["Requires-Python"] == ">=3.11"
    assert said["Description-Content-Type"] == "text/markdown"
    assert said.get_payload() == (ROOT / "README.md").read_text("utf-8")
    assert set(said.get_all("Provides-Extra", [])) == {"gcp", "test", "lint"}
    needed = [each for each in said.get_all("Requires-Dist", []) if "extra ==" not in each]
    assert len(needed) == len(project["dependencies"])
    # A next major version may be another library; of paramiko only what it documents is used.
    assert [each for each in needed if "<" not in each] == ["paramiko>=3.4"]


def test_only_the_wheel_is_needed(installed: Installed, tmp_path: Path) -> None:
    assert run(installed.iris, "--version") == f"iris {__version__}\n"
    where = run(installed.python, "-c", "import iris_cli; print(iris_cli.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(installed.venv)
    first_steps((installed.iris,), tmp_path, {})


@pytest.mark.soak
def test_the_newest_installed_python_runs_it(installed: Installed, tmp_path: Path) -> None:
    """tests/package/test_installers.py tries every version."""
    python = next(filter(None, map(find_python, NEWER)), None)
    if python is None:
        pytest.skip("no newer Python is on this machine")
    # What is compiled for one version of Python is of no use to another.
    own = (python, "-m", "pip", "install", "--quiet", "--no-deps", "--target", tmp_path / "own", "msgspec")
    if subprocess.run(own, capture_output=True, check=False).returncode != 0:
        pytest.skip("msgspec can't be had for it: there is no index")
    libraries = f"{tmp_path / 'own'}:{installed.packages}:{sysconfig.get_path('purelib')}"
    compiled = str(tmp_path / "compiled")
    env = {"PYTHONPATH": libraries, "PYTHONPYCACHEPREFIX": compiled}
    first_steps((python, "-m", "iris_cli"), tmp_path, env)


def first_steps(iris: Sequence[str | Path], directory: Path, env: Mapping[str, str]) -> None:
    """What anybody does first. It reads `cluster.yaml`, the log, and the files that are no modules."""
    home = {"HOME": str(directory)}
    (directory / "cluster.yaml").write_text(
        "cluster: {name: museum}\nworkers:\n  - {id: cpu-0, host: 127.0.0.1}\n"
    )
    (directory / "state").mkdir(mode=0o700)
    shutil.copy(LOG, directory / "state" / "events.jsonl")
    for words in (
        ("config", "validate"),
        ("launch", "--dry-run", "--", "true"),
        ("report", "--html", "page.html"),
    ):
        run(*iris, *words, cwd=directory, env={**home, **env})
    assert "<style>" in (directory / "page.html").read_text("utf-8")
