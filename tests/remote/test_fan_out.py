"""Concurrent operations: each result once, as it arrives, without waiting for stuck ones."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from iris_cli.errors import IrisError
from iris_cli.remote.fan_out import Threads, batches
from tests.support.fan_out import fan_out
from tests.support.waiting import PATIENCE


def test_each_item_is_delivered_exactly_once() -> None:
    assert sorted(fan_out(range(500), lambda n: n * n)) == [(n, n * n) for n in range(500)]


def test_nothing_to_do_is_an_empty_iteration() -> None:
    assert list(fan_out([], str)) == []


def test_batches_contain_each_result_once_and_are_not_empty() -> None:
    found = list(batches(Threads(8), range(200), lambda n: n * n))
    assert all(found)
    assert sorted(pair for batch in found for pair in batch) == [(n, n * n) for n in range(200)]


def test_a_batch_does_not_wait_for_a_slow_one() -> None:
    finish = threading.Event()
    found = batches(Threads(linger=0.01), [True, False], lambda slow: slow and finish.wait(PATIENCE))
    assert next(found) == [(False, False)]
    finish.set()
    assert next(found) == [(True, True)]


def test_equal_items_are_delivered_as_often_as_they_were_given() -> None:
    assert list(fan_out(["a", "a", "a"], str.upper)) == [("a", "A")] * 3


def test_a_slow_item_delays_no_other() -> None:
    finish = threading.Event()

    def act(item: str) -> str:
        if item == "slow":
            assert finish.wait(PATIENCE)
        return item

    results = fan_out(["slow", "quick", "quick"], act)
    assert [next(results)[0], next(results)[0]] == ["quick", "quick"]
    finish.set()
    assert next(results) == ("slow", "slow")


def test_where_no_more_threads_can_start_the_others_do_the_work() -> None:
    threads: Threads[int] = Threads(8)
    threads.submit(lambda: 0)
    with no_more_threads():
        for number in range(1, 5):
            threads.submit(partial(int, number))
    found: list[int] = []
    while len(found) < 5:
        found += threads.take(PATIENCE)
    assert sorted(found) == [0, 1, 2, 3, 4]
    threads.close()


def test_where_no_thread_can_start_an_error_says_so() -> None:
    with no_more_threads(), pytest.raises(IrisError, match="no thread can be started"):
        Threads[int](8).submit(lambda: 0)


def test_an_operation_for_which_no_thread_could_start_is_not_queued() -> None:
    threads, was_run = Threads[object](8), threading.Event()
    with no_more_threads(), pytest.raises(IrisError):
        threads.submit(was_run.set)
    assert threads.take(0.0) == []
    threads.submit(lambda: "later")
    assert threads.take(PATIENCE) == ["later"]
    threads.close()
    assert not was_run.is_set()


@contextmanager
def no_more_threads() -> Iterator[None]:
    """Let no thread start, because its stack would be larger than the address space."""
    threading.stack_size(1 << 46)
    try:
        yield
    finally:
        threading.stack_size(0)


def test_no_more_than_the_parallelism_run_at_once() -> None:
    running, most = 0, 0
    lock = threading.Lock()
    all_three = threading.Barrier(3, timeout=PATIENCE)

    def act(item: int) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        all_three.wait()  # passes only if three run at once
        with lock:
            running -= 1

    assert len(list(fan_out(range(12), act, parallelism=3))) == 12
    assert most == 3


def test_an_exception_is_raised_after_all_others_were_delivered() -> None:
    def act(item: int) -> int:
        if item == 0:
            raise ValueError("item 0")
        return item

    results = fan_out(range(20), act, parallelism=2)
    assert sorted(next(results)[0] for _ in range(19)) == list(range(1, 20))
    with pytest.raises(ValueError, match="item 0"):
        next(results)


def test_stopping_the_iteration_starts_nothing_more() -> None:
    began = []
    release = threading.Event()

    def act(item: int) -> int:
        began.append(item)
        if item:
            assert release.wait(PATIENCE)
        return item

    results = fan_out(range(100), act, parallelism=2)
    assert next(results) == (0, 0)
    results.close()  # type: ignore[attr-defined]  # it is a generator, though it promises only an iterator
    release.set()
    for thread in threading.enumerate():
        if thread.name == "iris-fan-out":
            thread.join(PATIENCE)
    assert len(began) <= 3


def test_ctrl_c_leaves_at_once_though_a_thread_is_stuck() -> None:
    script = """
import threading
from iris_cli.remote.fan_out import Threads, batches
def act(item):
    if item == 'stuck':
        threading.Event().wait()
    return item
for ((item, _),) in batches(Threads(linger=0.0), ['stuck', 'quick'], act):
    print(item, flush=True)
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"quick\n"
        process.send_signal(signal.SIGINT)
        try:
            _, stderr = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert b"KeyboardInterrupt" in stderr
    assert process.returncode == -signal.SIGINT
