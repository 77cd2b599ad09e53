"""A log of several years: a million lines in seconds, each as the program would have written it.

The events of one job are encoded once by the log's own codec; then name, token and worker of each job are filled in.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from zlib import crc32

from bench.cluster_files import NOW, finished
from iris_cli.clock import iso_time
from iris_cli.core.events.events import AttemptsReaped
from iris_cli.core.ids import AttemptId, JobId, TaskId, WorkerId
from iris_cli.core.model.cluster import BATCH
from iris_cli.files import DISK
from iris_cli.journal.log.file_store import FileStore
from iris_cli.journal.log.head import write_head
from iris_cli.journal.log.record import encode_event

_SECONDS_OF_A_LINE = 31.5
_LEFT = 2 * BATCH  # attempts of a worker whose files still exist before the oldest are deleted


def write_past(state: Path, workers: Sequence[WorkerId], lines: int) -> None:
    """Append ended jobs of one task, one event per line, until the log has that many lines."""
    store = FileStore(state)
    store.load()
    line, crc = store.end.line, store.end.crc
    with next(state.glob("*.jsonl")).open("ab") as log:
        for events in _events(workers):
            if line >= lines:
                break
            line += 1
            body = b'{"seq":%d,"prev":"%s","at":"%s","actor":"bench@here iris schedule","events":[%s]' % (
                line,
                crc.encode(),
                iso_time(time_of(line)).encode(),
                events,
            )
            crc = f"{crc32(body):08x}"
            log.write(b'%s,"crc":"%s"}\n' % (body, crc.encode()))
    store.load()
    write_head(DISK, state, store.end)


def time_of(line: int) -> float:
    """Return the time of a line: a million lines take a year."""
    return NOW + line * _SECONDS_OF_A_LINE


def _events(workers: Sequence[WorkerId]) -> Iterator[bytes]:
    """Yield the contents of lines, without end."""
    life = [json.dumps(encode_event(each), separators=(",", ":")) for each in finished(workers[:1], 1)]
    (token,) = {json.loads(each).get("token") for each in life} - {None}
    number = 0
    ended: dict[WorkerId, list[AttemptId]] = {worker: [] for worker in workers}
    while True:
        number += 1
        worker, name = workers[number % len(workers)], f"old-{number}"
        for each in life:
            text = (
                each.replace("finished-0", name).replace(token, f"{number:032x}").replace(workers[0], worker)
            )
            yield text.encode("ascii")
        there = ended[worker]
        there.append(AttemptId(TaskId(JobId(name), 0), 0))
        if len(there) >= _LEFT:
            reaped = AttemptsReaped(worker=worker, attempts=tuple(there[:BATCH]))
            yield json.dumps(encode_event(reaped), separators=(",", ":")).encode("ascii")
            del there[:BATCH]
