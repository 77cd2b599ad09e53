"""A process that writes to a state directory, or holds its lock: to be started by tests, and killed by them.

python writer_process.py PATH append NAME    append one transaction after the other, telling each on stdout
python writer_process.py PATH hold NAME      tell that the lock is held, and hold it until stdin ends
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

from iris_cli.core.events import WorkerDrained
from iris_cli.core.ids import WorkerId
from iris_cli.journal.state_dir import StateDir

PATIENCE = 60.0


def start(path: Path, what: str, name: str) -> subprocess.Popen[str]:
    """Start this file as a process of its own."""
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, __file__, str(path), what, name],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def main(path: str, what: str, name: str) -> None:
    state = StateDir(Path(path), now=time.time, actor=f"{name}@laptop")
    if what == "hold":
        with state.locked("iris hold", PATIENCE):
            print("held", flush=True)
            sys.stdin.read()
        return
    seq = 0
    for number in range(1_000_000):
        with state.locked("iris append", PATIENCE, after_seq=seq) as writer:
            event = WorkerDrained(worker=WorkerId(name), reason=str(number))
            seq = writer.append([event], at=time.time()).seq
        print(seq, number, flush=True)
        time.sleep(random.random() / 500)


if __name__ == "__main__":
    main(*sys.argv[1:])
