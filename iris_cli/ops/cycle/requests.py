"""What tasks ask for from inside: read before the lock is taken, and decided under it as all else that workers say.

A request that changes something is in the log with the attempt and the id of it, so that reading it again changes
nothing. One that only reads is answered later, from the state that was committed.
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
    """One request of an attempt, or why it couldn't be read. `digest` identifies what is to be submitted."""

    attempt: AttemptId
    token: Token
    id: RequestId
    request: messages.Request | Exception
    digest: str = ""

    @property
    def key(self) -> Key:
        return self.token, self.id


class LogReading(Struct, frozen=True):
    """A piece of a log that a task asks for: `token` is whose log, the rest is who asks."""

    asked: Asked
    token: Token
    piece: messages.Logs


class Outcome(Struct, frozen=True):
    """What became of a request: its answer, or the request itself, which changes nothing and is answered later."""

    asked: Asked
    said: messages.Answer | messages.Request

    @property
    def waits_for_files(self) -> bool:
        """Whether nothing was decided yet, for want of the directory that is to go with a job."""
        return isinstance(self.said, messages.Submit)


Outcomes = dict[Key, Outcome]


def read(seen: object, attempts: Mapping[Token, AttemptId]) -> tuple[Asked, ...]:
    """What the attempts ask for in an answer of their worker."""
    found = seen.requests if isinstance(seen, WorkerReport) else ()
    return tuple(_asked(attempts[each.token], each) for each in found if each.token in attempts)


def _asked(attempt: AttemptId, file: OutboxFile) -> Asked:
    from iris_cli.config.request_reading import read_request  # it loads much, and most tasks ask for nothing
    from iris_cli.config.request_text import digest_of

    request: messages.Request | Exception
    digest = ""
    try:
        if file.data is None:
            raise UsageError(f"a request takes at most {messages.MOST_BYTES} bytes, not {file.size}")
        request = read_request(file.data)
        digest = digest_of(request.job) if isinstance(request, messages.Submit) else ""
    except Exception as error:  # also a fault of ours: it must not cost all else that the worker says
        request = error
    return Asked(attempt, file.token, file.id, request, digest)


def carry_out(session: Session, draft: Draft, asked: Iterable[Asked]) -> Outcomes:
    """Decide what was asked for, in that order, on the draft. What can't be done is refused, each by itself."""
    outcomes: Outcomes = {}
    for each in asked:
        kept = len(draft.events)
        said: messages.Answer | messages.Request
        try:
            said = _decide(session, draft, each)
        except IrisError as error:
            if draft.events[kept:]:
                draft.take_back(kept)
            said = messages.refusal_of(error)
        except Exception as error:
            draft.take_back(kept)
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
    """The child; or the request as it is where its directory has not arrived here, and all else is well."""
    from iris_cli.core.lifecycle.children import submit_child

    kept = len(draft.events)
    origin = Origin(asked.attempt, asked.id, asked.digest)
    child, created = submit_child(draft, origin, with_lines(wanted), _submission(session, draft))
    if any(isinstance(event, JobSubmitted) for event in draft.events[kept:]):
        if wanted.workspace is not None and not session.state.workspaces.has(wanted.workspace.hash):
            draft.take_back(kept)
            return asked.request  # type: ignore[return-value]  # it was read, or nothing would be submitted
        if wanted.each_line is not None:
            session.state.lines.put([text_of(wanted.each_line)])
    return {"job": child, "created": created}


def _submission(session: Session, draft: Draft) -> Submission:
    from iris_cli.core.lifecycle.children import Submission
    from iris_cli.ops.views.offered import fleet

    return Submission(
        fleet=fleet(session, draft.cluster), defaults=session.config.defaults.job, limits=session.limits
    )
