"""kill -9 at any moment: what was acknowledged is there, once, and the next writer goes on."""

from __future__ import annotations

import os
import random
import select
import signal
import time
from pathlib import Path

import pytest

from iris_cli.core.events.events import WorkerDrained, WorkerRegistered, WorkerUncordoned
from iris_cli.core.evolve import replay
from iris_cli.core.model.worker import Connection
from iris_cli.journal.log.verify import verify
from iris_cli.journal.state_dir import StateDir
from tests.journal.samples import NOON, state_in
from tests.journal.writer_process import WORKER, start

WRITERS = 4
PATIENCE = 120.0
"""Seconds in which a writer tells of something, if nothing but other writers is in its way."""
FAIR = 5_000
"""Transactions of others between two of one writer: each waits for the lock with the same patience."""

Told = dict[str, list[tuple[int, str]]]
"""The transactions that a writer has told of, by its name: seq and number."""


class Writers:
    """Processes that commit one transaction after the other, and what each has told of them."""

    def __init__(self, path: Path) -> None:
        self.told: Told = {}
        self.living: dict[str, int] = {}
        self.killed: set[str] = set()
        self.compacting: set[str] = set()  # the last that these have told is that they begin to
        self._press = start(path, "press", "-")
        assert self._press.stdout is not None
        self._said = self._press.stdout.fileno()
        self._rest = b""

    def add(self, name: str) -> None:
        assert self._press.stdin is not None
        self._press.stdin.write(f"{name}\n")
        self._press.stdin.flush()
        self.told[name] = []
        while name not in self.living:
            self._wait()

    def hear(self, name: str) -> None:
        """Wait until it tells of one more: it must not wait for ever, nor give up."""
        mine, others = len(self.told[name]), sum(map(len, self.told.values()))
        while len(self.told[name]) == mine:
            self._wait()
            assert sum(map(len, self.told.values())) < others + FAIR, f"{name} waits for ever"

    def begins_to_compact(self) -> str:
        """Wait until one of them does, and say which."""
        while not (found := sorted(self.compacting & self.living.keys())):
            self._wait()
        return found[0]

    def kill(self, name: str) -> None:
        os.kill(self.living.pop(name), signal.SIGKILL)
        self.killed.add(name)

    def close(self) -> None:
        """End all, and hear what they had told before."""
        with self._press as press:
            os.killpg(press.pid, signal.SIGKILL)
            while self._listen():
                pass

    def _wait(self) -> None:
        ready, _, _ = select.select([self._said], [], [], PATIENCE)
        assert ready, "they all wait for ever"
        assert self._listen(), "nobody is left to start writers"

    def _listen(self) -> bool:
        data = os.read(self._said, 1 << 16)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            name, word, rest = line.decode().split(" ", 2)
            assert word != "failed", line
            self.compacting.discard(name)
            if word == "started":
                self.living[name] = int(rest)
            elif word == "compacts":
                self.compacting.add(name)
            elif word != "compacted":
                self.told[name].append((int(word), rest))
        return bool(data)


def check(state: StateDir, told: Told) -> None:
    """Each writer's transactions are there in its order, none twice, and at least those that it has told of."""
    transactions = state.read().transactions
    assert [each.seq for each in transactions] == list(range(1, len(transactions) + 1))
    found: Told = {name: [] for name in told}
    for each in transactions:
        for event in each.events:
            if isinstance(event, WorkerDrained):
                name, number = event.reason.split()
                found[name].append((each.seq, number))
    for name, mine in found.items():
        assert [number for _, number in mine] == [str(number) for number in range(len(mine))]
        assert told[name] == mine[: len(told[name])]
        assert len(mine) <= len(told[name]) + 1


@pytest.mark.parametrize("kills", [10, pytest.param(250, marks=pytest.mark.soak)])
def test_four_writers_killed_in_the_act_lose_nothing_and_block_nobody(tmp_path: Path, kills: int) -> None:
    kill_at_will(tmp_path / "state", kills, "writer")


@pytest.mark.parametrize("kills", [8, pytest.param(250, marks=pytest.mark.soak)])
def test_four_writers_that_also_compact_the_log_lose_nothing_either(tmp_path: Path, kills: int) -> None:
    """Every other one is killed when it begins to compact, or a little later."""
    writers = kill_at_will(tmp_path / "state", kills, "compactor")
    assert list((tmp_path / "state/archive").glob("*.jsonl.gz"))
    amid = len(writers.compacting & writers.killed)
    print(f"{amid} of {kills} were killed while they compacted the log")
    assert amid or kills < 100


def kill_at_will(path: Path, kills: int, kind: str) -> Writers:
    """Let four of a kind write at the same time, and kill one after the other."""
    state = state_in(path)
    state.create("lab")
    with state.locked("iris init") as first:
        first.append([WorkerRegistered(worker=WORKER, connection=Connection(host="v4a-0"))], at=NOON)
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    writers = Writers(state.path)
    try:
        for number in range(WRITERS):
            writers.add(f"{kind}-{number}")
        for number in range(WRITERS, WRITERS + kills):
            writers.hear(chance.choice(sorted(writers.living)))
            amid = kind == "compactor" and number % 2 == 0
            victim = writers.begins_to_compact() if amid else chance.choice(sorted(writers.living))
            time.sleep(chance.random() / 200)
            writers.kill(victim)
            writers.add(f"{kind}-{number}")
            if number % max(kills // 10, 5) == 0:
                assert verify(state.path).findings == ()
        for name in sorted(writers.living):
            writers.hear(name)
    finally:
        writers.close()
    check(state, writers.told)
    with state.locked("iris uncordon", PATIENCE) as last:
        uncordoned = last.append([WorkerUncordoned(worker=WORKER)], at=NOON)
        assert uncordoned.seq == len(last.transactions) + 1
    assert verify(state.path).ok
    assert replay(state.read().transactions) == state.load().cluster
    return writers
