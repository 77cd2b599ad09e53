"""What a known cause tells to type is there to be typed."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest

from iris_cli.cli.tree import COMMANDS, parser
from iris_cli.core.known_causes import rules

OF_OTHERS = {"--ipc", "--scopes", "--shm-size"}  # docker, gcloud


@pytest.fixture(scope="module")
def iris() -> Any:
    return parser(COMMANDS)


def command(iris: Any, words: list[str]) -> tuple[Any, list[str]]:
    """The command that is meant, and what is left of the words."""
    while words and (child := getattr(iris, "commands", {}).get(words[0])) is not None:
        iris, words = child, words[1:]
    return iris, words


def options(of: Any) -> set[str]:
    return {option for each in of.params for option in each.opts}


def test_every_next_command_exists_with_its_options(iris: Any) -> None:
    for rule in (each for each in rules() if each.next):
        words = shlex.split(rule.next)[1:]
        before = words[: words.index("--")] if "--" in words else words
        found, rest = command(iris, before)
        assert found is not iris, rule.name
        assert not hasattr(found, "commands"), f"{rule.name}: a command, not a group"
        assert {word for word in rest if word.startswith("-")} <= options(found), rule.name


def test_what_helps_names_only_commands_and_options_that_exist(iris: Any) -> None:
    of_launch = options(iris.commands["launch"])
    for rule in rules():
        for quoted in re.findall(r"`iris ([^`]+)`", rule.fix):
            found, rest = command(iris, quoted.split())
            assert (found is not iris, rest) == (True, []), rule.name
        named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", rule.fix))
        assert named <= of_launch | OF_OTHERS, rule.name
