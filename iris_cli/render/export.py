"""Events as JSON lines, for jq, DuckDB or pandas."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from contextlib import nullcontext

from iris_cli.ops.export import Row
from iris_cli.render.console import Output


def show_rows(output: Output, rows: Iterable[Row]) -> None:
    """One object in one line for each event, as they come."""
    names = list(Row.__struct_fields__)
    encode = json.JSONEncoder(separators=(",", ":")).encode
    told = 0
    # On a terminal the lines themselves show that it goes on.
    progress = nullcontext if sys.stdout.isatty() else output.progress
    with progress(lambda: ("exporting", told, 0, "event")):
        for told, row in enumerate(rows, 1):  # noqa: B007 - it is asked for above
            # JSON leaves a DEL as it is
            output.line(encode({name: getattr(row, name) for name in names}).replace("\x7f", "\\u007f"))
