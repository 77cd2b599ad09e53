"""Run scripts in a shell of this machine."""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress

from iris_cli.clock import SYSTEM_CLOCK
from iris_cli.core.messages.observations import SilenceKind
from iris_cli.remote.ssh.call import SshCall
from iris_cli.remote.ssh.script_run import ScriptRun
from iris_cli.remote.transport import NoAnswer, Script, ScriptResult

_PIECE = 64 << 10
_POLL_INTERVAL = 0.25
"""Longest wait in seconds without checking whether the process has ended."""
_LAST_OUTPUT = 1.0
"""Seconds to wait for the rest of the output after the end of the process. Other processes may hold its pipes."""


class LocalShell:
    """Feeds scripts to `/bin/sh -s` in a separate session, with the variables `environ`.

    At the deadline, only the shell's process gets SIGKILL. After `exec srun` that is `srun`, which has a child that
    ends the step when `srun` is killed.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = dict(environ)

    def run(self, script: Script) -> ScriptResult:
        """Run a script (see Transport.run)."""
        call = SshCall[ScriptResult](script.timeout, script.timeout)
        return call.perform(lambda: self._work(call, script))

    def _work(self, call: SshCall[ScriptResult], script: Script) -> ScriptResult:
        call.enter("shell")
        try:
            process = subprocess.Popen(
                ["/bin/sh", "-s"],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environ,
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
