"""Run scripts in a shell of this machine."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import IO

from iris_cli.clock import SYSTEM_CLOCK
from iris_cli.core.messages.observations import SilenceKind
from iris_cli.remote.ssh.call import Abandoned, SshCall
from iris_cli.remote.transport import NoAnswer, Payload, Script, ScriptResult, max_sending_time, read_chunks

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
        try:
            call.guard(process.kill)
            call.connected()
            call.sending()
            exchange = _Exchange(call, process, script.limit)
            exchange.send(script.text, script.payload)
            return exchange.finish()
        finally:
            process.kill()
            process.wait()


class _Exchange:
    """The bytes from and to a process. A thread reads each output, so that a full pipe never blocks the process."""

    def __init__(self, call: SshCall[ScriptResult], process: subprocess.Popen[bytes], limit: int) -> None:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        self._call = call
        self._process = process
        self._limit = limit
        self._input = process.stdin
        self._read: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self._news = threading.Condition()
        self._open = {"stdout", "stderr"}
        self._searched = 0  # bytes of stdout known not to contain the next mark
        for name, stream in (("stdout", process.stdout), ("stderr", process.stderr)):
            collect = threading.Thread(target=self._collect, args=(name, stream), daemon=True)
            collect.start()

    def send(self, script: bytes, payload: Payload | None) -> None:
        """Send the script. Send each payload that the script requests. Then close stdin."""
        self._call.enter("script")
        sending_time = max_sending_time(payload.total) if payload is not None else 0
        latest = SYSTEM_CLOCK.monotonic() + max(self._call.remaining(), 0) + sending_time
        self._write(script, lambda: None)
        while payload is not None and self._is_asked_for(payload.mark + b"\n"):
            self._call.enter("payload")
            for chunk in read_chunks(payload):
                if not self._write(chunk, lambda: self._call.progressed(latest)):
                    break
            payload = payload.then
        self._input.close()

    def finish(self) -> ScriptResult:
        """Wait for the end of the process and of its output."""
        self._call.enter("output")
        self._wait(lambda: not self._open)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST_OUTPUT)
        while self._process.poll() is None:
            self._call.enter("exit status")
            SYSTEM_CLOCK.sleep(_POLL_INTERVAL)
        with self._news:
            out, err = (bytes(self._read[name]) for name in ("stdout", "stderr"))
        return ScriptResult(stdout=out, stderr=err, status=max(self._process.returncode, -1))

    def _collect(self, name: str, stream: IO[bytes]) -> None:
        """Read an output to its end, or until the call has ended."""
        with stream, suppress(Abandoned):
            while data := stream.read(_PIECE):
                with self._news:
                    self._read[name] += data
                    self._news.notify_all()
                    if len(self._read[name]) > self._limit:
                        break
        with self._news:
            self._open.discard(name)
            self._news.notify_all()

    def _write(self, data: bytes, progressed: Callable[[], None]) -> bool:
        """Send the data. Return False if the shell accepts no more input."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._input.write(rest[:_PIECE]) or 0 :]
            except OSError:  # the shell has ended
                return False
            progressed()
            self._check_limit()
        return True

    def _is_asked_for(self, mark: bytes) -> bool:
        """Wait until the mark is a line of stdout. Return False if the output ends before."""
        asked = False

        def is_decided() -> bool:
            nonlocal asked
            out = self._read["stdout"]
            found = out.find(mark, self._searched)
            self._searched = max(0, len(out) - len(mark))
            asked = found == 0 or (found > 0 and out[found - 1 : found] == b"\n")
            return asked or "stdout" not in self._open

        self._call.enter("output")
        self._wait(is_decided)
        return asked

    def _wait(self, is_decided: Callable[[], bool]) -> None:
        """Wait until `is_decided` returns True, or the process has ended `_LAST_OUTPUT` ago. May raise Abandoned."""
        ended_at: float | None = None
        while True:
            with self._news:
                if is_decided():
                    break
                self._news.wait(_POLL_INTERVAL)
            self._call.enter("output")
            self._check_limit()
            now = SYSTEM_CLOCK.monotonic()
            if ended_at is not None and now - ended_at > _LAST_OUTPUT:
                break
            if ended_at is None and self._process.poll() is not None:
                ended_at = now
        self._check_limit()

    def _check_limit(self) -> None:
        for name, data in self._read.items():
            if len(data) > self._limit:
                raise NoAnswer(SilenceKind.PROTOCOL, "output", f"more than {self._limit} bytes on {name}")
