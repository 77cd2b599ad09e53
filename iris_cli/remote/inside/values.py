"""Values that are rendered as literals: the options of `iris launch`, and limits."""

from __future__ import annotations

from collections.abc import Mapping

from iris_cli.core.messages.requests import FORMAT, MAX_LOG_PIECE, MAX_REQUEST_BYTES
from iris_cli.core.model.array import MAX_INDEXES
from iris_cli.core.model.job_fields import JOB_FIELDS, Kind
from iris_cli.core.model.variables import MAX_STRING

__all__ = ["FORMAT", "MAX_INDEXES", "MAX_LOG_PIECE", "MAX_REQUEST_BYTES", "MAX_STRING", "OPTIONS"]

OPTIONS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    flag: (row.file_key, kind, tuple(map(str, row.choices or ())))
    for row in JOB_FIELDS
    if not row.not_inside
    for flags in row.flags
    for flag, kind in zip(
        flags.split("/"), ("ON", "OFF") if row.kind is Kind.FLAG else (row.kind.name,), strict=False
    )
}
"""For each flag of `iris launch`: its key in a request, the kind of its value, and the words allowed for a choice."""
