"""Calls to workers, and the call that deletes the files of ended attempts.

A worker gets one call at a time. Transfers of workspaces run in addition.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from iris_cli.core import AttemptId, AttemptState, Cluster, Token, Worker, WorkerId
from iris_cli.core.lifecycle import reaping
from iris_cli.core.messages.observations import ReapReport, Silence, SilenceKind
from iris_cli.errors import IrisError
from iris_cli.ops.cycle import answers, observe, polls, requests
from iris_cli.ops.session import ProgressState, Session

if TYPE_CHECKING:
    from iris_cli.remote.fan_out import FanOut


class Call(Struct, frozen=True, kw_only=True):
    """One call of the worker protocol. The function `act` makes the call.

    `context`: the worker's state in the log. `poll`: the poll that the call is part of, or None. `starts`: attempts
    that the call prepares, and may start. `goes`: prepared attempts that the call starts. `reads`: log reads for tasks.
    `ships`: hash of a workspace that the call sends to the worker. `fetches`: request for which the call fetches a
    workspace from the worker. Calls with `ships` or `fetches` are transfers. Transfers may be slow, so other calls to
    the worker don't wait for them.
    """

    context: observe.CallContext
    act: Callable[[], answers.Observation]
    poll: polls.Poll | None = None
    starts: tuple[AttemptId, ...] = ()
    goes: tuple[Token, ...] = ()
    reads: tuple[requests.LogReading, ...] = ()
    ships: str = ""
    fetches: requests.Key | None = None

    @property
    def launching(self) -> tuple[AttemptId, ...]:
        """Attempts that the call prepares or starts."""
        return (*self.starts, *(self.context.attempts[token] for token in self.goes))

    @property
    def transfer(self) -> str:
        """Workspace hash or request of a transfer; '' for other calls. A worker has at most one open call per value."""
        return self.ships or " ".join(self.fetches or ())

    @property
    def worker(self) -> WorkerId:
        return self.context.worker


FinishedCall = tuple[Call, observe.WorkerAnswer]

_RESERVED = 8  # one thread of this number is reserved for healthy workers
_MAX_NAMES = 3  # maximum number of workers named in a progress line


class Calls:
    """Open calls of one invocation. Send a call only if a thread is free, because the call's timeout begins at once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._parallelism = max(session.limits.max_dispatch_parallelism, 1)
        self._fan_out: FanOut[FinishedCall] = session.make_fan_out(self._parallelism)
        self._open: dict[tuple[WorkerId, str], Call] = {}
        self._answered = 0  # calls answered since `_open` was last empty

    def __len__(self) -> int:
        return len(self._open)

    @property
    def is_full(self) -> bool:
        """True if another call would have to wait for a thread."""
        return len(self._open) >= self._parallelism

    @property
    def is_reserved(self) -> bool:
        """True if all free threads are reserved for healthy workers. The others may hang, and use a thread for long."""
        return len(self._open) >= self._parallelism - self._parallelism // _RESERVED

    def is_busy(self, worker: WorkerId) -> bool:
        """Return True if a call to this worker is open. Transfers are not counted."""
        return (worker, "") in self._open

    def open_calls(self) -> list[Call]:
        return list(self._open.values())

    @property
    def polled_workers(self) -> set[WorkerId]:
        """Workers with an open poll or probe."""
        return {call.worker for call in self._open.values() if call.poll}

    @property
    def busy_workers(self) -> set[WorkerId]:
        """Workers with an open call. Transfers are not counted."""
        return {call.worker for call in self._open.values() if not call.transfer}

    @property
    def has_orders(self) -> bool:
        """True if a call is open that belongs to no poll."""
        return any(call.poll is None for call in self._open.values())

    @property
    def awaits_reports(self) -> bool:
        """True if a call is open that is neither a launch nor a transfer."""
        return any(not (call.launching or call.transfer) for call in self._open.values())

    def send(self, call: Call) -> None:
        """Send a call. Its worker must not be busy, and a thread must be free. Raises IrisError."""
        # BEFORE the call counts as open, because it may fail
        self._fan_out.submit(lambda: (call, self._run(call)))
        self._answered = self._answered if self._open else 0
        self._open[call.worker, call.transfer] = call

    def take(self, patience: float | None = None) -> list[FinishedCall]:
        """Return the finished calls. If no call has finished, wait up to `patience` seconds (None: no limit)."""
        with self._session.progress(self._progress):
            returned = self._fan_out.take(patience)
        for call, _ in returned:
            del self._open[call.worker, call.transfer]
        self._answered += len(returned)
        return returned

    def _progress(self) -> ProgressState:
        """Return the progress of all calls except workspace shipments, which report their own progress."""
        calls = [call for call in self.open_calls() if not call.ships]
        if len(calls) <= _MAX_NAMES:
            action = f"waiting for {', '.join(dict.fromkeys(call.worker for call in calls))}" if calls else ""
        else:
            action = "starting" if any(call.starts or call.goes for call in calls) else "polling workers"
        return action, self._answered, self._answered + len(calls), "answer"

    def _run(self, call: Call) -> observe.WorkerAnswer:
        """Run a call in its own thread. An internal error becomes a local Silence, so that other calls continue."""
        session, called_at, launching = self._session, self._session.clock.now(), call.launching
        try:
            return observe.validated_answer(session, call.context, called_at, call.act(), launching)
        except Exception as error:
            detail = f"internal error: {type(error).__name__}: {error}"
            silence = Silence(worker=call.worker, kind=SilenceKind.LOCAL, step="call", detail=detail)
            return observe.validated_answer(session, call.context, called_at, silence, launching)

    def close(self) -> list[Call]:
        """Stop waiting for answers. Return the open calls, which may still take effect on their workers."""
        self._fan_out.close()
        calls = self.open_calls()
        self._open.clear()
        return calls


def local_silence(worker: WorkerId, step: str, error: IrisError) -> Silence:
    """Return the Silence for a failure on this machine before the call was sent. It is not a fault of the worker."""
    return Silence(
        worker=worker, kind=SilenceKind.LOCAL, step=step, detail=error.message, hint=error.hint, sent=False
    )


def _caches_in_use(cluster: Cluster, worker: WorkerId) -> list[str]:
    """Return the workspace hashes and set-up keys that live attempts and ghosts use on the worker."""
    from iris_cli.remote.launch_request import set_up_key

    attempts = [attempt_id for attempt_id, _ in cluster.live_attempts_on(worker)]
    attempts += [ghost.attempt for ghost in cluster.ghosts.get(worker, ())]
    used: dict[str, None] = {}
    for attempt_id in attempts:
        job = cluster.jobs[attempt_id.task.job]
        workspace = job.workspace.hash if job.workspace is not None else ""
        used |= {workspace: None} if workspace else {}
        used |= {set_up_key(workspace, job.setup): None} if job.setup else {}
    return list(used)


def unused_bytes(
    session: Session, cluster: Cluster, worker: Worker, unused_for: float, *, remove: bool
) -> int | Silence:
    """Return the size of the caches that were not used for `unused_for` seconds, except caches in use.

    With `remove`, delete these caches first, and return the size of the caches that could not be deleted.
    """
    report = session.runner.caches.unused(
        session.target(worker),
        boot_id=worker.boot_id,
        incarnation=worker.incarnation,
        keep=_caches_in_use(cluster, worker.id),
        unused_for=unused_for,
        remove=remove,
    )
    return report if isinstance(report, Silence) else report.bytes


def reap_call(session: Session, cluster: Cluster, worker: Worker) -> Call | None:
    """Return the call that deletes the files of attempts that ended long ago, and then unused caches, on the worker.

    Records of ends are kept. Return None if no files are due or an attempt starts or stops.
    """
    due = reaping.attempts_due(cluster, worker, session.clock.now(), session.limits)
    if not due or any(
        attempt.state is not AttemptState.RUNNING for _, attempt in cluster.live_attempts_on(worker.id)
    ):
        return None
    reaped = {cluster.attempt(attempt_id).token: attempt_id for attempt_id in due}
    jobs = (cluster.jobs[attempt_id.task.job] for attempt_id in due)
    had_caches = any(job.workspace is not None or job.setup for job in jobs)

    def reap() -> ReapReport | Silence:
        report = session.runner.reap(session.target(worker), list(reaped))
        if had_caches and not isinstance(report, Silence):
            unused_bytes(session, cluster, worker, session.limits.reap_after, remove=True)
        return report

    return Call(context=structs.replace(observe.call_context(cluster, worker.id), reaped=reaped), act=reap)
