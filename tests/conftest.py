"""What all tests share."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.in_memory import IN_MEMORY, room_in_memory
from tests.support.strays import end_strays, strays

# The same examples every time: what fails has been broken. `IRIS_EXAMPLES=new` looks for others.
# How long it takes to make them says nothing: the machine may be busy, or have slept.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", unhurried, derandomize=True, max_examples=50)
settings.register_profile("new", unhurried, print_blob=True)
settings.load_profile(os.environ.get("IRIS_EXAMPLES", "same"))

# A script's background processes ignore SIGINT and SIGQUIT, and those behind nohup ignore SIGHUP. The programs that
# the tests start would inherit that. A handler is reset to the default in them, and leaves nohup its effect here.
for number, default in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGHUP, lambda *_: None),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, default)

# Thousands of processes of ours start: none of them should compile what another one has.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Tasks start the `python3` of PATH. A version manager's is a script: it starts ten times as slowly as the interpreter.
os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).resolve().parent), os.environ["PATH"]))

# The tests sync files tens of thousands of times: in memory that takes no time.
if room_in_memory() and not {"TMPDIR", "PYTEST_DEBUG_TEMPROOT"} & os.environ.keys():
    os.environ["TMPDIR"] = tempfile.tempdir = str(IN_MEMORY)

# As `iris` itself does: what is made is mostly in use until the end, and looking for garbage in it takes time.
gc.set_threshold(50_000)

# Servers of tests are on loopback, where no proxy gets: many a machine has one in its environment.
os.environ["no_proxy"] = ",".join(
    (os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or "localhost", "127.0.0.1")
)

# Only a test about the background loop has it on, in the environment of its own commands.
os.environ["IRIS_LOOP"] = "off"

pytest_plugins = [
    "tests.support.metadata_server",
    "tests.support.operator",
    "tests.support.shared_commands",
    "tests.support.slurm",
    "tests.support.sshd",
    "tests.support.allocation",
    "tests.support.wheel",
]

_LONG = frozenset({"bench", "capacity", "e2e", "faults", "remote", "simulation"})
"""Directories of tests with real servers and processes, or that take seconds each."""

_TOGETHER = 8


def pytest_collection(session: pytest.Session) -> None:
    """Import the test modules, each process from another one on.

    pytest rewrites the asserts of a module at its first import and keeps the result in a file. Processes that begin
    with the same module would each rewrite all of them, because no file is there yet.
    """
    number, count = (os.environ.get(name) for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"))
    if number is None or count is None:
        return
    gc.disable()  # until all tests are collected
    root = session.config.rootpath
    paths = [path for each in session.config.args for path in sorted(Path(root, each).rglob("test_*.py"))]
    first = len(paths) * int(number.removeprefix("gw")) // int(count)
    for path in paths[first:] + paths[:first]:
        with suppress(Exception, pytest.skip.Exception):  # the collection reports it
            importlib.import_module(".".join(path.relative_to(root).with_suffix("").parts))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    odd = [item.nodeid for item in items if " at 0x" in item.nodeid or len(item.nodeid) > 1_000]
    if odd:
        raise pytest.UsageError(f"no name for a test, and another one in each process: {odd[0]:.300}")
    if hasattr(config, "workerinput"):
        items[:] = _mixed(items, int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))


def pytest_collection_finish() -> None:
    """Exempt the collected tests from garbage collection: they are in use until the end.

    They are most of a process's objects. A simulation collects garbage after each seed: twice its processor time.
    """
    gc.freeze()
    gc.enable()


def _mixed(items: list[pytest.Item], processes: int) -> list[pytest.Item]:
    """The tests in the order in which they are given out to processes: to each an equal part of the list.

    Tests with servers and processes mostly wait, all others compute: in turns, neither leaves the processors idle. A
    few tests of a module stay together, because they share the servers of the module. The last quarter of each part
    has only short tests, so that all processes end at about the same time. Tests of hypothesis go to as few processes
    as possible: each of those reads the constants of all modules first.
    """
    waiting = [item for item in items if _is_long(item)]
    computing = sorted((item for item in items if not _is_long(item)), key=_has_no_properties)
    groups = [waiting[n : n + _TOGETHER] for n in range(0, len(waiting), _TOGETHER)]
    mixed: list[pytest.Item] = []
    for number in range(processes):
        long = [item for group in groups[number::processes] for item in group]
        size = (len(items) - len(mixed)) // (processes - number)
        short, computing = computing[: size - len(long)], computing[size - len(long) :]
        places = {item.nodeid: 0.75 * (n - n % _TOGETHER) / len(long) for n, item in enumerate(long)}
        places.update((item.nodeid, n / len(short)) for n, item in enumerate(short))
        mixed += sorted([*long, *short], key=lambda item: places[item.nodeid])
    return mixed + computing


def _is_long(item: pytest.Item) -> bool:
    return item.nodeid.split("/", 2)[1] in _LONG and _has_no_properties(item)


def _has_no_properties(item: pytest.Item) -> bool:
    return item.get_closest_marker("hypothesis") is None


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What tests have left running is named at the end, and ended: it would slow down this machine for hours."""
    yield
    directory = tmp_path_factory.getbasetemp()
    deadline = time.monotonic() + 10  # some end themselves once they notice that they are alone
    while (left := strays(directory)) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid, what in left.items():
        warnings.warn(f"left running by a test: {what} (process {pid})", stacklevel=1)
    end_strays(directory)
    loops = [what for what in left.values() if "loop run" in what]
    assert not loops, f"left running by a test: {loops}"
