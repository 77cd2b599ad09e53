"""Pictures are self-contained, and a page shows each of them. test_docs.py checks that they are up to date."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
PICTURES = sorted((ROOT / "docs" / "pictures").glob("*.svg"))
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.stem)
def test_a_picture_is_small_and_needs_nothing_else(picture: Path) -> None:
    text = picture.read_text(encoding="utf-8")
    kinds = {element.tag.removeprefix(SVG) for element in ElementTree.fromstring(text).iter()}
    assert kinds - {"g"} == {"svg", "title", "style", "rect", "text", "tspan"}
    assert re.findall(r"url\(|href|src|@import", text) == []
    assert len(text) < 20_000


def test_the_pictures_show_what_a_terminal_would() -> None:
    words = {
        path.stem: " ".join(ElementTree.fromstring(path.read_text("utf-8")).itertext()) for path in PICTURES
    }
    assert "$ iris status" in words["status"]
    assert "RUNNING" in words["status"]
    assert "rank 2 failed first: exit 1" in words["failed"]
    assert "forecast" in words["why"]
    assert "known cause: " in words["session"]
    assert "$ iris launch --again bigger" in words["session"]


def test_the_session_shows_its_lines_one_after_the_other() -> None:
    session = (ROOT / "docs" / "pictures" / "session.svg").read_text(encoding="utf-8")
    shown = re.findall(r"@keyframes g(\d+) { 0% { visibility: hidden } ([\d.]+)%", session)
    moments = [float(percent) for _, percent in shown]
    assert [f'<g class="g{number}">' in session for number, _ in shown] == [True] * len(shown)
    assert len(shown) > 5
    assert moments == sorted(set(moments))
    assert moments[-1] < 100


def test_each_picture_is_shown_somewhere() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    shown = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert [path.name for path in PICTURES if f"pictures/{path.name})" not in shown] == []
