"""Each installer, and pip on each version of Python here, makes an `iris` that runs the demo."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from iris_cli import __version__
from tests.support.wheel import Built, find_python, run

pytestmark = pytest.mark.soak


def by_pip(wheel: Path, python: str, home: Path) -> Path:
    run(python, "-m", "venv", home / "venv")
    run(home / "venv" / "bin" / "pip", "install", "--quiet", f"{wheel}[gcp]")
    run(home / "venv" / "bin" / "pip", "check")
    return home / "venv" / "bin" / "iris"


def by_pipx(wheel: Path, python: str, home: Path) -> Path:
    env = {"PIPX_HOME": str(home / "pipx"), "PIPX_BIN_DIR": str(home / "bin"), "HOME": str(home)}
    run(tool("pipx", home), "install", "--python", python, wheel, env=env)
    return home / "bin" / "iris"


def by_uv(wheel: Path, python: str, home: Path) -> Path:
    env = {name: str(home / name) for name in ("UV_TOOL_DIR", "UV_TOOL_BIN_DIR", "UV_CACHE_DIR", "HOME")}
    run(tool("uv", home), "tool", "install", "--quiet", "--python", python, wheel, env=env)
    return home / "UV_TOOL_BIN_DIR" / "iris"


def tool(name: str, home: Path) -> str:
    """An installer: this machine's, or else one from the index."""
    if found := shutil.which(name):
        return found
    run(sys.executable, "-m", "venv", home / name)
    run(home / name / "bin" / "pip", "install", "--quiet", name)
    return str(home / name / "bin" / name)


@cache
def has_index() -> bool:
    """Whether libraries can be had at all."""
    ask = ("install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps", "filelock")
    return (
        subprocess.run([sys.executable, "-m", "pip", *ask], capture_output=True, check=False).returncode == 0
    )


@pytest.mark.parametrize(
    ("install", "version"),
    [
        *((by_pip, version) for version in ("3.11", "3.12", "3.13", "3.14")),
        (by_pipx, "3.11"),
        (by_uv, "3.11"),
    ],
)
def test_an_installed_iris_runs_the_demo(
    install: Callable[[Path, str, Path], Path], version: str, built: Built, tmp_path: Path
) -> None:
    python = find_python(version)
    if python is None:
        pytest.skip(f"Python {version} is not on this machine")
    if not has_index():
        pytest.skip("no package index in reach")
    iris = install(built.wheel, python, tmp_path)
    assert run(iris, "--version") == f"iris {__version__}\n"
    assert "job patient succeeded" in run(
        iris, "demo", cwd=tmp_path, env={"HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    )
