"""Requests of running tasks.

iris reads requests before it takes the lock. It carries them out or refuses them when it records the worker's report.
The log records each request that changes something, with its attempt and id. So such a request has no further effect
if iris reads it again. A read-only request is answered later, from the committed state.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from iris_cli.core import AttemptId, JobRequest, Origin, RequestId, Token
from iris_cli.core.events.events import JobSubmitted
from iris_cli.core.evolve import Draft
from iris_cli.core.messages import requests as messages
from iris_cli.core.messages.observations import OutboxFile, WorkerReport
from iris_cli.errors import IrisError, UsageError
from iris_cli.ops.cycle.environment import encode_lines, hash_lines
from iris_cli.ops.session import Session

Key = tuple[Token, RequestId]  # the token of the requesting attempt, and the request's id


class TaskRequest(Struct, frozen=True):
    """One request of an attempt, or the error from reading it. `digest`: hash of the job to submit, otherwise ''."""

    attempt: AttemptId
    token: Token
    id: RequestId
    request: messages.Request | Exception
    digest: str = ""

    @property
    def key(self) -> Key:
        return self.token, self.id


class LogReading(Struct, frozen=True):
    """A task's request for a chunk of a log. `token` is the token of the attempt that wrote the log."""

    request: TaskRequest
    token: Token
    wanted: messages.Logs


class Outcome(Struct, frozen=True):
    """Outcome of a request: an answer, or the request message that must be answered later."""

    request: TaskRequest
    result: messages.Answer | messages.Request


Outcomes = dict[Key, Outcome]


def read_requests(observation: object, attempts: Mapping[Token, AttemptId]) -> tuple[TaskRequest, ...]:
    """Return the requests in a worker's answer, without the requests of unknown attempts."""
    found = observation.requests if isinstance(observation, WorkerReport) else ()
    return tuple(_request_of(attempts[each.token], each) for each in found if each.token in attempts)


def _request_of(attempt: AttemptId, file: OutboxFile) -> TaskRequest:
    from iris_cli.config.request_reading import read_request  # slow to import, rarely needed
    from iris_cli.config.request_text import digest_of

    try:
        if file.data is None:
            raise UsageError(f"a request takes at most {messages.MAX_REQUEST_BYTES} bytes, not {file.size}")
        request = read_request(file.data)
        digest = digest_of(request.job) if isinstance(request, messages.Submit) else ""
    except Exception as error:  # catch internal errors, too, because the rest of the report must be recorded
        return TaskRequest(attempt, file.token, file.id, error)
    return TaskRequest(attempt, file.token, file.id, request, digest)


def decide_requests(session: Session, draft: Draft, requests: Iterable[TaskRequest]) -> Outcomes:
    """Carry out or refuse the requests in order, in the draft. A refused request affects no other request."""
    outcomes: Outcomes = {}
    for each in requests:
        events_before = len(draft.events)
        result: messages.Answer | messages.Request
        try:
            result = _decide(session, draft, each)
        except IrisError as error:
            if draft.events[events_before:]:
                draft.roll_back(events_before)
            result = messages.refusal_of(error)
        except Exception as error:
            draft.roll_back(events_before)
            session.fault(f"handling a request of {each.attempt}", error)
            result = messages.Refusal(kind="refused", message="internal error in this request")
        outcomes[each.key] = Outcome(each, result)
    return outcomes


def _decide(session: Session, draft: Draft, request: TaskRequest) -> messages.Answer | messages.Request:
    from iris_cli.core.lifecycle import children

    match request.request:
        case messages.Submit(job=job):
            return _submit(session, draft, request, job)
        case messages.Cancel(job=job_id, reason=reason):
            cancelled = children.cancel_visible(draft, request.attempt, job_id, reason)
            return {"job": job_id, "cancelled": cancelled, "state": draft.cluster.job_state(job_id).value}
        case messages.RegisterEndpoint() as wanted:
            children.register_endpoint(draft, request.attempt, request.id, wanted, session.limits)
            return {"name": wanted.name, "port": wanted.port}
        case messages.RemoveEndpoint(name=name):
            return {"removed": children.remove_endpoint(draft, request.attempt, request.id, name)}
        case Exception() as unread:
            raise unread
        case other:
            return other


def _submit(
    session: Session, draft: Draft, request: TaskRequest, wanted: JobRequest
) -> messages.Answer | messages.Request:
    """Submit the child job and return the answer.

    If the job is valid but its workspace is not stored yet, return the request. It is answered after iris has
    fetched the workspace.
    """
    from iris_cli.core.lifecycle.children import SubmissionContext, submit_child
    from iris_cli.ops.views.offered import offers

    events_before = len(draft.events)
    origin = Origin(request.attempt, request.id, request.digest)
    context = SubmissionContext(
        possible_workers=[each.attributes for each in offers(session, draft.cluster)],
        defaults=session.config.defaults.job,
        limits=session.limits,
    )
    child, created = submit_child(draft, origin, hash_lines(wanted), context)
    if any(isinstance(event, JobSubmitted) for event in draft.events[events_before:]):
        if wanted.workspace is not None and not session.state.workspaces.has(wanted.workspace.hash):
            draft.roll_back(events_before)
            return request.request  # type: ignore[return-value]  # an unreadable request never comes here
        if wanted.each_line is not None:
            session.state.lines.put([encode_lines(wanted.each_line)])
    return {"job": child, "created": created}
