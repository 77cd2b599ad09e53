"""Recorded output in `expected/`. IRIS_REWRITE=1 records it again: read the diff before you commit it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from iris_cli.render.console import Output

EXPECTED = Path(__file__).parent / "expected"
WIDTHS = (60, 100, 200)

Show = Callable[[Output], None]


class Screen:
    """Shows a view on a pretended pipe of some width, and gives back what reached it."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def text(self, show: Show, width: int = 100, output: Output | None = None) -> str:
        self._monkeypatch.setenv("COLUMNS", str(width))
        show(output or Output())
        return self._capsys.readouterr().out

    def told(self, show: Show) -> str:
        """What reached standard error."""
        show(Output())
        return self._capsys.readouterr().err

    def json(self, show: Show) -> str:
        return self.text(show, output=Output(as_json=True))

    def quiet(self, show: Show) -> str:
        return self.text(show, output=Output(quiet=True))


def check(name: str, shown: str) -> None:
    """The output is exactly what the file says."""
    path = EXPECTED / name
    if "IRIS_REWRITE" in os.environ:
        path.write_text(shown, encoding="utf-8")
    assert shown == path.read_text(encoding="utf-8")
