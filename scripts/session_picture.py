"""An animated picture of a terminal session: commands of docs/first-gang.md with their output, as SVG.

A test types the commands of that page against real SSH servers and compares the output, so the picture shows what iris
prints. The animation is CSS inside the file. If the reader has disabled animations, the picture shows the first screen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pictures import DIRECTORY, LINE, STYLE, row, svg
from rich.segment import Segment
from rich.style import Style

from iris_cli.render.tables import STYLES

PAGE = DIRECTORY.parent / "first-gang.md"

COMMANDS = (
    "iris launch --tpu v5litepod-16 --name bigger --workdir . -- python3 train.py 1024",
    "iris wait bigger",
    "iris status bigger",
    "iris launch --again bigger -- python3 train.py 512",
    "iris wait bigger-2",
    "iris logs bigger-2 --rank 0",
)

ROWS = 30
"""Lines of the terminal."""

RUN_TIME, READ_TIME, READ_TIME_PER_LINE, LAST_PAUSE = 0.8, 1.2, 0.22, 3.0
"""Seconds. A command runs for RUN_TIME. The reader gets READ_TIME and READ_TIME_PER_LINE for its output."""

_COLOURED = re.compile(rf"\b({'|'.join(STYLES)})\b|^known cause:.*|^rank \d+ failed first.*", re.MULTILINE)


def draw_session() -> tuple[Path, str]:
    """Return the picture and its file."""
    outputs = dict(_steps(PAGE.read_text(encoding="utf-8")))
    moment, rows, groups, scrolls = 0.0, 0, [], [(0.0, 0)]
    for command in COMMANDS:
        output = outputs[command].splitlines()
        for lines, bold in (([f"$ {command}"], True), (output, False)):
            groups.append((moment, "".join(_rows(lines, rows, bold))))
            rows += len(lines)
            scrolls.append((moment, max(0, rows - ROWS)))
            moment += RUN_TIME if bold else READ_TIME + READ_TIME_PER_LINE * len(lines)
    return DIRECTORY / "session.svg", _draw(groups, scrolls, moment + LAST_PAUSE)


def _steps(page: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a page with its output."""
    for block in re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = step.partition("\n")
            yield command, output


def _rows(lines: list[str], above: int, bold: bool) -> Iterator[str]:
    for number, line in enumerate(lines, above):
        segments = [Segment(line, Style(bold=True))] if bold else list(_colour(line))
        yield row(number, segments)


def _colour(line: str) -> Iterator[Segment]:
    """Yield the segments of a line, with states coloured as in iris."""
    end = 0
    for match in _COLOURED.finditer(line):
        bold = "bold yellow" if match[0].startswith("known") else "bold red"
        yield Segment(line[end : match.start()])
        yield Segment(match[0], Style.parse(STYLES.get(match[0], bold)))
        end = match.end()
    yield Segment(line[end:])


def _draw(groups: list[tuple[float, str]], scrolls: list[tuple[float, int]], length: float) -> str:
    """Return the SVG. Each group of lines appears at its time. `scrolls`: times and numbers of lines to scroll."""
    appear = "".join(
        f"@keyframes g{number} {{ 0% {{ visibility: hidden }} {moment / length:.2%} {{ visibility: visible }} }}\n"
        f".g{number} {{ animation: g{number} {length:.1f}s step-end infinite }}\n"
        for number, (moment, _) in enumerate(groups)
        if moment
    )
    up = " ".join(f"{at / length:.2%} {{ transform: translateY({-LINE * rows}px) }}" for at, rows in scrolls)
    style = (
        f"{STYLE}{appear}@keyframes up {{ {up} }}\n.up {{ animation: up {length:.1f}s step-end infinite }}\n"
        "@media (prefers-reduced-motion: reduce) { g { animation: none !important } }\n"
    )
    shown = (f'<g class="g{number}">{rows}</g>' for number, (_, rows) in enumerate(groups))
    return svg("A terminal session with iris", style, ROWS, ('<g class="up">', *shown, "</g>"))
