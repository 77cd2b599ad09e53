"""The heartbeat says when the last cycle ran. It is the least of what a cycle writes."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from iris_cli.core.task import AttemptState
from iris_cli.errors import NotWritableError
from iris_cli.journal.durable import Disk
from iris_cli.journal.state_dir import StateDir
from iris_cli.ops import cycle
from tests.support.fake_runner import Site


class NoRoomForHeartbeats(Disk):
    def rename(self, source: Path, target: Path) -> None:
        if target.name == "heartbeat.json":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().rename(source, target)


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
