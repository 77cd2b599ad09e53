"""Text of a notice, and its channels: the operator's command and webhook, each with a timeout."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event

from msgspec import Struct, field, structs

from iris_cli import __version__
from iris_cli.clock import Clock
from iris_cli.core import Limits, format_duration, pattern
from iris_cli.core.messages.notices import Notice, NoticeState
from iris_cli.journal.files.notices import NoticeFile

_LONGEST = 1000  # characters of text from users or workers
_URL = pattern(r"(https?://)(?:[^\s/@]*@)?([^\s/?#'\"]+)[^\s'\"]*")


def environment_of(notice: Notice, cluster: str) -> dict[str, str]:
    """Return the variables added to our environment for the command."""
    return {
        "IRIS_EVENT": notice.event,
        "IRIS_JOB_ID": notice.job,
        "IRIS_STATE": notice.state,
        "IRIS_REASON": one_line(notice.reason),
        "IRIS_NOTICE_ID": notice.id,
        "IRIS_CLUSTER": cluster,
    }


def body_of(notice: Notice, cluster: str) -> bytes:
    """Return the JSON body of a post. `text` is one sentence, as chat services expect it."""
    entry = {
        "schema_version": 1,
        "id": notice.id,
        "event": notice.event,
        "cluster": cluster,
        "job_id": notice.job,
        "state": notice.state,
        "reason": one_line(notice.reason),
        "at": notice.at,
        "text": one_line(f"{cluster}: {notice}"),
    }
    return json.dumps(entry).encode("ascii")


def one_line(text: str) -> str:
    """Return text as one bounded line, with control characters replaced by blanks."""
    shown = "".join(character if character.isprintable() else " " for character in text[: 2 * _LONGEST])
    shown = " ".join(shown.split())
    return shown if len(shown) <= _LONGEST else shown[: _LONGEST - 1] + "…"


def without_secrets(text: str) -> str:
    """Return text with each URL cut after its host: the rest may grant access."""
    return _URL.sub(r"\1\2/...", text)


_GLANCE = 0.1  # seconds between two checks of a silent command or call
_LAST_WAIT = 1.0  # seconds for a killed process to exit
_TAIL = 2048  # bytes of output that are kept
_LONGEST_LINE = 200


class Command(Struct, frozen=True, kw_only=True):
    """An argument vector, run in `directory`."""

    words: tuple[str, ...]
    directory: Path
    clock: Clock
    timeout: float

    def run(self, variables: Mapping[str, str], cut: Event) -> str:
        """Run the command. Return its problem, "" if it ended with 0. Its remaining children are not stopped then."""
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
        """Return the tail of its output once it has ended; None if it has not ended by the timeout."""
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
    """Kill a command that has not ended, with its process group, and wait briefly."""
    assert process.stdout is not None
    if process.poll() is None:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LAST_WAIT)
    process.stdout.close()


def _verdict(code: int | None, tail: bytes | None, timeout: float) -> str:
    if tail is None or code is None:
        return f"the command was killed after {format_duration(timeout)}"
    if code == 0:
        return ""
    ended = f"the command was ended by signal {-code}" if code < 0 else f"the command failed with exit {code}"
    lines = [one_line(line) for line in tail.decode("utf-8", "replace").splitlines()]
    said = next((line for line in reversed(lines) if line), "")
    return f"{ended}: {without_secrets(said)[:_LONGEST_LINE]}" if said else ended


class Webhook(Struct, frozen=True, kw_only=True):
    """A webhook URL. No message contains it: the URL itself grants access."""

    url: str
    clock: Clock
    timeout: float

    def __repr__(self) -> str:
        return f"Webhook(timeout={self.timeout})"

    def post(self, body: bytes, cut: Event) -> str:
        """Post the body. Return the problem, "" if it was accepted. A hanging call is abandoned at the timeout."""
        said: list[str] = []
        call = threading.Thread(target=lambda: said.append(self._call(body)), daemon=True)
        due = self.clock.monotonic() + self.timeout
        call.start()
        while call.is_alive() and self.clock.monotonic() < due and not cut.is_set():
            call.join(_GLANCE)
        return said[0] if said else f"no answer from the webhook within {format_duration(self.timeout)}"

    def _call(self, body: bytes) -> str:
        from urllib.error import HTTPError, URLError
        from urllib.request import HTTPRedirectHandler, Request, build_opener

        class Stay(HTTPRedirectHandler):
            """Redirect handler that follows no redirect: the content is not meant for other hosts."""

            def redirect_request(self, *_: object) -> None:
                return None

        headers = {"Content-Type": "application/json", "User-Agent": f"iris/{__version__}"}
        try:
            request = Request(self.url, data=body, headers=headers)  # noqa: S310 - http or https: checked on reading
            with build_opener(Stay).open(request, timeout=self.timeout):
                return ""
        except HTTPError as error:
            error.close()
            elsewhere = " (redirects are not followed)" if 300 <= error.code < 400 else ""
            return f"the webhook answered {error.code}{elsewhere}"
        except TimeoutError:
            return f"no answer from the webhook within {format_duration(self.timeout)}"
        except URLError as error:
            return f"the webhook can't be reached: {_words(error.reason)}"
        except Exception as error:  # any error that a peer can cause in the library
            return f"the webhook can't be reached: {_words(error)}"


def _words(error: object) -> str:
    """Return the system's message. The text of other errors may contain the URL."""
    return (isinstance(error, OSError) and error.strerror) or type(error).__name__


# Send queued notices on a separate thread, and record the delivered ones.


BUDGET = 10.0
"""Seconds after which no further notice is sent in this cycle."""

_WRITTEN_EVERY = 1.0  # seconds: notices of this span are repeated after a crash

Send = Callable[[Notice, Event], str]
"""Function that sends one notice and returns the problem or "". The event is set when the caller stops waiting."""


class Teller(Struct):
    """Sender of notices. Holds `lock`, which allows one sender at a time, and releases it at the end."""

    file: NoticeFile
    lock: int
    books: NoticeState
    channels: Mapping[str, Send]
    clock: Clock
    limits: Limits
    budget: float = BUDGET
    cut: Event = field(default_factory=Event)
    _written: float = 0.0

    def run(self) -> None:
        """Send notices within the budget. Channels with failures come last, and wait before the next try."""
        try:
            until = self.clock.monotonic() + self.budget
            self._written = self.clock.monotonic()
            for name in sorted(self.channels, key=lambda each: self.books.channels[each].failures):
                while self._is_due(name) and self.clock.monotonic() < until and not self.cut.is_set():
                    self._tell_one(name)
            self.file.write(self.books)
        finally:
            os.close(self.lock)

    def _is_due(self, name: str) -> bool:
        return self.books.channels[name].is_due(self.clock.now())

    def _tell_one(self, name: str) -> None:
        channel = self.books.channels[name]
        try:
            trouble = self.channels[name](channel.waiting[0], self.cut)
        except Exception as error:  # our own fault: must not end the thread, is reported like others
            trouble = f"internal error ({type(error).__name__}); please report it"
        if trouble and self.cut.is_set():
            return  # we stopped it
        now = self.clock.now()
        after = channel.with_failure(trouble, now, self.limits) if trouble else channel.with_delivery(now)
        self.books = structs.replace(self.books, channels={**self.books.channels, name: after})
        # After sending: a crash in between repeats the notice instead of losing it.
        if self.clock.monotonic() - self._written >= _WRITTEN_EVERY:
            self.file.write(self.books)
            self._written = self.clock.monotonic()


_UNDER_WAY: list[tuple[Teller, threading.Thread]] = []


def start(teller: Teller) -> None:
    """Start the sender on its own thread; `finish` waits for it."""
    thread = threading.Thread(target=teller.run, name="iris-notify", daemon=True)
    _UNDER_WAY[:] = [each for each in _UNDER_WAY if each[1].is_alive()]
    _UNDER_WAY.append((teller, thread))
    thread.start()


def finish(*, at_once: bool = False) -> None:
    """Wait until all senders have ended. The time is bounded; `at_once` and Ctrl-C stop them."""
    while _UNDER_WAY:
        teller, thread = _UNDER_WAY.pop()
        try:
            if at_once:
                teller.cut.set()
            thread.join()
        except KeyboardInterrupt:
            teller.cut.set()
            thread.join()
            raise
