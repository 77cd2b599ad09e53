"""Notifications: notices of jobs that ended or are pending too long, and the state of their delivery.

Each observation of the cluster stores the number of jobs and the open jobs. If a job was open in one observation and
has ended in the next, each channel gets a notice in its queue. So iris misses no end of a job, even if another command
recorded the end, or if older lines of the log were archived.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from copy import copy
from itertools import islice

from msgspec import Struct, field

from iris_cli.core import Cluster, Job, JobId, Limits, values_in_memory
from iris_cli.core.model.limits import doubling_backoff
from iris_cli.core.model.waiting import describe_overdue, describe_quiet_tasks
from iris_cli.core.structs import Value

MAX_QUEUED = 10_000  # maximum number of notices in the queue of a channel; older notices are dropped

MAX_TRIES = 20  # failed deliveries after which a notice is dropped

MAX_PAUSE = 3600.0  # seconds: the longest pause of a channel after failures

JOB_ENDED, GANG_WAITS, SCHEDULER_STOPPED = "job_ended", "gang_waits", "scheduler_stopped"
TASKS_QUIET = "tasks_quiet"


class Notice(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One notification. `job`, `state` and `reason` may be empty; `at` is the time of the observation."""

    event: str
    job: str = ""
    state: str = ""
    reason: str = ""
    at: float = 0.0
    round: int = 0
    tries: int = 0

    @property
    def id(self) -> str:
        """The unique id of the notice. It is the same in each delivery, so receivers can drop duplicates."""
        name = {
            JOB_ENDED: self.job,
            GANG_WAITS: f"{self.job}/{self.round}",
            TASKS_QUIET: f"{self.job}/{self.at}",
        }
        return f"{self.event}/{name.get(self.event, str(self.at))}"

    def __str__(self) -> str:
        if self.event == JOB_ENDED:
            return f"job {self.job} {self.state}" + (f": {self.reason}" if self.reason != "ok" else "")
        if self.event == TASKS_QUIET:
            return f"job {self.job}: {self.reason}"
        return f"job {self.job} waits: {self.reason}" if self.job else self.reason


class Channel(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A delivery channel and its queue `waiting`. After `failures` consecutive failures it pauses until `retry_at`.

    `trouble`: last error. `given_up`: number of notices that were dropped. `told_at`: time of the last delivery.
    """

    waiting: tuple[Notice, ...] = ()
    failures: int = 0
    retry_at: float = 0.0
    trouble: str = ""
    given_up: int = 0
    told_at: float = 0.0

    def is_due(self, now: float) -> bool:
        """Return whether a notice can be sent now. A pause over `MAX_PAUSE` is ignored, because a clock was changed."""
        return bool(self.waiting) and not 0 < self.retry_at - now <= MAX_PAUSE

    def with_notices(self, notices: Iterable[Notice]) -> Channel:
        channel, waiting = copy(self), (*self.waiting, *notices)
        dropped = max(0, len(waiting) - MAX_QUEUED)
        channel.waiting = waiting[dropped:]
        channel.given_up += dropped
        return channel

    def with_delivery(self, now: float) -> Channel:
        return Channel(waiting=self.waiting[1:], given_up=self.given_up, told_at=now)

    def with_failure(self, trouble: str, now: float, limits: Limits) -> Channel:
        """Return the channel after a failed delivery of its first notice, which moves to the end of the queue."""
        channel, notice = copy(self), copy(self.waiting[0])
        notice.tries += 1
        if notice.tries < MAX_TRIES:
            channel.waiting = (*self.waiting[1:], notice)
        else:
            channel.waiting = self.waiting[1:]
            channel.given_up += 1
        channel.failures += 1
        channel.retry_at = now + doubling_backoff(limits.backoff_first, channel.failures, MAX_PAUSE)
        channel.trouble = trouble
        return channel


class NoticeState(Value, frozen=True, kw_only=True):
    """The last observation (number of jobs, `open` and `quiet` jobs, rounds of overdue gangs), and the channels."""

    cluster_id: str
    jobs: int = 0
    open: tuple[JobId, ...] = ()
    waits: Mapping[str, int] = field(default_factory=dict)
    quiet: tuple[JobId, ...] = ()
    channels: Mapping[str, Channel] = field(default_factory=dict)


class ClusterObservation(Struct, frozen=True, kw_only=True):
    """One observation of a cluster.

    `cause` returns why a job ended. `waiting` returns why a gang is pending, or "" if it does not wait for workers.
    `stopped` describes the time without a cycle if that time was too long, otherwise "".
    """

    cluster: Cluster
    cluster_id: str
    now: float
    limits: Limits
    cause: Callable[[Job], str]
    waiting: Callable[[Job], str]
    stopped: str = ""


def initial_notice_state(observed: ClusterObservation, channels: Iterable[str]) -> NoticeState:
    """Return the first state of notifications. Jobs that have already ended get no notices."""
    return NoticeState(
        cluster_id=observed.cluster_id,
        jobs=len(observed.cluster.jobs),
        open=tuple(job.id for job in observed.cluster.open_jobs() if job.end is None),
        channels={name: Channel() for name in channels},
    )


def observe(state: NoticeState, observed: ClusterObservation, channels: Collection[str]) -> NoticeState:
    """Return the state after an observation, with its notices in the queue of each channel."""
    jobs, queues = observed.cluster.jobs, state.channels
    if state.cluster_id != observed.cluster_id or state.jobs > len(jobs):  # another log, or an older one
        state = initial_notice_state(observed, ())
    new_jobs = _jobs_after(observed.cluster, state.jobs)
    observed_jobs = [*(jobs[job] for job in state.open if job in jobs), *new_jobs]
    open_jobs = [job for job in observed_jobs if job.end is None]
    notices = [
        _make_notice(observed, JOB_ENDED, job, observed.cause(job))
        for job in observed_jobs
        if job.end is not None
    ]
    if observed.stopped and state.open:
        notices.append(Notice(event=SCHEDULER_STOPPED, reason=observed.stopped, at=observed.now))
    patience = observed.limits.gang_reserve_after
    overdue = {
        job.id: (job, words)
        for job in filter(observed.waiting, open_jobs)
        if (words := describe_overdue(observed.cluster, job, patience, observed.now))
    }
    notices += [
        _make_notice(observed, GANG_WAITS, job, f"{observed.waiting(job)}; {words}", job.rounds)
        for job, words in overdue.values()
        if state.waits.get(job.id) != job.rounds
    ]
    quiet = {
        job.id: words
        for job in (open_jobs if channels else ())
        if (words := describe_quiet_tasks(job, observed.cluster.tasks_of(job.id), observed.now))
    }
    notices += [
        _make_notice(observed, TASKS_QUIET, jobs[job], words)
        for job, words in quiet.items()
        if job not in state.quiet
    ]
    waits: dict[str, int] = {job.id: state.waits[job.id] for job in open_jobs if job.id in state.waits}
    return NoticeState(
        cluster_id=observed.cluster_id,
        jobs=len(jobs),
        open=tuple(job.id for job in open_jobs),
        waits=waits | {job.id: job.rounds for job, _ in overdue.values()},
        quiet=tuple(quiet),
        channels={name: queues.get(name, Channel()).with_notices(notices) for name in channels},
    )


def _jobs_after(cluster: Cluster, number: int) -> list[Job]:
    """Return the jobs submitted after the first `number` jobs."""
    new_count = len(cluster.jobs) - number
    found = [job for job in values_in_memory(cluster.jobs) if job.order >= number] if new_count else []
    if len(found) < new_count:  # the others have ended and are only in the snapshot
        found = [cluster.jobs[job] for job in [*islice(cluster.jobs, number, None)]]
    return sorted(found, key=lambda job: job.order)


def _make_notice(observed: ClusterObservation, event: str, job: Job, reason: str, number: int = 0) -> Notice:
    """Return a notice about a job; `number` is the round for which a gang is pending."""
    state = observed.cluster.job_state(job.id).value
    return Notice(event=event, job=job.id, state=state, reason=reason, at=observed.now, round=number)
