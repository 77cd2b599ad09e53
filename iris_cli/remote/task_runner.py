"""Launch, watch and stop attempts on a worker: one script, one answer for each call."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Literal

from iris_cli.core.ids import Token, is_name, parse_token
from iris_cli.core.observations import ProbeReport, Silence, WorkerReport
from iris_cli.remote.answers import LogChunk, log_chunk, probe_report, worker_report
from iris_cli.remote.frames import Frame, broken, parse_frame
from iris_cli.remote.launch_request import (
    LaunchRequest,
    command_text,
    environment_text,
    hundredths,
    settings_text,
    setup_text,
)
from iris_cli.remote.transport import NoAnswer, Output, Target, Transport
from iris_cli.remote.worker_script import HostPaths, directory_word, quote, worker_script

__all__ = ["LaunchRequest", "LogChunk", "TaskRunner"]

LONGEST_PIECE = 512 << 10
"""The most bytes of a log that one call fetches."""

_ROOM = 64 << 10  # bytes of an answer beside what was asked for; a login shell may be talkative
_ROOM_PER_ATTEMPT = 8 << 10
_ROOM_FOR_TOKENS = 1 << 20
_CHIPS_PATIENCE = 2.0  # seconds that a `prepare` waits for chips to be let go
_PROBE_PATIENCE = 5.0  # a probe asks the metadata server, too


class TaskRunner:
    """The calls of the worker protocol. Safe to use from many threads.

    Every call returns either a whole answer or a Silence, which tells nothing of what happened there. All of
    them may be repeated at will. What can't be sent at all is a ValueError.
    """

    def __init__(
        self,
        transport: Transport,
        cluster_id: str,
        *,
        connect_timeout: float = 10.0,
        timeout: float = 5.0,
        paths: HostPaths | None = None,
    ) -> None:
        if not is_name(cluster_id):
            raise ValueError(f"{cluster_id[:80]!r} can't name a directory")
        self._transport = transport
        self._cluster_id = cluster_id
        self._connect_timeout = connect_timeout
        self._timeout = timeout
        self._paths = paths or HostPaths()

    def probe(self, target: Target, *, first_contact: bool = False) -> ProbeReport | Silence:
        """Find out what the worker is, and make its directory. `first_contact` may take a first host key."""
        call = [
            "cautions=",
            self._open(target, "probe"),
            "begin_frame",
            "tell_probe",
            "IFS='\n'",
            'for each in $cautions; do unset IFS; named warning "$each"; done',
            "end_frame",
        ]
        try:
            frame = self._ask(
                target,
                "probe",
                call,
                room=_ROOM_FOR_TOKENS,
                patience=_PROBE_PATIENCE,
                first_contact=first_contact,
            )
            return probe_report(frame, target.worker)
        except NoAnswer as silence:
            return silence.silence(target.worker)

    def prepare(
        self, target: Target, requests: Sequence[LaunchRequest], *, boot_id: str, incarnation: str, go: bool
    ) -> WorkerReport | Silence:
        """Get attempts ready on that host since that boot; with `go` start those that need no set-up at once.

        Another host, or the same one after a reboot, does nothing and answers without any attempts.
        """
        tokens = [request.token for request in requests]
        steps = [_prepare_line(request) for request in requests]
        if go:
            steps += _go_lines(tokens)
        patience = _CHIPS_PATIENCE if any(request.exclusive for request in requests) else 0.0
        return self._launch(target, "prepare", steps, tokens, boot_id, incarnation, patience)

    def go(
        self, target: Target, tokens: Sequence[Token], *, boot_id: str, incarnation: str
    ) -> WorkerReport | Silence:
        """Start attempts that are prepared; of all others just say how they are. Refused as `prepare` is."""
        return self._launch(target, "go", _go_lines(tokens), tokens, boot_id, incarnation)

    def poll(self, target: Target, tokens: Sequence[Token], *, renew: bool = True) -> WorkerReport | Silence:
        """How these attempts are, in one round trip. Changes nothing but what `renew` does to their leases.

        A poll without an answer may have renewed them too.
        """
        return self._report(target, "poll", ["renewing=1"] if renew else [], tokens)

    def stop(self, target: Target, stops: Sequence[tuple[Token, float]]) -> WorkerReport | Silence:
        """The fence: none of these attempts (each with its grace in seconds) runs or will ever start.

        That is so once the answer, or a later poll, says STOPPED, or how the attempt ended by itself.
        """
        tokens = _unique([token for token, _ in stops])
        steps = [
            'make_root && cd "$root/a" && missing=',
            'if [ -z "$missing" ]; then',
            *(f"stop {token} {hundredths(grace)}" for token, grace in dict(stops).items()),
            f"await_stops {' '.join(tokens)}",
            "fi",
        ]
        return self._report(target, "stop", steps, tokens)

    def logs(
        self, target: Target, token: Token, *, stream: Literal["out", "err"] | str, offset: int, limit: int
    ) -> LogChunk | Silence:
        """At most `limit` bytes of one output file from `offset` on; a negative one counts from the end."""
        if stream not in ("out", "err"):
            raise ValueError(f"{stream[:20]!r} is neither out nor err")
        limit = max(0, min(limit, LONGEST_PIECE))
        step = f"logs {parse_token(token)} {stream} {int(offset)} {limit}"
        call = [self._open(target), "begin_frame", step, "end_frame"]
        try:
            return log_chunk(self._ask(target, "logs", call, room=2 * limit), limit)
        except NoAnswer as silence:
            return silence.silence(target.worker)

    def _launch(
        self,
        target: Target,
        name: str,
        steps: Sequence[str],
        tokens: Sequence[Token],
        boot_id: str,
        incarnation: str,
        patience: float = 0.0,
    ) -> WorkerReport | Silence:
        """A call that is only for that host since that boot."""
        tokens = _unique(tokens)
        call = [
            "mask=$(umask)",
            self._open(target),
            f"if expect {quote(boot_id)} {quote(incarnation)}; then",
            *steps,
            "await_starts",
            "begin_frame",
            f"report {' '.join(tokens)}",
            "else",
            "begin_frame",
            "fi",
            "end_frame",
        ]
        try:
            frame = self._ask(target, name, call, room=_ROOM_PER_ATTEMPT * len(tokens), patience=patience)
            return worker_report(frame, target.worker, tokens, (boot_id, incarnation))
        except NoAnswer as silence:
            return silence.silence(target.worker)

    def _report(
        self, target: Target, name: str, steps: Sequence[str], tokens: Sequence[Token]
    ) -> WorkerReport | Silence:
        """A call for whatever host answers."""
        tokens = _unique(tokens)
        call = [self._open(target), *steps, "begin_frame", f"report {' '.join(tokens)}", "end_frame"]
        try:
            frame = self._ask(target, name, call, room=_ROOM_PER_ATTEMPT * len(tokens))
            return worker_report(frame, target.worker, tokens)
        except NoAnswer as silence:
            return silence.silence(target.worker)

    def _open(self, target: Target, then: str = "") -> str:
        """Go to the worker's directory there."""
        if not is_name(target.worker):
            raise ValueError(f"{target.worker[:80]!r} can't name a directory")
        where = f"{directory_word(target.connection.remote_dir)} {self._cluster_id} {target.worker}"
        return f'umask 077\nopen_frame "$nonce" {where}' + (f"\n{then} {where}" if then else "")

    def _ask(
        self,
        target: Target,
        name: str,
        call: Sequence[str],
        *,
        room: int,
        patience: float = 0.0,
        first_contact: bool = False,
    ) -> Frame:
        """Send one script, take its answer apart. Raises NoAnswer."""
        nonce = secrets.token_hex(16)
        output = self._transport.run(
            target,
            worker_script(name, [f"nonce={nonce}", *call], self._paths),
            connect_timeout=self._connect_timeout,
            timeout=self._timeout + patience,
            limit=_ROOM + room,
            first_contact=first_contact,
        )
        if output.status != 0:
            raise _failed(output)
        return parse_frame(output.stdout, nonce)


def _prepare_line(request: LaunchRequest) -> str:
    texts = (command_text(request), environment_text(request), setup_text(request), settings_text(request))
    words = [parse_token(request.token), str(int(request.exclusive)), *map(quote, texts)]
    return f"prepare {' '.join(words)}"


def _go_lines(tokens: Sequence[Token]) -> list[str]:
    return [f"go {parse_token(token)}" for token in tokens]


def _unique(tokens: Sequence[Token]) -> list[Token]:
    return [parse_token(token) for token in dict.fromkeys(tokens)]


def _failed(output: Output) -> NoAnswer:
    """The script did not come to its end."""
    said = output.stderr.decode("utf-8", "replace").strip().splitlines()
    words = "".join(char if char.isprintable() else "?" for char in said[-1][:200]) if said else "no message"
    hint = (
        "the login shell there must be able to run: exec /bin/sh -s" if output.status in (1, 126, 127) else ""
    )
    return broken(f"the call ended with status {output.status}: {words}", hint=hint)
