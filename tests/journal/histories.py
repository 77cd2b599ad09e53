"""Histories as logs, which go as far as a test wants them to, and a snapshot beside them."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path

from iris_cli.core.events.events import AttemptsReaped, Transaction
from iris_cli.core.evolve import replay
from iris_cli.core.ids import WorkerId
from iris_cli.core.model.cluster import Cluster
from iris_cli.journal.log.position import START
from iris_cli.journal.log.record import encode_line, end_of_line
from iris_cli.journal.state_dir import StateDir
from tests.support.lab import Lab

NEVER = 10**9
W0 = WorkerId("w0")


def state_in(path: Path, every: int = 1) -> StateDir:
    return StateDir(path, now=lambda: 1_800_000_000.0, actor="me@laptop", snapshot_every=every)


class Log:
    """A history as lines, put into a state directory as far as it goes at the moment."""

    def __init__(self, path: Path, transactions: list[Transaction]) -> None:
        self.path = path
        self.snapshot = path / "snapshot.json"
        self._ends, self._lines = [START], [b""]
        self._replayed: dict[bytes, Cluster] = {}
        for each in transactions:
            line = encode_line(self._ends[-1], each.events, at=each.at, actor="test")
            self._lines.append(line)
            self._ends.append(end_of_line(self._ends[-1], line, each.at))
        path.mkdir(mode=0o700)

    def __len__(self) -> int:
        return len(self._lines) - 1

    def grow(self, seq: int) -> None:
        """From now on the log goes as far as this."""
        write(self.path / "events.jsonl", b"".join(self._lines[: seq + 1]))
        end = self._ends[seq]
        assert end.header is not None
        head = {"seq": end.seq, "crc": end.crc, "cluster_id": end.header.cluster_id}
        write(self.path / "HEAD", json.dumps(head).encode())

    def look(self, every: int = 1) -> Cluster:
        """As an invocation does that reads."""
        state = state_in(self.path, every)
        view = state.load()
        assert view.cluster is not None
        assert view.committed
        return state.save_snapshot(view.cluster)

    @property
    def snapshots(self) -> list[Path]:
        """All of them, the newest first."""
        moments = sorted((self.path / "archive").glob("snapshot-*.json"), reverse=True)
        return [*([self.snapshot] if os.path.lexists(self.snapshot) else []), *moments]

    @property
    def pages(self) -> int:
        """The byte of the newest snapshot at which the jobs begin that ended for good."""
        content = self.snapshots[0].read_bytes()
        pieces = json.loads(content.split(b"\n", 1)[0])
        start, size, _ = pieces["outputs"]
        return content.index(b"\n") + 1 + int(start) + int(size) + 1

    def replayed(self) -> Cluster:
        """What the log says, whatever stands beside it."""
        content = (self.path / "events.jsonl").read_bytes()
        if content not in self._replayed:
            self._replayed[content] = replay(state_in(self.path).read().transactions)
        return self._replayed[content]


def write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o600)


def same(cluster: Cluster, whole: Cluster) -> None:
    """Entry for entry, and in the same order."""
    assert (len(cluster.jobs), len(cluster.tasks)) == (len(whole.jobs), len(whole.tasks))
    assert list(cluster.jobs) == list(whole.jobs)
    assert list(cluster.tasks) == list(whole.tasks)
    assert cluster == whole
    assert whole == cluster


@cache
def busy_days() -> list[Transaction]:
    """Jobs that end one after the other; the oldest output goes when some of them are long over.

    In the end the throttle of an array has admitted one more task, and holds another one.
    """
    lab = Lab().worker("w0", cpu=12).worker("w1", cpu=12)
    for number in range(12):
        name = f"job-{number * 7 % 12}"
        lab.job(name, replicas=1 + number % 3).schedule().reports(f"{name}/* running")
        lab.reports(f"{name}/* exited {number % 2}").advance(60)
        oldest = lab.cluster.outputs[W0].oldest_batch[:1]
        if number > 5 and oldest:
            with lab.transaction() as draft:
                draft.record(AttemptsReaped(worker=W0, attempts=oldest))
    lab.job("sweep", array="0-2%1", scheduling_timeout=60.0).schedule()
    lab.reports("sweep/task-0 running").advance(90).reports("sweep/task-0 exited 0")
    lab.job("last").schedule()
    return lab.log
