"""The global options of a command, and what follows from them."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from iris_cli.core.dataclass import dataclass, field
from iris_cli.ops.workplace import Workplace
from iris_cli.render.console import Output

if TYPE_CHECKING:
    from iris_cli.client.outbox import Outbox
    from iris_cli.ops.progress import HowFar


@dataclass
class Context(Workplace):
    """Where the operator works, and how this command speaks."""

    verbose: bool = False
    output: Output = field(default_factory=Output)

    @cached_property
    def outbox(self) -> Outbox:
        """The way to whoever polls the task that this command runs in."""
        from iris_cli.client.outbox import Outbox
        from iris_cli.client.port import ANSWER_TIMEOUT

        return Outbox(Path(os.environ["IRIS_TASK_DIR"]), ANSWER_TIMEOUT)

    def tell(self, message: str) -> None:
        self.output.message(message)

    def progress(self, how_far: HowFar) -> AbstractContextManager[None]:
        return self.output.progress(how_far)
