"""A poll that pauses at a moment that the test chooses, while its data becomes outdated."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from threading import Thread

from iris_cli.core.ids import Token
from iris_cli.core.messages.observations import AttemptReport, RemoteState
from tests.support.waiting import PATIENCE, until
from tests.support.worker_host import WorkerHost


class HeldPoll:
    """A poll of a worker that pauses before its last search for processes."""

    def __init__(self, worker: WorkerHost, tools: Path, make_host: Callable[..., WorkerHost]) -> None:
        grep = shutil.which("grep", path=worker.transport.env["PATH"])
        self.searches, self.last, self.paused, self.resume = (
            tools / name for name in ("searches", "last", "paused", "resume")
        )
        script = f"""#!/bin/sh
            echo search >>{self.searches}
            if [ -e {self.last} ] && cmp -s {self.searches} {self.last}; then
                : >{self.paused}
                while [ ! -e {self.resume} ]; do sleep 0.1; done
            fi
            exec {grep} "$@"
        """
        shutil.copytree(worker.tools, tools, symlinks=True)
        (tools / "grep").unlink(missing_ok=True)
        (tools / "grep").write_text(script)
        (tools / "grep").chmod(0o755)
        self.host = make_host(tools=tools)

    def count(self, token: Token) -> None:
        """Poll a live attempt and return the number of searches for its processes."""
        assert self.host.state(token) in {RemoteState.RUNNING, RemoteState.ORPHANED}
        self.searches.rename(self.last)

    def begin(self, token: Token, *, renew: bool = True) -> Future[AttemptReport]:
        """Start a poll; return once it has paused, or has ended without such a search."""
        for file in (self.searches, self.paused, self.resume):
            file.unlink(missing_ok=True)
        report = Future[AttemptReport]()
        Thread(target=lambda: report.set_result(self.host.poll(token, renew=renew)[0])).start()
        until(lambda: self.paused.exists() or report.done())
        return report

    def end(self, poll: Future[AttemptReport]) -> AttemptReport:
        self.resume.touch()
        return poll.result(PATIENCE)
