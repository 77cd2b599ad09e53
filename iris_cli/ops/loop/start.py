"""Start, stop and replace the background loop. Manage its log file, its owner and its systemd scope."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from pathlib import Path

from iris_cli.clock import Clock, iso_time
from iris_cli.config.schema import Mode
from iris_cli.errors import IrisError, NotWritableError
from iris_cli.files import DISK, is_in_place, open_safely, try_lock, writing
from iris_cli.journal.files import runners
from iris_cli.journal.layout import LOOP_LOG, LOOP_ORDER
from iris_cli.journal.state_dir import StateDir
from iris_cli.ops.cluster_handle import ClusterHandle, this_program
from iris_cli.ops.loop.changes import output_of
from iris_cli.ops.session import Session
from iris_cli.ops.views.cycles import cycles_of, work_left
from iris_cli.randomness import SYSTEM_RANDOMNESS

_TOOL_TIMEOUT = 5.0  # seconds
_LINGER_DIRECTORY = Path("/var/lib/systemd/linger")  # one file per user with lingering enabled
_SCOPE = ("systemd-run", "--user", "--scope", "--quiet", "--collect", "--")
MAX_LOOP_LOG = 256 << 10
"""Size in bytes at which the loop's log is rotated. One older log is kept."""
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND
OWNER = "IRIS_LOOP_OWNER"
"""Environment variable with the path of a lock file. A loop with this variable ends if no process holds the lock."""
COMMAND = "iris loop"
_SHELL = ("/bin/sh", "-c", '"$@" >&2 & echo $!', "sh")
"""Shell command that starts a program in the background and prints its pid. So the program is not our child process."""
_STOP_TIMEOUT = 10.0  # seconds for a loop to end after an order; the loop checks for orders once per second
_KILL_TIMEOUT = 5.0  # seconds for a killed process to exit
_START_TIMEOUT = 60.0  # seconds for a new loop to report its start, even on a busy machine
_POLL_INTERVAL = 0.02  # seconds
SWITCH = "IRIS_LOOP"
"""Environment variable. If its value is `off`, no command starts a loop."""


def scope_of(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the prefix for a command that must run outside the login session; () if that is impossible.

    If lingering is enabled for the user, systemd's user manager and its scopes continue after a logout.
    """
    manager = Path(environ.get("XDG_RUNTIME_DIR", ""), "systemd", "private")
    name = environ.get("LOGNAME") or environ.get("USER") or ""
    has_lingering = bool(name) and "/" not in name and (_LINGER_DIRECTORY / name).exists()
    can_try = manager.is_socket() and has_lingering and shutil.which(_SCOPE[0])
    return _SCOPE if can_try and output_of((*_SCOPE, "true"), environ, _TOOL_TIMEOUT) is not None else ()


def logout_kills_processes(environ: Mapping[str, str]) -> bool:
    """Return True if the login manager kills the remaining processes of a session at logout."""
    if scope_of(environ) or not shutil.which("loginctl"):
        return False
    output = output_of(("loginctl", "show-user", "--property=KillUserProcesses"), environ, _TOOL_TIMEOUT)
    return output is not None and output.strip() == "KillUserProcesses=yes"


def open_loop_log(directory: Path) -> int:
    """Return a descriptor that appends to the loop's log, or to /dev/null if the log can't be opened."""
    with suppress(OSError):
        return open_safely(directory / LOOP_LOG, _APPEND)
    return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def rotate_loop_log(directory: Path) -> None:
    """Rotate the loop's log if stdout is that file and it is too large. Never raises OSError."""
    path = directory / LOOP_LOG
    with suppress(OSError):
        if is_in_place(1, path) and os.fstat(1).st_size > MAX_LOOP_LOG:
            sys.stdout.flush()
            os.replace(path, path.with_name(f"{LOOP_LOG}.1"))
            _redirect(open_loop_log(directory), 1, 2)


def redirect_streams(directory: Path) -> None:
    """Redirect output to the loop's log and input from /dev/null, because a loop that a user starts has a terminal."""
    sys.stdout.flush()
    _redirect(os.open(os.devnull, os.O_RDONLY), 0)
    _redirect(open_loop_log(directory), 1, 2)


def _redirect(fd: int, *streams: int) -> None:
    for stream in streams:
        os.dup2(fd, stream)
    os.close(fd)


def write_loop_log(lines: Iterable[str], now: float) -> None:
    """Append sanitized lines to the loop's log on stdout, each with the time `now`. Ignore errors of the write."""
    text = "".join(f"{iso_time(now)} {line}\n" for line in lines)
    with suppress(OSError):
        os.write(1, text.encode("utf-8", "backslashreplace"))


@contextmanager
def own_loops(file: Path, environ: MutableMapping[str, str] = os.environ) -> Iterator[None]:
    """Make this process own the loops that the block starts. The loops end with this process. Raises OSError."""
    with file.open("w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        environ[OWNER] = str(file)
        try:
            yield
        finally:
            del environ[OWNER]


def has_owner_ended(environ: Mapping[str, str] = os.environ) -> bool:
    """Return True if this process has an owner (see `own_loops`), and the owner's lock file is free or missing."""
    if not (file := environ.get(OWNER, "")):
        return False
    try:
        with open(file, encoding="utf-8") as lock:
            return try_lock(lock.fileno(), shared=True)
    except OSError:
        return True


def loop_program(handle: ClusterHandle) -> tuple[str, ...]:
    """Return the command line of this cluster's loop. Raises ConfigError if no cluster.yaml exists."""
    names = ("--config", str(handle.config_file.absolute()))
    state = ("--state-dir", str(handle.state_path_in_use.absolute()))
    return (*this_program(), *names, *state, "loop", "run")


def spawn(handle: ClusterHandle, environ: Mapping[str, str] = os.environ) -> int | None:
    """Start a loop. Return its pid, or None if another loop runs. Raises OSError.

    The loop has a separate session without a terminal. It inherits the descriptor of the lock, so that other processes
    see the loop as the runner from the start.
    """
    state, now, interval = handle.state, handle.clock.now(), handle.config.limits.loop_interval
    lock = state.runners.hold(runners.LOOP, COMMAND, interval=interval, since=now)
    if lock is None:
        return None
    # The recorded command stays empty until the loop has started and records its command.
    lock.write(runners.Runner(kind=runners.LOOP, actor=state.actor, interval=interval, since=now))
    try:
        pid = _start_process(handle, lock, environ)
        lock.write(
            runners.Runner.of_process(pid, runners.LOOP, state.actor, "", interval=interval, since=now)
        )
    finally:
        lock.hand_over()
    return pid


def _start_process(handle: ClusterHandle, lock: runners.RunnerLock, environ: Mapping[str, str]) -> int:
    words = [*scope_of(environ), *loop_program(handle), "--lock-fd", str(lock.descriptor)]
    log = open_loop_log(handle.state.path)
    try:
        started = subprocess.run(  # noqa: S603 - our own program
            [*_SHELL, *words],
            cwd=handle.config_file.absolute().parent,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            pass_fds=(lock.descriptor,),
            start_new_session=True,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        raise OSError(f"/bin/sh ended with {error.returncode}") from error
    finally:
        os.close(log)
    return int(started.stdout)


def may_start(handle: ClusterHandle, environ: Mapping[str, str] = os.environ) -> bool:
    """Return True if a command may start the loop.

    Inside a task, no loop starts, because it would be stopped with the task. After `iris loop stop`, no loop starts.
    """
    if environ.get(SWITCH, "").strip().lower() == Mode.OFF or "IRIS_TASK_DIR" in environ:
        return False
    return handle.config.loop is not Mode.OFF and not runners.read_loop_order(handle.state.path).stopped


def start_if_needed(handle: ClusterHandle, session: Session) -> int | None:
    """Start the loop if work is left and no cycles are running. Return its pid, or None. Raises OSError, IrisError."""
    if not may_start(handle):
        return None
    if not work_left(session.view(), session.config, session.state):
        return None
    # Look for runners AFTER reading the log, because a runner that ends releases its lock before its last read of the
    # log.
    cycles = cycles_of(session.state, session.clock.now())
    if cycles.has_next_cycle or cycles.by == runners.LOOP:  # a suspended loop keeps its lock
        return None
    return spawn(handle)


def record_order(state: StateDir, clock: Clock, *, stopped: bool, command: str) -> runners.LoopOrder:
    """Record the order that every running loop must end. Return the order. Raises NotWritableError.

    If `stopped`, no loop may start until `iris loop start`.
    """
    new_order = runners.LoopOrder(
        turn=SYSTEM_RANDOMNESS.hexadecimal(8),
        stopped=stopped,
        by=f"{state.actor} {command}",
        since=iso_time(clock.now()),
    )
    with writing(state.path / LOOP_ORDER):
        runners.write_loop_order(state.path, DISK, new_order)
    return new_order


def stop(state: StateDir, clock: Clock) -> runners.Runner | None:
    """Stop the loop. No loop starts until `iris loop start`. Return the stopped runner, or None. Raises IrisError."""
    record_order(state, clock, stopped=True, command="iris loop stop")
    return end_loop(state, clock)


def start(handle: ClusterHandle, environ: Mapping[str, str] = os.environ) -> runners.Runner:
    """Start a loop with this environment. A running loop ends first. Return the new runner. Raises IrisError."""
    state, clock = handle.state, handle.clock
    record_order(state, clock, stopped=False, command="iris loop start")
    end_loop(state, clock)
    try:
        spawn(handle, environ)
    except OSError as error:
        raise NotWritableError(f"the loop failed to start: {error.strerror or error}") from error
    until = clock.monotonic() + _START_TIMEOUT
    while (found := running_loop(state)) is not None:
        if found.command or clock.monotonic() >= until:  # the loop has recorded its command
            return found
        clock.sleep(_POLL_INTERVAL)
    raise IrisError("the background loop ended at once", hint=f"read {state.path / LOOP_LOG}")


def running_loop(state: StateDir) -> runners.Runner | None:
    """Return the runner of the loop that holds the runner lock now, or None."""
    return next((each for each in state.runners.live_runners() if each.kind == runners.LOOP), None)


def end_loop(state: StateDir, clock: Clock) -> runners.Runner | None:
    """Make the running loop end. Call `record_order` first. Return the loop's runner, or None if no loop ran.

    A loop on this machine gets SIGTERM, and SIGKILL if it is suspended or hangs. SIGKILL loses no state. Raises
    IrisError if the loop does not end.
    """
    found = running_loop(state)
    if found is None:
        return None
    for number, timeout in ((signal.SIGTERM, _STOP_TIMEOUT), (signal.SIGKILL, _KILL_TIMEOUT)):
        running = running_loop(state)
        # Check the start time of the process, because the pid of the loop may have been reused.
        if running is not None and running.host == state.host and running.is_process(running.pid):
            with suppress(OSError):
                os.kill(running.pid, number)
        until = clock.monotonic() + timeout
        while running_loop(state) is not None and clock.monotonic() < until:
            clock.sleep(_POLL_INTERVAL)
        if running_loop(state) is None:
            return found
    host = f" on {found.host}" if found.host != state.host else ""
    raise IrisError(
        f"the background loop (pid {found.pid or 'unknown'}{host}) did not stop",
        hint=f"kill {found.pid}{host}, then try again" if found.pid else "try again in a minute",
    )
