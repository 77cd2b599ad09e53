"""The composition root: from global options to a session with real files, a real clock and real SSH."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from iris_cli.render.console import Output

if TYPE_CHECKING:
    from iris_cli.config.schema import ClusterConfig
    from iris_cli.journal.state_dir import StateDir
    from iris_cli.ops.session import Session
    from iris_cli.remote.ssh import SshTransport


@dataclass
class Context:
    """The global options, and what follows from them."""

    config_path: Path | None = None
    state_path: Path | None = None
    lock_timeout: float | None = None
    verbose: bool = False
    output: Output = field(default_factory=Output)

    @cached_property
    def config_file(self) -> Path:
        from iris_cli.config.locate import find_config

        return find_config(self.config_path, os.environ, Path.cwd())

    @cached_property
    def config(self) -> ClusterConfig:
        from iris_cli.config.load import load_cluster_config

        return load_cluster_config(self.config_file)

    @cached_property
    def state(self) -> StateDir:
        from iris_cli.journal.state_dir import StateDir

        named = self.state_path or os.environ.get("IRIS_STATE_DIR")
        return StateDir(Path(named) if named else self.config_file.parent / "state")

    def session(self, command: str) -> Session:
        """A session for one command. Writes nothing and asks nobody yet."""
        raise NotImplementedError
