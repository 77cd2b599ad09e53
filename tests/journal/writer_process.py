"""A process that writes to a state directory, or holds its lock: to be started by tests, and killed by them.

python writer_process.py PATH append NAME    append one transaction after the other, telling each on stdout; one whose
                                             name begins with `compactor` does as a command does each time: it begins
                                             with the snapshot, and compacts the log now and then
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

from iris_cli.core.events.events import WorkerDrained
from iris_cli.core.evolve import replay
from iris_cli.core.ids import WorkerId
from iris_cli.journal.state_dir import StateDir

PATIENCE = 60.0
WORKER = WorkerId("v4a-0")
"""What all that they write is about: it must be in the log before."""
SNAPSHOT_EVERY = 5  # lines


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


def event(name: str, number: int) -> WorkerDrained:
    return WorkerDrained(worker=WORKER, reason=f"{name} {number}")


def append(state: StateDir, name: str, said: str = "") -> None:
    seq = 0
    for number in range(1_000_000):
        with state.locked("iris append", PATIENCE, after_seq=seq) as writer:
            seq = writer.append([event(name, number)], at=time.time()).seq
        tell(f"{said}{seq} {number}")
        time.sleep(random.random() / 500)


def append_and_compact(state: StateDir, name: str, said: str) -> None:
    for number in range(1_000_000):
        seen = state.load()
        assert seen.cluster is not None
        if seen.committed:
            state.save_snapshot(seen.cluster)
        with state.locked("iris append", PATIENCE, after_seq=seen.seq) as writer:
            written = writer.append([event(name, number)], at=time.time())
            tell(f"{said}{written.seq} {number}")
            if number % 3 == 1:
                state.save_snapshot(replay([*writer.transactions, written], seen.cluster), always=True)
                tell(f"{said}compacts now")
                writer.compact(at=time.time())
                tell(f"{said}compacted it")
        time.sleep(random.random() / 500)


def press(path: Path) -> None:
    """Many writers for the price of one start: forked, and gone without a trace when they are killed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        name = line.strip()
        if (pid := os.fork()) == 0:
            state = StateDir(path, now=time.time, actor=f"{name}@laptop", snapshot_every=SNAPSHOT_EVERY)
            try:
                write = append_and_compact if name.startswith("compactor") else append
                write(state, name, f"{name} ")
            except BaseException as error:
                tell(f"{name} failed {error!r}")
            finally:
                os._exit(1)
        tell(f"{name} started {pid}")


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
    # Loaded before the first fork, not after each.
    import iris_cli.journal.log.archive
    import iris_cli.journal.log.writer
    import iris_cli.journal.snapshot.reading
    import iris_cli.journal.snapshot.writing  # noqa: F401 - see above

    main(*sys.argv[1:])
