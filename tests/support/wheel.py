"""The package as users get it: built from the source, and installed out of reach of this tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock

from tests.support.waiting import PATIENCE

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Built:
    """The two files of a release."""

    sdist: Path
    wheel: Path


@dataclass(frozen=True)
class Installed:
    """A virtual environment with the wheel in it."""

    venv: Path

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    @property
    def iris(self) -> Path:
        """Return the path of the installed command."""
        return self.venv / "bin" / "iris"

    @property
    def packages(self) -> Path:
        """Return the directory of its modules."""
        return self.venv / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"

    @property
    def libraries(self) -> Path:
        """Return the file that makes the libraries of the tests importable. An installation writes it last."""
        return self.packages / "libraries.pth"


def outside() -> dict[str, str]:
    """Return the environment without variables that lead Python to this tree."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
    }


def run(*command: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """Return the output of a command; if it fails, raise with all its output."""
    ran = subprocess.run(
        command,
        cwd=cwd,
        env={**outside(), **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


def build(directory: Path) -> Built:
    """Build the sdist from this tree, and the wheel from the sdist. Needs no network."""
    hatch = (sys.executable, "-m", "hatchling", "build", "-d", directory)
    run(*hatch, "-t", "sdist", cwd=ROOT)
    (sdist,) = directory.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(directory / "unpacked", filter="data")
    (source,) = (directory / "unpacked").iterdir()
    run(*hatch, "-t", "wheel", cwd=source)
    (wheel,) = directory.glob("*.whl")
    return Built(sdist, wheel)


def install(wheel: Path, venv: Path) -> Installed:
    """Install the wheel in a new environment, with the libraries of the tests, so that it needs no network."""
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    made = Installed(venv)
    pip = (sys.executable, "-m", "pip", "--python", made.python, "install", "--quiet")
    run(*pip, "--no-index", "--no-deps", "--no-compile", wheel)
    # .pth files in that directory are not read, so this tree is not found.
    made.libraries.write_text(sysconfig.get_path("purelib"))
    return made


def find_python(version: str) -> str | None:
    """Return a working interpreter of this version from PATH or pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    kept = (str(path / "bin" / "python") for path in pyenv.glob(f"{version}.*"))
    for python in filter(None, (shutil.which(f"python{version}"), *kept)):
        tried = subprocess.run([python, "-c", "import venv"], capture_output=True, check=False)
        if tried.returncode == 0:
            return python
    return None


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    with _shared(tmp_path_factory) as directory:
        if not list((directory / "built").glob("*.whl")):
            return build(directory / "built")
        (sdist,), (wheel,) = ((directory / "built").glob(kind) for kind in ("*.tar.gz", "*.whl"))
        return Built(sdist, wheel)


@pytest.fixture(scope="session")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    with _shared(tmp_path_factory) as directory:
        made = Installed(directory / "venv")
        return made if made.libraries.exists() else install(built.wheel, made.venv)


@contextmanager
def _shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a directory shared by all processes of a test run, used by one at a time."""
    own = tmp_path_factory.getbasetemp()
    directory = (own.parent if os.environ.get("PYTEST_XDIST_WORKER") else own) / "package"
    directory.mkdir(exist_ok=True)
    with FileLock(directory / "lock"):
        yield directory
