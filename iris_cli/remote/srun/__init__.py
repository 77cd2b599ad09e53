"""The transport by Slurm's `srun`: each call is a step of the worker's allocation."""

from __future__ import annotations

import math
import re
import shlex
import threading
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from iris_cli.core import Connection, WorkerId
from iris_cli.core.messages.observations import SilenceKind
from iris_cli.core.model.slice import SLURM_VARIABLES
from iris_cli.randomness import SYSTEM_RANDOMNESS
from iris_cli.remote.srun.local_shell import LocalShell
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
        self._local = LocalShell({name: environ[name] for name in SLURM_VARIABLES if name in environ})

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
                output = self._local.run(command)
            else:
                host = Target(worker=WorkerId(f"login.{connection.login}"), connection=login)
                output = self._over_ssh.run(host, command)
        except NoAnswer as error:
            raise step.call_error(error, connection, timeout) from error
        return step.result(output, connection, script.limit)

    def close(self) -> None:
        """Close the connections to login hosts and workers. Idempotent."""
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
            return NoAnswer(error.kind, error.step, f"no answer from {where} within {seconds:g} s")
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
