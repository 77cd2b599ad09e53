"""Start, stop and replace the background loop; its log file, its owner, its systemd scope."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from iris_cli.clock import Clock
from iris_cli.errors import IrisError, NotWritableError
from iris_cli.journal.durable import DISK, open_safely, writing
from iris_cli.journal.files.runners import LOOP, HeldRunner, LoopOrder, Runner, write_loop_order
from iris_cli.journal.layout import LOOP_LOG, LOOP_ORDER
from iris_cli.journal.log.timestamps import iso_time
from iris_cli.journal.state_dir import StateDir
from iris_cli.ops.workplace import Workplace, this_program
from iris_cli.randomness import SYSTEM_RANDOMNESS

_TOOL_PATIENCE = 5.0  # seconds
_LINGERING = Path("/var/lib/systemd/linger")  # one file per lingering user
_SCOPE = ("systemd-run", "--user", "--scope", "--quiet", "--collect", "--")


def scope_of(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the prefix that starts a command outside the login session; () if there is no way.

    With lingering, the user's service manager and its scopes outlive each login.
    """
    manager = Path(environ.get("XDG_RUNTIME_DIR", ""), "systemd", "private")
    if not (manager.is_socket() and _lingers(environ) and shutil.which(_SCOPE[0])):
        return ()
    return _SCOPE if _works((*_SCOPE, "true"), environ) else ()


def logins_kill(environ: Mapping[str, str]) -> bool:
    """Return True if the login manager reports that it kills a session's remaining processes."""
    if scope_of(environ) or not shutil.which("loginctl"):
        return False
    with suppress(OSError, subprocess.SubprocessError):
        said = subprocess.run(
            ["loginctl", "show-user", "--property=KillUserProcesses"],  # noqa: S607 - found through PATH
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TOOL_PATIENCE,
            check=False,
        ).stdout
        return said.strip() == "KillUserProcesses=yes"
    return False


def _lingers(environ: Mapping[str, str]) -> bool:
    name = environ.get("LOGNAME") or environ.get("USER") or ""
    return bool(name) and "/" not in name and (_LINGERING / name).exists()


def _works(words: tuple[str, ...], environ: Mapping[str, str]) -> bool:
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(  # noqa: S603 - fixed tool name, our arguments
            words,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TOOL_PATIENCE,
            check=False,
        )
        return done.returncode == 0
    return False


LARGEST = 256 << 10
"""Bytes after which the log is rotated; one older log is kept."""

_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK


def log_of(directory: Path) -> Path:
    """Return the path of the loop's log in a state directory."""
    return directory / LOOP_LOG


def open_log(directory: Path) -> int:
    """Return a descriptor that appends to the log, or to /dev/null if it can't be opened (full disk, symlink)."""
    with suppress(OSError):
        return open_safely(directory / LOOP_LOG, _APPEND)
    return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def rotate_log(directory: Path) -> None:
    """Rotate the log if standard output is the log and too large. Never raises OSError."""
    path = directory / LOOP_LOG
    with suppress(OSError):
        ours, named = os.fstat(1), os.lstat(path)
        if (ours.st_dev, ours.st_ino) != (named.st_dev, named.st_ino) or ours.st_size <= LARGEST:
            return
        sys.stdout.flush()
        os.replace(path, path.with_name(f"{LOOP_LOG}.1"))
        fd = open_log(directory)
        for stream in (1, 2):
            os.dup2(fd, stream)
        os.close(fd)


def take_streams(directory: Path) -> None:
    """Redirect output to the log and input from /dev/null: a loop run by hand has a terminal."""
    sys.stdout.flush()
    for fd, streams in ((os.open(os.devnull, os.O_RDONLY), (0,)), (open_log(directory), (1, 2))):
        for stream in streams:
            os.dup2(fd, stream)
        os.close(fd)


def write_log(lines: Iterable[str], now: float) -> None:
    """Append lines, each with its time. The caller sanitizes them. On a full disk they are lost without an error."""
    text = "".join(f"{iso_time(now)} {line}\n" for line in lines)
    with suppress(OSError):
        os.write(1, text.encode("utf-8", "backslashreplace"))


OWNER = "IRIS_LOOP_OWNER"
"""Variable with the path of a lock file. A loop that has it ends once no process holds that lock."""


@contextmanager
def owned(file: Path, environ: MutableMapping[str, str] = os.environ) -> Iterator[None]:
    """End each loop started inside the block with this process, even after a kill. Raises OSError."""
    with file.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        environ[OWNER] = str(file)
        try:
            yield
        finally:
            del environ[OWNER]


def owner_is_gone(environ: Mapping[str, str] = os.environ) -> bool:
    """Return True if this process has an owner that ended; a missing file means the owner ended."""
    if not (file := environ.get(OWNER, "")):
        return False
    try:
        with open(file, encoding="utf-8") as looked_at:
            fcntl.flock(looked_at, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


COMMAND = "iris loop"

_SHELL = ("/bin/sh", "-c", '"$@" >&2 & echo $!', "sh")
"""Command that starts a program, prints its pid and exits: the program is not our child and has no terminal."""

_TURNED = 10.0  # seconds for a loop to notice a stop order: it checks once per second, between calls
_KILLED = 5.0  # seconds for a killed process to exit
_SIGNED = 60.0  # seconds for a new loop to report its start: the machine may be busy
_GLANCE = 0.02


class Place(Struct, frozen=True, kw_only=True):
    """Start parameters of a loop: its command line, working directory and state directory."""

    program: tuple[str, ...]
    directory: Path
    state: StateDir
    clock: Clock
    interval: float


def place_of(where: Workplace) -> Place:
    """Return the start parameters of this cluster's loop. Raises ConfigError."""
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
    """Start a loop unless one runs. Return its pid, None if one runs. Raises OSError.

    The loop has no terminal, its own session, and no descriptors of ours except the lock. It inherits the
    lock, so the loop is visible from the start.
    """
    state, now = place.state, place.clock.now()
    held = state.runners.hold(LOOP, COMMAND, interval=place.interval, since=now)
    if held is None:
        return None
    # Without a command: the loop records its own once it runs.
    held.write(Runner(kind=LOOP, actor=state.actor, interval=place.interval, since=now))
    try:
        pid = _spawn(place, held, environ)
        held.write(Runner.of_process(pid, LOOP, state.actor, "", interval=place.interval, since=now))
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
    """Record the operator's order: every loop that runs now must end. Raises NotWritableError."""
    given = LoopOrder(
        turn=SYSTEM_RANDOMNESS.hexadecimal(8),
        stopped=stopped,
        by=f"{state.actor} {command}",
        since=iso_time(clock.now()),
    )
    with writing(state.path / LOOP_ORDER):
        write_loop_order(state.path, DISK, given)
    return given


def stop(state: StateDir, clock: Clock) -> Runner | None:
    """Stop the loop until `start`. Return the runner that was stopped, or None. Raises IrisError."""
    order(state, clock, stopped=True, command="iris loop stop")
    return end(state, clock)


def start(place: Place, environ: Mapping[str, str] = os.environ) -> Runner:
    """Start a loop with this environment, replacing a running one. Return its runner. Raises IrisError."""
    state = place.state
    order(state, place.clock, stopped=False, command="iris loop start")
    end(state, place.clock)
    try:
        spawn(place, environ)
    except OSError as error:
        raise NotWritableError(f"the loop failed to start: {error.strerror or error}") from error
    return _signed(place)


def running_loop(state: StateDir) -> Runner | None:
    """Return the loop that holds its lock now, or None."""
    return next((each for each in state.runners.alive() if each.kind == LOOP), None)


def end(state: StateDir, clock: Clock) -> Runner | None:
    """Wait until no loop runs, after an order that stops loops; return the one that ran. Raises IrisError.

    A loop on this machine gets SIGTERM. If it does not react because it is suspended or hangs, it is killed;
    no state is lost.
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
        f"the background loop (pid {found.pid or 'unknown'}{where}) did not stop",
        hint=f"kill {found.pid}{where}, then try again" if found.pid else "try again in a minute",
    )


def _signal(state: StateDir, number: signal.Signals) -> None:
    """Signal the loop only if this host's process is the one that took the lock: the pid may have been reused."""
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
    """Return the loop once it has recorded its command. Raises IrisError if it ended before."""
    until = place.clock.monotonic() + _SIGNED
    while (found := running_loop(place.state)) is not None:
        if found.command or place.clock.monotonic() >= until:
            return found
        place.clock.sleep(_GLANCE)
    raise IrisError("the background loop ended at once", hint=f"read {place.state.path / 'loop.log'}")
