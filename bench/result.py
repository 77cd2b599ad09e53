"""The size of a benchmark, one measured figure, and the table of all figures."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

_LIBRARIES = ("paramiko", "cryptography", "filelock", "rich", "typer", "PyYAML")


@dataclass(frozen=True, slots=True)
class Scale:
    """`repeat` runs of each measurement, with sizes divided by `shrink`."""

    repeat: int = 7
    shrink: int = 1

    def of(self, size: int) -> int:
        """Return a size at this scale."""
        return max(4, size // self.shrink)


FULL = Scale()
TINY = Scale(repeat=1, shrink=1_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A figure that meets its target if `ratio` = `value` / `reference` is at most `limit`.

    Value and reference have the same unit, which is in the name. For an absolute target the reference is the target and
    the limit 1.
    """

    target: int
    name: str
    value: float
    reference: float
    limit: float

    @property
    def ratio(self) -> float:
        return self.value / self.reference

    @property
    def ok(self) -> bool:
        return self.ratio <= self.limit

    def as_json(self) -> dict[str, object]:
        rounded = {key: _rounded(value) for key, value in asdict(self).items()}
        limit = rounded.pop("limit")
        return {**rounded, "ratio": _rounded(self.ratio), "limit": limit, "ok": self.ok}


def table(rows: Sequence[Row]) -> str:
    """Format the rows as a table."""
    head = ("target", "what", "value", "reference", "ratio", "limit", "")
    lines: list[tuple[str, ...]] = [head]
    for row in rows:
        figures = (f"{number:.4g}" for number in (row.value, row.reference, row.ratio, row.limit))
        lines.append((str(row.target), row.name, *figures, "ok" if row.ok else "MISSED"))
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in (1, 6) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def write(rows: Sequence[Row], results: Path, date: str, load: tuple[float, ...]) -> None:
    """Write the rows as a JSON list, and `NAME.machine.json` with the machine, date and versions."""
    results.write_text(json.dumps([row.as_json() for row in rows], indent=1) + "\n")
    versions = {name: metadata.version(name) for name in _LIBRARIES}
    about = {
        "machine": {"processor": _processor(), "system": platform.platform(), "cores": os.cpu_count()},
        "date": date,
        "load": [_rounded(each) for each in load],
        "versions": {"python": sys.version.split()[0], "iris-cli": metadata.version("iris-cli"), **versions},
    }
    results.with_suffix(".machine.json").write_text(json.dumps(about, indent=1) + "\n")


def _rounded(value: object) -> object:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
