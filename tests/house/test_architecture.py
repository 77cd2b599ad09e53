"""The rules of the house hold. Each is shown to be able to fail, on a few lines that break it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.house import lazy, rooms, rules, struct_rules, text_rules
from tests.house.rules import ROOT, Module

Rule = Callable[[Module], Iterator[str]]

RULES: list[tuple[Rule, str, str]] = [
    (rules.imports_upwards, "iris_cli.core.model.task", "from iris_cli.ops import cycle"),
    (rules.imports_upwards, "iris_cli.core.model.task", "import iris_cli.clock"),
    (rules.imports_upwards, "iris_cli.journal.log.record", "def f():\n    from iris_cli import remote"),
    (rules.imports_upwards, "iris_cli.ops.cycle.cycle", "import iris_cli.render.tables"),
    (rules.imports_upwards, "iris_cli.render.tables", "from iris_cli.cli.app import main"),
    (rules.imports_upwards, "iris_cli.core.model.task", "from ..ops import cycle"),
    (rules.imports_upwards, "iris_cli.capacity.opening", "from iris_cli.demo.provider import LocalProvider"),
    (rules.imports_upwards, "iris_cli.demo.run", "from iris_cli.cli.context import Context"),
    (rules.imports_upwards, "iris_cli.attic", "x = 1"),
    (rules.imports_by_name, "iris_cli.ops.cycle.cycle", "from importlib import import_module"),
    (rules.imports_by_name, "iris_cli.ops.cycle.cycle", "import importlib\nimportlib.import_module('x')"),
    (rules.imports_by_name, "iris_cli.ops.cycle.cycle", "def f():\n    __import__('x')"),
    (rules.strayed_clocks_and_dice, "iris_cli.ops.cycle.cycle", "import time"),
    (
        rules.strayed_clocks_and_dice,
        "iris_cli.ops.cycle.cycle",
        "def f():\n    from time import sleep as pause",
    ),
    (rules.strayed_clocks_and_dice, "iris_cli.ops.views.view", "now = datetime.now(UTC)"),
    (rules.strayed_clocks_and_dice, "iris_cli.ops.views.view", "day = datetime.date.today()"),
    (rules.strayed_clocks_and_dice, "iris_cli.journal.log.record", "from time import time"),
    (rules.strayed_clocks_and_dice, "iris_cli.ops.cycle.cycle", "from secrets import token_hex"),
    (rules.strayed_clocks_and_dice, "iris_cli.remote.ssh.dialer", "import random"),
    (rules.strayed_clocks_and_dice, "iris_cli.journal.log.record", "name = os.urandom(16).hex()"),
    (rules.strayed_clocks_and_dice, "iris_cli.clock", "import random"),
    (rules.impure_core, "iris_cli.core.model.task", "import time"),
    (rules.impure_core, "iris_cli.core.model.task", "import json"),
    (rules.impure_core, "iris_cli.core.model.task", "def f():\n    from os import path"),
    (rules.strayed_dependencies, "iris_cli.ops.cycle.cycle", "import paramiko"),
    (rules.strayed_dependencies, "iris_cli.remote.ssh", "from filelock import FileLock"),
    (rules.strayed_dependencies, "iris_cli.ops.cycle.cycle", "import yaml"),
    (rules.strayed_dependencies, "iris_cli.ops.cycle.cycle", "from rich.table import Table"),
    (rules.strayed_dependencies, "iris_cli.render.tables", "import typer"),
    (rules.strayed_dependencies, "iris_cli.ops.autoscale", "from google.cloud import tpu_v2"),
    (struct_rules.home_made_classes, "iris_cli.core.model.task", "from dataclasses import dataclass"),
    (struct_rules.home_made_classes, "iris_cli.ops.cycle.cycle", "def f():\n    exec(text)"),
    (struct_rules.home_made_classes, "iris_cli.journal.codec", "kind = eval(annotation)"),
    (struct_rules.home_made_classes, "iris_cli.core.evolve.attempts", "record.__class__ = Task"),
    (
        struct_rules.unchecked_changes,
        "iris_cli.core.model.cluster",
        "from msgspec.structs import fields, replace",
    ),
    (struct_rules.unchecked_changes, "iris_cli.core.evolve.attempts", "def f(job: Any) -> None: ..."),
    (struct_rules.unchecked_changes, "iris_cli.core.events.events", "from typing import Any"),
    (struct_rules.unchecked_changes, "iris_cli.core.evolve.attempts", "task = cast(Task, found)"),
    (struct_rules.assigned_records, "iris_cli.ops.cycle.cycle", "def f(job):\n    job.cancelled = True"),
    (struct_rules.unprepared_types, "iris_cli.client.outbox", "status = convert(said, JobStatus)"),
    (struct_rules.unprepared_types, "iris_cli.journal.codec", "lines = msgspec.json.Decoder(type=Line)"),
    (
        struct_rules.assigned_records,
        "iris_cli.core.lifecycle.jobs",
        "def f(c):\n    task = c.tasks[0]\n    task.state = s",
    ),
    (rules.changed_tables, "iris_cli.ops.cycle.cycle", "worker.claims[attempt] = claim"),
    (rules.iterated_sets, "iris_cli.core.model.task", "for x in {1, 2}:\n    y = x"),
    (rules.iterated_sets, "iris_cli.core.model.task", "best = [x for x in set(a) - b]"),
    (rules.iterated_sets, "iris_cli.core.model.task", "first = list(frozenset(a))[0]"),
    (text_rules.long_functions, "iris_cli.core.model.task", "def f():\n" + "    x = 1\n" * 60),
    (text_rules.long_files, "iris_cli.core.model.task", "x = 1\n" * 401),
    (text_rules.empty_names, "iris_cli.ops.utils", ""),
    (rules.raw_keys, "iris_cli.core.model.task", "key = 'tpu-name'"),
    (rules.rebound_constants, "iris_cli.core.task", "MOST = 1\nLEAST = 0\nMOST = 2"),
    (rules.prints, "iris_cli.ops.cycle.cycle", "print('done')"),
    (text_rules.bare_ignores, "iris_cli.core.model.task", "x = 1  # noqa"),
    (text_rules.bare_ignores, "iris_cli.core.model.task", "x = 1  # type: ignore[arg-type]"),
    (rules.trusting_policies, "iris_cli.remote.ssh", "client.set_missing_host_key_policy(p.AutoAddPolicy())"),
    (rules.insides_of_the_ssh_library, "iris_cli.remote.x", "from paramiko.common import OPEN_SUCCEEDED"),
    (rules.insides_of_the_ssh_library, "iris_cli.remote.x", "import paramiko\nx = paramiko.util.b('x')"),
    (
        rules.insides_of_the_ssh_library,
        "iris_cli.remote.x",
        "import paramiko\nclass T(paramiko.Transport): ...",
    ),
    (
        rules.insides_of_the_ssh_library,
        "iris_cli.remote.x",
        "from paramiko import Transport as T\nclass U(T): ...",
    ),
    (rules.insides_of_the_ssh_library, "iris_cli.remote.x", "import paramiko\nself.transport._log(1, 'x')"),
    (rules.files_from_afar, "iris_cli.ops.logs.logs", "import tarfile"),
    (rules.files_from_afar, "iris_cli.ops.logs.logs", "from tarfile import TarFile, TarInfo"),
    (rules.files_from_afar, "iris_cli.ops.logs.logs", "from pickle import loads"),
    (rules.files_from_afar, "iris_cli.remote.ssh", "client.open_sftp().get(name, name)"),
    (rules.changed_tables, "iris_cli.ops.cycle.cycle", "cluster.jobs[job.id] = job"),
    (rules.changed_tables, "iris_cli.core.invariants", "del cluster.workers[worker]"),
    (
        rules.network_under_the_lock,
        "iris_cli.ops.cycle.cycle",
        "with session.transaction() as draft:\n    session.runner.stop(target)",
    ),
]
FINE: list[tuple[Rule, str, str]] = [
    (rules.files_from_afar, "iris_cli.ops.workspace.archive", "from tarfile import USTAR_FORMAT, TarInfo"),
    (rules.imports_upwards, "iris_cli.ops.cycle.cycle", "from iris_cli import journal, clock"),
    (rules.imports_upwards, "iris_cli.__main__", "from iris_cli.cli.app import main"),
    (rules.imports_upwards, "iris_cli.demo.run", "from iris_cli.render.console import Output"),
    (rules.imports_by_name, "iris_cli.capacity.opening", "from importlib import import_module"),
    (rules.strayed_clocks_and_dice, "iris_cli.clock", "import time"),
    (rules.strayed_clocks_and_dice, "iris_cli.ops.views.view", "at = session.clock.now()"),
    (rules.strayed_clocks_and_dice, "iris_cli.ops.views.view", "at = datetime.fromisoformat(text)"),
    (rules.impure_core, "iris_cli.core.constraints", "from msgspec import Struct"),
    (struct_rules.unchecked_changes, "iris_cli.ops.views.view", "from msgspec.structs import replace"),
    (struct_rules.assigned_records, "iris_cli.core.evolve.attempts", "def f(job):\n    job.cancelled = True"),
    (
        struct_rules.assigned_records,
        "iris_cli.core.x",
        "def f(worker):\n    worker = copy(worker)\n    worker.cpu = 1.0",
    ),
    (rules.iterated_sets, "iris_cli.core.model.task", "x = sorted(set(a)); y = any(b for b in set(a))"),
    (rules.iterated_sets, "iris_cli.core.model.task", "z = {b for b in set(a)}; w = 1 in {1, 2}"),
    (text_rules.long_functions, "iris_cli.core.model.task", "def f():\n" + "    x = 1\n" * 59),
    (
        rules.insides_of_the_ssh_library,
        "iris_cli.remote.x",
        "import paramiko\nclass S(paramiko.ServerInterface):\n    def f(self):\n        return self._x",
    ),
    (rules.raw_keys, "iris_cli.core.attributes", "KEY = 'region'"),
    (rules.raw_keys, "iris_cli.core.model.job", "class When(StrEnum):\n    IF_IT_MAY_GO = 'preemptible'"),
    (text_rules.bare_ignores, "iris_cli.core.model.task", "x = 1  # noqa: S603 - the command is our own"),
    (
        text_rules.bare_ignores,
        "iris_cli.core.model.task",
        "x = f(y)  # type: ignore[arg-type]  # checked above",
    ),
    (text_rules.bare_ignores, "iris_cli.core.model.task", "x = '# noqa'"),
]
EACH = list(dict.fromkeys(rule for rule, _, _ in RULES))
FOR_TESTS_TOO: list[Rule] = [
    text_rules.long_functions,
    text_rules.long_files,
    text_rules.empty_names,
    text_rules.bare_ignores,
    rules.trusting_policies,
]


def test_the_package_keeps_the_rules() -> None:
    """All in one test: each file is read and parsed once."""
    assert [finding for module in rules.house() for rule in EACH for finding in rule(module)] == []


def test_the_rooms_of_a_package_import_each_other_in_one_direction() -> None:
    assert [*rooms.circles(rules.house())] == []


@pytest.mark.parametrize(
    "text",
    [
        "from iris_cli.ops.views import status",
        "import iris_cli.ops.views.status",
        "def f():\n    from iris_cli.ops.views.status import look",
        "if TYPE_CHECKING:\n    from iris_cli.ops.views.status import Status",
    ],
)
def test_a_circle_is_found_wherever_the_import_stands(text: str) -> None:
    lower = Module("iris_cli.ops.session", text)
    upper = Module("iris_cli.ops.views.status", "from iris_cli.ops.session import Session")
    assert [*rooms.circles([lower, upper])] in (
        ["iris_cli.ops: session imports views imports session"],
        ["iris_cli.ops: views imports session imports views"],
    )
    assert [*rooms.circles([upper, Module(lower.name, "")])] == []


def test_no_package_is_crowded() -> None:
    assert [*rooms.crowds(rules.house())] == []
    many = [Module(f"iris_cli.ops.m{number}", "") for number in range(rooms.MOST_FLAT + 1)]
    assert len([*rooms.crowds([Module("iris_cli.ops", ""), *many])]) == 1
    assert [*rooms.crowds([Module("iris_cli.ops", ""), *many[1:]])] == []


def test_each_import_inside_a_function_is_in_the_list() -> None:
    assert [*lazy.differences(rules.house())] == []
    inside = Module("iris_cli.ops.x", "def f():\n    from iris_cli.ops.y import g\n    g()")
    on_top = Module("iris_cli.ops.x", "from iris_cli.ops.y import g")
    other = Module("iris_cli.ops.y", "")
    assert [*lazy.differences([inside, other], {})] == ["ops.x imports ops.y inside a function"]
    assert [*lazy.differences([on_top, other], {"ops.x": "ops.y"})] == [
        "ops.x imports ops.y nowhere: remove it"
    ]
    assert [*lazy.differences([inside, other], {"ops.x": "ops.y"})] == []


def test_the_tests_keep_some_of_them_too() -> None:
    assert [finding for module in rules.tests() for rule in FOR_TESTS_TOO for finding in rule(module)] == []


def test_each_rule_finds_the_lines_that_break_it_and_no_others() -> None:
    assert [(rule, text) for rule, name, text in RULES if not [*rule(Module(name, text))]] == []
    assert [(rule, text) for rule, name, text in FINE if [*rule(Module(name, text))]] == []


def test_there_is_a_house_to_look_at() -> None:
    names = {module.name for module in rules.house()}
    assert {"iris_cli", "iris_cli.core", "iris_cli.core.evolve", "iris_cli.ops.cycle.cycle"} <= names


def test_the_runtime_dependencies_are_these_six() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [re.split(r"[^A-Za-z-]", line)[0].lower() for line in project["dependencies"]]
    assert sorted(names) == ["filelock", "msgspec", "paramiko", "pyyaml", "rich", "typer"]


def test_starting_up_loads_neither_ssh_nor_anything_that_only_some_commands_need() -> None:
    """A status must be instant: paramiko alone takes longer to import than everything else together."""
    slow = ["paramiko", "cryptography", "asyncio", "pydantic", "google"]
    code = f"import sys, iris_cli.cli.app; print([name for name in {slow} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
ELSEWHERE = re.compile(rf"{re.escape(str(ROOT))}/\w|\bthe spec\b", re.IGNORECASE)


def strange_words(text: str) -> list[str]:
    """Notes to oneself, and words that mean nothing to a reader of this repository."""
    return [match[0] for pattern in (UNFINISHED, ELSEWHERE) for match in pattern.finditer(text)]


def test_the_project_speaks_of_itself_alone() -> None:
    kinds = (".py", ".md", ".toml", ".yaml", ".yml", ".txt", ".sh", ".cfg")
    hidden = {".git", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", "build", "dist"}
    texts = []
    for directory, below, files in os.walk(ROOT):
        below[:] = set(below) - hidden
        paths = [Path(directory, name) for name in files if name.endswith(kinds) and name not in hidden]
        texts += [path for path in paths if path.is_file()]
    here = "tests/house/test_architecture.py"
    found = {
        name: words
        for path in texts
        if (name := str(path.relative_to(ROOT))) != here
        and (words := strange_words(path.read_text("utf-8", errors="replace")))
    }
    assert len(texts) > 20
    assert found == {}


def test_strange_words_are_found() -> None:
    assert strange_words(f"# TODO: see {ROOT}/x, as The Spec says") == ["TODO", f"{ROOT}/x", "The Spec"]
    assert strange_words("cd $HOME/iris; inspect the specification") == []


@pytest.mark.parametrize(
    ("module", "names"),
    [
        (
            "constraints",
            "AttributeValue Constraint ConstraintOp REGION_ATTRIBUTE_KEY build_worker_attributes",
        ),
        ("resources", "device_compatible"),
        ("scheduling", "SchedulingResult find_assignments"),
        ("autoscaling", "DemandEntry RoutingDecision compute_demand_entries route_demand"),
        ("invariants", "breaches"),
        ("evolve", "evolve replay"),
    ],
)
def test_the_core_is_imported_from_these_modules(module: str, names: str) -> None:
    """Programs outside the repository rely on them."""
    found = import_module(f"iris_cli.core.{module}")
    assert [name for name in names.split() if not hasattr(found, name)] == []
