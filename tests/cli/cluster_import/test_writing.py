"""How the file is written: who is asked, and what is left alone."""

from __future__ import annotations

import json
import os
import pty
import select
import stat
import sys
from pathlib import Path

import pytest

from iris_cli.cli.app import run
from iris_cli.config.load import load_cluster_config
from tests.cli.cluster_import.conftest import OURS, SAMPLES, Import


def test_without_a_terminal_only_yes_writes(lab: Path, cluster_import: Import) -> None:
    said = cluster_import("--from", "one_slice.json")
    assert said.code == 2
    assert "+  - name: v4a" in said.out
    assert "not a terminal: pass --yes to write" in said.err
    assert cluster_import("--from", "one_slice.json", "--dry-run", "--yes").code == 0
    assert list(lab.iterdir()) == []


def test_on_a_terminal_it_asks(lab: Path, cluster_import: Import, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([False, True])
    monkeypatch.setattr("iris_cli.cli.consent.ask", lambda *_: next(answers))
    assert cluster_import("--from", "one_slice.json").code == 1
    assert list(lab.iterdir()) == []
    assert cluster_import("--from", "one_slice.json").code == 0
    assert (lab / "cluster.yaml").is_file()


def test_what_is_piped_in_leaves_the_terminal_to_answer_on(lab: Path) -> None:
    """A real terminal, and the list on standard input."""
    try:
        child, terminal = pty.fork()
    except OSError as error:
        pytest.skip(f"no terminal is to be had here: {error}")
    if child == 0:
        os.dup2(os.open(SAMPLES / "one_slice.json", os.O_RDONLY), 0)
        os.execv(sys.executable, [sys.executable, "-m", "iris_cli", "cluster", "import", "--from", "-"])
    shown = b""
    try:
        while b"[y/N]" not in shown and (more := read(terminal)):
            shown += more
        os.write(terminal, b"y\n")
        while more := read(terminal):
            shown += more
    finally:
        os.close(terminal)  # which ends whoever still waits there
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, shown
    assert b"wrote" in shown
    assert len(load_cluster_config(lab / "cluster.yaml").hosts) == 4


def read(terminal: int) -> bytes:
    """What is shown next; nothing when the program has ended."""
    ready, _, _ = select.select([terminal], [], [], 60)
    assert ready, "nothing is shown"
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that nobody has the terminal open any more
        return b""


def test_a_new_file_is_the_operators_alone_and_explains_itself(lab: Path, cluster_import: Import) -> None:
    (lab.parent / ".ssh").mkdir()
    for name in ("id_ed25519", "google_compute_engine"):
        (lab.parent / ".ssh" / name).touch()
    cluster_import("--from", "one_slice.json", "--yes")
    path = lab / "cluster.yaml"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    config = load_cluster_config(path)
    assert (config.name, config.ssh.user) == ("lab", "me")
    assert config.ssh.key.endswith("google_compute_engine")
    assert path.read_text().count("#") > 8


def test_links_permissions_and_neighbours_stay(lab: Path, cluster_import: Import) -> None:
    real = lab.parent / "real.yaml"
    real.write_text(OURS)
    real.chmod(0o640)
    (lab / "cluster.yaml").symlink_to(real)
    assert cluster_import("--from", "one_slice.json", "--yes").code == 0
    assert (lab / "cluster.yaml").is_symlink()
    assert "incarnation" in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert sorted(each.name for each in lab.parent.iterdir()) == ["lab", "real.yaml"]


def test_the_file_that_is_named_is_the_one_that_is_written(lab: Path, cluster_import: Import) -> None:
    assert cluster_import("--config", "other.yaml", "--from", "one_slice.json", "--yes").code == 0
    assert [each.name for each in lab.iterdir()] == ["other.yaml"]


def test_what_somebody_else_writes_meanwhile_is_not_lost(
    lab: Path, cluster_import: Import, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = lab / "cluster.yaml"
    path.write_text(OURS)

    def slowly(*_: object, **__: object) -> bool:
        path.write_text(OURS + "# meanwhile\n")
        return True

    monkeypatch.setattr("iris_cli.cli.consent.ask", slowly)
    said = cluster_import("--from", "one_slice.json")
    assert (said.code, "cluster.yaml has changed: nothing was written" in said.err) == (1, True)
    assert path.read_text() == OURS + "# meanwhile\n"
    assert [each.name for each in lab.iterdir()] == ["cluster.yaml"]


def test_a_file_that_is_not_valid_is_left_alone(lab: Path, cluster_import: Import) -> None:
    (lab / "cluster.yaml").write_text("slces: []\n")
    said = cluster_import("--from", "one_slice.json", "--yes")
    assert said.code == 3
    assert "did you mean 'slices'" in said.err


def test_an_invalid_configuration_is_not_written(lab: Path, cluster_import: Import) -> None:
    path = lab / "cluster.yaml"
    path.write_text("slices:\n  - {name: a, type: v4-8, hosts: h}\n")
    said = cluster_import("b=v4-32:h1", "--yes")
    assert said.code == 3
    assert "would become invalid" in said.err
    assert "has 4 hosts, not 1" in said.err
    assert "v4-32" not in path.read_text()


def test_where_a_person_has_to_write_it_says_what(lab: Path, cluster_import: Import) -> None:
    path = lab / "cluster.yaml"
    path.write_text("slices: [{name: a, type: v4-8, hosts: h}]\n")
    said = cluster_import("--from", "one_slice.json", "--yes")
    assert said.code == 3
    assert "nothing was written" in said.err
    assert "    - name: v4a\n" in said.err
    assert path.read_text() == "slices: [{name: a, type: v4-8, hosts: h}]\n"


def test_json_says_all_of_it(lab: Path, cluster_import: Import) -> None:
    said = cluster_import("--json", "--from", "states.json", "--yes")
    document = json.loads(said.out)
    assert document["schema_version"] == 1
    assert (document["written"], document["added"]) == (True, ["tpu-ready", "tpu-ill"])
    assert {"name": "tpu-half", "zone": "us-central2-b"}.items() <= next(
        each for each in document["left_out"] if each["name"] == "tpu-half"
    ).items()
    assert said.err == ""


def test_without_anything_to_import_from_it_says_what_to_type(
    cluster_import: Import, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    said = cluster_import()
    assert said.code == 2
    assert "hint: gcloud compute tpus tpu-vm list" in said.err


def test_what_was_imported_is_valid(lab: Path, cluster_import: Import) -> None:
    cluster_import("--from", "external.json", "--yes")
    assert run(["config", "validate"]) == 0
