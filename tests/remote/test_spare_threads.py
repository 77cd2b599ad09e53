"""Threads are made as they are needed at the same time, and used again."""

from __future__ import annotations

import threading

from iris_cli.remote.spare_threads import SpareThreads
from tests.support.waiting import PATIENCE, until


def test_what_comes_later_is_done_by_the_same_thread() -> None:
    spare, threads = SpareThreads(), list[threading.Thread]()
    for number in range(3):
        spare.do(lambda: threads.append(threading.current_thread()))
        until(lambda: len(threads) == number + 1 and bool(spare._idle))  # noqa: B023 - called at once
    assert len(set(threads)) == 1
    assert threads[0].daemon
    spare.close()
    threads[0].join(PATIENCE)
    assert not threads[0].is_alive()


def test_nothing_waits_for_what_hangs() -> None:
    spare, gate, done = SpareThreads(), threading.Event(), threading.Event()
    spare.do(lambda: gate.wait(PATIENCE))
    spare.do(done.set)
    assert done.wait(PATIENCE)
    gate.set()
