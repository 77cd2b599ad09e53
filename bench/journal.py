"""Targets 5 to 7: the state from a snapshot, reading the event log, and appending to it."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.cluster_files import NOW, ClusterFiles, finished
from bench.long_log import write_past
from bench.result import Row, Scale
from bench.ssh_hosts import directory
from bench.stopwatch import cpu, medians, seconds, wall
from iris_cli.core.events.events import Event
from iris_cli.core.evolve import replay
from iris_cli.journal.access import LockHolder
from iris_cli.journal.log.writer import hold_lock
from iris_cli.journal.state_dir import StateDir

EVENTS_OF_A_JOB = 7
LONG_ENOUGH = 60.0  # seconds


def rows(scale: Scale) -> Iterator[Row]:
    """Measure on a log with the events of one job per line, as an operator's day writes them."""
    with directory() as place:
        cluster = ClusterFiles.make(place, scale.of(256))
        jobs = scale.of(2000)
        cluster.write(list(finished(cluster.workers, jobs)), lines=jobs)
        yield _replay(place / "state", scale)
        yield from _appends(place, cluster, scale)
        yield _hand_over(place / "state", scale)


def snapshot_rows(scale: Scale) -> Iterator[Row]:
    """Measure the state of the same log with and without its snapshot."""
    with directory() as place:
        cluster = ClusterFiles.make(place, scale.of(256))
        write_past(place / "state", cluster.workers, scale.of(100_000))
        state = StateDir(place / "state", now=lambda: 0.0, actor="bench@here")
        seen = state.load().cluster
        assert seen is not None
        state.save_snapshot(seen, always=True)
        found = medians(
            {
                "snapshot": lambda: seconds(state.load, cpu),
                "replay": lambda: seconds(lambda: replay(state.read().transactions), cpu),
            },
            scale.repeat,
        )
        name = f"state of {scale.of(100_000)} lines from the snapshot, against a replay, s CPU"
        yield Row(target=5, name=name, value=found["snapshot"], reference=found["replay"], limit=0.1)


def _replay(path: Path, scale: Scale) -> Row:
    """Measure reading the whole log with its checksums into a cluster; reference: parsing its JSON."""
    log = _log(path)

    def whole() -> None:
        """Read like a command that finds no snapshot."""
        StateDir(path, now=lambda: 0.0, actor="bench@here").load()

    def parsed() -> None:
        for line in log.read_bytes().splitlines():
            json.loads(line)

    found = medians(
        {"replay": lambda: seconds(whole, cpu), "json": lambda: seconds(parsed, cpu)}, scale.repeat
    )
    name = f"replay of {len(log.read_bytes().splitlines())} lines against json.loads, s CPU"
    return Row(target=6, name=name, value=found["replay"], reference=found["json"], limit=1)


def _appends(place: Path, cluster: ClusterFiles, scale: Scale) -> Iterator[Row]:
    """Measure one transaction with lock and HEAD, and 10,000 events with one fsync, against raw writes."""
    one = list(finished(cluster.workers, 1))
    many = list(finished(cluster.workers, scale.of(10_000) // EVENTS_OF_A_JOB))
    state = StateDir(place / "state", now=lambda: NOW, actor="bench@here")
    seq = state.read().seq  # like an invocation, which reads existing events before it takes the lock
    log, raw = _log(place / "state"), place / "raw"

    def append(events: Sequence[Event]) -> float:
        nonlocal seq

        def act() -> None:
            nonlocal seq
            with state.locked("bench", after_seq=seq) as writer:
                seq = writer.append(events, at=NOW).seq

        return seconds(act, wall)

    before = log.stat().st_size
    append(many)
    size = log.stat().st_size - before

    def bare(length: int) -> float:
        return seconds(lambda: _durable(raw, b"x" * length), wall)

    # Measured separately: after a megabyte, a kilobyte finds caches and disk in an unusual state.
    small = medians(
        {"one": lambda: append(one), "fsync": lambda: bare(size // len(many) * len(one))}, 10 * scale.repeat
    )
    yield Row(
        target=7, name="one transaction, s wall", value=small["one"], reference=small["fsync"], limit=2.5
    )
    large = medians({"many": lambda: append(many), "raw": lambda: bare(size)}, scale.repeat)
    name = f"{len(many)} events in one, against as many raw bytes, s wall"
    yield Row(target=7, name=name, value=large["many"], reference=large["raw"], limit=4)


def _hand_over(path: Path, scale: Scale) -> Row:
    """Measure the time from the release of the lock until a waiting process has it."""
    holder = LockHolder(pid=os.getpid(), actor="bench@here", command="bench", since="")

    def once() -> float:
        held, let_go = threading.Event(), []

        def hold() -> None:
            with hold_lock(path, holder, LONG_ENOUGH):
                held.set()
                time.sleep(0.02)
                let_go.append(wall())

        first = threading.Thread(target=hold)
        first.start()
        held.wait()
        with hold_lock(path, holder, LONG_ENOUGH):
            had = wall()
        first.join()
        return had - let_go[0]

    found = medians({"hand-over": once}, scale.repeat)
    return Row(
        target=7,
        name="contended hand-over of the lock, s wall",
        value=found["hand-over"],
        reference=5e-3,
        limit=1,
    )


def _log(state: Path) -> Path:
    (log,) = state.glob("*.jsonl")
    return log


def _durable(path: Path, data: bytes) -> None:
    with path.open("ab", 0) as file:
        file.write(data)
        os.fsync(file.fileno())
