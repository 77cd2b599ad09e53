"""Check the output of `--json` against docs/json-schema.json."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.command_lines import parsed

SCHEMA: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "docs" / "json-schema.json").read_text(encoding="utf-8")
)
COMMANDS = {name for name in SCHEMA["$defs"] if name.startswith("iris")}


def command_of(line: str) -> str:
    """`iris worker drain cpu-0` -> `iris worker drain`."""
    return str(parsed(line).command_path) if len(line.split()) > 1 else line


def checked(command: str, text: str) -> list[dict[str, Any]]:
    """Return the documents in a text. Raises AssertionError for one that does not match the schema of the command."""
    found = []
    rest = text.lstrip()
    while rest:
        document, end = json.JSONDecoder().raw_decode(rest)
        assert (problem := problem_of(command, document)) == "", f"{command}: {problem}"
        found.append(document)
        rest = rest[end:].lstrip()
    return found


def problem_of(command: str, document: object) -> str:
    """Return where a document does not match the best of several schemas, '' if it matches."""
    fewest: list[Any] = []
    for each in SCHEMA["$defs"][command]["anyOf"]:
        errors = list(_validator().evolve(schema=each).iter_errors(document))
        if not errors:
            return ""
        if not fewest or len(errors) < len(fewest):
            fewest = errors
    return "; ".join(f"{each.json_path}: {each.message:.300}" for each in fewest)


def check_run(words: Sequence[str], out: str, err: str) -> None:
    """Check the output of a command if it was run with `--json`."""
    words = words[: words.index("--")] if "--" in words else words
    if "--json" not in words:
        return
    for line in err.splitlines():
        if line.startswith('{"schema_version"'):
            checked("error", line)
    if out:
        named = [word for word in words if word != "--json"]
        checked(command_of(" ".join(["iris", *named])), out)


@cache
def _validator() -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(SCHEMA)
