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
from iris_cli.ops.cycle.answers import Fetched, LogPieces
from iris_cli.ops.cycle.calls import Call
from iris_cli.ops.cycle.observe import Answer as Heard
from iris_cli.ops.cycle.observe import Question, known_of
from iris_cli.ops.cycle.requests import Asked, Key, LogReading, Outcome
from iris_cli.ops.cycle.transfers import FETCHED_AT_ONCE, fetch
from iris_cli.ops.session import Session

if TYPE_CHECKING:
    from iris_cli.remote.task_runner import LogChunk

MOST_ROUNDS = 64
"""Most polls of a worker per cycle for further task requests: 16 arrive at a time, and a job may have 1,000
children. The rest waits for the next cycle."""
MOST_WAITS = 64
"""Most jobs whose end one attempt may wait for at a time."""
MOST_READ = 8
"""Most pieces of logs that one call reads."""
_MOST_BYTES = 256 << 10  # of answers in one call


class Mail:
    """Pending replies to tasks. They may be lost: an unanswered request is read again."""

    def __init__(self) -> None:
        self.to_answer: dict[WorkerId, dict[Key, bytes]] = {}
        self.to_read: dict[WorkerId, dict[Key, LogReading]] = {}
        self._waits: dict[Key, Asked] = {}
        self._being_read: set[Key] = set()
        self._to_fetch: dict[Key, Asked] = {}
        self._being_fetched: dict[Key, Asked] = {}
        self._rounds: Counter[WorkerId] = Counter()

    def begin(self) -> None:
        """Begin a new cycle: reset the polls counted per worker."""
        self._rounds.clear()

    def taken(self, answer: Heard) -> Heard:
        """Return an answer with the attempts whose end must wait until their remaining requests are read."""
        seen = answer.seen
        if not isinstance(seen, WorkerReport):
            return answer
        deferred = {token for token, _ in (*self._to_fetch, *self._being_fetched)}
        if seen.requests or seen.asking:
            self._rounds[seen.worker] += 1
            deferred.update(seen.asking if self.has_time(seen.worker) else ())
        return structs.replace(answer, deferred=frozenset(deferred)) if deferred else answer

    def has_time(self, worker: WorkerId) -> bool:
        """Return True if the worker may be polled for more requests in this cycle."""
        return self._rounds[worker] < MOST_ROUNDS

    def held(self, tokens: Iterable[Token]) -> list[Key]:
        """Return the known requests of these attempts that are not answered yet, or whose answer is not sent yet."""
        wanted = set(tokens)
        unread = [key for queue in self.to_read.values() for key in queue]
        untold = [key for queue in self.to_answer.values() for key in queue]
        known = (*self._waits, *self._being_read, *unread, *untold, *self._to_fetch, *self._being_fetched)
        return [key for key in known if key[0] in wanted]

    def take_in(self, cluster: Cluster, outcomes: Iterable[Outcome]) -> None:
        """Queue the answers to requests whose decision is committed."""
        for outcome in outcomes:
            self._tell(cluster, outcome.asked, partial(self._answer_of, cluster, outcome))

    def look(self, cluster: Cluster) -> None:
        """Queue answers for waits whose job has ended or is unknown."""
        for key, asked in list(self._waits.items()):
            assert isinstance(asked.request, messages.Wait)
            job = cluster.jobs.get(asked.request.job)
            if job is None or job.end is not None or _worker_of(cluster, asked) is None:
                del self._waits[key]
                self._tell(cluster, asked, partial(_read_only, cluster, asked))

    def _answer_of(self, cluster: Cluster, outcome: Outcome) -> messages.Answer | None:
        """Return the answer, or None if it has to wait."""
        asked, said = outcome.asked, outcome.said
        if isinstance(said, messages.Wait):
            messages.check_no_deadlock(asked.attempt.task.job, said.job)
            answer = _read_only(cluster, asked)
            if cluster.jobs[said.job].end is not None:
                return answer
            if sum(token == asked.token for token, _ in self._waits) >= MOST_WAITS:
                raise IrisError(f"{asked.attempt} is already waiting for {MOST_WAITS} jobs")
            self._waits[asked.key] = asked
            return None
        if isinstance(said, messages.Submit):
            self._to_fetch[asked.key] = asked
            return None
        if isinstance(said, messages.Logs):
            from iris_cli.ops.cycle.replies import place_of_log

            place = place_of_log(cluster, asked.attempt, said)
            readings = self.to_read.setdefault(place.worker, {})
            readings[asked.key] = LogReading(asked, place.token, said)
            return None
        return said if isinstance(said, messages.Refusal | dict) else _read_only(cluster, asked)

    def _tell(self, cluster: Cluster, asked: Asked, answer_of: Callable[[], messages.Answer | None]) -> None:
        """Queue an answer. Answers to ended attempts are dropped."""
        worker = _worker_of(cluster, asked)
        if worker is None:
            return
        try:
            answer = answer_of()
        except IrisError as error:
            answer = messages.refusal_of(error)
        except Exception as error:  # our own fault must not fail the cycle
            answer = messages.refusal_of(
                IrisError(f"internal error: {type(error).__name__}", hint="please report it")
            )
        if answer is not None:
            from iris_cli.config.request_text import write_answer

            self.to_answer.setdefault(worker, {})[asked.key] = write_answer(answer)

    def answer_call(
        self, session: Session, cluster: Cluster, worker: Worker, waiting: Mapping[Key, bytes]
    ) -> Call | None:
        """Return a call that delivers answers to a worker and polls it; answers beyond the size limit stay queued."""
        known = known_of(cluster, worker.id)
        chosen, room = [], _MOST_BYTES
        for (token, request), text in waiting.items():
            if room <= 0:
                self.to_answer.setdefault(worker.id, {})[token, request] = text
            elif token in known.attempts:
                chosen.append((token, request, text))
                room -= len(text)
        if not chosen:
            return None
        act = partial(
            session.runner.answer,
            session.target(worker),
            chosen,
            list(known.attempts),
            with_requests=self.has_time(worker.id),
            held=self.held(known.attempts),
        )
        return Call(known=known, act=act)

    def questions(self, answers: Iterable[Heard]) -> dict[WorkerId, Question]:
        """Return the workers to poll again: requests remain, or a fetched workspace completes one."""
        return {
            each.known.worker: Question(each.known.worker, probe=False)
            for each in answers
            if self._is_to_ask(each) and each.known.worker not in self.to_answer
        }

    def _is_to_ask(self, answer: Heard) -> bool:
        seen = answer.seen
        if isinstance(seen, WorkerReport):
            return self.has_time(seen.worker) and not answer.deferred.isdisjoint(seen.asking)
        return isinstance(seen, Fetched) and not seen.problem

    # Directories

    def fetch_calls(self, session: Session, cluster: Cluster) -> Iterator[Call]:
        """Yield calls that fetch workspaces for child jobs: at most FETCHED_AT_ONCE, and one per worker."""
        busy = {_worker_of(cluster, asked) for asked in self._being_fetched.values()}
        for key, asked in list(self._to_fetch.items()):
            if len(self._being_fetched) >= FETCHED_AT_ONCE:
                return
            name = _worker_of(cluster, asked)
            if name in busy and name is not None:
                continue
            busy.add(name)
            del self._to_fetch[key]
            worker = cluster.workers.get(name or WorkerId(""))
            wanted = asked.request.job.workspace if isinstance(asked.request, messages.Submit) else None
            if worker is None or wanted is None:
                continue  # the requesting attempt has ended
            self._being_fetched[key] = asked
            act = partial(fetch, session, worker, asked.token, wanted)
            yield Call(known=known_of(cluster, worker.id), act=act, fetches=key)

    def _was_fetched(self, cluster: Cluster, asked: Asked, seen: object) -> None:
        """Refuse the request if the fetch failed. Otherwise the next poll reads the request again."""
        if isinstance(seen, Fetched) and seen.problem:
            self._tell(cluster, asked, lambda: messages.refusal_of(IrisError(seen.problem)))

    # Logs

    def read_call(
        self, session: Session, cluster: Cluster, worker: Worker, waiting: Mapping[Key, LogReading]
    ) -> Call:
        """Return a call that reads logs for tasks; reads beyond MOST_READ stay queued."""
        readings = tuple(waiting.values())
        if readings[MOST_READ:]:
            self.to_read[worker.id] = {each.asked.key: each for each in readings[MOST_READ:]}
        self._being_read.update(each.asked.key for each in readings[:MOST_READ])
        act = partial(_read_logs, session, worker, readings[:MOST_READ])
        return Call(known=known_of(cluster, worker.id), act=act, reads=readings[:MOST_READ])

    def was_read(self, cluster: Cluster, call: Call, seen: object) -> None:
        """Queue answers for the log reads or the fetch of a finished call, successful or not."""
        readings = call.reads
        if call.fetches is not None:
            self._was_fetched(cluster, self._being_fetched.pop(call.fetches), seen)
        pieces: Iterator[LogChunk | None] = iter(seen.pieces if isinstance(seen, LogPieces) else ())
        why = f"{seen.step}: {seen.detail}" if isinstance(seen, Silence) else "no answer"
        for reading in readings:
            self._being_read.discard(reading.asked.key)
            chunk = next(pieces, None)
            self._tell(cluster, reading.asked, partial(_piece, reading, chunk, why))

    def refuse_readings(self, cluster: Cluster, worker: WorkerId, why: str) -> None:
        """Refuse the queued log reads of an unreachable worker."""
        readings = tuple(self.to_read.pop(worker, {}).values())
        for reading in readings:
            self._tell(cluster, reading.asked, partial(_piece, reading, None, why))


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


def _read_only(cluster: Cluster, asked: Asked) -> messages.Answer:
    from iris_cli.ops.cycle.replies import reply

    return reply(cluster, asked.attempt, asked.request)  # type: ignore[arg-type]  # all other kinds were decided


def _worker_of(cluster: Cluster, asked: Asked) -> WorkerId | None:
    """Return the worker of the requesting attempt; None if the attempt is no longer live."""
    task = cluster.tasks.get(asked.attempt.task)
    number = asked.attempt.number
    attempt = task.attempts[number] if task is not None and number < len(task.attempts) else None
    return attempt.worker if attempt is not None and attempt.live and attempt.token == asked.token else None
