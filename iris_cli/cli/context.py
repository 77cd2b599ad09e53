"""The global options of a command, and what follows from them."""

from __future__ import annotations

from iris_cli.core.dataclass import dataclass, field
from iris_cli.ops.workplace import Workplace
from iris_cli.render.console import Output


@dataclass
class Context(Workplace):
    """Where the operator works, and how this command speaks."""

    verbose: bool = False
    output: Output = field(default_factory=Output)

    def tell(self, message: str) -> None:
        self.output.message(message)
