"""The documents are true: generated pages are up to date, and links between pages lead somewhere."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

from iris_cli.core.messages.observations import RemoteState
from iris_cli.journal import layout
from iris_cli.ops.loop.cron import LOG as CRON_LOG

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
        *ROOT.glob("state/*.md"),
    ]
)
GENERATED = frozenset({"CHANGELOG.md", "api.md", "cli.md", "job-files.md", "json.md", "known-causes.md"})


def test_generated_pages_are_up_to_date(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = ROOT / "scripts" / "write_docs.py"
    monkeypatch.syspath_prepend(script.parent)
    monkeypatch.setattr(sys, "argv", [str(script), "--check"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    assert ended.value.code == 0, capsys.readouterr().out


def test_every_link_between_pages_has_its_file() -> None:
    links = (
        (page, target)
        for page in PAGES
        for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text(encoding="utf-8"))
    )
    assert [(str(page), target) for page, target in links if not (page.parent / target).exists()] == []


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub forms them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def test_every_link_to_a_heading_has_its_heading() -> None:
    links = (
        (page, target, anchor)
        for page in PAGES
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)", page.read_text("utf-8"))
    )
    assert [
        (str(page), target, anchor)
        for page, target, anchor in links
        if anchor not in anchors(page.parent / target if target else page)
    ] == []


def test_a_page_begins_with_its_subject_and_stands_in_the_index_once() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    for page in sorted((ROOT / "docs").glob("*.md")):
        text = re.sub(r"<!--.*?-->\n\n", "", page.read_text(encoding="utf-8"))
        title, first = text.split("\n\n")[:2]
        assert title.startswith("# "), page.name
        assert re.match(r"\w|`|\[", first), f"{page.name}: after its title a sentence about the subject"
        if page.name != "README.md":
            assert re.findall(rf"\d+\. \[(.*)\]\({page.name}\)", index) == [title[2:]], page.name


TURNS = re.compile(
    r"\b([Ww]hoever|anew|in vain|(?<!there )is none|goes again|looked after|[Ff]or want of|[Ss]hould it|"
    r"[Mm]eanwhile|gives? back|given back|on its way|be they|as it were|how it stands|what is told)\b"
)
"""Literary turns that the pages avoid. Quotations of screens and code blocks may have them."""


def test_pages_are_free_of_literary_turns() -> None:
    """Those that are generated have sentences of the product, which tests/house/test_words.py reads."""
    code = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
    found = {
        str(page.relative_to(ROOT)): line.strip()
        for page in PAGES
        if page.name not in GENERATED
        for line in code.sub("", page.read_text(encoding="utf-8")).splitlines()
        if TURNS.search(line)
    }
    assert found == {}


def test_every_file_of_the_state_directory_is_told() -> None:
    page = (ROOT / "docs" / "event-log.md").read_text(encoding="utf-8")
    names = [name for each, name in vars(layout).items() if each.isupper()]
    assert [
        name for name in (*names, CRON_LOG) if not re.search(rf"`(\*|<\w+>)?{re.escape(name)}", page)
    ] == []


def test_the_worker_protocol_has_each_state_of_an_attempt_once() -> None:
    page = (ROOT / "docs" / "worker-protocol.md").read_text(encoding="utf-8")
    table = page.partition("## States\n")[2].partition("## ")[0]
    firsts = re.findall(r"^\| (`[A-Z].*?) \|", table, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(firsts))) == sorted(RemoteState)


def test_the_worker_protocol_names_each_file_that_an_attempt_is_prepared_with() -> None:
    page = (ROOT / "docs" / "worker-protocol.md").read_text(encoding="utf-8")
    script = (ROOT / "iris_cli" / "remote" / "shell" / "launch.sh").read_text(encoding="utf-8")
    pending = re.findall(r"for name in (x [a-z -]+); do", script)
    assert pending
    assert [name for name in pending[0].split() if not re.search(rf"`{name}[.`]", page)] == []


def test_the_walk_through_the_modules_names_functions_that_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \d+ \| `([^`]+)` \| ([^|]+) \|", page, re.MULTILINE)
    assert 0 < len(rows) <= 15
    for path, functions in rows:
        source = (ROOT / "iris_cli" / path).read_text(encoding="utf-8")
        for name in re.findall(r"`(\w+)`", functions):
            assert re.search(rf"^ *(def {name}\(|{name}\(\) {{)", source, re.MULTILINE), f"{path}: {name}"


def test_decisions_have_one_number_and_state_it() -> None:
    pages = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
    numbers = [int(page.name[:4]) for page in pages]
    assert len(set(numbers)) == len(numbers) > 0
    titles = [page.read_text(encoding="utf-8").splitlines()[0] for page in pages]
    assert [title.split(". ")[0] for title in titles] == [f"# {number}" for number in numbers]


def test_the_index_of_decisions_has_each_page_with_its_number_and_title() -> None:
    index = (ROOT / "docs" / "adr" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| \[(.+)\]\((.+\.md)\) \| .+ \|$", index, re.MULTILINE)
    pages = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
    titles = [(page.read_text(encoding="utf-8").splitlines()[0], page.name) for page in pages]
    assert [(f"# {number}. {title}", name) for number, title, name in rows] == titles
