"""The directory of a demo: nothing is ended or removed that a demo has not made there."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from iris_cli.cli import app
from iris_cli.demo.cluster import LocalCluster
from iris_cli.demo.processes import remove_tree
from iris_cli.errors import ExitCode, IrisError


@pytest.mark.parametrize("words", [["demo"], ["demo", "--keep"], ["demo", "--stop"]])
def test_in_the_directory_of_a_cluster_a_demo_ends_no_job_and_removes_nothing(
    tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cluster.yaml").write_text("workers: [{id: w, host: w.example.org}]\n")
    monkeypatch.setattr("iris_cli.demo.run.Tour.end", _never)
    assert app.run([*words, "--dir", str(tmp_path)]) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.yaml"]
    assert capsys.readouterr().err


def _never(_self: object) -> None:
    raise AssertionError("they are somebody else's")


def test_a_demo_leaves_another_one_that_is_kept_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("iris_cli.demo.run.Tour.end", _never)
    LocalCluster(tmp_path / "lab").claim()
    (tmp_path / "lab" / "file").touch()
    assert app.run(["demo", "--dir", str(tmp_path / "lab")]) == 1
    said = capsys.readouterr().err
    assert "is not empty" in said
    assert f"iris demo --stop --dir {tmp_path / 'lab'}" in said
    assert (tmp_path / "lab" / "file").exists()


def test_a_demo_in_a_place_that_is_no_directory_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["demo", "--dir", "/dev/null"]) == ExitCode.NOT_WRITABLE
    assert capsys.readouterr().err == "error: /dev/null can't be used: File exists\n"


def test_of_a_demo_that_was_killed_as_it_began_all_can_be_removed(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "lab", keep=True)
    cluster.claim()
    assert LocalCluster(tmp_path / "lab").stop() == 0
    assert not (tmp_path / "lab").exists()
    with pytest.raises(IrisError, match="no demo cluster in"):
        LocalCluster(tmp_path / "lab").stop()


def test_a_tree_goes_with_what_was_made_read_only_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As what is shipped to a host is. Root may remove that anyway: so look at what is removed."""
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    (root / "tree" / "below").mkdir(parents=True)
    (root / "tree" / "below" / "file").touch()
    elsewhere.mkdir()
    elsewhere.chmod(0o750)
    (root / "link").symlink_to(elsewhere)
    (root / "tree" / "below").chmod(0)
    (root / "tree").chmod(0o500)
    modes: dict[str, int] = {}

    def removed(path: Path, *, remove: Callable[[Path], None] = shutil.rmtree) -> None:
        modes.update({each.name: each.lstat().st_mode & 0o777 for each in path.rglob("*") if each.is_dir()})
        remove(path)

    monkeypatch.setattr("iris_cli.demo.processes.shutil.rmtree", removed)
    remove_tree(root)
    assert not root.exists()
    assert modes == {"tree": 0o700, "below": 0o700, "link": 0o777}
    assert elsewhere.stat().st_mode & 0o777 == 0o750


def test_a_link_in_the_place_of_a_tree_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "below").mkdir(parents=True)
    (tmp_path / "elsewhere" / "below").chmod(0o750)
    (tmp_path / "root").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="link"):
        remove_tree(tmp_path / "root")
    assert (tmp_path / "elsewhere" / "below").stat().st_mode & 0o777 == 0o750


def test_who_is_at_home_where_a_demo_was_made_outlives_it(tmp_path: Path) -> None:
    """An empty home directory, such as that of a container, may be given to a demo."""
    cluster = LocalCluster(tmp_path / "lab", keep=True)
    cluster.claim()
    at_home = {**os.environ, "HOME": str(cluster.root)}
    with subprocess.Popen(["sleep", "600"], env=at_home) as user:
        try:
            assert cluster.stop() == 0
            assert user.poll() is None
        finally:
            user.kill()
