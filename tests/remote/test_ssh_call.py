"""The clock of a call: two time-outs, and nothing after the deadline."""

from __future__ import annotations

import threading
import time

import pytest

from iris_cli.core.observations import SilenceKind
from iris_cli.remote.ssh_call import Abandoned, Call
from iris_cli.remote.transport import NoAnswer

SAFETY_NET = 30.0


def test_the_result_of_the_work_is_the_result_of_the_call() -> None:
    assert Call[int](SAFETY_NET).perform(lambda: 42) == 42


def test_what_the_work_raises_is_raised_to_the_caller() -> None:
    def work() -> None:
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        Call[None](SAFETY_NET).perform(work)


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        ("configuration", SilenceKind.LOCAL),
        ("key", SilenceKind.LOCAL),
        ("turn", SilenceKind.UNREACHABLE),
        ("resolve", SilenceKind.UNREACHABLE),
        ("connect", SilenceKind.UNREACHABLE),
        ("banner", SilenceKind.TIMEOUT),
        ("authentication", SilenceKind.TIMEOUT),
        ("output", SilenceKind.TIMEOUT),
    ],
)
def test_a_deadline_names_the_step_and_the_place(step: str, kind: SilenceKind) -> None:
    call, release = Call[bool](0.05), threading.Event()

    def work() -> bool:
        call.enter(step, "worker w")
        return release.wait(SAFETY_NET)

    with pytest.raises(NoAnswer, match=r"no answer from worker w within 0\.05 s") as caught:
        call.perform(work)
    release.set()
    assert (caught.value.kind, caught.value.step, caught.value.sent) == (kind, step, False)


def test_the_second_time_out_begins_when_connected() -> None:
    call = Call[str](0.05, SAFETY_NET)

    def work() -> str:
        call.connected()
        time.sleep(0.2)
        return "done"

    assert call.perform(work) == "done"


def test_the_second_time_out_is_the_one_named_after_connecting() -> None:
    call, release = Call[bool](SAFETY_NET, 0.05), threading.Event()

    def work() -> bool:
        call.connected()
        call.sending()
        return release.wait(SAFETY_NET)

    with pytest.raises(NoAnswer, match=r"within 0\.05 s") as caught:
        call.perform(work)
    release.set()
    assert caught.value.sent


def test_a_deadline_that_comes_closer_is_heard_by_whoever_waits() -> None:
    call, release = Call[bool](SAFETY_NET, SAFETY_NET), threading.Event()

    def work() -> bool:
        call.connected()
        time.sleep(0.1)  # so that the caller waits
        call.progressed(time.monotonic())
        return release.wait(SAFETY_NET / 3)

    with pytest.raises(NoAnswer):
        call.perform(work)
    release.set()


def test_after_the_deadline_the_work_can_do_nothing_more() -> None:
    call, release = Call[None](0.05), threading.Event()
    refused: list[str] = []

    def work() -> None:
        release.wait(SAFETY_NET)
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
    assert ended.wait(SAFETY_NET)
    assert refused == ["enter", "guard", "connected", "sending"]


def test_at_the_deadline_the_link_is_cut_once() -> None:
    call, cut = Call[bool](0.05), threading.Event()

    def work() -> bool:
        call.guard(cut.set)
        return cut.wait(SAFETY_NET)  # as a read that only ends with the connection

    with pytest.raises(NoAnswer):
        call.perform(work)
    assert cut.is_set()


def test_a_turn_is_not_waited_for_longer_than_the_deadline() -> None:
    call, lock = Call[None](0.05), threading.Lock()

    def work() -> None:
        with call.turn(lock, "worker w"):
            pass

    with lock, pytest.raises(NoAnswer) as caught:
        call.perform(work)
    assert (caught.value.kind, caught.value.step) == (SilenceKind.UNREACHABLE, "turn")
