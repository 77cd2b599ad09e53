"""The kernel's view of threads, read twice; the names of threads are hostile."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_cli.core.messages.stacks import KernelThread, kernel_threads


def stat(number: int, name: str, state: str, user: int, system: int = 0) -> str:
    lines = f"{number} ({name}) {state} 1 1 1 0 -1 4194304 10 0 0 0 {user} {system} 0 0 20 0 2 0 99 0".split(
        "\n"
    )
    return "".join(f"{number}/stat:{line}\n" for line in lines)


def test_the_share_of_cpu_is_between_the_readings() -> None:
    said = (
        f"at 1000\n{stat(7, 'python3', 'S', 100, 5)}7/wchan:futex_wait\n{stat(8, 'x', 'R', 10)}8/wchan:0\n"
        f"at 1050\n{stat(7, 'python3', 'S', 100, 5)}7/wchan:futex_wait\n{stat(8, 'x', 'R', 59)}8/wchan:0\n"
        f"{stat(9, 'new', 'D', 1)}"
    )
    assert kernel_threads(said) == (
        KernelThread(id=7, name="python3", state="S", wait_channel="futex_wait", cpu_seconds=1.05, cpu=0.0),
        KernelThread(id=8, name="x", state="R", wait_channel="", cpu_seconds=0.59, cpu=0.98),
        KernelThread(id=9, name="new", state="D", wait_channel="", cpu_seconds=0.01, cpu=None),
    )


@pytest.mark.parametrize(
    ("state", "cpu", "spins"),
    [("S", 0.5, True), ("S", 0.49, False), ("R", 0.1, True), ("R", 0.09, False), ("R", None, False)],
)
def test_a_runnable_thread_spins_with_a_tenth_of_a_core(state: str, cpu: float | None, spins: bool) -> None:
    thread = KernelThread(id=1, name="x", state=state, wait_channel="", cpu_seconds=1.0, cpu=cpu)
    assert thread.spins is spins


@pytest.mark.parametrize("name", ["a) R 1", "\nat 5\n", ") ) (", "9/stat:9 (y) R", "9 (x) R 1 1"])
def test_no_name_of_a_thread_changes_what_is_read(name: str) -> None:
    said = f"at 1\n{stat(7, name, 'S', 100)}at 101\n{stat(7, name, 'S', 110)}"
    [thread] = kernel_threads(said)
    assert (thread.id, thread.state, thread.cpu, thread.name) == (7, "S", 0.1, name)


@pytest.mark.parametrize(
    "said",
    [
        "",
        "at 1\n7/stat:7 (x) S",
        f"at 1\n{stat(7, 'x', 'S', 1)}",
        "at 1\nat 2\n7/stat:7 (x) S 1 1 1\n",
        "at 1\nat 2\n7/wchan:futex_wait\n",
    ],
)
def test_what_was_cut_off_or_vanished_is_no_thread(said: str) -> None:
    assert kernel_threads(said) == ()


@given(st.text(st.sampled_from("at 0123456789/stwchan:()\nSR-"), max_size=300))
def test_any_text_is_read(said: str) -> None:
    kernel_threads(f"at 1\n{said}\nat 1\n{said}")
