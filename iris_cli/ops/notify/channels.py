"""A notice in words, and its two ways out: the operator's command and the operator's URL, each for a bounded time."""

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
from iris_cli.core.messages.notices import Books, Notice
from iris_cli.journal.files.notices import NoticeFile

_LONGEST = 1000  # characters of a text that users or workers may have written
_URL = pattern(r"(https?://)(?:[^\s/@]*@)?([^\s/?#'\"]+)[^\s'\"]*")


def environment_of(notice: Notice, cluster: str) -> dict[str, str]:
    """What the command finds, beside what is in our own environment."""
    return {
        "IRIS_EVENT": notice.event,
        "IRIS_JOB_ID": notice.job,
        "IRIS_STATE": notice.state,
        "IRIS_REASON": one_line(notice.reason),
        "IRIS_NOTICE_ID": notice.id,
        "IRIS_CLUSTER": cluster,
    }


def body_of(notice: Notice, cluster: str) -> bytes:
    """What is posted: a JSON object. `text` says it all in a sentence, as chat services want it."""
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
    """Text without what no variable can hold and no line should: controls become blanks, and it has an end."""
    shown = "".join(character if character.isprintable() else " " for character in text[: 2 * _LONGEST])
    shown = " ".join(shown.split())
    return shown if len(shown) <= _LONGEST else shown[: _LONGEST - 1] + "…"


def without_secrets(text: str) -> str:
    """Of each URL no more than the host: what comes behind it may be what gives access."""
    return _URL.sub(r"\1\2/...", text)


_GLANCE = 0.1  # seconds between two looks at a command or a call that says nothing
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
        return f"the command was killed after {format_duration(timeout)}"
    if code == 0:
        return ""
    ended = f"the command was ended by signal {-code}" if code < 0 else f"the command failed with exit {code}"
    lines = [one_line(line) for line in tail.decode("utf-8", "replace").splitlines()]
    said = next((line for line in reversed(lines) if line), "")
    return f"{ended}: {without_secrets(said)[:_LONGEST_LINE]}" if said else ended


class Webhook(Struct, frozen=True, kw_only=True):
    """A URL. No message of ours repeats it: who knows it may post there."""

    url: str
    clock: Clock
    timeout: float

    def __repr__(self) -> str:
        return f"Webhook(timeout={self.timeout})"

    def post(self, body: bytes, cut: Event) -> str:
        """What went wrong, in words; "" if it was accepted. A call that hangs is abandoned when its time is over."""
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
            """Follows nobody: what is told here is not meant for others."""

            def redirect_request(self, *_: object) -> None:
                return None

        headers = {"Content-Type": "application/json", "User-Agent": f"iris/{__version__}"}
        try:
            request = Request(self.url, data=body, headers=headers)  # noqa: S310 - http or https, as checked on reading
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
        except Exception as error:  # whatever the peer makes the library stumble over
            return f"the webhook can't be reached: {_words(error)}"


def _words(error: object) -> str:
    """What the system says. The text of other errors may hold the URL."""
    return (isinstance(error, OSError) and error.strerror) or type(error).__name__


# Tell what waits to be told, beside what the invocation does otherwise, and write down what got through.


BUDGET = 10.0
"""Seconds after which no other notice is begun: the next cycle goes on."""

_WRITTEN_EVERY = 1.0  # seconds: so much is told again after a crash

Send = Callable[[Notice, Event], str]
"""Tells one notice; what went wrong comes back in words, or "". The event is set when nobody waits any longer."""


class Teller(Struct):
    """Has the lock `lock`, under which one invocation at a time tells, and lets it go at the end."""

    file: NoticeFile
    lock: int
    books: Books
    channels: Mapping[str, Send]
    clock: Clock
    limits: Limits
    budget: float = BUDGET
    cut: Event = field(default_factory=Event)
    _written: float = 0.0

    def run(self) -> None:
        """Tell for as long as the budget lasts. A channel that fails has to wait, and lets the others go first."""
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
        except (
            Exception
        ) as error:  # a fault of ours: it must not end the thread, and is seen where others are
            trouble = f"internal error ({type(error).__name__}); please report it"
        if trouble and self.cut.is_set():
            return  # that was us
        now = self.clock.now()
        after = channel.failed(trouble, now, self.limits) if trouble else channel.told(now)
        self.books = structs.replace(self.books, channels={**self.books.channels, name: after})
        # AFTER it was told: a crash in between has it told again, not lost.
        if self.clock.monotonic() - self._written >= _WRITTEN_EVERY:
            self.file.write(self.books)
            self._written = self.clock.monotonic()


_UNDER_WAY: list[tuple[Teller, threading.Thread]] = []


def start(teller: Teller) -> None:
    """Let it tell on a thread of its own; `finish` waits for it."""
    thread = threading.Thread(target=teller.run, name="iris-notify", daemon=True)
    _UNDER_WAY[:] = [each for each in _UNDER_WAY if each[1].is_alive()]
    _UNDER_WAY.append((teller, thread))
    thread.start()


def finish(*, at_once: bool = False) -> None:
    """Wait until all that was begun is told, or given up for now. Its time is bounded; Ctrl-C ends it at once."""
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
