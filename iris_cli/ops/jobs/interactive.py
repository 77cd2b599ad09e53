"""Interactive jobs. The program runs on the client's terminal, and the job ends with the terminal."""

from __future__ import annotations

import os
import select
import signal
import termios
import threading
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from iris_cli.core import Cluster, EndReason, JobId, JobRequest, Task, Worker, WorkerCondition, WorkerId
from iris_cli.core.lifecycle import jobs
from iris_cli.core.lifecycle.display import task_displays
from iris_cli.core.messages.observations import RemoteState
from iris_cli.core.model.task import PROGRAM_FAILURES, Attempt
from iris_cli.errors import IrisError, NotWritableError, UnreachableError
from iris_cli.ops.jobs.change import cancel
from iris_cli.ops.jobs.launch import launch
from iris_cli.ops.loop.foreground import TRANSIENT_ERRORS, CycleRunner
from iris_cli.ops.session import Session
from iris_cli.ops.views.failure import cause_words
from iris_cli.remote.launch_request import terminal_command
from iris_cli.remote.transport import NoAnswer

if TYPE_CHECKING:
    from iris_cli.remote.ssh import SshTransport
    from iris_cli.remote.ssh.sockets import ByteStream

LEASE = 120.0
"""Seconds after which a worker stops the program if no cycle has polled it, because this machine may be gone."""
_PAUSE = 0.2  # seconds between two checks
_ALIVE = frozenset({RemoteState.LAUNCHING, RemoteState.RUNNING, RemoteState.ORPHANED})

_PROGRAM_ENDS = PROGRAM_FAILURES - {EndReason.SETUP_FAILED} | {EndReason.OK, EndReason.TIMEOUT}
"""End reasons whose exit code comes from the program."""

_KEYS, _SCREEN = 0, 1  # descriptors of the local terminal
_MAX_READ = 32 << 10  # bytes
_RESIZED, _ENDED = b"r", b"o"  # messages to the thread that sends keys


class ProgramEnd(Struct, frozen=True, kw_only=True):
    """End of the program: its exit code, the displayed state of its task, and its worker. None means unknown.

    `cause`: why the job ended; "" if the exit code explains it.
    """

    job: JobId
    worker: WorkerId | None
    exit_code: int | None
    display: str
    cause: str = ""


def run(
    session: Session,
    transport: SshTransport,
    request: JobRequest,
    terminal: LocalTerminal,
    show: Callable[[str], None],
) -> ProgramEnd:
    """Submit the job, wait for its start, and run its program on the terminal. Return when its attempt has ended.

    This process holds a lock. If the process is killed, a cycle finds the lock free and cancels the job. `show` prints
    messages before and after the program. Raises IrisError. Raises KeyboardInterrupt only before the program starts.
    """
    session.begin()
    try:
        client_lock = session.state.clients.hold()
    except OSError as error:
        raise NotWritableError(f"{session.state.path}/run can't be used: {error.strerror}") from error
    job = None
    try:
        interactive_request = structs.replace(
            request,
            client=client_lock.name,
            lease=LEASE if request.lease is None else request.lease,
            max_retries_failure=0,
            max_retries_preemption=0,
            silent_after=0.0,
        )
        job = launch(session, interactive_request)
        show(f"{job} submitted; Ctrl-C cancels it until it starts")
        session.progress = lambda _: nullcontext()  # only the program writes to the terminal
        with CycleRunner(session) as runner:
            return _Client(session, transport, job, terminal, show, runner).run()
    except BaseException:
        if job is not None and not session.cluster.job_state(job).terminal:
            # After an error, the next cycle cancels the job, because the lock is free.
            with suppress(IrisError):
                cancel(session, [job], reason="its terminal was closed")
        raise
    finally:
        client_lock.release()


class _Client(Struct):
    """The client of one interactive job, from its submission until its attempt has ended."""

    _session: Session
    _transport: SshTransport
    _job: JobId
    _terminal: LocalTerminal
    _show: Callable[[str], None]
    _runner: CycleRunner
    _shown_reason: str = ""  # the last reason for pending that was shown

    def run(self) -> ProgramEnd:
        """Run cycles until the job and its attempt have ended. Raises UnreachableError if the worker is silent."""
        while True:
            cluster = self._runner.run_due_cycle()
            task = cluster.tasks_of(self._job)[0]
            attempt = task.current
            if cluster.job_state(self._job).terminal:
                if attempt is None or not attempt.live:
                    return self._program_end(cluster, task, attempt)
                if cluster.workers[attempt.worker].condition is not WorkerCondition.HEALTHY:
                    raise UnreachableError(
                        f"no answer from {attempt.worker}: stopping {self._job}",
                        hint=f"iris status {self._job}",
                    )
            elif attempt is not None and self._runner.reported_state(attempt.token) is RemoteState.PREPARED:
                self._run_on_terminal(cluster.workers[attempt.worker], attempt)
                continue
            elif attempt is None or not attempt.live:
                reason = self._runner.reason(task.id)
                if reason not in ("", self._shown_reason):
                    self._shown_reason = reason
                    self._show(f"{self._job} pending: {reason}")
            self._runner.pause(_PAUSE)

    def _run_on_terminal(self, worker: Worker, attempt: Attempt) -> None:
        """Start the prepared attempt on a terminal of its worker, and run cycles until the terminal closes."""
        session, timeout = self._session, self._session.limits.connect_timeout
        target = session.target(worker)
        command = terminal_command(session.cluster_id, target, attempt.token)
        try:
            link, stream = self._transport.open_terminal(
                target, command, self._terminal.name, self._terminal.size(), timeout
            )
        except NoAnswer as error:
            raise UnreachableError(f"{worker.id}: {error.step}: {error.detail}", hint=error.hint) from error
        try:
            self._show(f"{self._job} RUNNING on {worker.id}")
            self._run_cycles_until_closed(stream)
        finally:
            link.abort()
        self._runner.make_cycle_due()
        self._runner.run_due_cycle()
        if stream.exit_status() is None or self._runner.reported_state(attempt.token) in _ALIVE:
            self._cancel()

    def _run_cycles_until_closed(self, stream: ByteStream) -> None:
        """Run cycles until the terminal closes or the job has ended. Then print the messages of these cycles."""
        messages: list[str] = []
        tell, self._session.tell = self._session.tell, messages.append
        try:
            with self._terminal.attach(stream) as closed:
                while not closed.is_set():
                    cluster = self._runner.run_due_cycle()
                    if cluster.job_state(self._job).terminal and not cluster.live_attempts_of(self._job):
                        break
                    self._runner.pause(_PAUSE)
        finally:
            self._session.tell = tell
            for words in messages:
                tell(words)

    def _cancel(self) -> None:
        """Cancel the job unless it has ended. Its program may still run without the terminal."""
        while not self._session.cluster.job_state(self._job).terminal:
            with suppress(*TRANSIENT_ERRORS):
                self._session.decide(lambda draft: jobs.cancel(draft, self._job, jobs.CLIENT_GONE))
                break
            self._runner.pause(_PAUSE)
        self._runner.make_cycle_due()

    def _program_end(self, cluster: Cluster, task: Task, attempt: Attempt | None) -> ProgramEnd:
        end = attempt.end if attempt is not None else None
        if end is not None and end.reason not in _PROGRAM_ENDS:
            end = None
        exit_code_explains = end is not None and end.reason is not EndReason.TIMEOUT
        return ProgramEnd(
            job=self._job,
            worker=attempt.worker if attempt is not None else None,
            exit_code=None if end is None else end.exit_code,
            display=task_displays(cluster, self._job)[task.index],
            cause=""
            if exit_code_explains
            else cause_words(cluster, cluster.jobs[self._job], self._session.state),
        )


class LocalTerminal:
    """The local terminal, at standard input and standard output."""

    def __init__(self) -> None:
        self.name = os.environ.get("TERM") or "vt100"

    def size(self) -> tuple[int, int]:
        """Return columns and lines of the terminal."""
        found = os.get_terminal_size(_SCREEN)
        return found.columns or 80, found.lines or 24

    @contextmanager
    def attach(self, stream: ByteStream) -> Iterator[threading.Event]:
        """Connect the terminal to `stream`. Yield an event that is set when the remote terminal has ended.

        Inside the block the local terminal is raw: it echoes nothing, and Ctrl-C and Ctrl-Z reach the remote program.
        The end of the block restores the terminal.
        """
        ended = threading.Event()
        wake_input, wake_output = os.pipe()

        def report_resize(*_: object) -> None:
            os.write(wake_output, _RESIZED)

        threads = [
            threading.Thread(
                target=self._send_keys, args=(stream, wake_input), name="iris-keys", daemon=True
            ),
            threading.Thread(target=self._show_output, args=(stream, ended), name="iris-screen", daemon=True),
        ]
        old_modes = termios.tcgetattr(_KEYS)
        old_handler = signal.signal(signal.SIGWINCH, report_resize)
        try:
            tty.setraw(_KEYS, termios.TCSANOW)
            for each in threads:
                each.start()
            report_resize()  # the size may have changed before the handler was set
            yield ended
        finally:
            signal.signal(signal.SIGWINCH, old_handler)
            stream.close()
            os.write(wake_output, _ENDED)
            with suppress(termios.error):  # the window is closed
                termios.tcsetattr(_KEYS, termios.TCSANOW, old_modes)
            if threads[0].is_alive():
                threads[0].join()
            os.close(wake_output)
            os.close(wake_input)

    def _send_keys(self, stream: ByteStream, wake_input: int) -> None:
        with suppress(OSError):  # the window or the stream is closed
            while True:
                ready, _, _ = select.select([_KEYS, wake_input], [], [])
                if wake_input in ready:
                    if _ENDED in os.read(wake_input, _MAX_READ):
                        return
                    stream.resize(*self.size())
                elif keys := os.read(_KEYS, _MAX_READ):
                    stream.send(keys)
                else:
                    return

    def _show_output(self, stream: ByteStream, ended: threading.Event) -> None:
        try:
            while data := stream.receive():
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(_SCREEN, rest) :]
            stream.exit_status()  # the exit status may arrive after the last output
        except OSError:  # the window is closed
            stream.close()
        finally:
            ended.set()
