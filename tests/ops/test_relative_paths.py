"""One traceback of 64 ranks, each in its own work directory, is shown as one."""

from __future__ import annotations

from pathlib import Path

import pytest

from iris_cli.core.messages.observations import AttemptReport, RemoteState
from iris_cli.ops.logs.follow import Follower
from iris_cli.ops.logs.log_diff import diff
from iris_cli.ops.logs.log_reading import Query
from iris_cli.ops.logs.logs import LogFetch, fetch
from iris_cli.ops.views.job_status import job_status
from iris_cli.render.console import Output
from iris_cli.render.logs import log_lines
from tests.ops.world import World
from tests.render.scenes import session_of
from tests.support.lab import Lab

TRACEBACK = """Traceback (most recent call last):
  File "{work}/train.py", line 9, in <module>
    step()
  File "{work}/model/loss.py", line 3, in step
ValueError: loss is nan in {work}
"""
SHOWN = TRACEBACK.replace("{work}/", "").replace("{work}", ".")


def gang(slice_type: str = "v4-512") -> Lab:
    return Lab().slice("big", slice_type).job("train", tpu=slice_type).schedule().reports("train/* running")


def traceback_of(lab: Lab, rank: int) -> str:
    attempt = lab.cluster.attempt(next(iter(lab.attempts_named(f"train/task-{rank}"))))
    return TRACEBACK.replace("{work}", f"/home/u{rank}/.iris/c/{attempt.worker}/a/{attempt.token}/work")


@pytest.fixture
def world(tmp_path: Path) -> World:
    lab = gang()
    world = World(lab, tmp_path / "state")
    for rank in range(64):
        world.says(f"train/task-{rank}", traceback_of(lab, rank), "err")
    return world


def test_one_traceback_on_64_ranks_is_shown_once(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    log_lines.show_logs(Output(), fetch(world.session(), "train", Query(relative=True)))
    assert capsys.readouterr().out == "".join(f"[0-63] {line}\n" for line in SHOWN.splitlines())


def test_one_traceback_on_64_ranks_makes_no_rank_differ(world: World) -> None:
    world.says("train/task-5", "and more\n", "err")
    (found,) = diff(fetch(world.session(), "train", Query(relative=True)), None)
    assert len(found.majority) == 63
    assert [(each.ranks, each.ahead) for each in found.deviations] == [((5,), 1)]


def test_followed_and_unlimited_logs_have_relative_paths_too(tmp_path: Path) -> None:
    lab = gang("v4-8")
    world = World(lab, tmp_path / "state")
    world.says("train/task-0", traceback_of(lab, 0).rstrip("\n"))
    fetching = LogFetch(world.session(), "train", Query(tail=None, relative=True))
    turns = [text.text for turn in fetching.turns() for text in turn]
    rest = [line.text for log in fetching.logs({}) for line in log.lines]
    assert "".join(turns) + "\n".join(rest) == SHOWN.rstrip("\n")
    follower = Follower(world.session(), "train", Query(tail=None, relative=True), until=0.0)
    came = "".join(text.text for step in follower.steps() for text in step.texts)
    assert came
    assert SHOWN.startswith(came)


def test_without_the_option_the_text_is_what_the_task_wrote(world: World) -> None:
    log = fetch(world.session(), "train/task-7", Query())[0]
    assert "".join(f"{line.text}\n" for line in log.lines) == traceback_of(world.lab, 7)


def test_the_failure_card_shows_one_place_for_63_ranks(tmp_path: Path) -> None:
    lab = gang().advance("1h")
    for rank in (37, *(rank for rank in range(64) if rank != 37)):
        attempt = lab.cluster.attempt(next(iter(lab.attempts_named(f"train/task-{rank}"))))
        report = AttemptReport(
            token=attempt.token, state=RemoteState.EXITED, exit_code=1, log_tail=traceback_of(lab, rank)
        )
        lab.answers(lab.answer_of(attempt.worker, report))
    card = job_status(session_of(lab, tmp_path / "state"), "train").failure
    assert card is not None
    assert card.log_lines == tuple(SHOWN.splitlines())
    assert [(len(group.tasks), group.line) for group in card.others] == [(63, "ValueError: loss is nan in .")]
    assert card.others[0].same


def test_a_known_cause_shows_the_line_with_its_relative_path(tmp_path: Path) -> None:
    lab = gang("v4-8").advance("1h")
    attempt = lab.cluster.attempt(next(iter(lab.attempts_named("train/task-0"))))
    line = f"OSError: [Errno 28] No space left on device: '/x/a/{attempt.token}/work/ckpt'"
    report = AttemptReport(token=attempt.token, state=RemoteState.EXITED, exit_code=1, log_tail=line)
    card = job_status(
        session_of(lab.answers(lab.answer_of(attempt.worker, report)), tmp_path / "state"), "train"
    ).failure
    assert card is not None
    assert card.known is not None
    assert card.known.line == "OSError: [Errno 28] No space left on device: 'ckpt'"
