"""Find the new notices of a cycle, and send them in a thread."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from iris_cli.core import Job, format_duration
from iris_cli.core.messages.notices import ClusterObservation, NoticeState, initial_notice_state, observe
from iris_cli.ops.session import Session
from iris_cli.ops.views.view import cycle_age

if TYPE_CHECKING:
    from iris_cli.core.scheduling import Plan
    from iris_cli.ops.notify.channels import Send

TIMEOUT = 10.0  # maximum seconds for one command or one call of the webhook


def begin(session: Session) -> None:
    """Create the notice file before the first cycle with notifications. Jobs that ended earlier cause no notices."""
    file = session.state.notices
    if file.exists or not session.view().seq:
        return
    fd = file.lock()
    if fd is not None:
        try:
            if not file.exists:
                file.write(
                    initial_notice_state(_observation(session, None, None), session.config.notify.channels)
                )
        finally:
            os.close(fd)


def send_new_notices(session: Session, plan: Plan | None, heartbeat: Mapping[str, Any] | None) -> None:
    """Start sending new notices. If another invocation is sending, the next cycle sends them."""
    file, channels = session.state.notices, session.config.notify.channels
    observation = _observation(session, plan, heartbeat)
    records = file.read()
    if (
        records
        and observe(records, observation, channels) == records
        and not _is_due(records, observation.now)
    ):
        return
    fd = file.lock()
    if fd is None:
        return
    with ExitStack() as stack:
        stack.callback(os.close, fd)
        before = file.read()
        records = observe(before or initial_notice_state(observation, ()), observation, channels)
        if records != before and not file.write(records):
            return  # send nothing, because without the record each cycle would send the same notices
        if _is_due(records, observation.now):
            _start_sender(session, records, fd)
            stack.pop_all()  # the sender closes the file


def _is_due(records: NoticeState, now: float) -> bool:
    return any(channel.is_due(now) for channel in records.channels.values())


def _start_sender(session: Session, records: NoticeState, lock: int) -> None:
    """Start a thread that sends the notices in `records` and then releases the lock."""
    from iris_cli.ops.notify.channels import Command, Sender, Webhook, notice_json, notice_variables, start

    config, clock = session.config, session.clock
    directory = config.path.absolute().parent
    command = Command(words=config.notify.command, directory=directory, clock=clock, timeout=TIMEOUT)
    webhook = Webhook(url=config.notify.webhook, clock=clock, timeout=TIMEOUT)
    senders: dict[str, Send] = {
        "command": lambda notice, stop: command.run(notice_variables(notice, config.name), stop),
        "webhook": lambda notice, stop: webhook.post(notice_json(notice, config.name), stop),
    }
    start(
        Sender(
            file=session.state.notices,
            lock=lock,
            records=records,
            channels={name: senders[name] for name in config.notify.channels},
            clock=clock,
            limits=session.limits,
        )
    )


def _observation(
    session: Session, plan: Plan | None, heartbeat: Mapping[str, Any] | None
) -> ClusterObservation:
    now, cluster = session.clock.now(), session.cluster
    cycle = cycle_age(heartbeat, now)

    def cause(job: Job) -> str:
        from iris_cli.ops.views.failure import cause_words

        assert job.end is not None
        words = cause_words(cluster, job, session.state)
        return f"{job.end.reason}: {words}" if words not in ("", job.end.reason) else job.end.reason.value

    def pending_reason(job: Job) -> str:
        reasons = plan.waiting.get(job.id) if plan is not None else None
        return reasons[0].text if reasons and reasons[0].kind not in ("after", "held") else ""

    is_gap = cycle.age is not None and cycle.stale
    gap = format_duration(cycle.age or 0.0)
    return ClusterObservation(
        cluster=cluster,
        cluster_id=session.cluster_id,
        now=now,
        limits=session.limits,
        cause=cause,
        waiting=pending_reason,
        stopped=f"cycles run again after a gap of {gap}" if is_gap else "",
    )
