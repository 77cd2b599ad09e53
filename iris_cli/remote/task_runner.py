"""Launch, watch and stop attempts on a worker: one script, one answer for each call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from iris_cli.core.ids import RequestId, Token, parse_request_id, parse_token
from iris_cli.core.messages.observations import (
    Holder,
    ProbeReport,
    ReapReport,
    Silence,
    UnwedgeReport,
    UsageReport,
    WorkerReport,
)
from iris_cli.randomness import SYSTEM_RANDOMNESS
from iris_cli.remote.answers import (
    probe_report,
    reap_report,
    unwedge_report,
    usage_report,
    worker_report,
)
from iris_cli.remote.inside.rendering import task_program
from iris_cli.remote.launch_request import (
    LaunchRequest,
    Shipment,
    command_text,
    environment_text,
    hundredths,
    settings_text,
    setup_text,
)
from iris_cli.remote.log_pieces import LONGEST_PIECE, LogChunk, LogPiece, log_chunks, piece_line, room_for
from iris_cli.remote.output_calls import CacheCalls
from iris_cli.remote.transport import Payload, Target, time_to_arrive
from iris_cli.remote.worker_calls import OperatorCalls, StackCalls, unique
from iris_cli.remote.worker_script import quote

__all__ = ["LaunchRequest", "LogChunk", "LogPiece", "Shipment", "TaskRunner"]

_ROOM_FOR_TOKENS = 1 << 20
_ROOM_FOR_REQUESTS = 640 << 10  # the library says when to stop: 256 KiB and one request, in base64
_REAP_PATIENCE = 2.0  # longer than it waits for the files to go
_PROBE_PATIENCE = 5.0  # a probe asks the metadata server, too
_USAGE_PATIENCE = 30.0  # every file is looked at, maybe on a cold disk
_SHIP_PATIENCE = 25.0  # what is received is checked, extracted, and written to disk
_UNPACKED_PER_SECOND = 5e6  # bytes, on a slow disk
_UNWEDGE_PATIENCE = 10.0  # every process is looked into, and every attempt


Held = tuple[Token, RequestId]
"""A request that is known, and waits for what it is to be answered with."""

_BOOT_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class TaskRunner(OperatorCalls, CacheCalls, StackCalls):
    """The calls of the worker protocol. Safe to use from many threads.

    Every call returns either a whole answer or a Silence, which tells nothing of what happened there. All of
    them may be repeated at will. What can't be sent at all is a ValueError.
    """

    def probe(
        self, target: Target, *, first_contact: bool = False, make: bool = True
    ) -> ProbeReport | Silence:
        """Find out what it is. `first_contact`: take its key. Unless it is to `make` its directory, with the program of
        its tasks, nothing is made there, and who was never probed has no incarnation to tell."""
        call = [
            "cautions=",
            f"program={quote(task_program())}" if make else "",
            self.open_line(target, "probe" if make else "survey"),
            "begin_frame; tell_probe",
            "IFS='\n'",
            'for each in $cautions; do unset IFS; named warning "$each"; done',
            "end_frame",
        ]
        return self.ask(
            target,
            "probe",
            call,
            partial(probe_report, worker=target.worker),
            room=_ROOM_FOR_TOKENS,
            patience=_PROBE_PATIENCE,
            first_contact=first_contact,
        )

    def prepare(
        self, target: Target, requests: Sequence[LaunchRequest], *, boot_id: str, incarnation: str, go: bool
    ) -> WorkerReport | Silence:
        """Get attempts ready on that host since that boot; with `go` start those that need no set-up at once.

        Another host, or the same one after a reboot, does nothing and answers without any attempts. Where a workspace
        is lacking (which the answer says) nothing is done for those who need it: see `ship`.
        """
        tokens = [request.token for request in requests]
        # Polls and probes tell the time: on a worker it costs a process.
        steps = ["untimed=1", *(prepare_line(request) for request in requests)]
        if go:
            steps += go_lines(tokens)
        workspaces = list(dict.fromkeys(request.workspace for request in requests if request.workspace))
        name = "prepare_with" if any(each.workspace or each.setup for each in requests) else "prepare"
        return self._launch(target, name, steps, tokens, boot_id, incarnation, workspaces)

    def ship(
        self,
        target: Target,
        workspace: Shipment,
        tokens: Sequence[Token],
        *,
        boot_id: str,
        incarnation: str,
    ) -> WorkerReport | Silence:
        """Bring a packed workspace there, for attempts that wait for it; not sent if it is there by now.

        If that worker can't have it these attempts end as NOSTART, `disk` or `workspace`, and their log says why.
        Else the answer is `lacking` it only where another call is under way with it. Cut off anywhere, nothing is
        left but what the next one removes. Refused as `prepare` is.
        """
        mark = f"IRIS1 {SYSTEM_RANDOMNESS.hexadecimal(16)} READY"
        figures = f"{workspace.size} {workspace.limit} {workspace.packed_size}"
        steps = [f"ship {workspace.hash} {figures} {quote(mark)} {' '.join(unique(tokens))}"]
        payload = Payload(mark=mark.encode(), size=workspace.packed_size, chunks=workspace.chunks)
        patience = _SHIP_PATIENCE + workspace.size / _UNPACKED_PER_SECOND
        patience += time_to_arrive(workspace.packed_size)
        call = partial(self._launch, target, "ship", steps, tokens, boot_id, incarnation)
        return call([workspace.hash], payload=payload, patience=patience)

    def go(
        self, target: Target, tokens: Sequence[Token], *, boot_id: str, incarnation: str
    ) -> WorkerReport | Silence:
        """Start attempts that are prepared; of all others just say how they are. Refused as `prepare` is."""
        return self._launch(target, "go", go_lines(tokens), tokens, boot_id, incarnation)

    def poll(
        self, target: Target, tokens: Sequence[Token], *, renew: bool = True, held: Sequence[Held] = ()
    ) -> WorkerReport | Silence:
        """How these attempts are, and what they ask for, in one round trip.

        Changes nothing but what `renew` does to their leases; a poll without an answer may have renewed them too. The
        requests in `held` are known, and are not told again.
        """
        return self._report(target, "poll", ["renewing=1"] if renew else [], tokens, tokens, held)

    def answer(
        self,
        target: Target,
        answers: Sequence[tuple[Token, RequestId, bytes]],
        tokens: Sequence[Token],
        *,
        telling: bool = True,
        held: Sequence[Held] = (),
    ) -> WorkerReport | Silence:
        """Give attempts the answers to requests of theirs, which go by that; then how all of them are, as `poll`.

        Whatever ends this call: what wasn't answered is told again, and may be answered again. Not `telling`: what they
        ask for now is for a later poll.
        """
        steps = [answer_line(*each) for each in answers]
        return self._report(target, "answer", steps, tokens, tokens if telling else (), held)

    def stop(self, target: Target, stops: Sequence[tuple[Token, float]]) -> WorkerReport | Silence:
        """The fence: none of these attempts (each with its grace in seconds) runs or will ever start.

        That is so once the answer, or a later poll, says STOPPED, or how the attempt ended by itself.
        """
        tokens = unique([token for token, _ in stops])
        steps = [
            f"trap 'stop_alone {' '.join(tokens)}' EXIT",
            'make_root && cd "$root/a" && missing=',
            'if [ -z "$missing" ]; then',
            *(f"stop {token} {hundredths(grace)}" for token, grace in dict(stops).items()),
            f"await_stops {' '.join(tokens)}",
            "fi",
        ]
        return self._report(target, "stop", steps, tokens)

    def unwedge(
        self,
        target: Target,
        *,
        keep: Sequence[Token],
        known: Sequence[Token] = (),
        clear: Sequence[Holder | Token] = (),
        grace: float = 30.0,
    ) -> UnwedgeReport | Silence:
        """Who holds the chips there, and which attempts are there that are not in `keep`.

        `keep` are the attempts of this worker that live by the log as it is *now*: neither they nor their processes
        are touched, or reported as strangers. `known` are those that have ended by the log: reported only if they
        have not ended there. With the operator's consent `clear` names processes and attempts of an earlier report,
        and exactly these are stopped: SIGTERM, after `grace` seconds SIGKILL, by a process of its own there, so that
        losing this call changes nothing. To see how that goes, ask again without `clear`: a process has gone when
        it isn't among the holders, an attempt when it isn't among the attempts. Raises ValueError if `clear` names
        what is to be kept.
        """
        kept = unique(keep)
        holders = [each for each in clear if isinstance(each, Holder)]
        tokens = unique([each for each in clear if not isinstance(each, Holder)])
        owned = {*tokens, *(each.token for each in holders if each.token)}.intersection(kept)
        if owned:
            raise ValueError(f"{min(owned)} is an attempt that is to be kept")
        words: dict[str, Sequence[str]] = {
            "keep": kept,
            "known": unique(known),
            "evicted": [process_word(each) for each in holders],
            "cleared": tokens,
        }
        call = [self.open_line(target), *(f"{name}={quote(' '.join(said))}" for name, said in words.items())]
        call += [f"clear {hundredths(grace)}"] if clear else []
        call += ["begin_frame", "tell_holders", "tell_strangers", "end_frame"]
        read = partial(unwedge_report, worker=target.worker, keep=kept, cleared=tokens)
        return self.ask(target, "unwedge", call, read, room=_ROOM_FOR_TOKENS, patience=_UNWEDGE_PATIENCE)

    def reap(self, target: Target, tokens: Sequence[Token]) -> ReapReport | Silence:
        """Remove the files of attempts that have ended; of those that live nothing is touched.

        Their tokens stay, and how they ended: none of them can ever start. The answer names those of which nothing
        else is left. A large one takes longer than this call, which may be repeated.
        """
        tokens = unique(tokens)
        words = " ".join(tokens)
        call = [
            self.open_line(target),
            f"reap_all {words}",
            "begin_frame",
            f"tell_reaped {words}",
            "end_frame",
        ]
        read = partial(reap_report, worker=target.worker, tokens=tokens)
        return self.ask(target, "reap", call, read, room=64 * len(tokens), patience=_REAP_PATIENCE)

    def usage(self, target: Target, tokens: Sequence[Token]) -> UsageReport | Silence:
        """How much room the files of these attempts take there: what `reap` would free. Changes nothing."""
        tokens = unique(tokens)
        call = [self.open_line(target), "begin_frame", f"tell_usage {' '.join(tokens)}", "end_frame"]
        read = partial(usage_report, worker=target.worker, tokens=tokens)
        return self.ask(target, "usage", call, read, room=64 * len(tokens), patience=_USAGE_PATIENCE)

    def logs(
        self, target: Target, token: Token, *, stream: str, offset: int, limit: int
    ) -> LogChunk | Silence:
        """At most `limit` bytes of one output file from `offset` on; a negative one counts from the end."""
        piece = LogPiece(token=token, stream=stream, offset=offset, limit=limit)
        answer = self.pieces(target, [piece])
        return answer if isinstance(answer, Silence) else answer[0]

    def pieces(self, target: Target, wanted: Sequence[LogPiece]) -> tuple[LogChunk, ...] | Silence:
        """These pieces of output files, in the same order, in one round trip. Each at most LONGEST_PIECE bytes."""
        wanted = [replace(each, limit=max(0, min(each.limit, LONGEST_PIECE))) for each in wanted]
        call = [self.open_line(target), "begin_frame", *map(piece_line, wanted), "end_frame"]
        return self.ask(target, "logs", call, partial(log_chunks, pieces=wanted), room=room_for(wanted))

    def _launch(
        self,
        target: Target,
        name: str,
        steps: Sequence[str],
        tokens: Sequence[Token],
        boot_id: str,
        incarnation: str,
        workspaces: Sequence[str] = (),
        payload: Payload | None = None,
        patience: float = 0.0,
    ) -> WorkerReport | Silence:
        """A call that is only for that host since that boot; it tells which of the workspaces are lacking."""
        tokens = unique(tokens)
        call = [
            "session_mask",
            self.open_line(target),
            f"if expect {quote(boot_id)} {quote(incarnation)}; then",
            *steps,
            "await_starts",
            "begin_frame",
            f"report {' '.join(tokens)}",
            *([f"tell_workspaces {' '.join(workspaces)}"] if workspaces else []),
            "else",
            "begin_frame",
            "fi",
            "end_frame",
        ]
        expected = (boot_id, incarnation)
        read = partial(
            worker_report, worker=target.worker, tokens=tokens, expected=expected, workspaces=workspaces
        )
        return self.ask(target, name, call, read, about=len(tokens), payload=payload, patience=patience)

    def _report(
        self,
        target: Target,
        name: str,
        steps: Sequence[str],
        tokens: Sequence[Token],
        telling: Sequence[Token] = (),
        held: Sequence[Held] = (),
    ) -> WorkerReport | Silence:
        """A call for whatever host answers. Those in `telling` say what they ask for, less what is `held`."""
        tokens, telling = unique(tokens), unique(telling)
        call = [
            self.open_line(target),
            *steps,
            f"tell_time {' '.join(tokens)}",
            "begin_frame",
            *(["asking=1"] if telling else []),
            f"report {' '.join(tokens)}",
            *(asking_lines(telling, held) if telling else []),
            "end_frame",
        ]
        read = partial(worker_report, worker=target.worker, tokens=tokens, telling=telling)
        room = _ROOM_FOR_REQUESTS if telling else 0
        return self.ask(target, name, call, read, about=len(tokens), room=room)


def prepare_line(request: LaunchRequest) -> str:
    """Raises ValueError for what no shell could be given."""
    texts = (command_text(request), environment_text(request), setup_text(request), settings_text(request))
    words = [parse_token(request.token), *map(quote, texts)]
    call = f"prepare_with {request.workspace}" if request.workspace else "prepare"
    return f"{call} {' '.join(words)}"


def answer_line(token: Token, request: RequestId, answer: bytes) -> str:
    """One answer for a task; nothing where the directory of attempts is missing."""
    words = parse_token(token), quote(parse_request_id(request)), quote(answer.decode("ascii"))
    return f'[ -n "$missing" ] || answer {" ".join(words)}'


def asking_lines(telling: Sequence[Token], held: Sequence[Held]) -> list[str]:
    """Let these tasks say what they ask for, less what is held."""
    known = " ".join(f"{parse_token(token)}/{parse_request_id(request)}" for token, request in held)
    return [*([f"held='{known}'"] if known else []), f"tell_requests {' '.join(telling)}"]


def go_lines(tokens: Sequence[Token]) -> list[str]:
    """Each of them starts if it is prepared."""
    return [f"go {parse_token(token)}" for token in tokens]


def process_word(holder: Holder) -> str:
    """One process for the library. Raises ValueError for what no worker could have said."""
    if not _BOOT_ID.fullmatch(holder.boot_id) or min(holder.pid, holder.start) < 0:
        raise ValueError(f"{holder!r:.80} is no process of a report")
    return f"{holder.boot_id}:{holder.pid}:{holder.start}"
