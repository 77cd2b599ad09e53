"""Cluster metrics for a monitoring system."""

from collections import Counter
from collections.abc import Mapping

from msgspec import Struct

from iris_cli.core import JobState, TaskState
from iris_cli.ops.session import Session
from iris_cli.ops.views.inventory import slice_rows, worker_rows
from iris_cli.ops.views.report import report
from iris_cli.ops.views.view import load_view

WINDOW = "24h"  # period that the metrics of ended jobs and chip-seconds cover


class Metrics(Struct, frozen=True, kw_only=True):
    """Metrics of the cluster at the time `at`. Times are in seconds. `last_cycle_age` is None if no cycle has run.

    `jobs` and `tasks` count open jobs and their tasks by state. `ended` counts the jobs that ended in the last 24
    hours. `workers` counts workers by the status in `iris workers`. A slice is `busy` if any of its chips is in use. A
    slice that is not busy is `unusable` if one of its workers accepts no new work, otherwise `free`. Chips are TPU
    chips and GPUs. `chip_seconds` cover 24 hours. `runner` is what runs the cycles: `loop`, `cron`, `watch`, `wait`,
    `command`, or None.
    """

    at: float
    jobs: Mapping[str, int]
    tasks: Mapping[str, int]
    ended: Mapping[str, int]
    workers: Mapping[str, int]
    slices: Mapping[str, int]
    chips: Mapping[str, int]
    chip_seconds: Mapping[str, float]
    last_cycle_age: float | None
    runner: str | None


def metrics(session: Session) -> Metrics:
    """Return the metrics of the cluster now and in the last 24 hours. Takes no lock.

    Raises NotFoundError without a log. Raises LogDamagedError if the log is damaged, because figures would be wrong.
    """
    view = load_view(session)
    if view.log_damage is not None:
        raise view.log_damage.error()
    cluster = view.cluster
    jobs: Counter[str] = Counter({state: 0 for state in JobState if not state.terminal})
    tasks: Counter[str] = Counter(dict.fromkeys(TaskState, 0))
    for job in cluster.open_jobs():
        if job.end is None:
            jobs[cluster.job_state(job.id)] += 1
            tasks.update(task.state for task in cluster.tasks_of(job.id))
    rows = worker_rows(view)
    slices: Counter[str] = Counter(free=0, busy=0, unusable=0)
    for each in slice_rows(view, rows):
        slices["busy" if each.busy else "unusable" if each.unusable else "free"] += 1
    chips: Counter[str] = Counter(free=0, busy=0, unusable=0)
    for row in rows:
        chips_in_use = row.chips and not row.chips_free
        busy = row.chips if chips_in_use else row.gpus - row.gpus_free
        chips["busy"] += busy
        chips["unusable" if row.refuses else "free"] += row.chips + row.gpus - busy
    day = report(session, WINDOW, every_job=True)
    used = sum(each.chip_seconds for job in day.jobs for each in job.attempts)
    available = sum(worker.chips * worker.seconds for worker in day.workers)
    ended: Counter[str] = Counter({state: 0 for state in JobState if state.terminal})
    ended.update(job.state for job in day.jobs if job.ended_at is not None)
    return Metrics(
        at=view.now,
        jobs=jobs,
        tasks=tasks,
        ended=ended,
        workers=Counter(row.status for row in rows),
        slices=slices,
        chips=chips,
        chip_seconds={"used": used, "idle": max(0.0, available - used)},
        last_cycle_age=None if view.cycles is None else view.cycles.last,
        runner=None if view.cycles is None else view.cycles.by,
    )
