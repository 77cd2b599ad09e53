"""One thing that iris prints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from iris_cli.render.console import Output
from tests.render.stage import Stage

Prepare = Callable[[Stage], object]
Show = Callable[[Output], object]


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A command line, and the scene on which it is typed.

    `prepare`: what happens there before. `answers`: those of somebody at a terminal; without any, nobody is there.
    `show`: where a command would look at this machine, what it shows of what it might have found. `as_json`: whether
    it makes one document for programs.
    """

    line: str
    scene: str = "busy"
    prepare: Prepare = lambda _stage: None
    answers: tuple[str, ...] = ()
    show: Show | None = None
    as_json: bool = True
