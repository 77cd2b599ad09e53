"""Suggest next steps for `iris` without arguments. This reads local files, calls no host, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from iris_cli.core import JobState, count, format_duration, group_pairs
from iris_cli.errors import ConfigError, IrisError, NotFoundError
from iris_cli.ops.outcomes.durations import RECENT_FAILURE

if TYPE_CHECKING:
    from iris_cli.ops.cluster_handle import ClusterHandle
    from iris_cli.ops.views.status import ClusterStatus

RECENT = 86_400.0  # seconds for which a failed job is listed
MAX_PER_KIND = 3  # maximum number of steps of one kind
_MAX_ENDED = 20  # number of ended jobs to search for recent failures


class Situation(StrEnum):
    TASK = "task"
    NOWHERE = "nowhere"  # no cluster.yaml exists
    BROKEN = "broken"  # cluster.yaml or the log can't be read
    FRESH = "fresh"  # no job has been submitted yet
    CLUSTER = "cluster"


class Step(Struct, frozen=True, kw_only=True):
    """A command to type. `words` say what the command does, or which problem it fixes.

    `urgent`: True if the command fixes a problem. `workers` are the workers with that problem.
    """

    command: str
    words: str
    urgent: bool = False
    workers: tuple[str, ...] = ()


class NextSteps(Struct, frozen=True, kw_only=True):
    """The situation (`place`), and the steps, most important first.

    `status` is the status of a cluster in use, otherwise None. Without a status, `words` describe the situation.
    """

    place: Situation
    steps: tuple[Step, ...]
    words: str = ""
    status: ClusterStatus | None = None


def next_steps(handle: ClusterHandle, environ: Mapping[str, str], home: Path) -> NextSteps:
    """Return the situation and the next steps. Raises ConfigError if a file that the user named is missing."""
    if handle.is_in_task:
        return _steps_in_task(environ)
    try:
        path = handle.config_file
    except ConfigError:
        if handle.config_path or environ.get("IRIS_CONFIG"):
            raise
        return _steps_without_config(home, environ)
    try:
        hosts = len(handle.config.hosts)
    except ConfigError as error:
        problem = count(len(error.problems), "problem") if error.problems else error.message
        return _steps_after_error(f"{path} can't be used", "iris config validate", problem)
    from iris_cli.ops.views.status import cluster_status

    try:
        status = cluster_status(handle.session("iris"), ended=_MAX_ENDED)
    except NotFoundError:
        return _steps_without_jobs(path, hosts, home, environ)
    except IrisError as error:
        return _steps_after_error(error.message, "iris doctor", error.hint)
    if not status.jobs and (status.cycle is None or status.cycle.at is None):
        return _steps_without_jobs(path, hosts, home, environ)
    has_capacity = status.workers or status.scaling.groups
    worker_steps = () if has_capacity else tuple(_worker_steps(path, hosts, home, environ))
    return NextSteps(place=Situation.CLUSTER, status=status, steps=tuple(_steps(status, worker_steps)))


def _worker_steps(path: Path, hosts: int, home: Path, environ: Mapping[str, str]) -> Iterator[Step]:
    """Yield the steps that lead to the first usable worker. `hosts` is the number of hosts in cluster.yaml."""
    if hosts:
        yield Step(command="iris doctor", words="check keys, hosts and clocks")
        yield Step(command="iris worker probe", words="probe the hosts")
    else:
        yield from _import_steps(home, environ)
        yield Step(command="iris config validate", words=f"check {path.name} (add hosts first)")


def _steps_in_task(environ: Mapping[str, str]) -> NextSteps:
    job, worker = environ.get("IRIS_JOB_ID", ""), environ.get("IRIS_WORKER_ID", "")
    rank = f"rank {environ.get('IRIS_TASK_INDEX', '?')} of {environ.get('IRIS_NUM_TASKS', '?')}"
    steps = (
        Step(command="iris status", words="state of its job"),
        Step(command="iris launch -- COMMAND", words="submit a child job"),
        Step(command="iris register-endpoint NAME PORT", words="register a port under a name"),
    )
    return NextSteps(place=Situation.TASK, words=f"{rank} of {job}, on {worker}", steps=steps)


def _steps_without_config(home: Path, environ: Mapping[str, str]) -> NextSteps:
    steps = (
        *_import_steps(home, environ),
        Step(command="iris init", words="create a cluster.yaml to fill in"),
        Step(command="iris demo", words="tour on local hosts: no account, no root"),
    )
    return NextSteps(place=Situation.NOWHERE, words="no cluster.yaml in this directory", steps=steps)


def _import_steps(home: Path, environ: Mapping[str, str]) -> Iterator[Step]:
    """Yield a step for each source on this machine that could be imported."""
    from iris_cli.ops.setup.cluster_import.source import offers

    for each in offers(Path.cwd(), home, environ):
        number, noun = (each.slices, "slice") if each.slices else (each.hosts, "host")
        entries = count(number, noun) if number else "slices"
        yield Step(command=each.command, words=f"write its {entries} into cluster.yaml")


def _steps_after_error(words: str, command: str, problem: str) -> NextSteps:
    step = Step(command=command, words=problem, urgent=True)
    return NextSteps(place=Situation.BROKEN, words=words, steps=(step,))


def _steps_without_jobs(path: Path, hosts: int, home: Path, environ: Mapping[str, str]) -> NextSteps:
    launch = Step(command="iris launch -- hostname", words="first job")
    return NextSteps(
        place=Situation.FRESH,
        words=f"{path}: {count(hosts, 'host')}; no job has run yet",
        steps=(*_worker_steps(path, hosts, home, environ), *((launch,) if hosts else ())),
    )


def _steps(status: ClusterStatus, worker_steps: Sequence[Step]) -> Iterator[Step]:
    """Yield the steps for a cluster in use.

    Steps for problems come first, then `worker_steps`, then steps for running and pending jobs and for older failures.
    """
    from iris_cli.ops.views.cycles import fix_of
    from iris_cli.ops.views.status import in_display_order

    for message in status.messages:
        words, _, command = message.rpartition(": ")
        is_named = command.startswith("iris ") and status.log_damage is None
        yield Step(
            command=command if is_named else "iris doctor", words=words if is_named else message, urgent=True
        )
    running = [job for job in status.jobs if job.workers]
    waiting = [job for job in in_display_order(status.jobs) if not (job.workers or job.state.terminal)]
    cycles = status.cycles
    if cycles is not None:
        for trouble in cycles.troubles:
            yield Step(command=fix_of(trouble), words=f"background loop: {trouble}", urgent=True)
        if cycles.needed and not cycles.has_next_cycle and status.log_damage is None:
            last = "ever" if cycles.last is None else f"for {format_duration(cycles.last)}"
            words = f"no cycle {last}, no cycles are running"
            if cycles.fix.startswith("iris "):
                yield Step(command=cycles.fix.split(",")[0], words=words, urgent=True)
            else:  # the state directory is not writable
                yield Step(command="iris doctor", words=f"{words}: {cycles.fix}", urgent=True)
    new_failures, old_failures = _failure_steps(status)
    yield from new_failures
    yield from _unusable_worker_steps(status)
    yield from worker_steps
    if running:
        yield Step(command=f"iris logs {running[-1].id} --follow", words="live output")
        yield Step(command="iris watch", words="live view")
    for job in waiting[:MAX_PER_KIND]:
        yield Step(command=f"iris why {job.id}", words=f"submitted {format_duration(job.age)} ago: {job.why}")
    yield from old_failures
    if not (running or waiting or worker_steps or status.log_damage):
        yield Step(command="iris launch -- COMMAND", words="submit a job")


def _failure_steps(status: ClusterStatus) -> tuple[list[Step], list[Step]]:
    """Return the steps for new failures, and the steps for older failures, newest first."""
    failures = (JobState.FAILED, JobState.UNSCHEDULABLE)
    ends = [(status.at - (job.ended_at or 0.0), job) for job in status.jobs if job.state in failures]
    recent = sorted((each for each in ends if each[0] < RECENT), key=lambda each: each[0])
    new: list[Step] = []
    older: list[Step] = []
    for age, job in recent[:MAX_PER_KIND]:
        words = f"failed {format_duration(max(0.0, age))} ago" + (f"; {job.why}" if job.why else "")
        step = Step(command=f"iris status {job.id}", words=words, urgent=True)
        (new if age < RECENT_FAILURE else older).append(step)
    if len(recent) > MAX_PER_KIND:
        words = f"{count(len(recent) - MAX_PER_KIND, 'more job')} failed"
        older.append(Step(command="iris status --state failed", words=words, urgent=True))
    return new, older


def _unusable_worker_steps(status: ClusterStatus) -> Iterator[Step]:
    """Yield a step for each reason why workers accept no new work."""
    # Omit draining workers, because the operator wants the drain, and workers that only stop tasks.
    expected = ("draining", "stopping")
    unusable = (each for each in status.workers if each.refuses and each.status not in expected)
    by_reason = group_pairs((each.refuses[0], each.id) for each in unusable)
    largest = sorted(by_reason.items(), key=lambda each: -len(each[1]))
    for why, names in largest[:MAX_PER_KIND]:
        command = f"iris worker show {names[0]}"
        yield Step(command=command, words=why, urgent=True, workers=tuple(names))
    if others := sum(len(names) for _, names in largest[MAX_PER_KIND:]):
        words = f"{count(others, 'more worker')} accepting no tasks"
        yield Step(command="iris workers", words=words, urgent=True)
