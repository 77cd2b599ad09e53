"""The heartbeat says when the last cycle ran. It is the least of what a cycle writes."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from iris_cli.core.model.task import AttemptState
from iris_cli.errors import NotWritableError
from iris_cli.files import Disk
from iris_cli.journal.state_dir import StateDir
from iris_cli.ops.cycle import cycle
from tests.support.fake_runner import Site


class NoRoomForHeartbeats(Disk):
    def rename(self, source: Path, target: Path) -> None:
        if target.name == "heartbeat.json":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().rename(source, target)


class Busy(Disk):
    """Another process of the same number, in another container, writes one in the middle of it."""

    def rename(self, source: Path, target: Path) -> None:
        StateDir(target.parent, now=lambda: 1.0, actor="me@other").write_heartbeat({"at": 1.0})
        super().rename(source, target)


def test_two_cycles_that_end_at_once_write_one_each(tmp_path: Path) -> None:
    state = StateDir(tmp_path, now=lambda: 2.0, actor="me@laptop", disk=Busy())
    state.write_heartbeat({"at": 2.0})
    assert state.read_heartbeat() == {"at": 2.0}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["heartbeat.json", "heartbeat.lock"]


def test_where_it_can_t_be_written_every_launch_has_its_answer_all_the_same(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.cycle()
    site.launch("one", cpu=1.0)
    session = site.session()
    session.state = StateDir(
        session.state.path, now=site.clock.now, actor="me@laptop", disk=NoRoomForHeartbeats()
    )
    with pytest.raises(NotWritableError, match=r"heartbeat\.json"):
        cycle.run(session)
    [attempt] = [attempt for _, attempt in site.session().view().live_attempts()]
    assert attempt.state is AttemptState.RUNNING
