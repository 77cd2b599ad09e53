"""Every command with `--json` has its documents in docs/json-schema.json, and the schema is strict."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.cli.test_help import EVERY
from tests.render.stage import Stages
from tests.support.json_output import COMMANDS, SCHEMA, checked, problem_of


def test_every_command_has_a_definition() -> None:
    leaves = {path for path, command in EVERY.items() if not hasattr(command, "commands")}
    assert {"iris", *leaves} == COMMANDS


def test_the_file_is_a_json_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.fixture(scope="module")
def status(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `iris status --json` prints about a cluster with jobs."""
    with Stages(tmp_path_factory.mktemp("scenes")).stage("busy") as stage:
        text, _ = stage.typed("--json status", told=False)
    [document] = checked("iris status", text)
    return document


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "no schema_version": lambda found: found.pop("schema_version"),
    "another schema_version": lambda found: found.update(schema_version=2),
    "a missing field": lambda found: found.pop("older"),
    "an additional field": lambda found: found.update(colour="red"),
    "a field of another type": lambda found: found.update(older="none"),
    "a field that is null": lambda found: found.update(name=None),
    "a time in seconds": lambda found: found.update(at=1_700_000_000.0),
    "a missing field of a row": lambda found: found["jobs"][0].pop("state"),
    "an additional field of a row": lambda found: found["jobs"][0].update(colour="red"),
    "an unknown state": lambda found: found["jobs"][0].update(state="RUNS"),
    "a mapping to values of another type": lambda found: found["jobs"][0].update(labels={"team": 1}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_wrong_document_does_not_pass(change: str, status: dict[str, Any]) -> None:
    wrong = deepcopy(status)
    assert problem_of("iris status", wrong) == ""
    CHANGES[change](wrong)
    assert problem_of("iris status", wrong)
