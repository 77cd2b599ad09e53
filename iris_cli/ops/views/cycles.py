"""The runner (the process that runs a cluster's cycles), and the work that needs cycles."""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from msgspec import Struct, field, structs

from iris_cli.config.schema import ClusterConfig, Mode
from iris_cli.core import Attempt, AttemptId, Cluster, JobId, SliceState, Token, WorkerCondition
from iris_cli.core.units import count, format_duration
from iris_cli.journal.access import write_fix
from iris_cli.journal.files.runners import LOOP, Runner, runners_of
from iris_cli.journal.state_dir import StateDir
from iris_cli.ops.outcomes.durations import elapsed

CRON = "cron"
VALIDATE = "iris config validate"
_FIX = {
    Mode.AUTO: "iris loop start, or iris cron install",
    Mode.OFF: "iris watch --schedule, or iris cron install",
}
_NAMES = {"loop": "background loop", "watch": "iris watch", "wait": "iris wait", "command": "iris schedule"}
_MAX_MISSED = 3  # a runner without a cycle for this number of intervals is late
_MIN_LATE = 60.0  # seconds before any runner is late, because a cycle with many silent hosts is slow


class Cycles(Struct, frozen=True, kw_only=True):
    """The runner, which is the process that runs the cycles. `by` is its kind, or None if no cycles are running.

    Times are in seconds. `last` is the age of the last cycle of any runner, or None if no cycle has run. `last_own` is
    the same for this runner only. `next` is the time until the next cycle, or None if no cycle is expected. A runner is
    `late` if it holds its lock but runs no cycles, for example while it is suspended. Then `last` is the age of its own
    last cycle, and `next` is None. `host` is '' for this machine. `troubles` are problems of the loop, each with its
    fix. `missing` names the secrets that the loop lacks, by job. `needed`: True if open work needs cycles. `fix` is the
    command that starts cycles, or a text that says how to make the state directory writable.
    """

    by: str | None = None
    pid: int | None = None
    command: str = ""
    last: float | None = None
    last_own: float | None = None
    next: float | None = None
    interval: float | None = None
    host: str = ""
    late: bool = False
    troubles: tuple[str, ...] = ()
    missing: Mapping[JobId, Sequence[str]] = field(default_factory=dict)
    needed: bool = True
    fix: str = _FIX[Mode.AUTO]

    @property
    def has_next_cycle(self) -> bool:
        return self.next is not None


def cycles_of(state: StateDir, now: float, mode: Mode = Mode.AUTO, *, needed: bool = True) -> Cycles:
    """Return the runner of the cycles. If there are several runners, return one that is not late.

    `mode` is the value of `loop` in cluster.yaml. `needed`: True if open work needs cycles. Takes no lock, writes
    nothing, and never raises OSError.
    """
    heartbeat = state.read_heartbeat()
    records = runners_of(heartbeat)
    read = (read_number(each, "at") for each in (heartbeat or {}, *records.values()))
    times = [at for at in read if at is not None]
    # A time in the future says nothing about the last cycle: a clock was wrong.
    last = max((at for at in times if at - now < _MIN_LATE), default=max(times, default=None))
    runners = state.runners.live_runners()
    found = [_runner_cycles(each, records.get(each.kind, {}), now, state.host) for each in runners]
    if (cron := cron_cycles(records.get(CRON, {}), now)) is not None:
        found.append(cron)
    best = next((each for each in found if not each.late), next(iter(found), Cycles()))
    last_of_any = best.last if best.late else elapsed(last, None, now)
    return structs.replace(best, last=last_of_any, needed=needed, fix=write_fix(state.path) or _FIX[mode])


def with_invalid_configuration(cycles: Cycles) -> Cycles:
    """Return the runner if cluster.yaml is invalid: cron can't run cycles then, but a running process continues."""
    running = Cycles(last=cycles.last, needed=cycles.needed) if cycles.by == CRON else cycles
    return structs.replace(running, fix=VALIDATE)


def _runner_cycles(runner: Runner, record: Mapping[str, Any], now: float, this_host: str) -> Cycles:
    """Return the Cycles of a process that holds a runner lock. `record`: last heartbeat of a runner of this kind."""
    at = read_number(record, "at")
    interval = runner.interval or read_number(record, "interval") or 0.0
    since = max(at or 0.0, runner.since)
    late = now - since > max(_MAX_MISSED * interval, _MIN_LATE)
    is_by_this_loop = runner.kind == LOOP and record.get("pid", runner.pid) == runner.pid
    return Cycles(
        by=runner.kind,
        pid=runner.pid or None,
        command=runner.command,
        last=elapsed(at, None, now),
        last_own=elapsed(at, None, now) if at is not None and at >= runner.since else None,
        next=None if late else max(0.0, round(since + interval - now, 3)),
        interval=interval,
        host="" if runner.host in ("", this_host) else runner.host,
        late=late,
        troubles=_texts(record.get("troubles")) if is_by_this_loop else (),
        missing=_missing(record.get("missing")) if is_by_this_loop else {},
    )


def cron_cycles(record: Mapping[str, Any], now: float) -> Cycles | None:
    """Return the Cycles of cron, or None if its last cycle is too old, or in the future: a clock was wrong."""
    at, interval = read_number(record, "at"), read_number(record, "interval")
    if at is None or not interval or abs(now - at) >= _MAX_MISSED * interval:
        return None
    return Cycles(
        by=CRON,
        last=elapsed(at, None, now),
        last_own=elapsed(at, None, now),
        next=max(0.0, round(at + interval - now, 3)),
        interval=interval,
    )


def read_number(record: Mapping[str, Any], name: str) -> float | None:
    """Return a finite number in a heartbeat's record, or None if the number is missing or malformed."""
    value: Any = record.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    return float(value) if is_number else None


def _texts(value: object) -> tuple[str, ...]:
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def _missing(value: object) -> dict[JobId, list[str]]:
    """Return the missing secrets by job. Malformed values are ignored."""
    if not isinstance(value, dict):
        return {}
    return {JobId(str(job)): list(_texts(names)) for job, names in value.items()}


def work_left(cluster: Cluster, config: ClusterConfig, state: StateDir) -> str:
    """Return a short description of the first kind of open work, or '' if nothing needs a cycle."""
    if jobs := jobs_need_cycles(cluster):
        return jobs
    if config.scales and _slices_change(cluster, config):
        return "slices to create or delete"
    records = state.notices.read() if config.notify.channels else None
    if records is not None and (waiting := sum(len(each.waiting) for each in records.channels.values())):
        return f"{count(waiting, 'notice')} to send"
    if config.limits.keep_logs and (due := len(logs_to_copy(cluster, state.logs_due.all()))):
        return f"logs of {count(due, 'attempt')} to copy"
    return ""


def logs_to_copy(cluster: Cluster, due: Mapping[Token, AttemptId]) -> list[tuple[AttemptId, Attempt]]:
    """Return the attempts in `due` whose output still exists and whose worker is healthy."""
    found = []
    for token, attempt_id in due.items():
        attempt = find_kept_attempt(cluster, attempt_id, token)
        worker = cluster.workers.get(attempt.worker) if attempt is not None else None
        if attempt is not None and worker is not None and worker.condition is WorkerCondition.HEALTHY:
            found.append((attempt_id, attempt))
    return found


def find_kept_attempt(cluster: Cluster, attempt_id: AttemptId, token: Token) -> Attempt | None:
    """Return the attempt, or None if it does not exist with this token, or if its files are deleted."""
    attempt = cluster.find_attempt(attempt_id, token)
    return attempt if attempt is not None and attempt.reaped_at is None else None


def jobs_need_cycles(cluster: Cluster) -> str:
    """Return the number of open jobs, or of attempts to stop, in words; '' if no job needs cycles.

    Attempts on lost workers and attempts with unkillable processes can't be stopped now. They are not counted.
    """
    open_jobs = cluster.open_jobs()
    if jobs := sum(job.end is None for job in open_jobs):
        return count(jobs, "open job")
    attempts = [attempt for job in open_jobs for _, attempt in cluster.live_attempts_of(job.id)]
    can_stop = (
        not attempt.unkillable and cluster.workers[attempt.worker].condition is not WorkerCondition.LOST
        for attempt in attempts
    )
    stopping = sum(can_stop)
    return f"{count(stopping, 'attempt')} to stop" if stopping else ""


def _slices_change(cluster: Cluster, config: ClusterConfig) -> bool:
    """Return True if slices are changing, or will change because a group has more or fewer slices than its minimum."""
    groups = {group.name: group for group in config.scale_groups}
    for each in cluster.slices.values():
        group = groups.get(each.group)
        if each.state is not SliceState.READY or (group is not None and group.template != each.template):
            return True
    minimum = Counter({group.name: group.min_slices for group in config.scale_groups})
    return Counter(each.group for each in cluster.slices.values()) != minimum


def cycles_words(cycles: Cycles) -> str:
    """Return a line such as `cycles: background loop (pid 4711), last 3s ago`. If no cycles run, it names the fix."""
    age = format_duration(cycles.last or 0.0)
    if not cycles.by and cycles.last is None:
        return f"no cycles are running (none has run yet): {cycles.fix if cycles.needed else 'iris schedule --once'}"
    if not cycles.by and not cycles.needed:
        return f"no job is open, last cycle {age} ago"
    if not cycles.by:
        return f"no cycles are running (last one {age} ago): {cycles.fix}"
    last = "none yet" if cycles.last is None else f"last {age} ago"
    if cycles.by == CRON:
        return f"cycles: cron every {format_duration(cycles.interval or 0.0)}, {last}"
    name = _NAMES[LOOP] if cycles.by == LOOP else cycles.command or _NAMES.get(cycles.by, cycles.by)
    if not cycles.pid:
        return f"cycles: {name}, starting"
    who = f"{name} (pid {cycles.pid}{f' on {cycles.host}' if cycles.host else ''})"
    if cycles.late:
        fix = "run: iris loop start" if cycles.by == LOOP else "is it suspended?"
        return f"cycles: {who} is late ({last.replace('last', 'last cycle')}); {fix}"
    return f"cycles: {who}, {last}"


def fix_of(trouble: str) -> str:
    """Return the command that a problem of the loop names, or the command that shows the loop's log."""
    named = [each for each in ("iris loop start", VALIDATE) if each in trouble]
    return named[0] if named else "iris loop show"
