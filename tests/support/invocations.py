"""Concurrent `iris` commands of a site, each of which can be killed."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from tests.support.command_server import command_server
from tests.support.site import Site


@dataclass
class Invocation:
    """A started command."""

    pid: int
    said: Path
    code: int | None = None

    def kill(self) -> None:
        """Send SIGKILL. Its pid can't be reused before it is waited for."""
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Return its exit code, negative for a signal."""
        if self.code is None:
            self.code = command_server().wait(self.pid)
        return self.code

    def done(self, code: int = 0) -> str:
        """Return its output. It must end with that exit code."""
        found = self.wait()
        said = self.said.read_text()
        assert found == code, (found, said)
        return said


class Invocations:
    """Starts invocations at a site."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._numbers = count()
        self._started: list[Invocation] = []

    def start(self, *words: str, die_at: int = 0) -> Invocation:
        said = self._site.directory / f"said-{next(self._numbers)}"
        pid = command_server().start(
            words, directory=self._site.directory, env=self._site.environ(), out=said, err=said, die_at=die_at
        )
        self._started.append(Invocation(pid, said))
        return self._started[-1]

    def run(self, *words: str) -> str:
        return self.start(*words).done()

    def close(self) -> None:
        """End all started commands."""
        for each in self._started:
            if each.code is None:
                with suppress(ProcessLookupError):
                    each.kill()
                each.wait()
