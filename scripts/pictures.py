"""Pictures of a terminal as SVG. They show the output of the current `iris` for a recorded log (record_pictures.py)."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from html import escape
from io import StringIO
from pathlib import Path
from unittest.mock import patch

from rich.console import Console
from rich.segment import Segment
from rich.text import Text

from iris_cli.cli import app
from iris_cli.clock import SystemClock
from iris_cli.journal.log.record import parse_time
from iris_cli.journal.state_dir import StateDir

DIRECTORY = Path(__file__).parent.parent / "docs" / "pictures"
COLUMNS = 100

BEFORE, AFTER = -5.0, 30.0
"""Times of the pictures, in seconds relative to the failure of `train`."""

CYCLE_AGE = 4.0  # seconds

COMMANDS: dict[str, tuple[float, tuple[str, ...]]] = {
    "status": (BEFORE, ("status",)),
    "why": (BEFORE, ("why", "ablate")),
    "failed": (AFTER, ("status", "train")),
}

COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
FONT, ADVANCE, LINE, MARGIN = 14, 8.4, 20, 16  # pixels
STYLE = """
rect { fill: #fafafa; stroke: #d0d0d0 } text { fill: #24292f; font: 14px ui-monospace, Menlo, Consolas, monospace }
.bold { font-weight: bold } .dim { fill: #6a737d } .red { fill: #c62828 } .green { fill: #1a7f37 }
.yellow { fill: #946200 } .cyan { fill: #0b7285 } .blue { fill: #0b5fc0 } .magenta { fill: #8e24aa }
@media (prefers-color-scheme: dark) {
  rect { fill: #0d1117; stroke: #30363d } text { fill: #d6dbe1 } .dim { fill: #8b949e } .red { fill: #ff7b72 }
  .green { fill: #57c765 } .yellow { fill: #e3b341 } .cyan { fill: #56d4dd } .blue { fill: #79b8ff }
  .magenta { fill: #d2a8ff }
}
"""


def draw_pictures() -> Iterator[tuple[Path, str]]:
    """Yield each picture with its file."""
    for name, (moment, words) in COMMANDS.items():
        command = f"iris {' '.join(words)}"
        lines = parse_colours(f"\x1b[1m$ {command}\x1b[0m\n{output_of(words, moment).rstrip()}")
        rows = [row(number, line) for number, line in enumerate(lines)]
        yield DIRECTORY / f"{name}.svg", svg(command, STYLE, len(lines), rows)


def output_of(words: Sequence[str], moment: float) -> str:
    """Return the output of a command on a terminal with colours, at `moment` seconds after the failure of `train`."""
    lines = (DIRECTORY / "events.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    times = [parse_time(json.loads(line)["at"]) for line in lines]
    failed = next(at for at, line in zip(times, lines, strict=True) if '"JobEnded","job":"train"' in line)
    now = failed + moment
    output = StringIO()
    terminal = {
        "FORCE_COLOR": "1",
        "TTY_COMPATIBLE": "1",
        "COLUMNS": str(COLUMNS),
        "TERM": "xterm",
        "COLORTERM": "",
        "NO_COLOR": "",
    }
    with tempfile.TemporaryDirectory() as scratch:
        state, config = Path(scratch) / "state", Path(scratch) / "cluster.yaml"
        state.mkdir(mode=0o700)
        log = state / "events.jsonl"
        log.touch(mode=0o600)
        log.write_text("".join(line for at, line in zip(times, lines, strict=True) if at < now))
        StateDir(state, now=lambda: now, actor="me@laptop").write_heartbeat({"at": now - CYCLE_AGE})
        config.write_text("cluster: {name: demo}\n")
        with (
            redirect_stdout(output),
            patch.dict(os.environ, terminal),
            patch.object(SystemClock, "now", lambda _: now),
        ):
            assert app.run(("--config", str(config), "--state-dir", str(state), *words)) == 0, words
    return output.getvalue()


def parse_colours(text: str) -> list[list[Segment]]:
    """Return the lines of a text with colour codes. Each line is a list of segments, and a segment has one style."""
    console = Console(width=COLUMNS, file=StringIO())
    return list(Segment.split_lines(console.render(Text.from_ansi(text))))


def svg(title: str, style: str, lines: int, content: Iterable[str]) -> str:
    """Return a picture that has room for this many lines."""
    width, height = round(2 * MARGIN + ADVANCE * COLUMNS), 2 * MARGIN + LINE * lines
    frame = f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    return "\n".join(
        (head, f"<title>{escape(title)}</title>", f"<style>{style}</style>", frame, *content, "</svg>", "")
    )


def row(number: int, line: Sequence[Segment]) -> str:
    """Return one line. Each word has a fixed column, so that columns align in every font."""
    return f'<text y="{MARGIN + FONT + LINE * number}">{"".join(_pieces(line))}</text>'


def _pieces(line: Sequence[Segment]) -> Iterator[str]:
    column = 0
    for text, style, _ in line:
        names = [
            name for name, said in (("bold", style and style.bold), ("dim", style and style.dim)) if said
        ]
        if style and style.color and style.color.number is not None:
            names.append(COLOURS[style.color.number % 8])
        for word in re.finditer(r"\S+( \S+)*", text):
            shown = f' class="{" ".join(names)}"' if names else ""
            yield f'<tspan x="{MARGIN + ADVANCE * (column + word.start()):.1f}"{shown}>{escape(word[0])}</tspan>'
        column += len(text)
