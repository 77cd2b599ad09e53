"""The transport by Slurm's `srun`: each call is a step of the worker's allocation."""

import math
import os
import re
import select
import shlex
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from msgspec.structs import replace

from iris_cli.clock import SYSTEM_CLOCK
from iris_cli.core import Connection, WorkerId
from iris_cli.core.messages.observations import SilenceKind
from iris_cli.core.model.slice import SLURM_VARIABLES
from iris_cli.randomness import SYSTEM_RANDOMNESS
from iris_cli.remote.ssh.call import ScriptRun, SshCall
from iris_cli.remote.transport import (
    NoAnswer,
    Payload,
    Script,
    ScriptResult,
    Target,
    Transport,
    max_sending_time,
)

FIND_SLURM = "command -v srun >/dev/null 2>&1 || [ ! -r /etc/profile ] || . /etc/profile >/dev/null 2>&1\n"
"""The first line of scripts for a login host. A site may add Slurm's commands to PATH only in login shells."""

_ROOM = 8 << 10
"""Bytes of Slurm's messages that are accepted on each stream in addition to the script's output."""

_SRUN_ENDS = re.compile(rb"(?:^|(?<=\n))srun: error: [^\n:]*: task 0: (Exited with exit code )?[^\n]*\n")
"""The line in which `srun` repeats the exit status, or names the signal that ended the shell. Output of the script may
follow it."""


class SrunTransport:
    """Runs a script on a node of a Slurm job as a step. Workers without an allocation are reached over SSH.

    `srun` runs on this machine with Slurm's variables of `environ`, or on the login host of the connection. The host
    key of a login host is recorded under `login.<host>`. A step ends with its `srun`, so a step must not start
    processes that outlive the call.
    """

    def __init__(self, over_ssh: Transport, environ: Mapping[str, str]) -> None:
        self._over_ssh = over_ssh
        self._environ = {name: environ[name] for name in SLURM_VARIABLES if name in environ}

    def run(self, target: Target, script: Script) -> ScriptResult:
        """Run a script (see Transport.run). Its `connect_timeout` includes the start of the step."""
        connection = target.connection
        if not connection.allocation:
            return self._over_ssh.run(target, script)
        step, login = _Step(script.text), ssh_connection(connection)
        timeout = script.connect_timeout + script.timeout
        max_time = script.connect_timeout + timeout
        max_time += max_sending_time(script.payload.total) if script.payload is not None else 0
        command = replace(
            script,
            text=_command(connection, step.mark, max_time),
            timeout=timeout,
            limit=script.limit + _ROOM,
            payload=Payload(mark=step.mark, size=len(script.text), chunks=step.script, next=script.payload),
        )
        try:
            if login is None:
                output = _run_on_this_machine(command, self._environ)
            else:
                host = Target(worker=WorkerId(f"login.{connection.login}"), connection=login)
                output = self._over_ssh.run(host, command)
        except NoAnswer as error:
            raise step.call_error(error, connection, timeout) from error
        return step.result(output, connection, script.limit)

    def close(self) -> None:
        self._over_ssh.close()


class _Step:
    """A step. Its shell prints `mark` when it runs, and the script is sent after that."""

    def __init__(self, script: bytes) -> None:
        self.mark = f"IRIS1 {SYSTEM_RANDOMNESS.hexadecimal(16)} STEP".encode()
        self._script = script
        self._lock = threading.Lock()
        self._is_sent: bool | None = None

    def script(self) -> Iterator[bytes]:
        """Yield the script, or nothing if the call has already failed."""
        with self._lock:
            if self._is_sent is None:
                self._is_sent = True
        if self._is_sent:
            yield self._script

    def was_sent(self) -> bool:
        """Return True if the script may have been sent. Otherwise prevent that it is sent later."""
        with self._lock:
            if self._is_sent is None:
                self._is_sent = False
            return self._is_sent

    def call_error(self, error: NoAnswer, connection: Connection, seconds: float) -> NoAnswer:
        """Return the error of the call. `error` is the error of SSH or of the local shell, which waited `seconds`."""
        is_sent = self.was_sent()
        if error.kind is not SilenceKind.TIMEOUT or not error.sent:
            return NoAnswer(error.kind, error.step, error.detail, hint=error.hint, sent=is_sent)
        where = f"node {connection.node} of Slurm job {connection.allocation}"
        if is_sent:
            return NoAnswer(error.kind, error.step, f"{where}: timeout after {seconds:g} s")
        detail = f"srun started no step on {where} within {seconds:g} s"
        return NoAnswer(SilenceKind.UNREACHABLE, "srun", detail, sent=False)

    def result(self, output: ScriptResult, connection: Connection, limit: int) -> ScriptResult:
        """Return the result of the script, without Slurm's messages. Raises NoAnswer."""
        _, begun, stdout = output.stdout.partition(self.mark + b"\n")
        ending = max(_SRUN_ENDS.finditer(output.stderr), key=re.Match.start, default=None)
        if not self.was_sent() or not begun:
            raise _no_step(output, connection)
        stderr = output.stderr
        if ending is not None:
            stderr = stderr[: ending.start()] + stderr[ending.end() :]
        for name, stream in (("stdout", stdout), ("stderr", stderr)):
            if len(stream) > limit:
                raise NoAnswer(SilenceKind.PROTOCOL, "output", f"more than {limit} bytes on {name}")
        by_signal = ending is not None and ending[1] is None
        return ScriptResult(stdout=stdout, stderr=stderr, status=-1 if by_signal else output.status)


def ssh_connection(connection: Connection) -> Connection | None:
    """Return the connection to the host that SSH reaches: the worker or its login host; None if SSH is not used."""
    if not connection.allocation:
        return connection
    host = replace(connection, host=connection.login, allocation="", node="", login="")
    return host if connection.login else None


def srun_words(connection: Connection) -> list[str]:
    """Return the command line that runs a program on the node, as a step that shares the resources of the job."""
    words = ["srun", f"--jobid={connection.allocation}", "--overlap", f"--nodelist={connection.node}"]
    return [*words, "--nodes=1", "--ntasks=1", "--mem=0", "--chdir=/", "--quiet"]


def _command(connection: Connection, mark: bytes, max_time: float) -> bytes:
    """Return the script for `srun`. On a login host, where it outlives lost calls, limit it to `max_time` seconds."""
    shell = f"cd 2>/dev/null; printf '\\n%s\\n' '{mark.decode()}'; exec /bin/sh -s"
    words = [*srun_words(connection), "--job-name=iris-call", "/bin/sh", "-c", shell]
    if not connection.login:
        return f"exec {shlex.join(words)}\n".encode()
    return f"{FIND_SLURM}exec timeout {math.ceil(max_time)} {shlex.join(words)}\n".encode()


def _no_step(output: ScriptResult, connection: Connection) -> NoAnswer:
    """Return the error for an `srun` that ended without a step. Nothing was sent."""
    words = output.message
    if output.status in (126, 127):
        where = connection.login or "this machine"
        hint = f"Slurm's commands must be on the PATH of {where}"
        return NoAnswer(SilenceKind.LOCAL, "srun", words, hint=hint, sent=False)
    hint = "raise MaxStepCount in slurm.conf, or end the allocation" if "Step limit reached" in words else ""
    return NoAnswer(
        SilenceKind.UNREACHABLE, "srun", words.removeprefix("srun: error: "), hint=hint, sent=False
    )


# The shell on this machine that runs `srun` if the worker has no login host.


_PIECE = 64 << 10
_POLL_INTERVAL = 0.25
"""Longest wait in seconds without checking whether the process has ended."""
_LAST_OUTPUT = 1.0
"""Seconds to wait for the rest of the output after the end of the process. Other processes may hold its pipes."""


def _run_on_this_machine(script: Script, environ: Mapping[str, str]) -> ScriptResult:
    """Run a script with `/bin/sh -s` in a separate session, with the variables `environ` (see Transport.run).

    At the deadline, only the shell's process gets SIGKILL. After `exec srun` that is `srun`, which has a child that
    ends the step when `srun` is killed.
    """
    call = SshCall[ScriptResult](script.timeout, script.timeout)

    def work() -> ScriptResult:
        call.enter("shell")
        try:
            process = subprocess.Popen(
                ["/bin/sh", "-s"],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environ,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            detail = f"no shell can be started: {error.strerror or error}"
            raise NoAnswer(SilenceKind.LOCAL, "shell", detail, sent=False) from error
        with process:
            try:
                call.guard(process.kill)
                call.connected()
                call.sending()
                run = _ProcessRun(call, process, script)
                run.send(call)
                return run.finish()
            finally:
                process.kill()

    return call.perform(work)


class _ProcessRun(ScriptRun):
    """Runs a script in a shell, whose pipes carry the bytes. Raises Abandoned after the deadline of the call."""

    def __init__(self, call: SshCall[ScriptResult], process: subprocess.Popen[bytes], script: Script) -> None:
        super().__init__(script)
        assert process.stdin
        assert process.stdout
        assert process.stderr
        self._call = call
        self._process = process
        self._input = process.stdin
        self._stdout = process.stdout.fileno()
        self._open = {self._stdout: (self._out, "stdout"), process.stderr.fileno(): (self._err, "stderr")}
        self._ended_at: float | None = None
        for handle in (self._input.fileno(), *self._open):
            os.set_blocking(handle, False)

    def finish(self) -> ScriptResult:
        """Wait for the end of the process and of its output."""
        while self._open and not self._is_late():
            self._collect()
        self.step = "exit status"
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST_OUTPUT)
        while self._process.poll() is None:
            self._call.enter(lambda: self.step)
            SYSTEM_CLOCK.sleep(_POLL_INTERVAL)
        status = max(self._process.returncode, -1)
        return ScriptResult(stdout=bytes(self._out), stderr=bytes(self._err), status=status)

    def _send(self, data: bytes, progressed: Callable[[], None]) -> bool:
        rest = memoryview(data)
        while rest:
            if self._collect(writing=True):
                try:
                    rest = rest[os.write(self._input.fileno(), rest[:_PIECE]) :]
                except OSError:  # the shell has ended
                    return False
                progressed()
        return True

    def _close_input(self) -> None:
        self._input.close()

    def _read(self) -> bool:
        self._collect()
        return self._stdout in self._open and not self._is_late()

    def _collect(self, *, writing: bool = False) -> bool:
        """Wait for output for a short time, and collect it. With `writing` return True if stdin accepts data."""
        self._call.enter(lambda: self.step)
        poll = select.poll()
        for handle in self._open:
            poll.register(handle, select.POLLIN)
        if writing:
            poll.register(self._input, select.POLLOUT)
        ready = {handle for handle, _ in poll.poll(1000 * _POLL_INTERVAL)}
        for handle in ready.intersection(self._open):
            if data := os.read(handle, _PIECE):
                self._take(data, *self._open[handle])
            else:
                del self._open[handle]
        return writing and self._input.fileno() in ready

    def _is_late(self) -> bool:
        """Return True if the process ended more than `_LAST_OUTPUT` ago."""
        if self._ended_at is None and self._process.poll() is not None:
            self._ended_at = SYSTEM_CLOCK.monotonic()
        return self._ended_at is not None and SYSTEM_CLOCK.monotonic() - self._ended_at > _LAST_OUTPUT
