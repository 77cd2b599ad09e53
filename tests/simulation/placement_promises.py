"""Promises about scheduling and the event log, each broken by one change of the source."""

from __future__ import annotations

from tests.simulation.planting import Mutation
from tests.simulation.source_changes import change

_SCHEDULING = "iris_cli.core.scheduling"

_PLACEMENT = (
    Mutation(
        "throttle-ignored",
        "an array runs more tasks at a time than its throttle allows",
        change(
            f"{_SCHEDULING}.plan", "room = max(0, job.max_running - live_count)", "room = job.max_running"
        ),
    ),
    Mutation(
        "after-not-awaited",
        "a job starts before its dependencies have ended",
        change(
            f"{_SCHEDULING}.plan",
            "[dependency for dependency, state in states.items() if state is not JobState.SUCCEEDED]",
            "[dependency for dependency, state in states.items() if state is None]",
        ),
    ),
    Mutation(
        "after-in-vain",
        "a job waits forever for a dependency that failed",
        change(
            "iris_cli.core.model.job",
            "        return self.terminal and self is not JobState.SUCCEEDED",
            "        return False",
        ),
    ),
    Mutation(
        "younger-first",
        "the younger of two equal jobs is placed first",
        change(
            f"{_SCHEDULING}.order",
            "roots[job.priority].append((job.order,",
            "roots[job.priority].append((-job.order,",
        ),
    ),
    Mutation(
        "low-priority-first",
        "low priority is placed before high priority",
        change(
            f"{_SCHEDULING}.order",
            "    for priority in Priority:\n        entries",
            "    for priority in reversed(Priority):\n        entries",
        ),
    ),
    Mutation(
        "deadline-at-submission",
        "`scheduling_timeout` runs while a job waits for `after`",
        change(
            f"{_SCHEDULING}.order",
            "not (job.after or job.held_at is not None or job.released_at)",
            "True",
        ),
    ),
    Mutation(
        "deadline-for-the-placed",
        "`scheduling_timeout` ends a task that was placed before",
        change(
            f"{_SCHEDULING}.order",
            "    late = [task for task in tasks if not task.attempts and task.index < limit]",
            "    late = [task for task in tasks if task.index < limit]",
        ),
    ),
    Mutation(
        "deadline-never",
        "`scheduling_timeout` ends nothing",
        change(
            f"{_SCHEDULING}.order",
            "    return 0 < job.scheduling_timeout < now - job.submitted_at and (",
            "    return 1e6 < job.scheduling_timeout < now - job.submitted_at and (",
        ),
    ),
    Mutation(
        "ranks-out-of-order",
        "ranks do not follow the numbers of the VMs",
        change(
            f"{_SCHEDULING}.sets",
            "ranked = tuple(sorted(positions, key=ranks.__getitem__))",
            "ranked = tuple(sorted(positions, key=ranks.__getitem__, reverse=True))",
        ),
    ),
    Mutation(
        "draining-takes-new",
        "a draining worker takes new tasks",
        change(
            f"{_SCHEDULING}.fleet",
            "worker.unschedulable or worker.draining or worker.quarantined",
            "worker.unschedulable or worker.quarantined",
        ),
    ),
    Mutation(
        "quarantined-takes-new",
        "a quarantined worker takes new tasks",
        change(
            f"{_SCHEDULING}.fleet",
            "worker.unschedulable or worker.draining or worker.quarantined",
            "worker.unschedulable or worker.draining",
        ),
    ),
    Mutation(
        "suspect-takes-new",
        "a worker that does not answer takes new tasks",
        change(
            f"{_SCHEDULING}.fleet",
            "worker.condition is not WorkerCondition.HEALTHY",
            "worker.condition is WorkerCondition.UNPROBED",
        ),
    ),
    Mutation(
        "taints-ignored",
        "a tainted worker takes tasks that do not tolerate it",
        change(f"{_SCHEDULING}.fleet", " if taint not in tolerations)", " if False)"),
    ),
    Mutation(
        "chips-shared",
        "two tasks share the chips of a host",
        change("iris_cli.core.model.worker", "                chips = 0", "                chips = 1"),
    ),
    Mutation(
        "gpus-handed-out-twice",
        "one GPU is assigned to two tasks",
        change("iris_cli.core.model.worker", "if gpu not in taken)", "if gpu >= 0)"),
    ),
)

_THE_EVENT_LOG = (
    Mutation(
        "head-before-fsync",
        "HEAD names a line before it is on the disk",
        change(
            "iris_cli.journal.log.file_store",
            "self._disk.fsync(fd)\n            if end",
            "advance_head(self._disk, self._directory, end)\n            self._disk.fsync(fd)\n            if end",
        ),
    ),
)

PLACEMENT_PROMISES: tuple[Mutation, ...] = (*_PLACEMENT, *_THE_EVENT_LOG)
