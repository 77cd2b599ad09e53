"""Somebody who has only the README and TPU VMs gets to a gang's logs, and from a failure to its cause."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

import pytest

from tests.support.newcomer import Newcomer
from tests.support.pages import Step, rewritten, same, steady
from tests.support.sshd import SshLab

pytestmark = pytest.mark.ssh

PAGE = Path(__file__).parents[2] / "docs" / "first-gang.md"
LISTS = Path(__file__).parent / "newcomer"


@pytest.fixture
def ann(ssh_lab: SshLab, tmp_path: Path) -> Newcomer:
    return Newcomer(tmp_path / "ann", ssh_lab)


def test_the_page_is_what_happens(ann: Newcomer) -> None:
    """IRIS_REWRITE=1 writes the page anew: read the diff before it is committed."""
    ann.settle([LISTS / "tpus.json"], servers=5)
    differences: list[str] = []

    def act(step: Step) -> str:
        if step.aside:
            verb, job = step.aside.split()
            {"hold": ann.hold, "release": ann.release}[verb](job)
            return ""
        shown = ann.types(step.typed, *(step.answers or "y"))
        if not same(step.shown, shown):
            before, after = (steady(text).splitlines() for text in (step.shown, shown))
            differences.extend(
                [f"$ {step.typed}", *difflib.unified_diff(before, after, "page", "now", lineterm="")]
            )
        return shown

    page = rewritten(PAGE.read_text(encoding="utf-8"), act)
    if "IRIS_REWRITE" in os.environ:
        PAGE.write_text(page, encoding="utf-8")
        return
    assert not differences, "\n".join(differences)
