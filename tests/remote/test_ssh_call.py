"""The deadline of a call: two timeouts, and no effect after it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

import pytest

from iris_cli.core.messages.observations import SilenceKind
from iris_cli.remote.ssh.call import Abandoned, SshCall
from iris_cli.remote.transport import NoAnswer
from tests.support.waiting import LIMITS, PATIENCE

Work = Callable[[SshCall[bool], Callable[[], bool]], bool]


def overdue(work: Work, *, connecting: float | None = None) -> tuple[NoAnswer, float]:
    """Return the error of a call whose work still waits at the deadline, and the timeout that was long enough for that.

    The work waits by calling its second argument. `connecting` is the first timeout; None: the growing one.
    """
    release = threading.Event()
    for limit in (0.05, *LIMITS):
        call, arrived = SshCall[bool](limit), threading.Event()
        if connecting is not None:
            call = SshCall[bool](connecting, limit)

        def wait(arrived: threading.Event = arrived) -> bool:
            arrived.set()
            return release.wait(PATIENCE)

        with pytest.raises(NoAnswer) as caught:
            call.perform(partial(work, call, wait))
        if arrived.is_set():
            release.set()
            return caught.value, limit
    raise AssertionError(f"no time-out was long enough: {caught.value}")


def test_the_result_of_the_work_is_the_result_of_the_call() -> None:
    assert SshCall[int](PATIENCE).perform(lambda: 42) == 42


def test_an_exception_of_the_work_is_raised_to_the_caller() -> None:
    def work() -> None:
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        SshCall[None](PATIENCE).perform(work)


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        ("configuration", SilenceKind.LOCAL),
        ("key", SilenceKind.LOCAL),
        ("turn", SilenceKind.UNREACHABLE),
        ("resolve", SilenceKind.UNREACHABLE),
        ("connect", SilenceKind.UNREACHABLE),
        ("SSH banner", SilenceKind.TIMEOUT),
        ("authentication", SilenceKind.TIMEOUT),
        ("output", SilenceKind.TIMEOUT),
    ],
)
def test_a_deadline_names_the_step_and_the_place(step: str, kind: SilenceKind) -> None:
    def work(call: SshCall[bool], wait: Callable[[], bool]) -> bool:
        call.enter(step, "worker w")
        return wait()

    error, limit = overdue(work)
    assert (error.kind, error.step, error.sent) == (kind, step, False)
    assert f"worker w: timeout after {limit:g} s" in str(error)


def test_the_second_time_out_begins_when_connected() -> None:
    for limit in LIMITS:
        call, is_connected = SshCall[str](limit, PATIENCE), threading.Event()
        try:
            assert call.perform(partial(connect_and_go_on, call, is_connected, 1.5 * limit)) == "done"
        except NoAnswer:
            assert not is_connected.is_set()
        else:
            return
    raise AssertionError("never connected in time")


def connect_and_go_on(call: SshCall[str], is_connected: threading.Event, seconds: float) -> str:
    call.connected()
    is_connected.set()
    time.sleep(seconds)
    return "done"


def test_the_second_time_out_is_the_one_named_after_connecting() -> None:
    def work(call: SshCall[bool], wait: Callable[[], bool]) -> bool:
        call.connected()
        call.sending()
        return wait()

    error, limit = overdue(work, connecting=PATIENCE)
    assert error.sent
    assert f"timeout after {limit:g} s" in str(error)


def test_a_long_time_out_is_told_in_plain_digits() -> None:
    call, release = SshCall[bool](PATIENCE, 3605.03), threading.Event()

    def work() -> bool:
        call.progressed(time.monotonic())
        return release.wait(PATIENCE)

    with pytest.raises(NoAnswer, match="timeout after 3605 s"):
        call.perform(work)
    release.set()


def test_an_earlier_deadline_wakes_the_caller() -> None:
    call, release = SshCall[bool](PATIENCE, PATIENCE), threading.Event()

    def work() -> bool:
        call.connected()
        time.sleep(0.1)  # so that the caller waits; otherwise it finds the new deadline at once
        call.progressed(time.monotonic())
        return release.wait(PATIENCE / 3)

    with pytest.raises(NoAnswer):
        call.perform(work)
    release.set()


def test_after_the_deadline_the_work_can_do_nothing_more() -> None:
    call, release = SshCall[None](0.05), threading.Event()
    refused: list[str] = []

    def work() -> None:
        release.wait(PATIENCE)
        for name, act in {
            "enter": lambda: call.enter("connect"),
            "guard": lambda: call.guard(lambda: None),
            "connected": call.connected,
            "sending": call.sending,
        }.items():
            try:
                act()
            except Abandoned:
                refused.append(name)
        ended.set()

    ended = threading.Event()
    with pytest.raises(NoAnswer):
        call.perform(work)
    release.set()
    assert ended.wait(PATIENCE)
    assert refused == ["enter", "guard", "connected", "sending"]


def test_at_the_deadline_the_link_is_cut() -> None:
    cuts: list[threading.Event] = []

    def work(call: SshCall[bool], wait: Callable[[], bool]) -> bool:
        cut = threading.Event()
        call.guard(cut.set)
        cuts.append(cut)
        return wait()

    overdue(work)
    assert all(cut.is_set() for cut in cuts)


def test_a_turn_is_not_waited_for_longer_than_the_deadline() -> None:
    for limit in (0.05, *LIMITS):
        call, lock = SshCall[None](limit), threading.Lock()

        def work(call: SshCall[None] = call, lock: threading.Lock = lock) -> None:
            with call.holding(lock, "worker w"):
                pass

        with lock, pytest.raises(NoAnswer) as caught:
            call.perform(work)
        if caught.value.step == "turn":
            assert caught.value.kind is SilenceKind.UNREACHABLE
            return
    raise AssertionError("never came to its turn")
