"""Requests of running tasks: read before the lock is taken, decided under it together with the worker's report.

The log records a request that changes something with its attempt and id, so reading it again changes nothing. A
read-only request is answered later, from the committed state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from iris_cli.core import AttemptId, JobRequest, Origin, RequestId, Token
from iris_cli.core.events.events import JobSubmitted
from iris_cli.core.evolve import Draft
from iris_cli.core.messages import requests as messages
from iris_cli.core.messages.observations import OutboxFile, WorkerReport
from iris_cli.errors import IrisError, UsageError
from iris_cli.ops.cycle.environment import text_of, with_lines
from iris_cli.ops.session import Session

if TYPE_CHECKING:
    from iris_cli.core.lifecycle.children import Submission

Key = tuple[Token, RequestId]


class Asked(Struct, frozen=True):
    """One request of an attempt, or the error from reading it. `digest` identifies the job to submit."""

    attempt: AttemptId
    token: Token
    id: RequestId
    request: messages.Request | Exception
    digest: str = ""

    @property
    def key(self) -> Key:
        return self.token, self.id


class LogReading(Struct, frozen=True):
    """A task's request for a piece of a log: `token` is the attempt whose log is read, `asked` the request."""

    asked: Asked
    token: Token
    piece: messages.Logs


class Outcome(Struct, frozen=True):
    """Result of a request: its answer, or the request itself if it changes nothing and is answered later."""

    asked: Asked
    said: messages.Answer | messages.Request

    @property
    def waits_for_files(self) -> bool:
        """True if the decision waits until the job's workspace has been fetched."""
        return isinstance(self.said, messages.Submit)


Outcomes = dict[Key, Outcome]


def read(seen: object, attempts: Mapping[Token, AttemptId]) -> tuple[Asked, ...]:
    """Return the requests of known attempts in an answer of their worker."""
    found = seen.requests if isinstance(seen, WorkerReport) else ()
    return tuple(_asked(attempts[each.token], each) for each in found if each.token in attempts)


def _asked(attempt: AttemptId, file: OutboxFile) -> Asked:
    from iris_cli.config.request_reading import read_request  # slow to load, and most tasks send no requests
    from iris_cli.config.request_text import digest_of

    request: messages.Request | Exception
    digest = ""
    try:
        if file.data is None:
            raise UsageError(f"a request takes at most {messages.MOST_BYTES} bytes, not {file.size}")
        request = read_request(file.data)
        digest = digest_of(request.job) if isinstance(request, messages.Submit) else ""
    except Exception as error:  # includes our own faults: the rest of the worker's report must still count
        request = error
    return Asked(attempt, file.token, file.id, request, digest)


def carry_out(session: Session, draft: Draft, asked: Iterable[Asked]) -> Outcomes:
    """Decide the requests in order on the draft. A request that fails is refused without affecting the others."""
    outcomes: Outcomes = {}
    for each in asked:
        kept = len(draft.events)
        said: messages.Answer | messages.Request
        try:
            said = _decide(session, draft, each)
        except IrisError as error:
            if draft.events[kept:]:
                draft.roll_back(kept)
            said = messages.refusal_of(error)
        except Exception as error:
            draft.roll_back(kept)
            session.fault(f"handling a request of {each.attempt}", error)
            said = messages.Refusal(kind="refused", message="internal error in this request")
        outcomes[each.key] = Outcome(each, said)
    return outcomes


def _decide(session: Session, draft: Draft, asked: Asked) -> messages.Answer | messages.Request:
    from iris_cli.core.lifecycle import children

    match asked.request:
        case messages.Submit(job=job):
            return _submit(session, draft, asked, job)
        case messages.Cancel(job=job_id, reason=reason):
            cancelled = children.cancel_visible(draft, asked.attempt, job_id, reason)
            return {"job": job_id, "cancelled": cancelled, "state": draft.cluster.job_state(job_id).value}
        case messages.RegisterEndpoint() as wanted:
            children.register_endpoint(draft, asked.attempt, asked.id, wanted, session.limits)
            return {"name": wanted.name, "port": wanted.port}
        case messages.RemoveEndpoint(name=name):
            return {"removed": children.remove_endpoint(draft, asked.attempt, asked.id, name)}
        case Exception() as unread:
            raise unread
        case other:
            return other


def _submit(
    session: Session, draft: Draft, asked: Asked, wanted: JobRequest
) -> messages.Answer | messages.Request:
    """Submit the child; return the request unchanged if it is valid but its workspace has not arrived yet."""
    from iris_cli.core.lifecycle.children import submit_child

    kept = len(draft.events)
    origin = Origin(asked.attempt, asked.id, asked.digest)
    child, created = submit_child(draft, origin, with_lines(wanted), _submission(session, draft))
    if any(isinstance(event, JobSubmitted) for event in draft.events[kept:]):
        if wanted.workspace is not None and not session.state.workspaces.has(wanted.workspace.hash):
            draft.roll_back(kept)
            return asked.request  # type: ignore[return-value]  # an unreadable request submits nothing
        if wanted.each_line is not None:
            session.state.lines.put([text_of(wanted.each_line)])
    return {"job": child, "created": created}


def _submission(session: Session, draft: Draft) -> Submission:
    from iris_cli.core.lifecycle.children import Submission
    from iris_cli.ops.views.offered import fleet

    return Submission(
        fleet=fleet(session, draft.cluster), defaults=session.config.defaults.job, limits=session.limits
    )
