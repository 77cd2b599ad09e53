"""What the tests of the import share: an operator's directory, and the command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from iris_cli.cli.app import run

SAMPLES = Path(__file__).parent / "samples"


OURS = """\
# Our cluster. Ask Ann before you change it.
cluster: {name: lab}
ssh: {user: ann}   # she has the keys

slices:
  # the old one, by hand
  - name: v4a
    type: v4-32
    hosts: [10.130.0.2, 10.130.0.3, 10.130.0.4, 10.130.0.5]   # by worker number
    env: {HF_HOME: /mnt/ssd}   # its own disk

# Not a TPU.
workers:
  - {id: cpu-0, host: cpu0.example.org}
"""
"""A file that a person wrote."""


class Said(NamedTuple):
    """What a command came to."""

    code: int
    out: str
    err: str


Import = Callable[..., Said]


@pytest.fixture(autouse=True)
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An operator's empty home, and a directory to work in."""
    (tmp_path / "lab").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("getpass.getuser", lambda: "me")
    for name in ("IRIS_CONFIG", "IRIS_STATE_DIR", "IRIS_TASK_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path / "lab")
    return tmp_path / "lab"


@pytest.fixture
def cluster_import(capsys: pytest.CaptureFixture[str]) -> Import:
    """`iris cluster import` with these words; a word that names a sample is its file."""

    def call(*words: str) -> Said:
        named = [str(SAMPLES / word) if (SAMPLES / word).is_file() else word for word in words]
        capsys.readouterr()
        code = run(["cluster", "import", *named])
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return call
