"""Replies to requests of tasks: queued answers, waits for the end of a job, log reads and workspace fetches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from iris_cli.core import Cluster, Token, Worker, WorkerId
from iris_cli.core.messages import requests as messages
from iris_cli.core.messages.observations import Silence, WorkerReport
from iris_cli.errors import IrisError, UnreachableError
from iris_cli.ops.cycle.answers import LogPieces, WorkspaceFetch
from iris_cli.ops.cycle.calls import Call
from iris_cli.ops.cycle.observe import Answer as Answer
from iris_cli.ops.cycle.observe import Question, known_of
from iris_cli.ops.cycle.requests import Key, LogReading, Outcome, TaskRequest
from iris_cli.ops.cycle.transfers import MAX_FETCHES, fetch
from iris_cli.ops.session import Session

if TYPE_CHECKING:
    from iris_cli.remote.task_runner import LogChunk

MAX_POLLS = 64
"""Maximum number of polls of a worker for task requests in one cycle: each returns at most 16, and a job may submit
1,000 children."""
MAX_WAITS = 64
"""Maximum number of jobs for whose end one attempt may wait at a time."""
MAX_READS = 8
"""Maximum number of log pieces that one call reads."""
_MAX_BYTES = 256 << 10  # bytes of answers in one call


class ReplyQueue:
    """Requests of tasks without a delivered reply. If the queue is lost, they are read from the workers again."""

    def __init__(self) -> None:
        self.to_answer: dict[WorkerId, dict[Key, bytes]] = {}
        self.to_read: dict[WorkerId, dict[Key, LogReading]] = {}
        self._waits: dict[Key, TaskRequest] = {}
        self._reading: set[Key] = set()
        self._to_fetch: dict[Key, TaskRequest] = {}
        self._fetching: dict[Key, TaskRequest] = {}
        self._polls: Counter[WorkerId] = Counter()

    def begin(self) -> None:
        """Begin a new cycle: reset the number of polls of each worker."""
        self._polls.clear()

    def with_deferred(self, answer: Answer) -> Answer:
        """Return the answer with `deferred` set to the attempts whose ends are recorded after their requests."""
        observation = answer.observation
        if not isinstance(observation, WorkerReport):
            return answer
        deferred = {token for token, _ in (*self._to_fetch, *self._fetching)}
        if observation.requests or observation.asking:
            self._polls[observation.worker] += 1
            deferred.update(observation.asking if self.may_poll(observation.worker) else ())
        return structs.replace(answer, deferred=frozenset(deferred)) if deferred else answer

    def may_poll(self, worker: WorkerId) -> bool:
        """Return True if the worker may be polled again for requests in this cycle."""
        return self._polls[worker] < MAX_POLLS

    def open_requests(self, tokens: Iterable[Token]) -> list[Key]:
        """Return the requests of these attempts that were read and have no delivered answer yet."""
        wanted = set(tokens)
        unread = [key for queue in self.to_read.values() for key in queue]
        unsent = [key for queue in self.to_answer.values() for key in queue]
        keys = (*self._waits, *self._reading, *unread, *unsent, *self._to_fetch, *self._fetching)
        return [key for key in keys if key[0] in wanted]

    def queue_outcomes(self, cluster: Cluster, outcomes: Iterable[Outcome]) -> None:
        """Queue the answers to requests whose outcomes were committed."""
        for outcome in outcomes:
            self._queue_answer(cluster, outcome.request, partial(self._answer_or_queue, cluster, outcome))

    def queue_ended_waits(self, cluster: Cluster) -> None:
        """Answer the requests that wait for jobs that have ended or do not exist."""
        for key, request in list(self._waits.items()):
            assert isinstance(request.request, messages.Wait)
            job = cluster.jobs.get(request.request.job)
            if job is None or job.end is not None or _worker_of(cluster, request) is None:
                del self._waits[key]
                self._queue_answer(cluster, request, partial(_read_only, cluster, request))

    def _answer_or_queue(self, cluster: Cluster, outcome: Outcome) -> messages.Answer | None:
        """Return the answer, or None after queueing a request that must wait for a job, a workspace or a log read."""
        request, answer = outcome.request, outcome.result
        if isinstance(answer, messages.Wait):
            messages.check_no_deadlock(request.attempt.task.job, answer.job)
            reply = _read_only(cluster, request)
            if cluster.jobs[answer.job].end is not None:
                return reply
            if sum(token == request.token for token, _ in self._waits) >= MAX_WAITS:
                raise IrisError(f"{request.attempt} is already waiting for {MAX_WAITS} jobs")
            self._waits[request.key] = request
            return None
        if isinstance(answer, messages.Submit):
            self._to_fetch[request.key] = request
            return None
        if isinstance(answer, messages.Logs):
            from iris_cli.ops.cycle.replies import log_location

            location = log_location(cluster, request.attempt, answer)
            readings = self.to_read.setdefault(location.worker, {})
            readings[request.key] = LogReading(request, location.token, answer)
            return None
        return answer if isinstance(answer, messages.Refusal | dict) else _read_only(cluster, request)

    def _queue_answer(
        self, cluster: Cluster, request: TaskRequest, answer_of: Callable[[], messages.Answer | None]
    ) -> None:
        """Queue the answer that `answer_of` returns. Answers to ended attempts are discarded."""
        worker = _worker_of(cluster, request)
        if worker is None:
            return
        try:
            answer = answer_of()
        except IrisError as error:
            answer = messages.refusal_of(error)
        except Exception as error:  # an internal error must not fail the cycle
            answer = messages.refusal_of(
                IrisError(f"internal error: {type(error).__name__}", hint="please report it")
            )
        if answer is not None:
            from iris_cli.config.request_text import write_answer

            self.to_answer.setdefault(worker, {})[request.key] = write_answer(answer)

    def answer_call(
        self, session: Session, cluster: Cluster, worker: Worker, waiting: Mapping[Key, bytes]
    ) -> Call | None:
        """Return a call that delivers answers to a worker and polls it, or None. More than _MAX_BYTES stay queued."""
        context = known_of(cluster, worker.id)
        chosen, bytes_left = [], _MAX_BYTES
        for (token, request), text in waiting.items():
            if bytes_left <= 0:
                self.to_answer.setdefault(worker.id, {})[token, request] = text
            elif token in context.attempts:
                chosen.append((token, request, text))
                bytes_left -= len(text)
        if not chosen:
            return None
        act = partial(
            session.runner.answer,
            session.target(worker),
            chosen,
            list(context.attempts),
            with_requests=self.may_poll(worker.id),
            held=self.open_requests(context.attempts),
        )
        return Call(context=context, act=act)

    def questions(self, answers: Iterable[Answer]) -> dict[WorkerId, Question]:
        """Return a poll for each worker that has more requests, or a request whose workspace was fetched."""
        return {
            each.context.worker: Question(each.context.worker, probe=False)
            for each in answers
            if self._needs_poll(each) and each.context.worker not in self.to_answer
        }

    def _needs_poll(self, answer: Answer) -> bool:
        observation = answer.observation
        if isinstance(observation, WorkerReport):
            return self.may_poll(observation.worker) and not answer.deferred.isdisjoint(observation.asking)
        return isinstance(observation, WorkspaceFetch) and not observation.problem

    # Workspaces of child jobs

    def fetch_calls(self, session: Session, cluster: Cluster) -> Iterator[Call]:
        """Yield calls that fetch workspaces for child jobs, at most MAX_FETCHES at a time and one per worker."""
        busy = {_worker_of(cluster, request) for request in self._fetching.values()}
        for key, request in list(self._to_fetch.items()):
            if len(self._fetching) >= MAX_FETCHES:
                return
            name = _worker_of(cluster, request)
            if name in busy and name is not None:
                continue
            busy.add(name)
            del self._to_fetch[key]
            worker = cluster.workers.get(name or WorkerId(""))
            wanted = request.request.job.workspace if isinstance(request.request, messages.Submit) else None
            if worker is None or wanted is None:
                continue  # the requesting attempt has ended
            self._fetching[key] = request
            act = partial(fetch, session, worker, request.token, wanted)
            yield Call(context=known_of(cluster, worker.id), act=act, fetches=key)

    def _finish_fetch(self, cluster: Cluster, request: TaskRequest, observation: object) -> None:
        """Refuse the request if the fetch failed. After a successful fetch, the next poll reads the request again."""
        if isinstance(observation, WorkspaceFetch) and observation.problem:
            self._queue_answer(cluster, request, lambda: messages.refusal_of(IrisError(observation.problem)))

    # Logs

    def read_call(
        self, session: Session, cluster: Cluster, worker: Worker, waiting: Mapping[Key, LogReading]
    ) -> Call:
        """Return a call that reads logs for tasks. Reads beyond MAX_READS stay queued."""
        readings = tuple(waiting.values())
        if readings[MAX_READS:]:
            self.to_read[worker.id] = {each.request.key: each for each in readings[MAX_READS:]}
        self._reading.update(each.request.key for each in readings[:MAX_READS])
        act = partial(_read_logs, session, worker, readings[:MAX_READS])
        return Call(context=known_of(cluster, worker.id), act=act, reads=readings[:MAX_READS])

    def finish_call(self, cluster: Cluster, call: Call, observation: object) -> None:
        """Queue answers to the requests for which the call read logs or fetched a workspace."""
        readings = call.reads
        if call.fetches is not None:
            self._finish_fetch(cluster, self._fetching.pop(call.fetches), observation)
        pieces: Iterator[LogChunk | None] = iter(
            observation.pieces if isinstance(observation, LogPieces) else ()
        )
        why = f"{observation.step}: {observation.detail}" if isinstance(observation, Silence) else "no answer"
        for reading in readings:
            self._reading.discard(reading.request.key)
            chunk = next(pieces, None)
            self._queue_answer(cluster, reading.request, partial(_piece, reading, chunk, why))

    def refuse_readings(self, cluster: Cluster, worker: WorkerId, why: str) -> None:
        """Refuse the queued log reads of an unreachable worker."""
        readings = tuple(self.to_read.pop(worker, {}).values())
        for reading in readings:
            self._queue_answer(cluster, reading.request, partial(_piece, reading, None, why))


def _read_logs(session: Session, worker: Worker, readings: Sequence[LogReading]) -> LogPieces | Silence:
    """Read pieces of logs from one worker, in order. No lock is held."""
    target, pieces = session.target(worker), []
    for each in readings:
        piece = each.piece
        chunk = session.runner.logs(
            target, each.token, stream=piece.stream, offset=piece.offset, limit=piece.limit
        )
        if isinstance(chunk, Silence):
            return chunk
        pieces.append(chunk)
    return LogPieces(
        worker=worker.id, boot_id=worker.boot_id, incarnation=worker.incarnation, pieces=tuple(pieces)
    )


def _piece(reading: LogReading, chunk: LogChunk | None, why: str) -> messages.Answer:
    if chunk is None:
        return messages.refusal_of(
            UnreachableError(f"no answer from the worker of {reading.piece.task}: {why}")
        )
    from base64 import b64encode

    return {"offset": chunk.offset, "size": chunk.size, "data": b64encode(chunk.data).decode("ascii")}


def _read_only(cluster: Cluster, request: TaskRequest) -> messages.Answer:
    from iris_cli.ops.cycle.replies import reply

    return reply(cluster, request.attempt, request.request)  # type: ignore[arg-type]  # all other kinds were decided


def _worker_of(cluster: Cluster, request: TaskRequest) -> WorkerId | None:
    """Return the worker of the requesting attempt; None if the attempt is no longer live."""
    task = cluster.tasks.get(request.attempt.task)
    number = request.attempt.number
    attempt = task.attempts[number] if task is not None and number < len(task.attempts) else None
    return attempt.worker if attempt is not None and attempt.live and attempt.token == request.token else None
