"""View of the cluster, now or in the past, with the plan of a cycle at that time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field, structs

from iris_cli.core import Cluster, Device, Job, Limits, TaskId, WorkerId, pattern
from iris_cli.core.lifecycle.display import dependency_reason
from iris_cli.core.messages.notices import MAX_TRIES, Channel
from iris_cli.core.units import count, format_duration, parse_duration
from iris_cli.errors import UsageError
from iris_cli.journal.access import disk_problem
from iris_cli.journal.files.runners import LOOP
from iris_cli.journal.log.recovery import Damage, log_messages
from iris_cli.ops.outcomes.durations import elapsed
from iris_cli.ops.views.cycles import Cycles, cycles_of, read_number, work_left

if TYPE_CHECKING:
    from iris_cli.core.events.events import Transaction
    from iris_cli.core.scheduling import ExpectedStart, Plan, Reason, ReasonKind
    from iris_cli.journal.history import Reading
    from iris_cli.journal.state_dir import StateDir
    from iris_cli.ops.session import Progress, Session

STALE_AFTER = 300.0
"""Seconds without a cycle after which the cycles count as stopped. Cron runs a cycle every minute."""

_SHARE = pattern(r"(needs [0-9]+ .+?s, but )?([0-9]+) of ([0-9]+ .+?)( (?:is|are|has|have) .+)")


class CycleAge(Struct, frozen=True, kw_only=True):
    """Time of the last cycle and its age in seconds, according to the heartbeat. Both are None if no cycle has run."""

    at: float | None = None
    age: float | None = field(default=None, name="age_seconds")
    stale: bool = True


class ViewResult(Struct, frozen=True, kw_only=True):
    """Fields of all views: the time of the view, the runner of the cycles, and the problems of the log.

    `cycles` is None in a view of the past. `messages` name the problems of the log and of the state directory.
    """

    at: float
    cycles: Cycles | None
    messages: tuple[str, ...]
    log_damage: Damage | None


class View(Struct, frozen=True, kw_only=True, dict=True):
    """The cluster at the time `now`. `offered` are devices that scale groups could add.

    `cycle`, `cycles` and `state` are None in a view of the past. `has_next_cycle`: True if another cycle is expected.
    """

    cluster: Cluster
    now: float
    limits: Limits
    offered: tuple[Device, ...] = ()
    cycle: CycleAge | None = None
    cycles: Cycles | None = None
    has_next_cycle: bool = False
    messages: tuple[str, ...] = ()
    log_damage: Damage | None = None
    state: StateDir | None = None

    @property
    def result_fields(self) -> dict[str, Any]:
        """The fields of a ViewResult by name."""
        problems = {"messages": self.messages, "log_damage": self.log_damage}
        return {"at": self.now, "cycles": self.cycles, **problems}

    @cached_property
    def plan(self) -> Plan:
        """Plan of a cycle that begins at `now`. It is not committed."""
        from iris_cli.core.scheduling import plan
        from iris_cli.ops.secret_values import missing_for_jobs, secrets_of_loop

        missing = missing_for_jobs(self.cluster, self.state)
        if self.cycles is not None and self.cycles.by == LOOP:
            # The loop starts the tasks, so its secrets count.
            age = self.cycles.last_own
            last_cycle = self.now - age if age is not None else float("-inf")
            secrets = secrets_of_loop(self.cluster, self.cycles.missing, missing.secrets, last_cycle)
            missing = structs.replace(missing, secrets=secrets)
        return plan(self.cluster, self.now, limits=self.limits, missing=missing, offered=self.offered)

    @cached_property
    def next_workers(self) -> Mapping[TaskId, WorkerId]:
        """The worker on which the next cycle would place each pending task that fits now."""
        return {each.task: each.worker for each in self.plan.assignments}

    @cached_property
    def _timed_out(self) -> frozenset[TaskId]:
        return frozenset(self.plan.timed_out_tasks)

    @cached_property
    def stopping_on(self) -> frozenset[WorkerId]:
        """Workers with an attempt that is being stopped."""
        return frozenset(self.cluster.stopping_jobs())

    def prospect(self, job: Job, task: TaskId) -> str:
        """Return why a task is pending, or what the next cycle will do with it, in a few words."""
        reasons = self.plan.waiting.get(job.id if job.is_gang else task)
        if reasons:
            return reason_words(reasons)
        if task in self.next_workers:
            return f"ready{self.next_words('starts in the next cycle')}"
        if task in self._timed_out:
            return f"scheduling timeout exceeded{self.next_words('ends in the next cycle')}"
        return f"{dependency_reason(self.cluster, job)}{self.next_words('ends in the next cycle')}"

    def prospects(self, job: Job, tasks: Sequence[TaskId]) -> Mapping[str, int]:
        """Return the distinct prospects of a job's pending tasks, with the number of tasks of each.

        The prospect is computed once for all tasks with the same cause object in the plan.
        """
        if not tasks:
            return {}
        causes = self.plan.waiting.causes([job.id] * len(tasks) if job.is_gang else tasks)
        next_workers = self.next_workers
        keys = [
            id(task in next_workers if cause is None else cause)
            for task, cause in zip(tasks, causes, strict=True)
        ]
        first_tasks = dict(zip(reversed(keys), reversed(tasks), strict=True))
        found: dict[str, int] = {}
        for key, number in Counter(keys).items():
            words = self.prospect(job, first_tasks[key])
            found[words] = found.get(words, 0) + number
        return found

    def expected_start(self, job: Job, task: TaskId) -> ExpectedStart | None:
        """Return the estimated start of a pending task, or None.

        A start can be estimated only if the task waits for tasks with time limits. The result is also None in a view of
        the past, and if a scale group may add a slice earlier.
        """
        key = job.id if job.is_gang else task
        if self.cycle is None or self.offered or key not in self.plan.waiting:
            return None
        return self.plan.waiting.expected_start(key, self.cluster)

    def next_words(self, next_step: str) -> str:
        """Return `; {next_step}`, or `; no cycles are running` if none is expected; '' in a view of the past."""
        if self.cycles is None:
            return ""
        return f"; {next_step}" if self.has_next_cycle else "; no cycles are running"


def reason_words(reasons: Sequence[Reason]) -> str:
    """Return the texts of the first reason of each kind.

    Texts about the same machines share the noun: `1 of 2 v4-32 slices is busy (train), 1 is unavailable (v4a-0: lost)`.
    """
    found: dict[ReasonKind, str] = {}
    for reason in reasons:
        found.setdefault(reason.kind, reason.text)
    words, before = "", ""
    for text in found.values():
        share = _SHARE.fullmatch(text)
        noun = share[3] if share is not None else ""
        if share is not None and noun == before:
            words += f", {share[2]}{share[4]}"
        else:
            words += f"; {text}" if words else text
        before = noun
    return words


def load_view(session: Session, at: str | None = None, *, runs_cycles: bool = False) -> View:
    """Return the view of the cluster now, or as of the time `at` (see `parse_moment`). Takes no lock.

    `runs_cycles`: True if this command will run cycles itself. Raises UsageError for an invalid time.
    """
    now = session.clock.now()
    if at is not None:
        moment = parse_moment(at, now)
        past, reading, newest = as_of(session.state, moment, session.progress)
        if moment > max(now, newest):  # the log has times in the future if the clock was set back
            raise UsageError(f"{at[:80]!r} is in the future", hint="times are in UTC; 2h means two hours ago")
        session.damage = reading.damage
        return View(
            cluster=past,
            now=moment,
            limits=session.limits,
            offered=session.config.addable_devices,
            messages=log_messages(reading.warnings, reading.damage),
            log_damage=reading.damage,
        )
    cluster = session.view()
    needed = bool(work_left(cluster, session.config, session.state))
    cycles = cycles_of(session.state, now, session.config.loop, needed=needed)
    messages = list(session.messages)
    # This command reports a full disk, because a loop can't write its report to that disk.
    write_problem = disk_problem(session.state.path) if needed else ""
    if write_problem:
        messages.append(write_problem)
    can_write = not write_problem and session.damage is None
    if not can_write:
        cycles = structs.replace(cycles, next=None)
    has_next_cycle = (cycles.has_next_cycle or runs_cycles) and can_write
    messages += channel_problems(session, has_next_cycle=has_next_cycle)
    return View(
        cluster=cluster,
        now=now,
        limits=session.limits,
        offered=session.config.addable_devices,
        cycle=cycle_age(session.state.read_heartbeat(), now),
        cycles=cycles,
        has_next_cycle=has_next_cycle,
        messages=tuple(messages),
        log_damage=session.damage,
        state=session.state,
    )


def as_of(state: StateDir, moment: float, progress: Progress) -> tuple[Cluster, Reading, float]:
    """Return the cluster after the last transaction at or before `moment`, the Reading, and the latest time read.

    Clocks may be set back, so times in the log may be out of order. The cluster includes every transaction before the
    last one, whatever its time is. The log may be too large for memory, so it is read a second time if its times are
    out of order.
    """
    from iris_cli.core.evolve import replay

    start, reading = state.history_before(moment)
    last, newest = 0, start.at

    def transactions_until_moment() -> Iterator[Transaction]:
        nonlocal last, newest
        is_later = False
        for each in reading:
            newest = max(newest, each.at)
            is_later = is_later or each.at > moment
            last = each.seq if each.at <= moment else last
            if not is_later:
                yield each

    with progress(lambda: ("reading the log", *reading.progress)):
        past = replay(transactions_until_moment(), start)
    if last > past.seq:
        start, second_reading = state.history_before(moment)
        with progress(lambda: ("reading the log once more", *second_reading.progress)):
            past = replay(takewhile(lambda each: each.seq <= last, second_reading), start)
    return past, reading, newest


def cycle_age(heartbeat: Mapping[str, Any] | None, now: float) -> CycleAge:
    """Return the time and age of the last cycle in the heartbeat. The age is 0 if the clock was set back."""
    at = read_number(heartbeat or {}, "at")
    age = elapsed(at, None, now)
    return CycleAge(at=at, age=age, stale=age is None or age > STALE_AFTER)


def parse_moment(text: str, now: float) -> float:
    """Parse an ISO time (default zone: UTC) or an age into seconds since the epoch. Raises UsageError."""
    from datetime import UTC, datetime  # slow to import, and rarely used

    stripped = text.strip()
    try:
        moment = datetime.fromisoformat(stripped)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        pass
    try:
        return now - parse_duration(stripped)
    except UsageError:
        raise UsageError(
            f"{text[:80]!r} is not a time", hint="write 2h for two hours ago, or 2026-11-20T14:03 (UTC)"
        ) from None


def channel_problems(session: Session, *, has_next_cycle: bool) -> Iterator[str]:
    """Yield a sentence for each failing notification channel. `has_next_cycle`: True if another cycle is expected."""
    names = session.config.notify.channels
    records = session.state.notices.read() if names else None
    if records is None:
        return
    for name in names:
        channel = records.channels.get(name)
        if channel is not None and channel.failures:
            yield _problem_words(channel, session.clock.now(), has_next_cycle=has_next_cycle)


def last_notice(session: Session) -> str:
    """Return the age of the last sent notice and the number of dropped notices, in words."""
    records = session.state.notices.read()
    channels = records.channels if records is not None else {}
    ages = [session.clock.now() - each.told_at for each in channels.values() if each.told_at]
    last = f"last sent {format_duration(max(0.0, min(ages)))} ago" if ages else "nothing sent yet"
    dropped = sum(channel.given_up for channel in channels.values())
    return f"{last}; {count(dropped, 'notice')} dropped" if dropped else last


def _problem_words(channel: Channel, now: float, *, has_next_cycle: bool) -> str:
    failures = f" ({channel.failures} times in a row)" if channel.failures > 1 else ""
    wait = channel.retry_at - now
    retry = f"retried in {format_duration(wait) if wait > 0 else 'the next cycle'}"
    next_step = retry if has_next_cycle else "no cycles are running"
    waiting = f"{count(len(channel.waiting), 'notice')} to send, {next_step}" if channel.waiting else ""
    dropped = (
        f"{count(channel.given_up, 'notice')} dropped after {MAX_TRIES} tries" if channel.given_up else ""
    )
    return "; ".join(filter(None, (f"notify: {channel.trouble}{failures}", waiting, dropped)))
