"""A process that writes to a state directory, or holds its lock: to be started by tests, and killed by them.

python writer_process.py PATH append NAME    append one transaction after the other, telling each on stdout; one whose
                                             name begins with `compactor` compacts the log now and then
python writer_process.py PATH hold NAME      tell that the lock is held, and hold it until stdin ends
python writer_process.py PATH press -        for each name on stdin start a process that appends, and tell its number;
                                             they all tell on the one stdout, with their name before it
"""

from __future__ import annotations

import os
import random
import signal
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
        process_group=0,
    )


def tell(what: str) -> None:
    """A line at once, whole or not at all: writes to a pipe are, if they are short."""
    os.write(1, f"{what}\n".encode())


def append(state: StateDir, name: str, said: str = "") -> None:
    seq = 0
    for number in range(1_000_000):
        with state.locked("iris append", PATIENCE, after_seq=seq) as writer:
            event = WorkerDrained(worker=WorkerId(name), reason=str(number))
            seq = writer.append([event], at=time.time()).seq
            if name.startswith("compactor") and number % 3 == 1:
                writer.compact(at=time.time())
        tell(f"{said}{seq} {number}")
        time.sleep(random.random() / 500)


def press(path: Path) -> None:
    """Many writers for the price of one start: forked, and gone without a trace when they are killed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        name = line.strip()
        if (pid := os.fork()) == 0:
            try:
                append(StateDir(path, now=time.time, actor=f"{name}@laptop"), name, f"{name} ")
            finally:
                os._exit(1)
        tell(f"started {name} {pid}")


def main(path: str, what: str, name: str) -> None:
    state = StateDir(Path(path), now=time.time, actor=f"{name}@laptop")
    if what == "press":
        press(Path(path))
    elif what == "append":
        append(state, name)
    else:
        with state.locked("iris hold", PATIENCE):
            print("held", flush=True)
            sys.stdin.read()


if __name__ == "__main__":
    from iris_cli.journal import lock  # noqa: F401,RUF100 - loaded before the first fork, not after each

    main(*sys.argv[1:])
