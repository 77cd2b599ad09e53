"""Jobs to export, as job files, and a JobSet as its own schema and Kubernetes read it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from iris_cli.config.schema import Defaults
from iris_cli.ops.export.counterparts import Engine
from iris_cli.ops.export.export import Export, export
from iris_cli.ops.export.source import Source, from_file

SCHEMA = Path(__file__).with_name("jobset-schema.json")
"""The OpenAPI schema in JobSet's CustomResourceDefinition (kubernetes-sigs/jobset), without its descriptions."""


def source(directory: Path, defaults: Defaults | None = None, **fields: Any) -> Source:
    """The job of a file with these keys."""
    path = directory / "job.yaml"
    path.write_text(json.dumps({"name": "train", "command": ["true"], **fields}))
    return from_file(path, defaults or Defaults())


def to_jobset(
    directory: Path, *, queue: str | None = None, image: str | None = "img", **fields: Any
) -> Export:
    return export(source(directory, **fields), Engine.JOBSET, image=image, queue=queue)


def to_sbatch(directory: Path, *, queue: str | None = None, **fields: Any) -> Export:
    return export(source(directory, **fields), Engine.SBATCH, queue=queue)


def document(exported: Export) -> dict[str, Any]:
    """The JobSet; it has been held to its schema."""
    return document_of(exported.text)


def document_of(text: str) -> dict[str, Any]:
    """The same of a text."""
    found: dict[str, Any] = yaml.load(text, Loader=_LOADER)
    validator().validate(found)
    return found


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@cache
def validator() -> Any:
    """Rejects unknown fields, too: Kubernetes would drop them in silence."""
    return jsonschema.Draft202012Validator(_closed(json.loads(SCHEMA.read_text())["v1alpha2"]))


def _closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _closed(each) for key, each in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        found.setdefault("additionalProperties", False)
    return found


def child(found: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the child jobs."""
    [replicated] = found["spec"]["replicatedJobs"]
    spec: dict[str, Any] = replicated["template"]["spec"]
    return spec


def container(found: Mapping[str, Any]) -> dict[str, Any]:
    [only] = child(found)["template"]["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def expanded(text: str, env: Mapping[str, str]) -> str:
    """The text as a pod gets it: `$(NAME)` is the variable, `$$` is `$`, all else stays.

    The rule is in Kubernetes' reference of the container's `command`.
    """

    def one(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return env.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", one, text)


def lost(exported: Export) -> list[str]:
    """The fields that the engine does not keep."""
    return [note.field for note in exported.notes if note.lost]
