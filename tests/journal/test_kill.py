"""kill -9 at any moment: what was acknowledged is there, once, and the next writer goes on."""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter
from pathlib import Path

from iris_cli.core.events import WorkerDrained, WorkerUncordoned
from iris_cli.core.ids import WorkerId
from iris_cli.journal.state_dir import StateDir
from iris_cli.journal.verify import verify
from tests.journal.samples import NOON, state_in
from tests.journal.writer_process import start

KILLS = 40


def kill_in_the_act(process: subprocess.Popen[str], chance: random.Random) -> list[str]:
    """Kill a writer somewhere within a transaction; what it had told."""
    assert process.stdout is not None
    told = [process.stdout.readline() for _ in range(chance.randint(1, 8))]
    time.sleep(chance.random() / 200)
    process.kill()
    return told + process.stdout.readlines()


def check(state: StateDir, told: list[tuple[str, str]]) -> None:
    """Every acknowledged transaction is at its seq, and none is there twice."""
    transactions = state.read().transactions
    seen = Counter(
        event for each in transactions for event in each.events if isinstance(event, WorkerDrained)
    )
    assert max(seen.values(), default=1) == 1
    for name, line in told:
        if not line.endswith("\n"):
            continue  # killed while it told: that is no acknowledgement
        seq, number = line.split()
        (event,) = transactions[int(seq) - 1].events
        assert isinstance(event, WorkerDrained)
        assert (event.worker, event.reason) == (name, number)


def test_writers_killed_in_the_act_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    state = state_in(tmp_path / "state")
    state.create("lab")
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    told: list[tuple[str, str]] = []
    writers = {name: start(state.path, "append", name) for name in ("w0", "w1")}
    try:
        for number in range(2, KILLS + 2):
            name = chance.choice(sorted(writers))
            with writers.pop(name) as process:
                told += [(name, line) for line in kill_in_the_act(process, chance)]
            writers[f"w{number}"] = start(state.path, "append", f"w{number}")
            assert verify(state.path).findings == ()
    finally:
        for name, process in writers.items():
            with process:
                process.kill()
                told += [(name, line) for line in (process.stdout or ())]
    assert len(told) >= KILLS
    check(state, told)
    with state.locked("iris uncordon") as writer:
        assert (
            writer.append([WorkerUncordoned(worker=WorkerId("w0"))], at=NOON).seq
            == len(writer.transactions) + 1
        )
    assert verify(state.path).ok
