"""The table of the fields of a job and their counterparts in other engines, for docs/leaving.md."""

from __future__ import annotations

from collections.abc import Iterator

from iris_cli.ops.export.counterparts import COUNTERPARTS

BEGIN = "<!-- Written by scripts/write_docs.py from ops/export/counterparts.py, up to the next mark. -->\n"
END = "<!-- End of the counterparts. -->\n"


def with_counterparts(page: str) -> str:
    """Return the page with the text between its two marks regenerated. Raises ValueError without marks."""
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    return page[:begin] + "\n".join(("", *_table(), "", "")) + page[end:]


def _table() -> Iterator[str]:
    yield "| iris field | Slurm | JobSet, Kueue |"
    yield "|---|---|---|"
    yield from (
        f"| `{row.field}` | {row.sbatch or 'lost'} | {row.jobset or 'lost'} |" for row in COUNTERPARTS
    )
