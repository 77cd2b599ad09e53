"""A demo command by command: said, shown, run. As JSON it is one document at the end."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from iris_cli.core.model.cluster import Cluster
from iris_cli.errors import IrisError
from iris_cli.ops.loop.start import end, order, running_loop
from iris_cli.ops.workplace import Workplace
from iris_cli.render.console import Output

_PATIENCE = 60.0  # seconds for the loop to notice that nothing is left: the machine may be busy
_GLANCE = 0.1


class TourStep(Struct, frozen=True):
    """A command of the demo, and what it printed."""

    command: Sequence[str]
    output: str


class TourDocument(Struct, frozen=True):
    """The result of `iris demo`."""

    steps: Sequence[TourStep]


class EndedDocument(Struct, frozen=True):
    """The result of `iris demo --stop`: the number of hosts that were stopped."""

    ended_hosts: int


class Tour:
    """Runs commands of iris on the cluster that `config` describes."""

    def __init__(self, output: Output, config: Path) -> None:
        self.output = output
        self.config = config
        self._own = Workplace(config_path=config)
        self.steps: list[TourStep] = []
        self.took = 0.0
        """Seconds that the last command of `run` took."""

    def step(self, words: str, command: tuple[str, ...]) -> None:
        """Say something, show a command, and run it. Raises IrisError if it fails."""
        self.announce(words, command)
        done = self.run(command, capture=self.output.as_json)
        self._check(done)
        self.steps.append(TourStep(("iris", *command), done.stdout))

    def announce(self, words: str, command: tuple[str, ...] = ()) -> None:
        """Say what comes now."""
        output = self.output
        if output.as_json:
            return
        if words:
            output.line()
            output.line(f"# {words}")
        if command:
            output.line(f"$ iris {shlex.join(command)}")
        output.flush()

    def run(self, command: tuple[str, ...], *, capture: bool) -> subprocess.CompletedProcess[str]:
        """Run a command of iris, whatever becomes of it."""
        began = self._own.clock.monotonic()
        done = subprocess.run(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", "iris_cli", "--config", str(self.config), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if capture else None,
            stderr=subprocess.STDOUT if capture else None,
            text=True,
            check=False,
        )
        self.took = self._own.clock.monotonic() - began
        return done

    @property
    def cluster(self) -> Cluster:
        """The cluster as the log has it now."""
        return self._own.session("iris demo").view()

    def wait_for_the_loop(self) -> None:
        """Wait until the background loop has ended; it does so by itself once no job is open."""
        clock, state = self._own.clock, self._own.state
        until = clock.monotonic() + _PATIENCE
        while running_loop(state) is not None and clock.monotonic() < until:
            clock.sleep(_GLANCE)

    def end(self) -> None:
        """End the jobs and the background loop, after Ctrl-C or at the end of a kept cluster. Raises IrisError."""
        try:
            self._end_jobs()
        finally:
            if self.config.is_file() and running_loop(self._own.state) is not None:
                order(self._own.state, self._own.clock, stopped=True, command="iris demo")
                end(self._own.state, self._own.clock)

    def _end_jobs(self) -> None:
        """Stop what still runs: hosts leave their tasks behind."""
        if self.config.is_file():
            view = self.cluster
            left = [job.id for job in view.open_jobs() if view.live_of(job.id)]
            if left:
                words = ("--quiet", "cancel", "--wait", "--reason", "the demo ends", *left)
                self.run(words, capture=self.output.as_json)

    def _check(self, done: subprocess.CompletedProcess[str]) -> None:
        if done.returncode:
            raise IrisError(f"the demo's command ended with {done.returncode}", hint="please report this")
