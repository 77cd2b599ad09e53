"""The table of the fields of a job and their counterparts in other engines, for docs/leaving.md."""

from __future__ import annotations

from collections.abc import Iterator

from iris_cli.ops.export.counterparts import COUNTERPARTS

BEGIN = "<!-- Written by scripts/write_docs.py from ops/export/counterparts.py, up to the next mark. -->\n"
END = "<!-- End of the counterparts. -->\n"


def with_counterparts(page: str) -> str:
    """The page with what is between its two marks written again. Raises ValueError if it has no marks."""
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    return page[:begin] + "\n".join(("", *_table(), "", "")) + page[end:]


def _table() -> Iterator[str]:
    yield "| iris field | Slurm | JobSet, Kueue |"
    yield "|---|---|---|"
    yield from (
        f"| `{row.field}` | {row.sbatch or 'lost'} | {row.jobset or 'lost'} |" for row in COUNTERPARTS
    )
