"""Run the operator's command about a notice: for a bounded time, whatever it does."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event

from msgspec import Struct

from iris_cli.clock import Clock
from iris_cli.core.units import format_duration
from iris_cli.ops.notify.wording import one_line, without_secrets

_GLANCE = 0.1  # seconds between two looks at a command that says nothing
_LAST_WAIT = 1.0  # seconds for what was killed to be gone
_TAIL = 2048  # bytes of its output that are kept
_LONGEST_LINE = 200


class Command(Struct, frozen=True, kw_only=True):
    """An argument vector, run in `directory`."""

    words: tuple[str, ...]
    directory: Path
    clock: Clock
    timeout: float

    def run(self, variables: Mapping[str, str], cut: Event) -> str:
        """What went wrong, in words; "" if it ended with 0. What it has left running by then is its own affair."""
        try:
            process = subprocess.Popen(  # noqa: S603 - the operator's own command, from cluster.yaml
                self.words,
                cwd=self.directory,
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return f"the command can't be run: {getattr(error, 'strerror', None) or type(error).__name__}"
        try:
            tail = self._watch(process, cut)
        finally:
            _end(process)
        return _verdict(process.returncode, tail, self.timeout)

    def _watch(self, process: subprocess.Popen[bytes], cut: Event) -> bytes | None:
        """The end of its output when it has ended; None if it has not, and the time is over."""
        assert process.stdout is not None
        due = self.clock.monotonic() + self.timeout
        tail = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while process.poll() is None:
                if self.clock.monotonic() >= due or cut.is_set():
                    return None
                if not selector.get_map():
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(_GLANCE)
                elif selector.select(_GLANCE):
                    data = os.read(process.stdout.fileno(), 1 << 16)
                    tail = (tail + data)[-_TAIL:]
                    if not data:
                        selector.unregister(process.stdout)
            while selector.get_map() and selector.select(0) and len(tail) < 2 * _TAIL:
                data = os.read(process.stdout.fileno(), _TAIL)
                tail += data
                if not data:
                    break
        return tail


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command that has not ended, and all that it started in its session: as far as we may, and it can die."""
    assert process.stdout is not None
    if process.poll() is None:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LAST_WAIT)
    process.stdout.close()


def _verdict(code: int | None, tail: bytes | None, timeout: float) -> str:
    if tail is None or code is None:
        return f"the command did not end within {format_duration(timeout)}, and was killed"
    if code == 0:
        return ""
    ended = f"the command was ended by signal {-code}" if code < 0 else f"the command failed with exit {code}"
    lines = [one_line(line) for line in tail.decode("utf-8", "replace").splitlines()]
    said = next((line for line in reversed(lines) if line), "")
    return f"{ended}: {without_secrets(said)[:_LONGEST_LINE]}" if said else ended
