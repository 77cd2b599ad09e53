"""Start the background loop, stop it, and put one in the place of another."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from iris_cli.clock import Clock
from iris_cli.errors import IrisError, NotWritableError
from iris_cli.journal.durable import DISK, refusing
from iris_cli.journal.files.loop_order import LoopOrder, read_loop_order, write_loop_order
from iris_cli.journal.files.runners import LOOP, HeldRunner, Runner
from iris_cli.journal.layout import LOOP_ORDER
from iris_cli.journal.log.timestamps import iso_time
from iris_cli.journal.state_dir import StateDir
from iris_cli.ops.loop.log_file import open_log
from iris_cli.ops.loop.scope import scope_of
from iris_cli.ops.program import this_program
from iris_cli.randomness import SYSTEM_RANDOMNESS

if TYPE_CHECKING:
    from iris_cli.ops.workplace import Workplace

COMMAND = "iris loop"

_SHELL = ("/bin/sh", "-c", '"$@" >&2 & echo $!', "sh")
"""Starts a program, prints its pid and ends: the program is no child of ours, and belongs to no terminal."""

_TURNED = 10.0  # seconds for a loop to notice that it is to end: it looks once a second, between its calls
_KILLED = 5.0  # seconds for a process that was killed to be gone
_SIGNED = 60.0  # seconds for a new loop to say that it runs: the machine may be busy
_GLANCE = 0.02


class Place(Struct, frozen=True, kw_only=True):
    """Where a loop runs: the words that start it, its working directory, and the state directory."""

    program: tuple[str, ...]
    directory: Path
    state: StateDir
    clock: Clock
    interval: float


def place_of(where: Workplace) -> Place:
    """Where the loop of this cluster runs. Raises ConfigError."""
    names = ("--config", str(where.config_file.absolute()))
    state = ("--state-dir", str(where.state_path_in_use.absolute()))
    return Place(
        program=(*this_program(), *names, *state, "loop", "run"),
        directory=where.config_file.absolute().parent,
        state=where.state,
        clock=where.clock,
        interval=where.config.limits.loop_interval,
    )


def spawn(place: Place, environ: Mapping[str, str] = os.environ) -> int | None:
    """Start a loop unless one runs. Returns its pid, None if one runs. Raises OSError.

    It has no terminal, a session of its own, and none of our descriptors but the lock, which it inherits: everybody
    sees from the first moment that there is a loop.
    """
    state, now = place.state, place.clock.now()
    held = state.runners.hold(LOOP, COMMAND, interval=place.interval, since=now)
    if held is None:
        return None
    # Without a command: the loop signs for itself as soon as it can.
    held.sign(Runner(kind=LOOP, actor=state.actor, interval=place.interval, since=now))
    try:
        pid = _spawn(place, held, environ)
        held.sign(Runner.of_process(pid, LOOP, state.actor, "", interval=place.interval, since=now))
    finally:
        held.hand_over()
    return pid


def _spawn(place: Place, held: HeldRunner, environ: Mapping[str, str]) -> int:
    words = [*scope_of(environ), *place.program, "--lock-fd", str(held.descriptor)]
    log = open_log(place.state.path)
    try:
        started = subprocess.run(  # noqa: S603 - our own program
            [*_SHELL, *words],
            cwd=place.directory,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            pass_fds=(held.descriptor,),
            start_new_session=True,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        raise OSError(f"/bin/sh ended with {error.returncode}") from error
    finally:
        os.close(log)
    return int(started.stdout)


def order(state: StateDir, clock: Clock, *, stopped: bool, command: str) -> LoopOrder:
    """Record the operator's word: every loop that runs now is to end. Raises NotWritableError."""
    given = LoopOrder(
        turn=SYSTEM_RANDOMNESS.hexadecimal(8),
        stopped=stopped,
        by=f"{state.actor} {command}",
        since=iso_time(clock.now()),
    )
    with refusing(state.path / LOOP_ORDER):
        write_loop_order(state.path, DISK, given)
    return given


def stop(state: StateDir, clock: Clock) -> Runner | None:
    """End the loop, and let none start until `start`. Returns the one that ran, if one did. Raises IrisError."""
    order(state, clock, stopped=True, command="iris loop stop")
    return end(state, clock)


def start(place: Place, environ: Mapping[str, str] = os.environ) -> Runner:
    """Run a loop with this environment, in the place of one that runs. Returns it. Raises IrisError."""
    state = place.state
    order(state, place.clock, stopped=False, command="iris loop start")
    end(state, place.clock)
    try:
        spawn(place, environ)
    except OSError as error:
        raise NotWritableError(f"the loop could not be started: {error.strerror or error}") from error
    return _signed(place)


def may_start(state: StateDir) -> bool:
    """Whether the operator has not stopped the loop for good."""
    return not read_loop_order(state.path).stopped


def running_loop(state: StateDir) -> Runner | None:
    """The loop that holds its lock now."""
    return next((each for each in state.runners.alive() if each.kind == LOOP), None)


def end(state: StateDir, clock: Clock) -> Runner | None:
    """Wait until no loop runs, after an order that none may; returns the one that did. Raises IrisError.

    One on this machine is told by a signal, so that it need not look. One that does not hear, as it is suspended or
    hangs, is killed: that loses nothing.
    """
    found = running_loop(state)
    if found is None:
        return None
    for number, patience in ((signal.SIGTERM, _TURNED), (signal.SIGKILL, _KILLED)):
        _signal(state, number)
        if _is_gone(state, clock, patience):
            return found
    where = f" on {found.host}" if found.host != state.host else ""
    raise IrisError(
        f"the background loop (pid {found.pid or 'unknown'}{where}) does not end",
        hint=f"kill {found.pid}{where}, then try again" if found.pid else "try again in a minute",
    )


def _signal(state: StateDir, number: signal.Signals) -> None:
    """Only to the process that took the lock: its number may be another one's by now, or that of another host."""
    found = running_loop(state)
    if found is not None and found.host == state.host and found.is_this(found.pid):
        with suppress(OSError):
            os.kill(found.pid, number)


def _is_gone(state: StateDir, clock: Clock, patience: float) -> bool:
    until = clock.monotonic() + patience
    while running_loop(state) is not None:
        if clock.monotonic() >= until:
            return False
        clock.sleep(_GLANCE)
    return True


def _signed(place: Place) -> Runner:
    """The loop, when it has said who it is. Raises IrisError if it ended before."""
    until = place.clock.monotonic() + _SIGNED
    while (found := running_loop(place.state)) is not None:
        if found.command or place.clock.monotonic() >= until:
            return found
        place.clock.sleep(_GLANCE)
    raise IrisError("the background loop ended at once", hint=f"read {place.state.path / 'loop.log'}")
