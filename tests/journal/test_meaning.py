"""A snapshot outlives an upgrade that makes the same records of the same log: `MEANING` says so, and must be right."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args, get_type_hints
from zlib import crc32

from msgspec import Struct

from iris_cli.core.evolve import replay
from iris_cli.core.model.cluster import Cluster, Outputs
from iris_cli.core.model.job import Job
from iris_cli.core.model.slice import Slice
from iris_cli.core.model.task import Attempt, End, Task
from iris_cli.core.model.worker import Worker
from iris_cli.journal.codec import encode
from iris_cli.journal.snapshot.form import MEANING, FullJob, Live, StoredJob, job_in, stored_job
from tests.journal.test_museum import LOGS, hung

KNOWN = Path(__file__).parent / "meanings.json"


def structs_in(kinds: Iterable[Any]) -> set[type[Struct]]:
    """The structs in these types, and in their fields."""
    found: set[type[Struct]] = set()
    left = list(kinds)
    while left:
        kind = left.pop()
        left += get_args(kind)
        if isinstance(kind, type) and issubclass(kind, Struct) and kind not in found:
            found.add(kind)
            left += get_type_hints(kind).values()
    assert {Job, Task, Attempt, End, Worker, Slice, Cluster} <= found
    return found


def fingerprint(path: Path) -> str:
    """The types of a snapshot, and the records that every log of the museum comes to."""
    crc = 0
    for cls in sorted(structs_in([StoredJob, Live, Outputs]), key=lambda cls: cls.__name__):
        defaults = [
            each if isinstance(each, str | int | float | tuple) else "" for each in cls.__struct_defaults__
        ]
        described = cls.__name__, cls.__struct_fields__, cls.__annotations__, defaults
        crc = crc32(repr(described).encode(), crc)
    for log in LOGS:
        cluster = replay(hung(log.name, path / log.stem).read().transactions)
        wholes: list[FullJob] = [job_in(cluster, job) for job in cluster.jobs]
        for part in (*map(stored_job, wholes), *cluster.workers.values(), *cluster.slices.values()):
            crc = crc32(encode(part), crc)
        for table in (
            cluster.outputs,
            cluster.ghosts,
            cluster.endpoints,
            cluster.scale_groups,
            cluster.slice_owner,
        ):
            crc = crc32(encode(table), crc)
    return f"{crc:08x}"


def test_a_log_that_comes_to_other_records_has_another_meaning(tmp_path: Path) -> None:
    """Raise MEANING and run this with IRIS_REWRITE=1: a line is added, and snapshots of before are ignored."""
    known: dict[str, Any] = json.loads(KNOWN.read_text(encoding="ascii"))
    found = fingerprint(tmp_path)
    if os.environ.get("IRIS_REWRITE") and str(MEANING) not in known:
        known[str(MEANING)] = found
        KNOWN.write_text(json.dumps(known, indent=1) + "\n", encoding="ascii")
    assert known.get(str(MEANING)) == found
    assert max(map(int, known)) == MEANING
    assert len(set(known.values())) == len(known)
