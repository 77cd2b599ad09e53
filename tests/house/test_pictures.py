"""Nothing that iris prints is without a picture: tests/render/pictures is the list of them."""

from __future__ import annotations

import ast

from tests.house.rules import Module, house
from tests.render.pictures import COLOURED, PICTURES
from tests.render.snapshots import EXPECTED
from tests.support.command_lines import commands

ELSEWHERE = {
    "demo": "types other commands, one after the other (tests/e2e/test_demo.py)",
    "doctor --yes": "writes a file that names this machine's versions (tests/cli/test_doctor_bundle.py)",
    "status --watch": "goes on until it is interrupted (tests/e2e/test_watch_screen.py)",
}
"""What is looked at by other tests."""


def test_every_command_has_a_picture_with_each_of_its_flags() -> None:
    lines = [line.split()[1:] for picture in PICTURES.values() for line in picture.lines]
    lacking = []
    for typed, command in commands():
        if hasattr(command, "commands"):
            continue
        _, *path = typed.split()
        name, mine = " ".join(path), [line for line in lines if line[: len(path)] == path]
        flags = [each.opts[0] for each in command.params if getattr(each, "is_flag", False)]
        lacking += [] if mine or name in ELSEWHERE else [name]
        lacking += [f"{name} {flag}" for flag in flags if mine and not any(flag in line for line in mine)]
    assert [each for each in lacking if each not in ELSEWHERE] == []


def test_every_view_is_shown_by_a_command() -> None:
    """What no command leads to has no picture, and nobody sees it."""
    modules = {module.name: imports_of(module) for module in house()}
    views = {name for name in modules if name.startswith("iris_cli.render.")}
    reached = {name for name in modules if name.startswith("iris_cli.cli.")}
    while new := {each for name in reached for each in modules[name] if each in views} - reached:
        reached |= new
    assert views - reached == set()


def test_every_recorded_file_belongs_to_a_picture() -> None:
    assert {path.stem for path in (EXPECTED / "commands").iterdir()} == set(PICTURES)
    assert {path.stem for path in (EXPECTED / "colours").iterdir()} == set(COLOURED)


def imports_of(module: Module) -> set[str]:
    """The modules that one imports, with their packages."""
    found: set[str] = set()
    for node in module.nodes:
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            above = node.module.split(".")
            found |= {".".join(above[:length]) for length in range(1, len(above) + 1)}
            found |= {f"{node.module}.{each.name}" for each in node.names}
    return found
