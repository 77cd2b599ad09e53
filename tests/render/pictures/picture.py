"""One transcript: command lines typed one after the other, and the scene on which they are typed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from iris_cli.render.console import Output
from tests.render.stage import Stage

Prepare = Callable[[Stage], object]
Show = Callable[[Output], object]


@dataclass(frozen=True, kw_only=True)
class Picture:
    """Command lines and the scene on which they are typed.

    `line`, `then`: the first command and those after it, on the same state directory. `prepare`: runs before them.
    `answers`: typed at the terminal; without any, stdin is no terminal. `show`: prints a result directly, for a command
    that would read this machine. `as_json`: False if a command has no JSON document. `widths`: columns of the terminal.
    """

    line: str
    then: tuple[str, ...] = ()
    scene: str = "busy"
    prepare: Prepare = lambda _stage: None
    answers: tuple[str, ...] = ()
    show: Show | None = None
    as_json: bool = True
    widths: tuple[int, ...] = (100,)

    @property
    def lines(self) -> tuple[str, ...]:
        return (self.line, *self.then)
