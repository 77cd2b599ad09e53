"""A command that does not read `cluster.yaml` again warns when it has changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from iris_cli.cli.app import run
from iris_cli.cli.context import Context
from iris_cli.ops.loop.foreground import follow_log, watch
from iris_cli.ops.session import Session
from tests.ops.world import Clock

TEXT = "cluster: {name: lab}\nworkers: [{id: w, host: nowhere.invalid}]\n"
EMPTY = "cluster: {name: lab}\n"


def watched(session: Session) -> None:
    steps = watch(session, interval=1.0, schedule=True)
    for _ in range(8):
        next(steps)


def looked_on(session: Session) -> None:
    steps = follow_log(session, every=1.0)
    for _ in range(8):
        next(steps)


@pytest.mark.parametrize("act", [watched, looked_on])
def test_a_watch_warns_once_that_the_file_has_changed(act: Callable[[Session], None], tmp_path: Path) -> None:
    told: list[str] = []
    file = tmp_path / "cluster.yaml"
    said_after = []  # warnings before each text
    texts = iter([EMPTY, None, EMPTY, f"{EMPTY}# more\n", f"{EMPTY}# and more\n", EMPTY, TEXT])

    def somebody_edits() -> None:
        said_after.append(len(told))
        file.unlink(missing_ok=True)  # as many editors replace a file
        if (text := next(texts, None)) is not None:
            file.write_text(text)

    file.write_text(EMPTY)
    context = Context(config_path=file, state_path=tmp_path / "state")
    context.state.create("lab")
    session = context.session("iris watch")
    session.clock, session.tell = Clock(then=somebody_edits), told.append
    act(session)
    assert said_after == [0, 0, 0, 0, 1, 1, 1]
    assert told == ["cluster.yaml has changed: restart this command to use it"]


def test_a_repeated_schedule_warns_too(
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
    assert capsys.readouterr().err.count("cluster.yaml has changed: restart this command") == 1
