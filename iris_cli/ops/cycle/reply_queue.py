"""Queues of requests of tasks: queued answers, waits for the end of a job, log reads and workspace fetches."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING

from msgspec import structs

from iris_cli.core import Cluster, Token, Worker, WorkerId
from iris_cli.core.messages import requests as messages
from iris_cli.core.messages.observations import Silence, WorkerReport
from iris_cli.errors import IrisError, UnreachableError
from iris_cli.ops.cycle import calls, observe, polls, transfers
from iris_cli.ops.cycle.answers import LogChunks, WorkspaceFetch
from iris_cli.ops.cycle.requests import Key, LogReading, Outcome, TaskRequest
from iris_cli.ops.session import Session

if TYPE_CHECKING:
    from iris_cli.remote.output_calls import LogChunk

MAX_POLLS = 64
"""Maximum number of polls of a worker for task requests in one cycle. A poll returns at most 16 requests of an attempt,
and a job may submit 1,000 children."""
MAX_READS = 8  # maximum number of log chunks that one call reads
_MAX_BYTES = 256 << 10  # bytes of answers in one call


class ReplyQueue:
    """Requests of tasks whose answers are not delivered yet. After a crash, iris reads them from the workers again."""

    def __init__(self) -> None:
        self.to_answer: dict[WorkerId, dict[Key, bytes]] = {}  # answers, as JSON
        self.to_read: dict[WorkerId, dict[Key, LogReading]] = {}
        self._waits: dict[Key, TaskRequest] = {}
        self._reading: set[Key] = set()
        self._to_fetch: dict[Key, TaskRequest] = {}
        self._fetching: dict[Key, TaskRequest] = {}
        self._polls: Counter[WorkerId] = Counter()
        self._new_waits: Counter[Token] = Counter()

    def begin(self) -> None:
        """Begin a new cycle: reset the number of polls of each worker, and of new waits of each attempt."""
        self._polls.clear()
        self._new_waits.clear()

    def mark_deferred(self, answer: observe.WorkerAnswer) -> observe.WorkerAnswer:
        """Return the answer with `deferred` set: attempts whose end is recorded only after their open requests."""
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
        for outcome in outcomes:
            self._queue_answer(cluster, outcome.request, partial(self._answer_or_queue, cluster, outcome))

    def queue_ended_waits(self, cluster: Cluster) -> None:
        """Queue the answers to requests that wait for jobs that have ended or do not exist."""
        for key, request in list(self._waits.items()):
            assert isinstance(request.request, messages.Wait)
            job = cluster.jobs.get(request.request.job)
            if job is None or job.end is not None or _worker_of(cluster, request) is None:
                del self._waits[key]
                self._queue_answer(cluster, request, partial(_answer_read_only, cluster, request))

    def _answer_or_queue(self, cluster: Cluster, outcome: Outcome) -> messages.Answer | None:
        """Return the answer, or None after queueing a request that must wait for a job, a workspace or a log read."""
        request, answer = outcome.request, outcome.result
        if isinstance(answer, messages.Wait):
            messages.check_no_deadlock(request.attempt.task.job, answer.job)
            status = _answer_read_only(cluster, request)
            if cluster.jobs[answer.job].end is not None:
                return status
            self._queue_wait(request)
            return None
        if isinstance(answer, messages.Submit):
            self._to_fetch[request.key] = request
            return None
        if isinstance(answer, messages.Logs):
            from iris_cli.ops.cycle.replies import log_location

            worker, token = log_location(cluster, request.attempt, answer)
            self.to_read.setdefault(worker, {})[request.key] = LogReading(request, token, answer)
            return None
        return answer if isinstance(answer, messages.Refusal | dict) else _answer_read_only(cluster, request)

    def _queue_wait(self, request: TaskRequest) -> None:
        """Queue a request that waits for the end of a job. Raises IrisError if its attempt has too many new waits."""
        if self._new_waits[request.token] >= messages.MAX_WAITS:
            raise IrisError(f"{request.attempt} is already waiting for {messages.MAX_WAITS} jobs")
        self._new_waits[request.token] += 1
        waits = [key for key in self._waits if key[0] == request.token]
        if len(waits) >= messages.MAX_WAITS:
            # Its program has probably stopped waiting. Otherwise the next poll reports the request again.
            del self._waits[waits[0]]
        self._waits[request.key] = request

    def _queue_answer(
        self, cluster: Cluster, request: TaskRequest, answer_of: Callable[[], messages.Answer | None]
    ) -> None:
        """Queue the answer that `answer_of` returns. It returns None if the request must wait.

        An ended attempt gets no answer.
        """
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

    def call_to_deliver(
        self, session: Session, cluster: Cluster, worker: Worker, queued: Mapping[Key, bytes]
    ) -> calls.Call | None:
        """Return a call that delivers queued answers to a worker and polls it; None if all answers are obsolete.

        The call delivers about _MAX_BYTES at most. Further answers stay queued.
        """
        context = observe.call_context(cluster, worker.id)
        chosen, bytes_left = [], _MAX_BYTES
        for (token, request), text in queued.items():
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
            open_requests=self.open_requests(context.attempts),
        )
        return calls.Call(context=context, act=act)

    def polls_due(self, answers: Iterable[observe.WorkerAnswer]) -> dict[WorkerId, polls.Poll]:
        """Return a poll for each worker that has more requests, or a request whose workspace was fetched."""
        return {
            each.context.worker: polls.Poll(each.context.worker, probe=False)
            for each in answers
            if self._needs_poll(each) and each.context.worker not in self.to_answer
        }

    def _needs_poll(self, answer: observe.WorkerAnswer) -> bool:
        observation = answer.observation
        if isinstance(observation, WorkerReport):
            return self.may_poll(observation.worker) and not answer.deferred.isdisjoint(observation.asking)
        return isinstance(observation, WorkspaceFetch) and not observation.problem

    def calls_to_fetch(self, session: Session, cluster: Cluster) -> Iterator[calls.Call]:
        """Yield calls that fetch workspaces for child jobs, at most MAX_FETCHES at a time and one per worker."""
        busy = {_worker_of(cluster, request) for request in self._fetching.values()}
        for key, request in list(self._to_fetch.items()):
            if len(self._fetching) >= transfers.MAX_FETCHES:
                return
            name = _worker_of(cluster, request)
            if name in busy and name is not None:
                continue
            busy.add(name)
            del self._to_fetch[key]
            worker = cluster.workers.get(name) if name is not None else None
            wanted = request.request.job.workspace if isinstance(request.request, messages.Submit) else None
            if worker is None or wanted is None:
                continue  # the requesting attempt has ended
            self._fetching[key] = request
            act = partial(transfers.fetch, session, worker, request.token, wanted)
            yield calls.Call(context=observe.call_context(cluster, worker.id), act=act, fetches=key)

    def call_to_read(
        self, session: Session, cluster: Cluster, worker: Worker, queued: Mapping[Key, LogReading]
    ) -> calls.Call:
        """Return a call that reads logs for tasks. Reads beyond MAX_READS stay queued."""
        all_readings = tuple(queued.values())
        readings, later = all_readings[:MAX_READS], all_readings[MAX_READS:]
        if later:
            self.to_read[worker.id] = {each.request.key: each for each in later}
        self._reading.update(each.request.key for each in readings)
        act = partial(_read_logs, session, worker, readings)
        return calls.Call(context=observe.call_context(cluster, worker.id), act=act, reads=readings)

    def finish_call(self, cluster: Cluster, call: calls.Call, observation: object) -> None:
        """Queue answers to the requests for which the call read logs or failed to fetch a workspace.

        After a successful fetch, the next poll reads the request again.
        """
        if call.fetches is not None:
            request = self._fetching.pop(call.fetches)
            if isinstance(observation, WorkspaceFetch) and observation.problem:
                refusal = messages.refusal_of(IrisError(observation.problem))
                self._queue_answer(cluster, request, lambda: refusal)
        chunks = observation.chunks if isinstance(observation, LogChunks) else ()
        why = observation.words("its worker") if isinstance(observation, Silence) else "no answer"
        for reading, chunk in zip_longest(call.reads, chunks):
            self._reading.discard(reading.request.key)
            self._queue_answer(cluster, reading.request, partial(_log_answer, reading, chunk, why))

    def refuse_readings(self, cluster: Cluster, worker: WorkerId, why: str) -> None:
        for reading in self.to_read.pop(worker, {}).values():
            self._queue_answer(cluster, reading.request, partial(_log_answer, reading, None, why))


def _read_logs(session: Session, worker: Worker, readings: Sequence[LogReading]) -> LogChunks | Silence:
    """Read chunks of logs from one worker, in order. No lock is held."""
    from iris_cli.remote.output_calls import LogPiece

    wanted = [
        LogPiece(token=token, stream=logs.stream, offset=logs.offset, limit=logs.limit)
        for token, logs in ((each.token, each.wanted) for each in readings)
    ]
    chunks = session.runner.pieces(session.target(worker), wanted)
    if isinstance(chunks, Silence):
        return chunks
    return LogChunks(worker=worker.id, boot_id=worker.boot_id, incarnation=worker.incarnation, chunks=chunks)


def _log_answer(reading: LogReading, chunk: "LogChunk | None", why: str) -> messages.Answer:
    if chunk is None:
        return messages.refusal_of(UnreachableError(f"can't read the logs of {reading.wanted.task}: {why}"))
    from base64 import b64encode

    return {"offset": chunk.offset, "size": chunk.size, "data": b64encode(chunk.data).decode("ascii")}


def _answer_read_only(cluster: Cluster, request: TaskRequest) -> messages.Answer:
    from iris_cli.ops.cycle.replies import reply

    return reply(cluster, request.attempt, request.request)  # type: ignore[arg-type]  # only read-only kinds get here


def _worker_of(cluster: Cluster, request: TaskRequest) -> WorkerId | None:
    """Return the worker of the requesting attempt; None if the attempt is no longer live."""
    attempt = cluster.find_attempt(request.attempt, request.token)
    return attempt.worker if attempt is not None and attempt.live else None
