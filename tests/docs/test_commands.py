"""What the pages tell one to type is understood by the real parser."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from iris_cli.cli import app
from iris_cli.cli.command_types import Group
from tests.support.command_lines import parsed, root

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / "README.md", ROOT / "CHANGELOG.md"),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]

TYPED = re.compile(r"^ *\$ (.*\biris .*)$", re.MULTILINE)
"""A line of a console, as one types it."""

NAMED = re.compile(r"(?<!`)`(iris [^`]+)`(?!`)")
"""A command in the text: perhaps its name alone, or with the option in question and no more."""

NO_COMMANDS = frozenset({"iris 0.1.0"})
"""What `iris` writes into its log, as its own name."""


def found(pattern: re.Pattern[str]) -> list[tuple[str, str]]:
    """Page and command line, once each."""
    return list(
        dict.fromkeys(
            (str(page.relative_to(ROOT)), " ".join(line.split()))
            for page in PAGES
            for line in pattern.findall(page.read_text(encoding="utf-8"))
        )
    )


def complaint(line: str) -> str:
    """What is wrong with a command in the text: a command or an option that there is none of. '' if nothing is."""
    words = app.move_global_options(shlex.split(line.replace("...", ""))[1:])
    command, options = root(), set(root().params)
    for word in words[: words.index("--") if "--" in words else None]:
        if word.startswith("-"):
            known = {"--help", *(each for option in options for each in option.opts)}
            if word.partition("=")[0] not in known:
                return f"{command.name} has no option {word}"
        elif isinstance(command, Group):
            if word not in command.commands:
                return f"no command {word}"
            command = command.commands[word]
            options |= set(command.params)
    return ""


def test_every_command_line_of_the_pages_parses() -> None:
    errors = []
    for page, line in found(TYPED):
        if shlex.split(line, comments=True) == ["iris"]:
            continue  # a command of its own, without a word to parse
        try:
            parsed(line)
        except typer.TyperException as error:
            errors.append(f"{page}: {line}: {error.format_message()}")
    assert errors == []


def test_every_command_that_a_page_names_exists() -> None:
    named = [(page, line) for page, line in found(NAMED) if line not in NO_COMMANDS]
    assert len(named) > 100
    assert [(page, line, said) for page, line in named if (said := complaint(line))] == []


@pytest.mark.parametrize("line", ["iris stauts", "iris status --lable x", "iris log verfy", "iris log --fix"])
def test_what_does_not_exist_is_found(line: str) -> None:
    assert complaint(line)
