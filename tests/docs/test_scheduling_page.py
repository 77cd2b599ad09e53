"""The page about the scheduler shows what `iris why` really says. IRIS_REWRITE=1 writes it anew: read the diff."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path

import pytest

from iris_cli.core.constraint_syntax import parse_constraint
from iris_cli.core.model.job import JobRequest
from iris_cli.ops.session import Session
from iris_cli.ops.views import why
from iris_cli.render.console import Output
from iris_cli.render.views.why import show_why
from tests.render.scenes import session_of
from tests.render.snapshots import Screen
from tests.support.lab import Lab

PAGE = Path(__file__).parents[2] / "docs" / "scheduling.md"
BLOCK = re.compile(r"(<!-- shown: why (?P<subject>\S+) -->\n```\n)(?P<shown>.*?)(```\n)", re.DOTALL)


def scene() -> Lab:
    """Two slices in one region, one of them training, and one in another."""
    lab = (
        Lab().slice("v5a", "v5litepod-16", region="us-west4").slice("v5b", "v5litepod-16", region="us-west4")
    )
    lab.slice("v5c", "v5litepod-16", region="eu-west4").drain("v5a-2", "new disk")
    lab.job("train", tpu="v5litepod-16").schedule().reports("train/* running").advance("40m")
    constraints = (parse_constraint("region=us-west4"),)
    return lab.job("eval", JobRequest(command=("eval",), constraints=constraints), tpu="v5litepod-16")


def tell(session: Session, subject: str, output: Output) -> None:
    show_why(output, why.why(session, subject))


def test_what_the_page_shows_is_what_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    screen, session = Screen(capsys, monkeypatch), session_of(scene(), tmp_path / "state")

    def shown(block: re.Match[str]) -> str:
        said = screen.text(partial(tell, session, block["subject"]))
        return f"{block[1]}{said.strip()}\n{block[4]}"

    page = PAGE.read_text(encoding="utf-8")
    now = BLOCK.sub(shown, page)
    if "IRIS_REWRITE" in os.environ:
        PAGE.write_text(now, encoding="utf-8")
    assert len(BLOCK.findall(page)) == 3
    assert now == page
