"""A demo command by command: said, shown, run. As JSON it is one document at the end."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from iris_cli.cli.context import Context
from iris_cli.core.cluster import Cluster
from iris_cli.errors import IrisError


class Tour:
    """Runs commands of iris on the cluster that `config` describes, with `env` beside our own environment."""

    def __init__(self, iris: Context, config: Path, env: Mapping[str, str] | None = None) -> None:
        self.iris = iris
        self.config = config
        self.env = {**os.environ, **(env or {})}
        self.steps: list[dict[str, object]] = []
        self._said: list[str] = []

    def step(self, words: str, command: tuple[str, ...]) -> None:
        """Say something, show a command, and run it. Raises IrisError if it fails."""
        self.announce(words, command)
        done = self.run(command, capture=self.iris.output.as_json)
        self._check(done)
        self.steps.append({"command": ["iris", *command], "output": done.stdout})

    def announce(self, words: str, command: tuple[str, ...] = ()) -> None:
        """Say what comes now."""
        output = self.iris.output
        if output.as_json:
            return
        if words:
            output.line()
            output.line(f"# {words}")
        if command:
            output.line(f"$ iris {shlex.join(command)}")
        output.flush()

    def repeat(self, command: tuple[str, ...]) -> None:
        """Run a command again, and say what it says that it did not say the last time."""
        done = self.run(command, capture=True)
        self._check(done)
        if done.stdout:
            self.steps.append({"command": ["iris", *command], "output": done.stdout})
        if not self.iris.output.as_json:
            lines = done.stdout.splitlines()
            for line in lines:
                if line not in self._said:
                    self.iris.output.line(line)
            self._said = lines
            self.iris.output.flush()

    def run(self, command: tuple[str, ...], *, capture: bool) -> subprocess.CompletedProcess[str]:
        """Run a command of iris, whatever becomes of it."""
        return subprocess.run(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", "iris_cli", "--config", str(self.config), *command],
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if capture else None,
            stderr=subprocess.STDOUT if capture else None,
            text=True,
            check=False,
        )

    @property
    def cluster(self) -> Cluster:
        """The cluster as the log has it now."""
        return Context(config_path=self.config).session("iris demo").view()

    def end_jobs(self) -> None:
        """Stop what still runs, after Ctrl-C or at the end of a kept cluster: hosts leave their tasks behind."""
        if self.config.is_file():
            view = self.cluster
            left = [job.id for job in view.open_jobs() if view.live_of(job.id)]
            if left:
                words = ("--quiet", "cancel", "--wait", "--reason", "the demo ends", *left)
                self.run(words, capture=self.iris.output.as_json)

    def _check(self, done: subprocess.CompletedProcess[str]) -> None:
        if done.returncode:
            raise IrisError(f"the demo's command ended with {done.returncode}", hint="please report this")
