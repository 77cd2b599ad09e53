"""Promises about tasks, gangs and workers, each broken by one change of the source."""

from __future__ import annotations

from tests.simulation.planting import Mutation
from tests.simulation.source_changes import change

_LIFECYCLE = "iris_cli.core.lifecycle"

_THE_LIFE_OF_A_TASK = (
    Mutation(
        "prepared-rank-charged",
        "a rank that has not started is charged for the loss of its host",
        change(
            f"{_LIFECYCLE}.attempts",
            "elif attempt.started_at is None:\n        draft.record(events.TaskDispatchFailed",
            "elif not attempt.acknowledged:\n        draft.record(events.TaskDispatchFailed",
        ),
    ),
    Mutation(
        "one-retry-too-many",
        "a task is retried once more often than `max_retries_failure` allows",
        change(
            f"{_LIFECYCLE}.attempts",
            "task.failures < job.max_retries_failure",
            "task.failures <= job.max_retries_failure",
        ),
    ),
    Mutation(
        "one-preemption-too-many",
        "a task is retried once more often than `max_retries_preemption` allows",
        change(
            f"{_LIFECYCLE}.attempts",
            "task.preemptions < job.max_retries_preemption",
            "task.preemptions <= job.max_retries_preemption",
        ),
    ),
    Mutation(
        "preemptions-never-retried",
        "a task whose host was lost is not retried",
        change(
            f"{_LIFECYCLE}.attempts", "task.preemptions < job.max_retries_preemption", "task.preemptions < 0"
        ),
    ),
    Mutation(
        "setup-failure-uncharged",
        "a failed setup counts as a refusal of the worker",
        change(f"{_LIFECYCLE}.attempts", 'if report.cause == "setup":', 'if report.cause == "set-up":'),
    ),
    Mutation(
        "timeout-retried",
        "a task that ran out of time is retried",
        change(
            f"{_LIFECYCLE}.attempts",
            "    if reason in PROGRAM_FAILURES:\n        return task",
            "    if reason in PROGRAM_FAILURES or reason is EndReason.TIMEOUT:\n        return task",
        ),
    ),
    Mutation(
        "lost-host-is-failed",
        "a task ends FAILED, not WORKER_FAILED, when its host was lost for good",
        change(
            f"{_LIFECYCLE}.attempts",
            "WORKER_FAILED if end.reason in INFRASTRUCTURE else TaskState.FAILED\n    draft",
            "FAILED\n    draft",
        ),
    ),
    Mutation(
        "started-when-seen",
        "the recorded start of a task is when an invocation sees it run",
        change(
            f"{_LIFECYCLE}.attempts",
            " at = round(draft.at - (report.started_ago or 0.0), 3)",
            " at = round(draft.at, 3)",
        ),
    ),
    Mutation(
        "ended-when-seen",
        "the recorded end of a task is when an invocation sees its exit",
        change(
            f"{_LIFECYCLE}.attempts",
            "return round(draft.at - (report.ended_ago or 0.0), 3)",
            "return round(draft.at, 3)",
        ),
    ),
    Mutation(
        "tolerates-one-less",
        "one failure fewer than `max_task_failures` fails a job",
        change(
            "iris_cli.core.model.cluster",
            "states.count(TaskState.FAILED) > job.max_task_failures",
            "states.count(TaskState.FAILED) > max(0, job.max_task_failures - 1)",
        ),
    ),
    Mutation(
        "keep-going-stops",
        "a failed task of an array stops the others",
        change(
            "iris_cli.core.model.cluster",
            "may_end_early = all_ended or not job.keep_going",
            "may_end_early = True",
        ),
    ),
    Mutation(
        "lost-hosts-tolerated",
        "a job succeeds although one of its tasks lost its host for good",
        change(
            "iris_cli.core.model.cluster",
            "only_tolerated = distinct <= {TaskState.FAILED, TaskState.SUCCEEDED}",
            "only_tolerated = True",
        ),
    ),
    Mutation(
        "pending-not-killed",
        "the end of a job leaves its pending tasks open",
        change(
            f"{_LIFECYCLE}.jobs",
            "        if not task.state.terminal:\n",
            "        if not task.state.terminal and task.attempts:\n",
        ),
    ),
    Mutation(
        "cancel-stops-nothing",
        "the end of a job stops none of its attempts",
        change(
            f"{_LIFECYCLE}.jobs",
            "    stop_live_attempts(draft, job, end.reason, end.trigger)\n\n",
            "    \n\n",
        ),
    ),
)

_GANGS = (
    Mutation(
        "siblings-run-on",
        "the siblings of a failed rank are not stopped",
        change(
            f"{_LIFECYCLE}.gangs",
            "    jobs.stop_live_attempts(draft, job_id, EndReason.SIBLING, causes[0].id)",
            "    ",
        ),
    ),
    Mutation(
        "exit-codes-outrank-hosts",
        "an exit code outranks a lost host",
        change(
            f"{_LIFECYCLE}.gangs",
            "kind = 0 if end.reason in INFRASTRUCTURE else 2 if",
            "kind = 1 if end.reason in INFRASTRUCTURE else 2 if",
        ),
    ),
    Mutation(
        "verdict-at-once",
        "a verdict does not wait for the answers to a running poll",
        change(
            f"{_LIFECYCLE}.gangs",
            "        return True  # regardless of the last poll's age",
            "        return False  # regardless of the last poll's age",
        ),
    ),
    Mutation(
        "verdict-does-not-wait",
        "a verdict does not wait for a rank whose host is silent",
        change(
            f"{_LIFECYCLE}.gangs",
            "not 0 <= draft.at - min(recorded) < limits.settle_seconds",
            "not 0 <= draft.at - min(recorded) < 0.0",
        ),
    ),
    Mutation(
        "one-round-too-few",
        "a gang is retried once less often than `max_retries_failure` allows",
        change(
            f"{_LIFECYCLE}.gangs",
            "return job.failed_rounds <= job.max_retries_failure",
            "return job.failed_rounds < job.max_retries_failure",
        ),
    ),
    Mutation(
        "one-round-too-many",
        "a gang is retried once more often than `max_retries_failure` allows",
        change(
            f"{_LIFECYCLE}.gangs",
            "return job.failed_rounds <= job.max_retries_failure",
            "return job.failed_rounds <= 1 + job.max_retries_failure",
        ),
    ),
    Mutation(
        "preempted-rounds-too-few",
        "a gang is retried once less often than `max_retries_preemption` allows",
        change(
            f"{_LIFECYCLE}.gangs",
            "return job.preempted_rounds <= job.max_retries_preemption",
            "return job.preempted_rounds < job.max_retries_preemption",
        ),
    ),
    Mutation(
        "refused-rounds-not-counted",
        "the refusal of a worker is not counted against a gang's round",
        change(
            f"{_LIFECYCLE}.gangs",
            "        task.attempts[-1].refused for task",
            "        task.attempts[-1].orphaned for task",
        ),
    ),
    Mutation(
        "first-success-ends-a-gang",
        "a gang succeeds when one of its ranks has succeeded",
        change(
            f"{_LIFECYCLE}.gangs",
            "if all(attempt.end is not None and attempt.end.reason is EndReason.OK for",
            "if any(attempt.end is not None and attempt.end.reason is EndReason.OK for",
        ),
    ),
)

_DISPATCH_AND_WORKERS = (
    Mutation(
        "take-over-at-once",
        "an attempt is taken over while its invocation holds the lease",
        change(
            f"{_LIFECYCLE}.attempts",
            "and not 0 <= draft.at - attempt.assigned_at < limits.dispatch_lease",
            "and not 0 <= draft.at - attempt.assigned_at < 0.0",
        ),
    ),
    Mutation(
        "take-over-never",
        "an attempt whose invocation died is never taken over",
        change(
            f"{_LIFECYCLE}.attempts",
            "and not 0 <= draft.at - attempt.assigned_at < limits.dispatch_lease",
            "and not 0 <= draft.at - attempt.assigned_at",
        ),
    ),
    Mutation(
        "quarantine-late",
        "a worker is quarantined one refusal later than `quarantine_after`",
        change(
            f"{_LIFECYCLE}.workers",
            "if worker.refusals >= limits.quarantine_after and",
            "if worker.refusals > limits.quarantine_after and",
        ),
    ),
    Mutation(
        "no-backoff",
        "a silent worker is called again at once",
        change(
            f"{_LIFECYCLE}.workers",
            "until = 0.0 if launching else draft.at + limits.backoff(failed)",
            "until = 0.0",
        ),
    ),
    Mutation(
        "lost-too-soon",
        "a worker is lost after three failed polls, however soon",
        change(
            f"{_LIFECYCLE}.workers",
            "if silence.kind in SILENT and is_long and failed >= _LOST_AFTER_POLLS:",
            "if silence.kind in SILENT and failed >= _LOST_AFTER_POLLS:",
        ),
    ),
    Mutation(
        "auth-is-silence",
        "a worker that rejects the key counts as silent",
        change(
            f"{_LIFECYCLE}.workers",
            "    if silence.kind is SilenceKind.AUTH:\n        return WorkerCondition.AUTH_FAILED\n",
            "    \n\n",
        ),
    ),
    Mutation(
        "all-preemptible",
        "`replace_lost: preemptible` replaces on workers that are not preemptible",
        change(
            f"{_LIFECYCLE}.failure_detection",
            'preemptible = worker.attributes.get(PREEMPTIBLE_ATTRIBUTE_KEY) == AttributeValue("true")',
            "preemptible = True",
        ),
    ),
    Mutation(
        "renew-suspect",
        "a poll renews leases on a worker that is suspect",
        change(
            f"{_LIFECYCLE}.failure_detection",
            "return _is_healthy(worker) and",
            "return",
        ),
    ),
    Mutation(
        "presume-early",
        "a worker is presumed gone after a part of `worker_lost_after`",
        change(f"{_LIFECYCLE}.failure_detection", ">= needed:\n", ">= needed / 4:\n"),
    ),
)

LIFECYCLE_PROMISES: tuple[Mutation, ...] = (*_THE_LIFE_OF_A_TASK, *_GANGS, *_DISPATCH_AND_WORKERS)
