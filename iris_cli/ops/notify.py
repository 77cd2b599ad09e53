"""Find the new notices of a cycle, and send them in a thread, by the operator's command and webhook."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field, structs

from iris_cli import __version__
from iris_cli.clock import Clock
from iris_cli.core import Job, Limits, format_duration, pattern
from iris_cli.core.messages import notices
from iris_cli.journal.files.notices import NoticeFile
from iris_cli.ops.session import Session
from iris_cli.ops.views.view import cycle_age

if TYPE_CHECKING:
    from iris_cli.core.scheduling import Plan

_MAX_TEXT = 1000  # characters of text from users or workers
_URL = pattern(r"(https?://)(?:[^\s/@]*@)?([^\s/?#'\"]+)[^\s'\"]*")  # its path may be a secret
_POLL_INTERVAL = 0.1  # seconds between two checks of a running command or call
_KILL_TIMEOUT = 1.0  # seconds for a killed process to exit
_TAIL = 2048  # bytes of output that are kept
_PIPE_SIZE = 1 << 16  # maximum bytes of output in the pipe
_MAX_LINE = 200  # characters
TIMEOUT = 10.0  # maximum seconds for one command or one call of the webhook
BUDGET = 10.0  # seconds after which no further notice is sent in this cycle

Send = Callable[[notices.Notice, Event], str]
"""Function that sends one notice and returns the problem, or "". It returns soon after the event is set."""

_RUNNING: list[tuple[Sender, threading.Thread]] = []


def notice_variables(notice: notices.Notice, cluster: str) -> dict[str, str]:
    """Return the environment variables that describe a notice to the operator's command."""
    return {
        "IRIS_EVENT": notice.event,
        "IRIS_JOB_ID": notice.job,
        "IRIS_STATE": notice.state,
        "IRIS_REASON": one_line(notice.reason),
        "IRIS_NOTICE_ID": notice.id,
        "IRIS_CLUSTER": cluster,
    }


def notice_json(notice: notices.Notice, cluster: str) -> bytes:
    """Return the JSON body for the webhook. `text` is one sentence, as chat services expect."""
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
    """Return the text as one line of at most _MAX_TEXT characters, with spaces in place of control characters."""
    line = "".join(character if character.isprintable() else " " for character in text[: 2 * _MAX_TEXT])
    line = " ".join(line.split())
    return line if len(line) <= _MAX_TEXT else line[: _MAX_TEXT - 1] + "…"


class Command(Struct, frozen=True, kw_only=True):
    """The operator's command: argument vector, working directory, and timeout in seconds."""

    words: tuple[str, ...]
    directory: Path
    clock: Clock
    timeout: float

    def run(self, variables: Mapping[str, str], stop: Event) -> str:
        """Run the command. Return its failure as text, or "" if it exited with 0.

        If the command ends in time, its children may continue. After the timeout, or when `stop` is set, the whole
        process group is killed.
        """
        try:
            process = subprocess.Popen(  # noqa: S603 - the operator's own command, from cluster.yaml
                self.words,
                cwd=self.directory,
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return f"the command can't be run: {getattr(error, 'strerror', None) or type(error).__name__}"
        try:
            tail = self._watch(process, stop)
        finally:
            _kill(process)
        return _command_problem(process.returncode, tail, self.timeout)

    def _watch(self, process: subprocess.Popen[bytes], stop: Event) -> bytes | None:
        """Wait for the end of the command. Return the tail of its output; None at the timeout or if `stop` is set."""
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        due = self.clock.monotonic() + self.timeout
        tail = b""
        while True:
            has_ended = process.poll() is not None  # BEFORE reading, so that the last output is read
            data = process.stdout.read(_PIPE_SIZE)  # None if there is no new output
            tail = (tail + (data or b""))[-_TAIL:]
            if has_ended:
                return tail
            if self.clock.monotonic() >= due or stop.is_set():
                return None
            if not data:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_INTERVAL)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the command's process group unless the command has ended. Wait briefly for its end."""
    assert process.stdout is not None
    if process.poll() is None:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_KILL_TIMEOUT)
    process.stdout.close()


def _command_problem(code: int | None, tail: bytes | None, timeout: float) -> str:
    if tail is None or code is None:
        return f"the command was killed after {format_duration(timeout)}"
    if code == 0:
        return ""
    ended = f"the command was ended by signal {-code}" if code < 0 else f"the command failed with exit {code}"
    lines = [one_line(line) for line in tail.decode("utf-8", "replace").splitlines()]
    last = next((line for line in reversed(lines) if line), "")
    without_paths = _URL.sub(r"\1\2/...", last)
    return f"{ended}: {without_paths[:_MAX_LINE]}" if last else ended


class Webhook(Struct, frozen=True, kw_only=True):
    """The operator's webhook. No message contains its URL, because the URL grants access."""

    url: str
    clock: Clock
    timeout: float

    def __repr__(self) -> str:
        return f"Webhook(timeout={self.timeout})"

    def post(self, body: bytes, stop: Event) -> str:
        """Post the body. Return the failure as text, or "" after a success. A call that hangs fails at the timeout."""
        problems: list[str] = []
        call = threading.Thread(target=lambda: problems.append(self._post(body)), daemon=True)
        due = self.clock.monotonic() + self.timeout
        call.start()
        while call.is_alive() and self.clock.monotonic() < due and not stop.is_set():
            call.join(_POLL_INTERVAL)
        timeout = format_duration(self.timeout)
        return problems[0] if problems else f"no answer from the webhook within {timeout}"

    def _post(self, body: bytes) -> str:
        from urllib.error import HTTPError, URLError
        from urllib.request import HTTPRedirectHandler, Request, build_opener

        class NoRedirects(HTTPRedirectHandler):
            """A redirect handler that follows no redirect, because the body is only for the host of the URL."""

            def redirect_request(self, *_: object) -> None:
                return None

        headers = {"Content-Type": "application/json", "User-Agent": f"iris/{__version__}"}
        try:
            request = Request(self.url, data=body, headers=headers)  # noqa: S310 - http or https: checked on reading
            with build_opener(NoRedirects).open(request, timeout=self.timeout):
                return ""
        except HTTPError as error:
            error.close()
            redirect = " (redirects are not followed)" if 300 <= error.code < 400 else ""
            return f"the webhook answered {error.code}{redirect}"
        except TimeoutError:
            return f"no answer from the webhook within {format_duration(self.timeout)}"
        except URLError as error:
            return f"the webhook can't be reached: {_safe_words(error.reason)}"
        except Exception as error:  # the other side can cause any error in the library
            return f"the webhook can't be reached: {_safe_words(error)}"


def _safe_words(error: object) -> str:
    """Return the message of a system error, or the type of another error, because its message may contain the URL."""
    return (isinstance(error, OSError) and error.strerror) or type(error).__name__


class Sender(Struct):
    """Sends queued notices in a thread, and records the delivered notices.

    `lock` is the descriptor of a lock that allows one sender at a time.
    """

    file: NoticeFile
    lock: int
    records: notices.NoticeState
    channels: Mapping[str, Send]
    clock: Clock
    limits: Limits
    budget: float = BUDGET
    stop: Event = field(default_factory=Event)

    def run(self) -> None:
        """Send notices for about `budget` seconds, then release the lock. Channels with failures come last."""
        try:
            until = self.clock.monotonic() + self.budget
            for name in sorted(self.channels, key=lambda each: self.records.channels[each].failures):
                while self.records.channels[name].is_due(self.clock.now()):
                    if self.clock.monotonic() >= until or self.stop.is_set():
                        return
                    self._send_one(name)
        finally:
            os.close(self.lock)

    def _send_one(self, name: str) -> None:
        channel = self.records.channels[name]
        try:
            problem = self.channels[name](channel.waiting[0], self.stop)
        except Exception as error:  # an internal error is recorded like other problems
            problem = f"internal error ({type(error).__name__}); please report it"
        if problem and self.stop.is_set():
            return  # `finish` has stopped this sender
        now = self.clock.now()
        after = channel.with_failure(problem, now, self.limits) if problem else channel.with_delivery(now)
        self.records = structs.replace(self.records, channels={**self.records.channels, name: after})
        # Write the record AFTER sending. So a crash in between can repeat the notice, but can't lose it.
        self.file.write(self.records)


def start(sender: Sender) -> None:
    """Start the sender in a thread. `finish` waits for the thread."""
    thread = threading.Thread(target=sender.run, name="iris-notify", daemon=True)
    _RUNNING[:] = [each for each in _RUNNING if each[1].is_alive()]
    _RUNNING.append((sender, thread))
    thread.start()


def finish(*, at_once: bool = False) -> None:
    """Wait until all senders have ended. With `at_once`, and after Ctrl-C, they send no more notices."""
    while _RUNNING:
        sender, thread = _RUNNING.pop()
        try:
            if at_once:
                sender.stop.set()
            thread.join()
        except KeyboardInterrupt:
            sender.stop.set()
            thread.join()
            raise


def begin(session: Session) -> None:
    """Create the notice file before the first cycle with notifications. Jobs that ended earlier cause no notices."""
    file = session.state.notices
    if file.exists or not session.view().seq:
        return
    fd = file.lock()
    if fd is not None:
        try:
            if not file.exists:
                file.write(
                    notices.initial_notice_state(
                        _observation(session, None, None), session.config.notify.channels
                    )
                )
        finally:
            os.close(fd)


def send_new_notices(session: Session, plan: Plan | None, heartbeat: Mapping[str, Any] | None) -> None:
    """Start sending new notices. If another invocation is sending, the next cycle sends them."""
    file, channels = session.state.notices, session.config.notify.channels
    observation = _observation(session, plan, heartbeat)
    records = file.read()
    if (
        records
        and notices.observe(records, observation, channels) == records
        and not _is_due(records, observation.now)
    ):
        return
    fd = file.lock()
    if fd is None:
        return
    with ExitStack() as stack:
        stack.callback(os.close, fd)
        before = file.read()
        records = notices.observe(
            before or notices.initial_notice_state(observation, ()), observation, channels
        )
        if records != before and not file.write(records):
            return  # send nothing, because without the record each cycle would send the same notices
        if _is_due(records, observation.now):
            _start_sender(session, records, fd)
            stack.pop_all()  # the sender closes the file


def _is_due(records: notices.NoticeState, now: float) -> bool:
    return any(channel.is_due(now) for channel in records.channels.values())


def _start_sender(session: Session, records: notices.NoticeState, lock: int) -> None:
    """Start a thread that sends the notices in `records` and then releases the lock."""
    config, clock = session.config, session.clock
    directory = config.path.absolute().parent
    command = Command(words=config.notify.command, directory=directory, clock=clock, timeout=TIMEOUT)
    webhook = Webhook(url=config.notify.webhook, clock=clock, timeout=TIMEOUT)
    senders: dict[str, Send] = {
        "command": lambda notice, stop: command.run(notice_variables(notice, config.name), stop),
        "webhook": lambda notice, stop: webhook.post(notice_json(notice, config.name), stop),
    }
    start(
        Sender(
            file=session.state.notices,
            lock=lock,
            records=records,
            channels={name: senders[name] for name in config.notify.channels},
            clock=clock,
            limits=session.limits,
        )
    )


def _observation(
    session: Session, plan: Plan | None, heartbeat: Mapping[str, Any] | None
) -> notices.ClusterObservation:
    now, cluster = session.clock.now(), session.cluster
    cycle = cycle_age(heartbeat, now)

    def cause(job: Job) -> str:
        from iris_cli.ops.views.failure import cause_words

        assert job.end is not None
        words = cause_words(cluster, job, session.state)
        return f"{job.end.reason}: {words}" if words not in ("", job.end.reason) else job.end.reason.value

    def pending_reason(job: Job) -> str:
        reasons = plan.waiting.get(job.id) if plan is not None else None
        return reasons[0].text if reasons and reasons[0].kind not in ("after", "held") else ""

    is_gap = cycle.age is not None and cycle.stale
    gap = format_duration(cycle.age or 0.0)
    return notices.ClusterObservation(
        cluster=cluster,
        cluster_id=session.cluster_id,
        now=now,
        limits=session.limits,
        cause=cause,
        waiting=pending_reason,
        stopped=f"cycles run again after a gap of {gap}" if is_gap else "",
    )
