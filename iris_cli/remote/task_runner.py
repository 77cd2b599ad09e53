"""Launch, poll and stop attempts on a worker: one script and one answer per call."""

import re
from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from iris_cli.core.ids import RequestId, Token, parse_request_id, parse_token
from iris_cli.core.messages.observations import (
    ChipHolder,
    ProbeReport,
    ReapReport,
    Silence,
    UnwedgeReport,
    UsageReport,
    WorkerReport,
)
from iris_cli.randomness import SYSTEM_RANDOMNESS
from iris_cli.remote.answers import probe_report, reap_report, unwedge_report, usage_report, worker_report
from iris_cli.remote.command_calls import CommandCalls
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
from iris_cli.remote.output_calls import (
    MAX_LOG_PIECE,
    PIECE_ROOM,
    CacheCalls,
    LogChunk,
    LogPiece,
    OutputCalls,
    log_chunks,
    piece_line,
)
from iris_cli.remote.stack_calls import StackCalls
from iris_cli.remote.transport import Payload, Target, time_to_arrive
from iris_cli.remote.worker_calls import WorkerCalls, distinct_tokens
from iris_cli.remote.worker_script import quote

__all__ = ["LaunchRequest", "LogChunk", "LogPiece", "Shipment", "TaskRunner"]

_ROOM_FOR_TOKENS = 1 << 20
_ROOM_FOR_REQUESTS = 640 << 10  # bytes: requests of 256 KiB and one more request, in base64
# Additional seconds for a call:
_REAP_TIME = 2.0  # for the wait of `reap_all`
_PROBE_TIME = 5.0  # for the metadata server
_USAGE_TIME = 30.0  # for a slow disk with many files
_SHIP_TIME = 25.0  # for verifying, extracting and syncing the archive
_UNPACKED_PER_SECOND = 5e6  # bytes, on a slow disk
_UNWEDGE_TIME = 10.0  # for inspecting all processes and attempts


KnownRequest = tuple[Token, RequestId]
"""A request that iris knows, but has not answered yet."""

_BOOT_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class TaskRunner(WorkerCalls):
    """The calls of the worker protocol. Thread-safe.

    A call returns a complete answer or a Silence. After a Silence the worker may or may not have executed the call. All
    calls except `commands.run` can be repeated. A call raises ValueError for arguments that can't be sent.
    """

    @property
    def commands(self) -> CommandCalls:
        return CommandCalls(self)

    @property
    def stacks(self) -> StackCalls:
        return StackCalls(self)

    @property
    def outputs(self) -> OutputCalls:
        return OutputCalls(self)

    @property
    def caches(self) -> CacheCalls:
        return CacheCalls(self)

    def probe(
        self, target: Target, *, first_contact: bool = False, make: bool = True
    ) -> ProbeReport | Silence:
        """Inspect the worker.

        With `first_contact` the worker's host key is accepted. With `make=False` nothing is created on the worker. A
        worker without a directory reports no incarnation.
        """
        call = [
            "warnings=",
            f"program={quote(task_program())}" if make else "",
            self.open_line(target, "probe" if make else "inspect"),
            "begin_frame; print_probe",
            "IFS='\n'",
            'for each in $warnings; do unset IFS; print_value warning "$each"; done',
            "end_frame",
        ]
        return self.ask(
            target,
            "probe",
            call,
            partial(probe_report, worker=target.worker),
            room=_ROOM_FOR_TOKENS,
            seconds=_PROBE_TIME,
            first_contact=first_contact,
        )

    def prepare(
        self, target: Target, requests: Sequence[LaunchRequest], *, boot_id: str, incarnation: str, go: bool
    ) -> WorkerReport | Silence:
        """Prepare attempts on this host and boot. With `go` also start the attempts that have no set-up command.

        A different host, or the same host after a reboot, does nothing and reports no attempts. If the worker lacks a
        workspace, its report names the workspace, and the attempts that need the workspace are not prepared. Then call
        `ship`, and `prepare` again.
        """
        tokens = [request.token for request in requests]
        # Don't read the worker's clock, which costs a process on the worker. Polls and probes read the clock anyway.
        steps = ["no_clock=1", *(prepare_line(request) for request in requests)]
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
        """Upload a packed workspace for the attempts `tokens`, unless the worker already has the workspace.

        If the worker can't store the workspace, these attempts end as NOSTART (`disk` or `workspace`) and their log
        contains the reason. If another call is uploading the workspace, the report lists it as missing. If the
        connection is lost, the next call removes the incomplete files. Like `prepare`, the call is bound to a host and
        boot.
        """
        mark = f"IRIS1 {SYSTEM_RANDOMNESS.hexadecimal(16)} READY"
        figures = f"{workspace.size} {workspace.limit} {workspace.packed_size}"
        steps = [f"ship {workspace.hash} {figures} {quote(mark)} {' '.join(distinct_tokens(tokens))}"]
        payload = Payload(mark=mark.encode(), size=workspace.packed_size, chunks=workspace.chunks)
        seconds = _SHIP_TIME + workspace.size / _UNPACKED_PER_SECOND
        seconds += time_to_arrive(workspace.packed_size)
        call = partial(self._launch, target, "ship", steps, tokens, boot_id, incarnation)
        return call([workspace.hash], payload=payload, seconds=seconds)

    def go(
        self, target: Target, tokens: Sequence[Token], *, boot_id: str, incarnation: str
    ) -> WorkerReport | Silence:
        """Start the attempts that are prepared, and report all attempts. Bound to a host and boot, like `prepare`."""
        return self._launch(target, "go", go_lines(tokens), tokens, boot_id, incarnation)

    def poll(
        self,
        target: Target,
        tokens: Sequence[Token],
        *,
        renew: bool = True,
        open_requests: Sequence[KnownRequest] = (),
    ) -> WorkerReport | Silence:
        """Report the states and requests of these attempts, except the requests in `open_requests`.

        With `renew` the call renews the attempts' leases, perhaps even if the result is a Silence. The call changes
        nothing else.
        """
        return self._report(
            target, "poll", ["renew_leases=1"] if renew else [], tokens, tokens, open_requests
        )

    def answer(
        self,
        target: Target,
        answers: Sequence[tuple[Token, RequestId, bytes]],
        tokens: Sequence[Token],
        *,
        with_requests: bool = True,
        open_requests: Sequence[KnownRequest] = (),
    ) -> WorkerReport | Silence:
        """Deliver answers to requests of tasks, and delete the answered requests. Then report all attempts like `poll`.

        A request whose answer was not delivered is reported again later. With `with_requests=False` no requests are
        reported.
        """
        steps = [answer_line(*each) for each in answers]
        return self._report(target, "answer", steps, tokens, tokens if with_requests else (), open_requests)

    def stop(self, target: Target, stops: Sequence[tuple[Token, float]]) -> WorkerReport | Silence:
        """Fence these attempts, each with its grace period in seconds, so that none runs or ever starts.

        There is proof that an attempt is fenced when this report or a later poll says that it is STOPPED or has ended
        by itself.
        """
        tokens = distinct_tokens([token for token, _ in stops])
        steps = [
            f"trap 'stop_without_fork {' '.join(tokens)}' EXIT",
            'make_root && cd "$root/a" && root_missing=',
            'if [ -z "$root_missing" ]; then',
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
        clear: Sequence[ChipHolder | Token] = (),
        grace: float = 30.0,
    ) -> UnwedgeReport | Silence:
        """Report the processes that hold the chips, and the attempts that are not in `keep`.

        `keep` are the attempts of this worker that are live in the log now. The call does not stop them, and reports
        them only as the owners of processes. The attempts `known` have ended in the log, and are reported only if they
        have not ended on the worker. `clear` are processes and attempts of an earlier report that the operator wants to
        end: a detached process on the worker sends SIGTERM, and SIGKILL after `grace` seconds. Call again without
        `clear` to see which processes are left. Raises ValueError if `clear` contains an attempt of `keep`.
        """
        kept = distinct_tokens(keep)
        holders = [each for each in clear if isinstance(each, ChipHolder)]
        tokens = distinct_tokens([each for each in clear if not isinstance(each, ChipHolder)])
        owned = {*tokens, *(each.token for each in holders if each.token)}.intersection(kept)
        if owned:
            raise ValueError(f"{min(owned)} is an attempt that is to be kept")
        words: dict[str, Sequence[str]] = {
            "keep": kept,
            "ended_in_log": distinct_tokens(known),
            "processes_to_end": [process_word(each) for each in holders],
            "attempts_to_stop": tokens,
        }
        call = [self.open_line(target), *(f"{name}={quote(' '.join(item))}" for name, item in words.items())]
        call += [f"evict {hundredths(grace)}"] if clear else []
        call += ["begin_frame", "print_holders", "print_unknown", "end_frame"]
        read = partial(unwedge_report, worker=target.worker, keep=kept, cleared=tokens)
        return self.ask(target, "unwedge", call, read, room=_ROOM_FOR_TOKENS, seconds=_UNWEDGE_TIME)

    def reap(self, target: Target, tokens: Sequence[Token]) -> ReapReport | Silence:
        """Delete the files of these attempts, if they have ended.

        The exit records remain, so that no attempt can ever start again. The report names the attempts of which only
        the exit record is left. Deletion may take longer than this call: repeat the call until all are named.
        """
        tokens = distinct_tokens(tokens)
        words = " ".join(tokens)
        call = [
            self.open_line(target),
            f"reap_all {words}",
            "begin_frame",
            f"print_reaped {words}",
            "end_frame",
        ]
        read = partial(reap_report, worker=target.worker, tokens=tokens)
        return self.ask(target, "reap", call, read, room=64 * len(tokens), seconds=_REAP_TIME)

    def usage(self, target: Target, tokens: Sequence[Token]) -> UsageReport | Silence:
        """Report the disk space that `reap` would free for each of these attempts. Changes nothing."""
        tokens = distinct_tokens(tokens)
        call = [self.open_line(target), "begin_frame", f"print_usage {' '.join(tokens)}", "end_frame"]
        read = partial(usage_report, worker=target.worker, tokens=tokens)
        return self.ask(target, "usage", call, read, room=64 * len(tokens), seconds=_USAGE_TIME)

    def pieces(self, target: Target, wanted: Sequence[LogPiece]) -> tuple[LogChunk, ...] | Silence:
        """Fetch pieces of logs in one round trip, each of at most MAX_LOG_PIECE bytes."""
        wanted = [replace(each, limit=max(0, min(each.limit, MAX_LOG_PIECE))) for each in wanted]
        call = [self.open_line(target), "begin_frame", *map(piece_line, wanted), "end_frame"]
        room = sum(2 * each.limit + PIECE_ROOM for each in wanted)
        return self.ask(target, "logs", call, partial(log_chunks, pieces=wanted), room=room)

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
        seconds: float = 0.0,
    ) -> WorkerReport | Silence:
        """Make a call bound to a host and boot. The report lists those of `workspaces` that the worker lacks."""
        tokens = distinct_tokens(tokens)
        call = [
            "session_mask",
            self.open_line(target),
            f"if is_intended_host {quote(boot_id)} {quote(incarnation)}; then",
            *steps,
            "await_starts",
            "begin_frame",
            f"report {' '.join(tokens)}",
            *([f"print_missing_workspaces {' '.join(workspaces)}"] if workspaces else []),
            "else",
            "begin_frame",
            "fi",
            "end_frame",
        ]
        expected = (boot_id, incarnation)
        read = partial(
            worker_report, worker=target.worker, tokens=tokens, expected=expected, workspaces=workspaces
        )
        return self.ask(target, name, call, read, attempts=len(tokens), payload=payload, seconds=seconds)

    def _report(
        self,
        target: Target,
        name: str,
        steps: Sequence[str],
        tokens: Sequence[Token],
        with_requests: Sequence[Token] = (),
        open_requests: Sequence[KnownRequest] = (),
    ) -> WorkerReport | Silence:
        """Make a call that is not bound to a host. Report requests of `with_requests`, except `open_requests`."""
        tokens, with_requests = distinct_tokens(tokens), distinct_tokens(with_requests)
        call = [
            self.open_line(target),
            *steps,
            f"set_no_clock {' '.join(tokens)}",
            "begin_frame",
            *(["skip_requests_left=1"] if with_requests else []),
            f"report {' '.join(tokens)}",
            *(request_lines(with_requests, open_requests) if with_requests else []),
            "end_frame",
        ]
        read = partial(worker_report, worker=target.worker, tokens=tokens, with_requests=with_requests)
        room = _ROOM_FOR_REQUESTS if with_requests else 0
        return self.ask(target, name, call, read, attempts=len(tokens), room=room)


def prepare_line(request: LaunchRequest) -> str:
    """Return the line that prepares an attempt. Raises ValueError for text that a shell can't pass to a program."""
    texts = (command_text(request), environment_text(request), setup_text(request), settings_text(request))
    words = [parse_token(request.token), *map(quote, texts)]
    call = f"prepare_with {request.workspace}" if request.workspace else "prepare"
    return f"{call} {' '.join(words)}"


def answer_line(token: Token, request: RequestId, answer: bytes) -> str:
    """Return the line that delivers an answer. The line does nothing if the worker has no directory of attempts."""
    words = parse_token(token), quote(parse_request_id(request)), quote(answer.decode("ascii"))
    return f'[ -n "$root_missing" ] || answer {" ".join(words)}'


def request_lines(with_requests: Sequence[Token], open_requests: Sequence[KnownRequest]) -> list[str]:
    """Return the lines that report requests of these attempts, except those in `open_requests`."""
    known = " ".join(f"{parse_token(token)}/{parse_request_id(request)}" for token, request in open_requests)
    return [*([f"known_requests='{known}'"] if known else []), f"print_requests {' '.join(with_requests)}"]


def go_lines(tokens: Sequence[Token]) -> list[str]:
    return [f"go {parse_token(token)}" for token in tokens]


def process_word(holder: ChipHolder) -> str:
    """Return a process as a shell word. Raises ValueError if no report can contain the process."""
    if not _BOOT_ID.fullmatch(holder.boot_id) or min(holder.pid, holder.start) < 0:
        raise ValueError(f"{holder!r:.80} is no process of a report")
    return f"{holder.boot_id}:{holder.pid}:{holder.start}"
