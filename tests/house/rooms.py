"""The rooms of the house: the parts of each package import each other in one direction, and no package is crowded."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter

from tests.house.rules import PACKAGE, Module

MOST_FLAT = 20
"""Modules in one package, its sub-packages not counted. `cli/commands` has one for each command."""
_ONE_FOR_EACH_COMMAND = f"{PACKAGE}.cli.commands"


def circles(modules: Iterable[Module]) -> Iterator[str]:
    """Circles among the parts of a package: imports inside functions count, and those that only types need."""
    names = {module.name for module in modules}
    arrows: dict[str, dict[str, set[str]]] = {}
    for module in modules:
        for other in imported(module.nodes, names):
            ours, theirs = module.name.split("."), other.split(".")
            shared = next((n for n, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
            if shared is not None:
                room = arrows.setdefault(".".join(ours[:shared]), {})
                room.setdefault(ours[shared], set()).add(theirs[shared])
    for package, parts in sorted(arrows.items()):
        try:
            TopologicalSorter(parts).prepare()
        except CycleError as error:
            yield f"{package}: {' imports '.join(reversed(error.args[1]))}"


def crowds(modules: Iterable[Module]) -> Iterator[str]:
    """Packages with more modules than a reader takes in at a glance."""
    names = {module.name for module in modules}
    packages = {name.rpartition(".")[0] for name in names} & names
    for package in sorted(packages - {_ONE_FOR_EACH_COMMAND}):
        flat = [name for name in names - packages if name.rpartition(".")[0] == package]
        if len(flat) > MOST_FLAT:
            yield f"{package} has {len(flat)} modules side by side, more than {MOST_FLAT}: give it rooms"


def imported(nodes: Iterable[ast.AST], names: set[str]) -> Iterator[str]:
    """Return those of these modules that the nodes import."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield from (each for each in (whole if whole in names else node.module,) if each in names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
