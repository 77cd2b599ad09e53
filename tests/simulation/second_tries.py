"""An operator who retries what runs and launches again what has ended, and tasks that write nothing for a while.

`SecondTries` works out once more from the specification what the log may say of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from random import Random

from msgspec.structs import asdict, replace

from iris_cli.config.schema import ClusterConfig
from iris_cli.core.events.events import (
    AttemptEnded,
    AttemptStopRequested,
    JobSubmitted,
    TaskQuiet,
    Transaction,
)
from iris_cli.core.ids import AttemptId, JobId, Token
from iris_cli.core.messages.observations import WorkerReport
from iris_cli.core.model.array import format_indexes
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.job import Job, JobRequest
from iris_cli.core.model.task import Attempt, AttemptState, EndReason, TaskState
from iris_cli.core.model.worker import WorkerCondition
from iris_cli.ops.cycle import cycle
from iris_cli.ops.jobs.change import retry
from iris_cli.ops.jobs.launch import launch
from iris_cli.ops.session import Session
from tests.simulation.conduct import Conduct
from tests.simulation.fleet import Place
from tests.simulation.program import Program
from tests.simulation.site import Site
from tests.simulation.truth import Truth

_TOLERANCE = 3.0
"""Seconds that an answer may be under way, and that clocks round."""

_OF_EACH_JOB = frozenset(
    (
        *("id", "after", "array", "replicas", "again", "tried_again", "origin", "adopted", "order"),
        *("submitted_at", "last_task_ended_at", "end", "cancelled", "rounds", "settled_rounds"),
        *("failed_rounds", "preempted_rounds", "refused_rounds"),
    )
)
"""Fields of a job that are not those of the job that it is submitted again from."""


class Voices:
    """When tasks write: each for a while all the time, then for a while nothing. `began`: when it started to run."""

    def __init__(self, draws: Callable[[str], Random]) -> None:
        self._silences = lru_cache(maxsize=None)(lambda token: _silences(draws(f"voice {token}")))

    def last_output(self, token: Token, began: float, now: float) -> float:
        """The time of its last output until `now`."""
        for begins, ends in self._silences(token):
            if now < began + begins:
                break
            if now < began + ends:
                return began + begins
        return now


def _silences(rng: Random) -> list[tuple[float, float]]:
    silences, at = [], 0.0
    while at < 20_000.0:
        begins = at + rng.choice((0.0, 5.0, 100.0)) * rng.random()
        at = begins + rng.choice((10.0, 100.0, 400.0)) * rng.random()
        silences.append((begins, at))
    return silences


class RetryingProgram(Program):
    """Draws the second tries from a generator of its own, so all else that is drawn stays what it was."""

    def __init__(self, site: Site, places: Sequence[Place], length: float) -> None:
        super().__init__(site, places, length)
        self._tries = site.scheduler.draws("second tries")

    def begin(self) -> None:
        super().begin()
        rng = self._tries
        begins, length = self.site.scheduler.now, self._end - self.site.scheduler.now
        for command, act in (("retry", self._retry), ("again", self._again)):
            for _ in range(rng.randint(1, 5)):
                moment = begins + length * (0.1 + 0.9 * rng.random())
                for _ in range(rng.choice((1, 1, 2))):  # from two terminals at once
                    self.site.scheduler.at(moment, partial(self._try, command, act))

    def _try(self, command: str, act: Callable[[Session], object]) -> None:
        process = self.site.invoke(command, act, luck=self._luck(self._tries))
        process.has_secrets = True

    def _retry(self, session: Session) -> None:
        """One open job, or one of its tasks."""
        cluster = session.view()
        subjects = [job.id for job in cluster.jobs.values() if job.end is None]
        if not subjects:
            return
        job = self._tries.choice(subjects)
        task = self._tries.choice(cluster.tasks_of(job)).id
        retried = retry(session, self._tries.choice((job, str(task)))).retried
        for each in retried:
            attempt = self.site.truth.cluster.attempt(each)
            if attempt.state not in (AttemptState.STOPPING, AttemptState.ENDED):
                self.site.story.breach(f"{each} was retried, but is {attempt.state}")

    def _again(self, session: Session) -> None:
        """One ended job, of an array at times only the tasks that did not succeed."""
        ended = [job for job in session.view().jobs.values() if job.end is not None]
        if not ended:
            return
        job = self._tries.choice(ended)
        failed = bool(job.indexes) and self._tries.random() < 0.7
        made = launch(session, JobRequest(again=job.id, failed=failed, force=True))
        self._check_again(made, job.id, failed=failed)
        if self._tries.random() < 0.7:
            cycle.run(session, job=made)

    def _check_again(self, made: JobId, origin: JobId, *, failed: bool) -> None:
        """A launch that has returned is in the log, with all tasks or those that did not succeed."""
        cluster = self.site.truth.cluster
        if made not in cluster.jobs:
            self.site.story.breach(f"{made} was submitted again from {origin}, but is not in the log")
            return
        was = cluster.jobs[origin]
        states = {
            index: task.state for index, task in zip(was.indexes, cluster.tasks_of(origin), strict=False)
        }
        left = [index for index, state in states.items() if state is not TaskState.SUCCEEDED]
        if cluster.jobs[made].array != (format_indexes(left) if failed else was.array):
            self.site.story.breach(
                f"{made} is {origin} again, but has the tasks {cluster.jobs[made].array}; {left} did not succeed"
            )


def soon_quiet(config: ClusterConfig, rng: Random) -> ClusterConfig:
    """The configuration with a `silent_after` that runs are long enough for."""
    limits = replace(config.limits, silent_after=rng.choice((20.0, 60.0, 200.0)))
    return replace(config, limits=limits)


class SecondTries:
    """Judges the orders of `retry`, the jobs submitted again and the marks of quiet tasks."""

    def __init__(self, truth: Truth, conduct: Conduct, voices: Voices, silent_after: float) -> None:
        self._truth, self._conduct, self._voices = truth, conduct, voices
        self._silent_after = silent_after
        self._told: dict[AttemptId, tuple[str, bool]] = {}  # who polled it last, and whether it was quiet
        self.counts = dict.fromkeys(("retried", "again", "quiet", "writes again"), 0)

    def _breach(self, words: str) -> None:
        self._truth.story.breach(words)

    def judge(self, transaction: Transaction, before: Cluster, after: Cluster, who: str) -> None:
        """Report what a transaction may not say."""
        retried: list[AttemptId] = []
        for event in transaction.events:
            if isinstance(event, AttemptStopRequested) and event.reason is EndReason.RETRIED:
                retried.append(event.attempt_id)
            elif isinstance(event, JobSubmitted) and event.job.again is not None:
                self._submitted_again(event.job, before, after)
            elif isinstance(event, AttemptEnded):
                self._uncharged(event, after)
            elif isinstance(event, TaskQuiet):
                self._quiet(event, before, who)
        if retried:
            self.counts["retried"] += 1
            self._retried(retried, before, after, who)

    def _retried(self, retried: list[AttemptId], before: Cluster, after: Cluster, who: str) -> None:
        """What is retried was live and not being stopped; of a gang it is the whole round."""
        if not who.startswith("retry"):
            self._breach(f"{who} retries {retried[0]}")
        for each in retried:
            attempt = before.attempt(each)
            if not attempt.live or attempt.state is AttemptState.STOPPING:
                self._breach(f"{each} is retried, but was {attempt.state}")
            if before.tasks[each.task].state.terminal:
                self._breach(f"{each} is retried, but its task had ended")
        job = after.jobs[retried[0].task.job]
        runs_on = [str(each) for each, attempt in after.live_attempts_of(job.id) if attempt.stop is None]
        if job.is_gang and runs_on:
            self._breach(f"{job.id} is retried, but {', '.join(runs_on)} still run")

    def _uncharged(self, event: AttemptEnded, after: Cluster) -> None:
        stop, reason = after.attempt(event.attempt_id).stop, event.end.reason
        if stop is not None and stop.reason is EndReason.RETRIED and reason is not EndReason.OK:
            self._breach(f"{event.attempt_id} was retried, but ended as {reason}")

    def _submitted_again(self, job: Job, before: Cluster, after: Cluster) -> None:
        """It is an ended job again: with its fields, the lowest free number, and a link both ways."""
        self.counts["again"] += 1
        origin = before.jobs.get(job.again or JobId(""))
        if origin is None or origin.end is None:
            self._breach(f"{job.id} is {job.again} again, which has not ended")
            return
        if job.id in before.jobs or job.id != _next_name(origin, before):
            self._breach(f"{job.id} is {origin.id} again, but should be {_next_name(origin, before)}")
        if after.jobs[origin.id].tried_again != (*origin.tried_again, job.id) or job.after:
            self._breach(f"{job.id} is {origin.id} again, but their links differ")
        was, now = asdict(origin), asdict(job)
        differing = [name for name in was if name not in _OF_EACH_JOB and was[name] != now[name]]
        if differing:
            self._breach(f"{job.id} is {origin.id} again, but differs in {', '.join(differing)}")

    def _quiet(self, event: TaskQuiet, before: Cluster, who: str) -> None:
        """Its last output is that of the worker's records, and as old as `silent_after`; or it has written since."""
        self.counts["writes again" if event.since is None else "quiet"] += 1
        life, was = self._truth.life_of(event.attempt_id), before.attempt(event.attempt_id)
        if not (self._conduct.steady() and self._conduct.prompt(who)) or life.misfortune:
            return
        token = self._truth.by_attempt[event.attempt_id]

        def last_output(now: float) -> float:
            return self._voices.last_output(token, life.started_at, now)

        if event.since is None:
            if (
                was.quiet_since is None
                or last_output(self._truth.now()) < was.quiet_since + self._silent_after
            ):
                self._breach(f"{life.id} writes again in the log, but wrote no output")
        elif abs(last_output(event.since + self._silent_after - _TOLERANCE) - event.since) > _TOLERANCE:
            self._breach(f"{life.id} is quiet in the log, but wrote after {event.since}")

    # What is polled must be in the log

    def told(self, who: str, report: WorkerReport) -> None:
        """A poll was answered."""
        for each in report.attempts:
            life = self._truth.lives.get(each.token)
            if life is not None and each.last_output_ago is not None:
                self._told[life.id] = who, each.last_output_ago >= self._silent_after

    def ended(self, who: str) -> None:
        """An invocation has ended in order: what it was the last to hear is marked."""
        for attempt_id in [each for each, (by, _) in self._told.items() if by == who]:
            _, quiet = self._told.pop(attempt_id)
            attempt = self._truth.cluster.attempt(attempt_id)
            if who.startswith("cron") and self._counts_on(attempt) and (attempt.quiet_since is None) is quiet:
                self._breach(
                    f"{who} was told that {attempt_id} is {'' if quiet else 'not '}quiet, but recorded nothing"
                )

    def _counts_on(self, attempt: Attempt) -> bool:
        worker = self._truth.cluster.workers.get(attempt.worker)
        healthy = worker is not None and worker.condition is WorkerCondition.HEALTHY
        return healthy and attempt.state is AttemptState.RUNNING


def _next_name(origin: Job, before: Cluster) -> str:
    while origin.again is not None:
        origin = before.jobs[origin.again]
    stem = origin.id.split("/")[-1]
    return next(name for number in range(2, 99) if (name := f"{stem}-{number}") not in before.jobs)
