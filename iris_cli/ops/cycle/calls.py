"""Calls to workers: one call per worker at a time, plus workspace transfers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from iris_cli.core import AttemptId, Cluster, Token, Worker, WorkerId
from iris_cli.core.messages.observations import Silence, SilenceKind
from iris_cli.errors import IrisError
from iris_cli.ops.cycle import observe
from iris_cli.ops.cycle.answers import Seen
from iris_cli.ops.cycle.environment import (
    array_variables,
    coordinator_port,
    environment,
    line_of,
    listens,
    place_of,
)
from iris_cli.ops.cycle.observe import Answer, Known, Question, known_of
from iris_cli.ops.cycle.requests import Key, LogReading
from iris_cli.ops.progress import Far
from iris_cli.ops.secret_values import secret_values
from iris_cli.ops.session import Session

if TYPE_CHECKING:
    from iris_cli.remote.fan_out import FanOut
    from iris_cli.remote.launch_request import LaunchRequest


class Call(Struct, frozen=True, kw_only=True):
    """One call of the worker protocol, with the worker's known state at the call.

    `question` is set if the call probes or polls; `starts` are the attempts that it prepares or starts,
    `goes` the prepared attempts that it tells to start, `reads` the pieces of logs that it reads for tasks. A
    call that `ships` a workspace (by hash) or `fetches` one for a request may be slow; other calls to the
    worker don't wait for it.
    """

    known: Known
    act: Callable[[], Seen]
    question: Question | None = None
    starts: tuple[AttemptId, ...] = ()
    goes: tuple[Token, ...] = ()
    reads: tuple[LogReading, ...] = ()
    ships: str = ""
    fetches: Key | None = None

    @property
    def launching(self) -> tuple[AttemptId, ...]:
        """Attempts that the call prepares or starts."""
        return (*self.starts, *(self.known.attempts[token] for token in self.goes))

    @property
    def aside(self) -> str:
        """Empty for calls that a worker takes one at a time; for transfers their hash or request key."""
        return self.ships or " ".join(self.fetches or ())

    @property
    def worker(self) -> WorkerId:
        return self.known.worker


Returned = tuple[Call, Answer]
Enough = Callable[[], bool]
"""Predicate that is True once the caller needs no more answers."""

_FEW = 3
"""Most workers named in a progress line."""


class Calls:
    """Calls of one invocation. Calls are sent only while there is room, so a deadline starts at once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._fan_out: FanOut[Returned] | None = None
        self._under_way: dict[tuple[WorkerId, str], Call] = {}
        self._answered = 0  # since the last idle moment

    def __len__(self) -> int:
        return len(self._under_way)

    @property
    def full(self) -> bool:
        """True if another call would have to wait for a thread."""
        return len(self._under_way) >= max(self._session.limits.max_dispatch_parallelism, 1)

    def busy(self, worker: WorkerId) -> bool:
        """Return True if a call to this worker is under way, transfers not counted."""
        return (worker, "") in self._under_way

    def under_way(self) -> list[Call]:
        """Return the calls without an answer."""
        return list(self._under_way.values())

    @property
    def asked(self) -> set[WorkerId]:
        """Workers with a question under way."""
        return {call.worker for call in self._under_way.values() if call.question}

    @property
    def occupied(self) -> set[WorkerId]:
        """Workers with a call under way, transfers not counted."""
        return {call.worker for call in self._under_way.values() if not call.aside}

    @property
    def working(self) -> bool:
        """True if a call other than a question is under way."""
        return any(call.question is None for call in self._under_way.values())

    @property
    def listening(self) -> bool:
        """True if a call other than a launch or a transfer is under way."""
        return any(not (call.launching or call.aside) for call in self._under_way.values())

    def send(self, call: Call) -> None:
        """Send a call to a worker that isn't busy. The caller checks `full` first."""
        if self._fan_out is None:
            self._fan_out = self._session.make_fan_out(self._session.limits.max_dispatch_parallelism)
        self._answered = self._answered if self._under_way else 0
        self._under_way[call.worker, call.aside] = call
        self._fan_out.submit(lambda: (call, self._carry_out(call)))

    def take(self, patience: float | None = None) -> list[Returned]:
        """Return the finished calls, after waiting up to `patience` seconds for one; without limit if None."""
        if self._fan_out is None:
            return []
        with self._session.progress(self._how_far):
            returned = self._fan_out.take(patience)
        for call, _ in returned:
            del self._under_way[call.worker, call.aside]
        self._answered += len(returned)
        return returned

    def _how_far(self) -> Far:
        """Return the progress of all calls except workspace shipments, which report their own."""
        calls = [call for call in self.under_way() if not call.ships]
        if len(calls) <= _FEW:
            what = f"waiting for {', '.join(dict.fromkeys(call.worker for call in calls))}" if calls else ""
        else:
            what = "starting" if any(call.starts or call.goes for call in calls) else "polling workers"
        return what, self._answered, self._answered + len(calls), "answer"

    def _carry_out(self, call: Call) -> Answer:
        """Carry out a call in its own thread. An internal error counts as a local Silence, so other calls continue."""
        asked_at = self._session.clock.now()
        try:
            return observe.heard(self._session, call.known, asked_at, call.act(), call.launching)
        except Exception as error:
            detail = f"internal error: {type(error).__name__}: {error}"
            seen = Silence(worker=call.worker, kind=SilenceKind.LOCAL, step="call", detail=detail)
            return observe.heard(self._session, call.known, asked_at, seen, call.launching)

    def close(self) -> list[Call]:
        """Stop waiting. Return the calls under way, which may still take effect on their workers."""
        if self._fan_out is not None:
            self._fan_out.close()
        self._fan_out = None
        left = self.under_way()
        self._under_way.clear()
        return left


def never() -> bool:
    """Return False: wait for all answers."""
    return False


def not_sent(worker: WorkerId, step: str, error: IrisError) -> Silence:
    """Return a Silence for a local failure before anything was sent: it is no evidence against the worker."""
    return Silence(
        worker=worker, kind=SilenceKind.LOCAL, step=step, detail=error.message, hint=error.hint, sent=False
    )


def launch_request(session: Session, cluster: Cluster, attempt_id: AttemptId) -> LaunchRequest:
    """Return the launch request of an attempt. Raises MissingSecretError, or ValueError for text no shell accepts."""
    from iris_cli.remote.launch_request import LaunchRequest, command_text, environment_text

    place = place_of(cluster, attempt_id)
    secrets = secret_values(place.job)
    line = line_of(session.state, place.job, place.index)
    host = session.hosts.get(place.worker.id)
    default_env = host.env if host is not None else session.config.defaults.env
    request = LaunchRequest(
        token=place.attempt.token,
        argv=place.job.command,
        env={**environment(place, default_env, secrets), **array_variables(place, line)},
        workspace=place.job.workspace.hash if place.job.workspace is not None else "",
        setup=place.job.setup,
        setup_timeout=place.job.setup_timeout,
        timeout=place.job.timeout,
        signal=place.job.signal,
        lease=place.job.lease,
        grace=place.job.grace,
        memory=place.job.resources.memory if place.job.memory_limit else 0,
        exclusive=place.on_tpu,
        ports=(*((coordinator_port(place),) if listens(place) else ()), *place.attempt.ports),
        device_wait=session.limits.device_wait,
        image=place.job.image,
        gpus=bool(place.attempt.gpus),
    )
    command_text(request), environment_text(request)
    return request


def prepare_call(
    session: Session,
    cluster: Cluster,
    worker: Worker,
    requests: Mapping[AttemptId, LaunchRequest],
    *,
    go: bool,
) -> Call:
    """Return the call that prepares attempts, and with `go` starts them."""
    act = partial(
        session.runner.prepare,
        session.target(worker),
        list(requests.values()),
        boot_id=worker.boot_id,
        incarnation=worker.incarnation,
        go=go,
    )
    return Call(known=known_of(cluster, worker.id), act=act, starts=tuple(requests))


def go_call(session: Session, cluster: Cluster, worker: Worker, tokens: Sequence[Token]) -> Call:
    """Return the call that starts prepared attempts; a worker in another boot or incarnation refuses it."""
    act = partial(
        session.runner.go,
        session.target(worker),
        tokens,
        boot_id=worker.boot_id,
        incarnation=worker.incarnation,
    )
    return Call(known=known_of(cluster, worker.id), act=act, goes=tuple(tokens))
