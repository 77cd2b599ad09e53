"""What somebody is to be told, and what they have been told: worked out from the state alone.

Whoever looks keeps books: which jobs there were and which of them were open. What has ended since then is news, and
waits in a queue for each channel until it was told. So nothing is lost, whoever wrote it into the log, and
whatever became of the log's older lines meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice

from msgspec import Struct, field

from iris_cli.core import Cluster, Job, JobId, Limits
from iris_cli.core.model.past import in_memory
from iris_cli.core.model.waiting import overdue, quiet_words
from iris_cli.core.structs import Value

MOST_WAITING = 10_000  # notices that wait in one queue; of more the oldest are given up

MOST_TRIES = 20  # after so many failures a notice is given up

LONGEST_PAUSE = 3600.0  # seconds that a channel is left alone at most after failures

JOB_ENDED, GANG_WAITS, SCHEDULER_STOPPED = "job_ended", "gang_waits", "scheduler_stopped"
TASKS_QUIET = "tasks_quiet"


class Notice(Value, frozen=True, kw_only=True):
    """One thing to tell. `job`, `state` and `reason` are empty where there is none; `at` is when it was noticed."""

    event: str
    job: str = ""
    state: str = ""
    reason: str = ""
    at: float = 0.0
    round: int = 0
    tries: int = 0

    def tried_again(self) -> Notice:
        return Notice(
            event=self.event,
            job=self.job,
            state=self.state,
            reason=self.reason,
            at=self.at,
            round=self.round,
            tries=self.tries + 1,
        )

    @property
    def id(self) -> str:
        """The same whenever it is told, and no other's: whoever is told twice can tell."""
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


class Channel(Value, frozen=True, kw_only=True):
    """One way to tell. After `failures` in a row it is left alone until `retry_at`; `trouble` is the last one's."""

    waiting: tuple[Notice, ...] = ()
    failures: int = 0
    retry_at: float = 0.0
    trouble: str = ""
    given_up: int = 0
    told_at: float = 0.0

    def is_due(self, now: float) -> bool:
        """Whether there is something to tell. A wait longer than the longest one is over: the clock was set."""
        return bool(self.waiting) and not 0 < self.retry_at - now <= LONGEST_PAUSE

    def with_notices(self, notices: Iterable[Notice]) -> Channel:
        waiting = (*self.waiting, *notices)
        lost = max(0, len(waiting) - MOST_WAITING)
        return Channel(
            waiting=waiting[lost:],
            failures=self.failures,
            retry_at=self.retry_at,
            trouble=self.trouble,
            given_up=self.given_up + lost,
            told_at=self.told_at,
        )

    def told(self, now: float) -> Channel:
        """The first notice got through."""
        return Channel(waiting=self.waiting[1:], given_up=self.given_up, told_at=now)

    def failed(self, trouble: str, now: float, limits: Limits) -> Channel:
        """The first notice did not: the others have their turn before it is tried again."""
        first, *rest = self.waiting
        again = first.tried_again()
        failures = self.failures + 1
        return Channel(
            waiting=(*rest, *([again] if again.tries < MOST_TRIES else [])),
            given_up=self.given_up + (again.tries >= MOST_TRIES),
            failures=failures,
            retry_at=now + min(limits.backoff_first * 2.0 ** min(failures - 1, 32), LONGEST_PAUSE),
            trouble=trouble,
            told_at=self.told_at,
        )


class Books(Value, frozen=True, kw_only=True):
    """The first `jobs` jobs of a log at the last look: `open`, `quiet`, and the rounds that gangs wait for."""

    cluster_id: str
    jobs: int = 0
    open: tuple[JobId, ...] = ()
    waits: Mapping[str, int] = field(default_factory=dict)
    quiet: tuple[JobId, ...] = ()
    channels: Mapping[str, Channel] = field(default_factory=dict)


class Look(Struct, frozen=True, kw_only=True):
    """One look at a cluster. `cause` says why a job ended, `waiting` why a gang waits; "": not for workers, if it does.

    `stopped` is how long there was no cycle before this one, in words, if that was too long.
    """

    cluster: Cluster
    cluster_id: str
    now: float
    limits: Limits
    cause: Callable[[Job], str]
    waiting: Callable[[Job], str]
    stopped: str = ""


def first_books(look: Look, channels: Iterable[str]) -> Books:
    """Books that begin now: what was over before is not news."""
    return Books(
        cluster_id=look.cluster_id,
        jobs=len(look.cluster.jobs),
        open=tuple(job.id for job in look.cluster.open_jobs() if job.end is None),
        channels={name: Channel() for name in channels},
    )


def brought_up_to_date(books: Books, look: Look, channels: Collection[str]) -> Books:
    """The books after this look, with what is new in the queue of each channel."""
    jobs = look.cluster.jobs
    if books.cluster_id != look.cluster_id or books.jobs > len(jobs):  # another log, or an older one
        first = first_books(look, ())
        books = Books(cluster_id=first.cluster_id, jobs=first.jobs, open=first.open, channels=books.channels)
    known = [*(jobs[job] for job in books.open if job in jobs), *_since(look.cluster, books.jobs)]
    still = [job for job in known if job.end is None]
    notices = [_notice(look, JOB_ENDED, job, look.cause(job)) for job in known if job.end is not None]
    if look.stopped and books.open:
        notices.append(Notice(event=SCHEDULER_STOPPED, reason=look.stopped, at=look.now))
    overdue = {job.id: (job, words) for job in still if (words := _overdue(look, job))}
    notices += [
        _notice(look, GANG_WAITS, job, f"{look.waiting(job)}; {words}", job.rounds)
        for job, words in overdue.values()
        if books.waits.get(job.id) != job.rounds
    ]
    quiet = {
        job.id: words
        for job in (still if channels else ())
        if (words := quiet_words(job, look.cluster.tasks_of(job.id), look.now))
    }
    notices += [
        _notice(look, TASKS_QUIET, jobs[job], words) for job, words in quiet.items() if job not in books.quiet
    ]
    waits: dict[str, int] = {job.id: books.waits[job.id] for job in still if job.id in books.waits}
    return Books(
        cluster_id=look.cluster_id,
        jobs=len(jobs),
        open=tuple(job.id for job in still),
        waits=waits | {job.id: job.rounds for job, _ in overdue.values()},
        quiet=tuple(quiet),
        channels={name: books.channels.get(name, Channel()).with_notices(notices) for name in channels},
    )


def _since(cluster: Cluster, seen: int) -> list[Job]:
    """The jobs that were submitted after the first `seen`."""
    new = len(cluster.jobs) - seen
    found = [job for job in in_memory(cluster.jobs) if job.order >= seen] if new else []
    if len(found) < new:  # some are over, and were left in the snapshot
        found = [cluster.jobs[job] for job in [*islice(cluster.jobs, seen, None)]]
    return sorted(found, key=lambda job: job.order)


def _notice(look: Look, event: str, job: Job, reason: str, number: int = 0) -> Notice:
    """`number` is that of the round that a gang waits for."""
    state = look.cluster.job_state(job.id).value
    return Notice(event=event, job=job.id, state=state, reason=reason, at=look.now, round=number)


def _overdue(look: Look, job: Job) -> str:
    """How long a gang has waited for workers, if that is longer than it takes until some are reserved for it."""
    return overdue(look.cluster, job, look.limits.gang_reserve_after, look.now) if look.waiting(job) else ""
