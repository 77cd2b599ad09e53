"""One cycle: see how the workers are, settle what ended, place what waits, carry it out.

A loop of small transactions. The lock is held for each only as long as it takes to read, decide and append;
everything over SSH happens between them, so that several invocations may run at once.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from iris_cli.core.evolve import Draft
from iris_cli.core.ids import AttemptId, Token, WorkerId
from iris_cli.core.lifecycle import attempts, workers
from iris_cli.core.lifecycle.placement import carry_out
from iris_cli.core.observations import Silence
from iris_cli.core.scheduling import Plan, plan
from iris_cli.ops import observe
from iris_cli.ops.dispatch import Dispatcher
from iris_cli.ops.launch_request import jobs_without_secrets
from iris_cli.ops.session import Session


@dataclass
class CycleResult:
    """What a cycle did: the plan it made, the workers that were asked and those that did not answer."""

    plan: Plan | None = None
    asked: int = 0
    silent: list[Silence] = field(default_factory=list)


def run(session: Session, *, schedule: bool = True) -> CycleResult:
    """One cycle. Raises LockedError before anything is done, or NotWritableError."""
    result = CycleResult()
    with session.transaction() as draft:
        workers.reconcile(draft, {worker: host.connection for worker, host in session.hosts.items()})
        attempts.take_over(draft, session.limits)
        unable = attempts.give_back(draft, jobs_without_secrets(draft.cluster))
        observe.settle(draft, dict.fromkeys(unable), session.limits)
    cluster = session.cluster
    asked = observe.questions(session, cluster, session.clock.now())
    unheard = {question.worker for question in asked}
    heard: set[WorkerId] = set()
    seen: list[observe.Seen] = []
    dispatcher = Dispatcher(session, unheard)
    result.asked = len(asked)
    for batch in observe.ask(session, cluster, asked):
        answered = {answer.seen.worker for answer in batch}
        unheard -= answered
        heard |= answered
        seen += [answer.seen for answer in batch]
        with session.transaction() as draft:
            dispatcher.states |= observe.weigh(session, draft, batch, unheard)
        dispatcher.act(only=heard)
    mine: set[AttemptId] = set()
    result.silent = [each for each in seen if isinstance(each, Silence)]
    with session.transaction() as draft:
        observe.weigh_silence(session, draft, seen)
        observe.settle_waiting(draft, session.limits)
        if schedule:
            result.plan, mine = assign(session, draft)
    dispatcher.act(mine)
    dispatcher.act()  # the stops that its outcomes ask for
    session.state.write_heartbeat(
        {"at": session.clock.now(), "asked": result.asked, "silent": len(result.silent)}
    )
    return result


def assign(session: Session, draft: Draft) -> tuple[Plan, set[AttemptId]]:
    """Place what waits, on the draft: all assignments of a cycle are one transaction."""
    made = plan(
        draft.cluster,
        draft.at,
        limits=session.limits,
        without_secrets=jobs_without_secrets(draft.cluster),
    )
    return made, set(carry_out(draft, made, lambda: Token(secrets.token_hex(16))))
