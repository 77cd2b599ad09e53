"""Suggested next steps for `iris` without arguments. Reads local files, contacts no host, changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from iris_cli.core import JobState, count, format_duration
from iris_cli.errors import ConfigError, IrisError, NotFoundError
from iris_cli.ops.outcomes.durations import FRESH

if TYPE_CHECKING:
    from iris_cli.ops.views.status import ClusterStatus
    from iris_cli.ops.workplace import Workplace

LATELY = 86_400.0
"""Seconds for which a failed job is listed."""
MOST_OF_A_KIND = 3
_ENDED = 20  # ended jobs read: enough to find recent failures


class Place(StrEnum):
    """Situation of the current directory or task."""

    TASK = "task"
    NOWHERE = "nowhere"  # there is no cluster.yaml
    BROKEN = "broken"  # cluster.yaml or the log can't be read
    FRESH = "fresh"  # no job has been submitted yet
    CLUSTER = "cluster"


class Step(Struct, frozen=True, kw_only=True):
    """A command to type, and why. `urgent`: something is wrong. `workers`: the workers concerned."""

    command: str
    words: str
    urgent: bool = False
    workers: tuple[str, ...] = ()


class NextSteps(Struct, frozen=True, kw_only=True):
    """The situation, as a sentence or as the cluster's status, and the next steps, most important first."""

    place: Place
    words: str
    status: ClusterStatus | None
    steps: tuple[Step, ...]


def next_steps(where: Workplace, environ: Mapping[str, str], home: Path) -> NextSteps:
    """Return the situation and the next steps. Raises ConfigError if a named file is missing."""
    if where.is_inside:
        return _in_a_task(environ)
    try:
        path = where.config_file
    except ConfigError:
        if where.config_path or environ.get("IRIS_CONFIG"):
            raise
        return _nowhere(home, environ)
    try:
        hosts = len(where.config.hosts)
    except ConfigError as error:
        found = count(len(error.problems), "problem") if error.problems else error.message
        return _broken(
            f"{path} can't be used", Step(command="iris config validate", words=found, urgent=True)
        )
    from iris_cli.ops.views.status import cluster_status

    try:
        status = cluster_status(where.session("iris"), ended=_ENDED)
    except NotFoundError:
        return _fresh(path, hosts, home, environ)
    except IrisError as error:
        return _broken(error.message, Step(command="iris doctor", words=error.hint, urgent=True))
    if not status.jobs and (status.cycle is None or status.cycle.at is None):
        return _fresh(path, hosts, home, environ)
    has_room = status.workers or status.scaling.groups
    return of_cluster(status, () if has_room else tuple(to_workers(path, hosts, home, environ)))


def of_cluster(status: ClusterStatus, first: Sequence[Step] = ()) -> NextSteps:
    """Return the next steps for a cluster in use; `first` are steps required before any job can run."""
    return NextSteps(place=Place.CLUSTER, words="", status=status, steps=tuple(_steps(status, first)))


def to_workers(path: Path, hosts: int, home: Path, environ: Mapping[str, str]) -> Iterator[Step]:
    """Yield the steps to the first worker, for a cluster.yaml with `hosts` hosts."""
    if hosts:
        yield Step(command="iris doctor", words="check keys, hosts and clocks")
        yield Step(command="iris worker probe", words="probe the hosts")
    else:
        yield from _imports(home, environ)
        yield Step(command="iris config validate", words=f"after adding hosts to {path.name}")


def _in_a_task(environ: Mapping[str, str]) -> NextSteps:
    job, worker = environ.get("IRIS_JOB_ID", ""), environ.get("IRIS_WORKER_ID", "")
    rank = f"rank {environ.get('IRIS_TASK_INDEX', '?')} of {environ.get('IRIS_NUM_TASKS', '?')}"
    steps = (
        Step(command="iris status", words="state of its job"),
        Step(command="iris launch -- COMMAND", words="submit a child job"),
        Step(command="iris register-endpoint NAME PORT", words="register a port under a name"),
    )
    return NextSteps(place=Place.TASK, words=f"{rank} of {job}, on {worker}", status=None, steps=steps)


def _nowhere(home: Path, environ: Mapping[str, str]) -> NextSteps:
    steps = (
        *_imports(home, environ),
        Step(command="iris init", words="create a cluster.yaml to fill in"),
        Step(command="iris demo", words="tour on local hosts: no account, no root"),
    )
    return NextSteps(place=Place.NOWHERE, words="no cluster.yaml in this directory", status=None, steps=steps)


def _imports(home: Path, environ: Mapping[str, str]) -> Iterator[Step]:
    """Yield the imports available on this machine."""
    from iris_cli.ops.setup.cluster_import.source import offers

    for each in offers(Path.cwd(), home, environ):
        what = (
            count(each.slices, "slice")
            if each.slices
            else count(each.hosts, "host")
            if each.hosts
            else "slices"
        )
        yield Step(command=each.command, words=f"write its {what} into cluster.yaml")


def _broken(words: str, step: Step) -> NextSteps:
    return NextSteps(place=Place.BROKEN, words=words, status=None, steps=(step,))


def _fresh(path: Path, hosts: int, home: Path, environ: Mapping[str, str]) -> NextSteps:
    launch = Step(command="iris launch -- hostname", words="first job")
    return NextSteps(
        place=Place.FRESH,
        words=f"{path}: {count(hosts, 'host')}; no job has run yet",
        status=None,
        steps=(*to_workers(path, hosts, home, environ), *((launch,) if hosts else ())),
    )


def _steps(status: ClusterStatus, first: Sequence[Step]) -> Iterator[Step]:
    """Yield problems, then `first`, running and pending jobs, then failures some time ago."""
    from iris_cli.ops.views.cycles import fix_of
    from iris_cli.ops.views.status import in_reading_order

    for message in status.messages:
        yield Step(command="iris doctor", words=message, urgent=True)
    running = [job for job in status.jobs if job.workers]
    waiting = [job for job in in_reading_order(status.jobs) if not (job.workers or job.state.terminal)]
    cycles = status.cycles
    if cycles is not None:
        for trouble in cycles.troubles:
            yield Step(command=fix_of(trouble), words=f"background loop: {trouble}", urgent=True)
        if cycles.needed and not cycles.has_next_cycle:
            last = "ever" if cycles.last is None else f"for {format_duration(cycles.last)}"
            words = f"no cycle {last}, no cycles are running"
            if cycles.fix.startswith("iris "):
                yield Step(command=cycles.fix.split(",")[0], words=words, urgent=True)
            else:  # the state can't be written
                yield Step(command="iris doctor", words=f"{words}: {cycles.fix}", urgent=True)
    is_news, is_older = _failed(status)
    yield from is_news
    yield from _out_of_service(status)
    yield from first
    if running:
        yield Step(command=f"iris logs {running[-1].id} --follow", words="its output")
        yield Step(command="iris watch", words="live view")
    for job in waiting[:MOST_OF_A_KIND]:
        yield Step(command=f"iris why {job.id}", words=f"pending for {format_duration(job.age)}: {job.why}")
    yield from is_older
    if not (running or waiting or first):
        yield Step(command="iris launch -- COMMAND", words="submit a job")


def _failed(status: ClusterStatus) -> tuple[list[Step], list[Step]]:
    """Return steps for fresh and for older failures, newest first."""
    bad = (JobState.FAILED, JobState.UNSCHEDULABLE)
    ends = [(status.at - (job.ended_at or 0.0), job) for job in status.jobs if job.state in bad]
    lately = sorted((each for each in ends if each[0] < LATELY), key=lambda each: each[0])
    news: list[Step] = []
    older: list[Step] = []
    for age, job in lately[:MOST_OF_A_KIND]:
        words = f"failed {format_duration(max(0.0, age))} ago" + (f": {job.why}" if job.why else "")
        step = Step(command=f"iris status {job.id}", words=words, urgent=True)
        (news if age < FRESH else older).append(step)
    if len(lately) > MOST_OF_A_KIND:
        words = f"{count(len(lately) - MOST_OF_A_KIND, 'more job')} failed"
        older.append(Step(command="iris status --state failed", words=words, urgent=True))
    return news, older


def _out_of_service(status: ClusterStatus) -> Iterator[Step]:
    """Yield the workers that accept no new work, by reason."""
    by_why: dict[str, list[str]] = {}
    for worker in status.workers:
        if worker.refuses and worker.status != "draining":  # the operator started the drain
            by_why.setdefault(worker.refuses[0], []).append(worker.id)
    largest = sorted(by_why.items(), key=lambda each: -len(each[1]))
    for why, names in largest[:MOST_OF_A_KIND]:
        command = f"iris worker show {names[0]}"
        yield Step(command=command, words=why, urgent=True, workers=tuple(names))
    rest: Sequence[str] = [name for _, names in largest[MOST_OF_A_KIND:] for name in names]
    if rest:
        yield Step(
            command="iris workers", words=f"{count(len(rest), 'more worker')} out of service", urgent=True
        )
