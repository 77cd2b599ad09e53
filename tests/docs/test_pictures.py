"""Pictures stand alone: nothing is fetched for them, and each is shown. That they are today's: test_docs.py."""

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
    assert kinds == {"svg", "title", "style", "rect", "text", "tspan"}
    assert re.findall(r"url\(|href|src|@import", text) == []
    assert len(text) < 20_000


def test_the_pictures_show_what_a_terminal_would() -> None:
    words = {
        path.stem: " ".join(ElementTree.fromstring(path.read_text("utf-8")).itertext()) for path in PICTURES
    }
    assert "$ iris status" in words["status"]
    assert "RUNNING" in words["status"]
    assert "rank 2 failed first: exit 1" in words["failed"]
    assert "one change" in words["why"]


def test_each_picture_is_shown_somewhere() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    shown = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert [path.name for path in PICTURES if f"pictures/{path.name})" not in shown] == []
