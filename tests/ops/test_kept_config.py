"""The configuration is kept beside the log, and taken only for what it was made of."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from iris_cli.cli.app import run
from iris_cli.cli.context import Context
from iris_cli.config import load
from iris_cli.config.load import load_cluster_config
from iris_cli.config.schema import ClusterConfig
from iris_cli.core.events import WorkerRegistered
from iris_cli.journal.state_dir import StateDir
from iris_cli.ops import kept_config
from iris_cli.ops.session import Session
from iris_cli.ops.watch import look_on, watch
from tests.ops.world import Clock

VALID = sorted((Path(__file__).parents[1] / "config" / "valid" / "cluster").glob("*.yaml"))
TEXT = "cluster: {name: lab}\nworkers: [{id: w, host: nowhere.invalid}]\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "cluster.yaml").write_text(TEXT)
    context(tmp_path).state.create("lab")
    return tmp_path


def context(place: Path) -> Context:
    return Context(config_path=place / "cluster.yaml", state_path=place / "state")


@pytest.fixture
def kept(place: Path) -> Path:
    """What a command leaves that commits something."""
    session = context(place).session("iris worker probe")
    host = session.config.hosts[0]
    with session.transaction() as draft:
        draft.record(WorkerRegistered(worker=host.worker, connection=host.connection))
    return place / "state" / "config.json"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were read as YAML."""
    found: list[Path] = []
    read = load_cluster_config

    def counted(path: Path) -> ClusterConfig:
        found.append(path)
        return read(path)

    monkeypatch.setattr(load, "load_cluster_config", counted)
    return found


@pytest.mark.parametrize("file", VALID, ids=lambda path: path.stem)
def test_what_is_kept_of_a_configuration_is_what_was_read(file: Path, tmp_path: Path) -> None:
    state = StateDir(tmp_path, now=lambda: 0.0, actor="me@here")
    config = load_cluster_config(file)
    text = kept_config.text_of(file)
    assert text is not None
    kept_config.keep_config(file, text, config, state)
    assert kept_config.kept_config(file, state) == config


def test_a_command_that_writes_keeps_it_and_the_next_one_takes_it(
    place: Path, kept: Path, reads: list[Path]
) -> None:
    assert kept.stat().st_mode & 0o777 == 0o600
    assert context(place).config == load_cluster_config(place / "cluster.yaml")
    assert reads == []


def test_a_command_that_only_reads_keeps_nothing(place: Path) -> None:
    context(place).session("iris status").view()
    assert not (place / "state" / "config.json").exists()


def _changed(place: Path) -> None:
    (place / "cluster.yaml").write_text(TEXT.replace("nowhere", "anywhere"))


def _changed_without_a_trace(place: Path) -> None:
    """As an editor that keeps the length, in a copy that keeps the time."""
    path = place / "cluster.yaml"
    before = path.stat()
    path.write_text(TEXT.replace("nowhere", "no-here"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _open_to_others(place: Path) -> None:
    (place / "state" / "config.json").chmod(0o622)


def _flipped(place: Path) -> None:
    path = place / "state" / "config.json"
    path.write_bytes(path.read_bytes().replace(b"nowhere", b"nowherf"))


def _linked(place: Path) -> None:
    path = place / "state" / "config.json"
    path.rename(place / "elsewhere")
    path.symlink_to(place / "elsewhere")


def _a_pipe(place: Path) -> None:
    path = place / "state" / "config.json"
    path.unlink()
    os.mkfifo(path, 0o600)


def _by_other_rules(place: Path) -> None:
    path = place / "state" / "config.json"
    entry = json.loads(path.read_bytes())
    del entry["crc"]
    context(place).state_of(None).keep_config({**entry, "rules": "0.0.1"})


def _of_another_form(place: Path) -> None:
    path = place / "state" / "config.json"
    entry = json.loads(path.read_bytes())
    del entry["crc"]
    context(place).state_of(None).keep_config({**entry, "config": {"colour": "red"}})


def _gone(place: Path) -> None:
    (place / "state" / "config.json").unlink()


@pytest.mark.parametrize(
    "happened",
    [
        *(_changed, _changed_without_a_trace, _open_to_others, _flipped, _linked, _a_pipe),
        *(_by_other_rules, _of_another_form, _gone),
    ],
)
def test_what_is_not_sure_to_be_the_same_is_read_anew(
    happened: Callable[[Path], None], place: Path, kept: Path, reads: list[Path]
) -> None:
    happened(place)
    assert context(place).config == load_cluster_config(place / "cluster.yaml")
    assert reads == [place / "cluster.yaml"]


def test_another_home_or_another_place_is_another_configuration(
    place: Path, kept: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/other")
    assert context(place).config.name == "lab"
    (place / "copy.yaml").write_text(TEXT)
    assert Context(config_path=place / "copy.yaml", state_path=place / "state").config.name == "lab"
    assert reads == [place / "cluster.yaml", place / "copy.yaml"]


def test_what_can_t_be_kept_leaves_nothing_behind(place: Path) -> None:
    (place / "state" / "config.json").mkdir()
    session = context(place).session("iris worker probe")
    host = session.config.hosts[0]
    with session.transaction() as draft:
        draft.record(WorkerRegistered(worker=host.worker, connection=host.connection))
    assert not list((place / "state").glob("*.tmp"))


def test_what_is_no_file_or_too_long_is_left_to_who_reads_it(place: Path) -> None:
    path = place / "cluster.yaml"
    assert kept_config.text_of(path) == TEXT
    path.write_text(TEXT + "#" * (1 << 20))
    assert kept_config.text_of(path) is None
    path.unlink()
    os.mkfifo(path)
    assert kept_config.text_of(path) is None


EMPTY = "cluster: {name: lab}\n"


def watched(session: Session) -> None:
    steps = watch(session, interval=1.0, schedule=True)
    for _ in range(8):
        next(steps)


def looked_on(session: Session) -> None:
    steps = look_on(session, every=1.0)
    for _ in range(8):
        next(steps)


@pytest.mark.parametrize("act", [watched, looked_on])
def test_what_runs_for_days_tells_once_that_the_file_has_changed(
    act: Callable[[Session], None], tmp_path: Path
) -> None:
    told: list[str] = []
    file = tmp_path / "cluster.yaml"
    said_after = []  # each text
    texts = iter([EMPTY, None, EMPTY, f"{EMPTY}# more\n", f"{EMPTY}# and more\n", EMPTY, TEXT])

    def somebody_edits() -> None:
        said_after.append(len(told))
        file.unlink(missing_ok=True)  # as many editors replace a file
        if (text := next(texts, None)) is not None:
            file.write_text(text)

    file.write_text(EMPTY)
    context(tmp_path).state.create("lab")
    session = context(tmp_path).session("iris watch")
    session.clock, session.tell = Clock(then=somebody_edits), told.append
    act(session)
    assert said_after == [0, 0, 0, 0, 1, 1, 1]
    assert told == ["cluster.yaml has changed since this began: end it and start it again to take that in"]


def test_a_schedule_that_goes_on_tells_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def somebody_edits() -> None:
        if clock.naps == 4:
            raise KeyboardInterrupt
        (tmp_path / "cluster.yaml").write_text(f"{EMPTY}# {clock.naps}\n")

    clock = Clock(then=somebody_edits)
    (tmp_path / "cluster.yaml").write_text(EMPTY)
    monkeypatch.delenv("IRIS_STATE_DIR", raising=False)
    words = ["--config", str(tmp_path / "cluster.yaml"), "schedule", "--interval", "60"]
    assert run(words, clock) == 130
    assert capsys.readouterr().err.count("cluster.yaml has changed since this began") == 1


@pytest.mark.parametrize("package", ["config", "core", "journal"])
def test_what_other_code_has_kept_is_read_anew(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in one version: its schema, its types, and how they are written."""
    code = tmp_path / package / "module.py"
    code.parent.mkdir()
    code.write_text("x = 1\n")
    monkeypatch.setattr("iris_cli.__file__", str(tmp_path / "__init__.py"))
    before = kept_config._rules()
    code.write_text("x = 10\n")
    assert kept_config._rules() != before
