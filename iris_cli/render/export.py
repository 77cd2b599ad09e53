"""Events as JSON lines, for jq, DuckDB or pandas."""

from __future__ import annotations

import json
from collections.abc import Iterable

from iris_cli.core.dataclass import fields
from iris_cli.ops.export import Row
from iris_cli.render.console import Output


def show_rows(output: Output, rows: Iterable[Row]) -> None:
    """One object in one line for each event, as they come."""
    names = [each.name for each in fields(Row)]
    encode = json.JSONEncoder(separators=(",", ":")).encode
    for row in rows:
        output.line(encode({name: getattr(row, name) for name in names}))
