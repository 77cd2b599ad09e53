"""Notices of a cycle: find new ones, and send them in parallel to the cycle."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from iris_cli.core import Job, format_duration
from iris_cli.core.messages.notices import ClusterObservation, NoticeState, initial_notice_state, observe
from iris_cli.ops.session import Session
from iris_cli.ops.views.view import cycle_age

if TYPE_CHECKING:
    from iris_cli.core.scheduling import Plan
    from iris_cli.ops.notify.channels import Send

TIMEOUT = 10.0
"""Seconds that one command or post may take."""


def begin(session: Session) -> None:
    """Initialize the notice file before the first cycle with notifications: earlier ends are not news."""
    file = session.state.notices
    if file.exists or not session.view().seq:
        return
    fd = file.lock()
    if fd is not None:
        try:
            if not file.exists:
                file.write(initial_notice_state(_look(session, None, None), session.config.notify.channels))
        finally:
            os.close(fd)


def tell(session: Session, plan: Plan | None, heartbeat: Mapping[str, Any] | None) -> None:
    """Start sending new notices, unless another invocation sends: then they stay new until the next cycle."""
    file, look = session.state.notices, _look(session, plan, heartbeat)
    books = file.read()
    if books is not None and _updated(session, books, look) == books and not _is_due(books, look.now):
        return
    fd = file.lock()
    if fd is None:
        return
    handed_over = False
    try:
        before = file.read()
        books = _updated(session, before or initial_notice_state(look, ()), look)
        if books != before and not file.write(books):
            return  # without a record they would be sent in every cycle
        if _is_due(books, look.now):
            _start(session, books, fd)
            handed_over = True
    finally:
        if not handed_over:
            os.close(fd)


def _updated(session: Session, books: NoticeState, look: ClusterObservation) -> NoticeState:
    return observe(books, look, session.config.notify.channels)


def _is_due(books: NoticeState, now: float) -> bool:
    return any(channel.is_due(now) for channel in books.channels.values())


def _start(session: Session, books: NoticeState, lock: int) -> None:
    from iris_cli.ops.notify.channels import Teller, start

    start(
        Teller(
            file=session.state.notices,
            lock=lock,
            books=books,
            channels=_channels(session),
            clock=session.clock,
            limits=session.limits,
        )
    )


def _channels(session: Session) -> dict[str, Send]:
    from iris_cli.ops.notify.channels import Command, Webhook, body_of, environment_of

    config, clock = session.config, session.clock
    directory = config.path.absolute().parent
    command = Command(words=config.notify.command, directory=directory, clock=clock, timeout=TIMEOUT)
    webhook = Webhook(url=config.notify.webhook, clock=clock, timeout=TIMEOUT)
    ways: dict[str, Send] = {
        "command": lambda notice, cut: command.run(environment_of(notice, config.name), cut),
        "webhook": lambda notice, cut: webhook.post(body_of(notice, config.name), cut),
    }
    return {name: ways[name] for name in config.notify.channels}


def _look(session: Session, plan: Plan | None, heartbeat: Mapping[str, Any] | None) -> ClusterObservation:
    now, cluster = session.clock.now(), session.cluster

    def cause(job: Job) -> str:
        from iris_cli.ops.views.failure import cause_words

        assert job.end is not None
        words = cause_words(cluster, job, session.state)
        return f"{job.end.reason}: {words}" if words not in ("", job.end.reason) else job.end.reason.value

    def waiting(job: Job) -> str:
        reasons = plan.waiting.get(job.id) if plan is not None else None
        return str(reasons[0]) if reasons and reasons[0].kind != "after" else ""

    return ClusterObservation(
        cluster=cluster,
        cluster_id=session.cluster_id,
        now=now,
        limits=session.limits,
        cause=cause,
        waiting=waiting,
        stopped=_stopped(heartbeat, now),
    )


def _stopped(heartbeat: Mapping[str, Any] | None, now: float) -> str:
    cycle = cycle_age(heartbeat, now)
    if cycle.age is None or not cycle.stale:
        return ""
    return f"cycles run again after a gap of {format_duration(cycle.age)}"
