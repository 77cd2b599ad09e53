"""`iris metrics`, read by Prometheus' own parser."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from iris_cli.cli import app
from iris_cli.clock import SYSTEM_CLOCK
from iris_cli.errors import ExitCode
from tests.render.scenes import session_of
from tests.support.lab import Lab


class Then:
    """The time of the lab."""

    def __init__(self, at: float) -> None:
        self.at = at

    def now(self) -> float:
        return self.at

    monotonic = staticmethod(SYSTEM_CLOCK.monotonic)
    sleep = staticmethod(SYSTEM_CLOCK.sleep)


def lab() -> Lab:
    """A gang of two hosts has run for an hour; a slice was idle for the same time, one worker of a third drains."""
    made = Lab().slice("a", "v4-16").slice("b", "v4-16").slice("c", "v4-16").drain("c-0").worker("w", gpus=2)
    made.job("train", tpu="v4-16").job("over").job("late", cpu=500.0, force=True).schedule()
    made.reports("train/* running", "over/* running", "over/* exited 1")
    return made.advance(3600.0)


def run(made: Lab, directory: Path, *words: str) -> int:
    return app.run(["--config", str(config_of(made, directory)), *words], Then(made.now))


def config_of(made: Lab, directory: Path) -> Path:
    if not (directory / "state").exists():
        session_of(made, directory / "state")
    path = directory / "cluster.yaml"
    path.write_text("cluster: {name: lab}\nworkers: []\n")
    return path


def samples(text: str) -> dict[tuple[str, str], float]:
    found = {}
    for family in text_string_to_metric_families(text):
        assert (family.type, bool(family.documentation)) == ("gauge", True)
        for each in family.samples:
            found[each.name, ",".join(each.labels.values())] = each.value
    return found


def test_prometheus_reads_what_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(lab(), tmp_path, "metrics") == ExitCode.OK
    found = samples(capsys.readouterr().out)
    wanted = {
        ("iris_jobs", "PENDING"): 1,
        ("iris_jobs", "RUNNING"): 1,
        ("iris_tasks", "RUNNING"): 2,
        ("iris_jobs_ended_24h", "FAILED"): 1,
        ("iris_slices", "busy"): 1,
        ("iris_slices", "free"): 1,
        ("iris_slices", "unusable"): 1,
        ("iris_chips", "busy"): 8,
        ("iris_chips", "free"): 14,
        ("iris_chips", "unusable"): 4,
        ("iris_cycles_running", ""): 1,
    }
    assert {key: found[key] for key in wanted} == wanted
    used, idle = (found["iris_chip_seconds_24h", use] for use in ("used", "idle"))
    assert used == pytest.approx(8 * 3600, rel=0.01)
    assert idle == pytest.approx(18 * 3600, rel=0.01)


def test_a_file_for_node_exporter_is_readable_and_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "iris.prom"
    file.write_text("old")
    assert run(lab(), tmp_path, "metrics", "--textfile", str(file)) == ExitCode.OK
    assert capsys.readouterr().out == ""
    assert ("iris_jobs", "RUNNING") in samples(file.read_text())
    assert stat.S_IMODE(file.stat().st_mode) & 0o444 == 0o444
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cluster.yaml", "iris.prom", "state"]


@pytest.fixture
def strict_umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.usefixtures("strict_umask")
def test_the_file_is_readable_with_any_umask_and_after_a_kill(tmp_path: Path) -> None:
    """In a container, each run may have the pid of the one that was killed."""
    (tmp_path / f".iris.prom.{os.getpid()}").write_text("half of it")
    assert run(lab(), tmp_path, "metrics", "--textfile", str(tmp_path / "iris.prom")) == ExitCode.OK
    assert stat.S_IMODE((tmp_path / "iris.prom").stat().st_mode) == 0o644
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cluster.yaml", "iris.prom", "state"]


def test_only_a_file_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made, pipe = lab(), tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    for name in ("pipe", "link", ".", ""):
        path = str(tmp_path / name) if name else ""
        assert app.run(["--config", str(config_of(made, tmp_path)), "metrics", "--textfile", path]) == 10
        assert "can't be written: not a regular file" in capsys.readouterr().err
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert (tmp_path / "link").is_symlink()


def test_a_damaged_log_has_no_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Zero jobs would look like an idle cluster. The age of the file tells that something is wrong."""
    config, file = config_of(lab(), tmp_path), tmp_path / "iris.prom"
    file.write_text("old")
    log = tmp_path / "state/events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([lines[0], lines[1].replace(b"e", b"f", 1), *lines[2:]]))
    for words in (["metrics"], ["metrics", "--textfile", str(file)]):
        assert app.run(["--config", str(config), *words]) == ExitCode.LOG_DAMAGED
        said = capsys.readouterr()
        assert (said.out, "iris log verify" in said.err) == ("", True)
    assert file.read_text() == "old"


def test_the_document_is_printed_with_a_file_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "iris.prom"
    assert run(lab(), tmp_path, "metrics", "--textfile", str(file), "--json") == 0
    assert json.loads(capsys.readouterr().out)["schema_version"] == 1
    assert file.read_text().startswith("# HELP")


def test_a_directory_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = run(lab(), tmp_path, "metrics", "--textfile", str(tmp_path / "none" / "iris.prom"))
    assert code == ExitCode.NOT_WRITABLE
    assert "none/iris.prom can't be written" in capsys.readouterr().err


def test_the_document_has_the_same_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(lab(), tmp_path, "--json", "metrics") == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert (document["jobs"]["RUNNING"], document["slices"]["busy"]) == (1, 1)
