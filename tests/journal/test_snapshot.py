"""The snapshot is a cache: whatever becomes of it, what a command sees is what the whole log says."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iris_cli.core.cluster import Cluster
from iris_cli.core.events import Transaction
from iris_cli.core.evolve import replay
from iris_cli.core.ids import JobId, TaskId, Token
from iris_cli.journal.record import START, encode_line, end_of_line
from iris_cli.journal.state_dir import StateDir
from tests.core.test_random_walk import Step, new_lab, steps

HISTORIES = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
NEVER = 10**9
walks = st.lists(steps, min_size=20, max_size=50)
dice = st.randoms(use_true_random=False)


def state_in(path: Path, every: int = 1) -> StateDir:
    return StateDir(path, now=lambda: 1_800_000_000.0, actor="me@laptop", snapshot_every=every)


class Log:
    """A history as lines, put into a state directory as far as it goes at the moment."""

    def __init__(self, path: Path, transactions: list[Transaction]) -> None:
        self.path = path
        self.snapshot = path / "snapshot.json"
        self._ends, self._lines = [START], [b""]
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
        state.keep(view.cluster)
        return view.cluster

    def replayed(self) -> Cluster:
        """What the log says, whatever stands beside it."""
        return replay(state_in(self.path).read().transactions)


def write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o600)


def history(walk: list[Step]) -> list[Transaction]:
    lab = new_lab()
    for step in walk:
        step(lab)
    return lab.log


def glance(cluster: Cluster, whole: Cluster, dice: random.Random) -> None:
    """Some of what is over is asked for, in one of the ways there are; the answer is that of the whole."""
    known = [*whole.jobs, JobId("nobody"), JobId("train/nobody")]
    for job in dice.sample(known, dice.randrange(len(known))):
        task = TaskId(job, dice.randrange(3))
        ask: Callable[[Cluster], object] = dice.choice(
            [
                lambda it, job=job: job in it.jobs,
                lambda it, job=job: it.jobs.get(job),
                lambda it, task=task: it.tasks.get(task),
                lambda it, task=task: task in it.tasks,
                lambda it, job=job: it.children.get(job),
                lambda it, job=job: it.children_of(job),
                lambda it, job=job: it.job_state(job) if job in it.jobs else None,
            ]
        )
        assert ask(cluster) == ask(whole)
    for worker in whole.workers:
        if dice.random() < 0.3:
            assert cluster.outputs.get(worker) == whole.outputs.get(worker)
    most = dice.randrange(4)
    assert cluster.last_ended(most) == whole.last_ended(most)
    tokens = [attempt.token for task in whole.tasks.values() for attempt in task.attempts]
    asked = [*dice.sample(tokens, min(2, len(tokens))), Token("f" * 32)]
    assert cluster.foreign(asked) == whole.foreign(asked) == (Token("f" * 32),)
    assert cluster.open_jobs() == whole.open_jobs()
    assert list(cluster.pending_tasks()) == list(whole.pending_tasks())


def same(cluster: Cluster, whole: Cluster) -> None:
    """Entry for entry, and in the same order."""
    assert (len(cluster.jobs), len(cluster.tasks)) == (len(whole.jobs), len(whole.tasks))
    assert list(cluster.jobs) == list(whole.jobs)
    assert list(cluster.tasks) == list(whole.tasks)
    assert cluster == whole
    assert whole == cluster


@HISTORIES
@given(walks, dice)
def test_a_snapshot_and_what_came_after_it_are_the_whole_history(
    tmp_path_factory: pytest.TempPathFactory, walk: list[Step], dice: random.Random
) -> None:
    log = Log(tmp_path_factory.mktemp("place") / "state", history(walk))
    for seq in sorted(dice.sample(range(1, len(log) + 1), 3)):
        log.grow(seq)
        whole = log.replayed()
        first = log.look(every=1)
        glance(first, whole, dice)
        second = log.look(every=NEVER)  # from the snapshot that the first one wrote
        assert second.past is not None
        glance(second, whole, dice)
        same(second, whole)
        same(first, whole)
