"""Promises about `retry`, jobs submitted again and quiet tasks, each broken by one change of the source."""

from __future__ import annotations

from tests.simulation.planting import Mutation
from tests.simulation.source_changes import change

_LIFECYCLE = "iris_cli.core.lifecycle"

SECOND_TRIES_PROMISES = (
    Mutation(
        "retry-charged",
        "a failure after the order of `retry` is charged",
        change(
            f"{_LIFECYCLE}.attempts",
            "if stop is not None and stop.reason is EndReason.RETRIED and end",
            "if stop is not None and stop.reason is EndReason.OK and end",
        ),
    ),
    Mutation(
        "retry-ends-it",
        "a task that is retried ends for good",
        change(
            f"{_LIFECYCLE}.attempts",
            "if reason is EndReason.RETRIED:\n        return True",
            "if reason is EndReason.RETRIED:\n        return False",
        ),
    ),
    Mutation(
        "retried-gang-ends",
        "a gang that is retried ends for good",
        change(f"{_LIFECYCLE}.gangs", "return reason is EndReason.RETRIED  #", "return False  #"),
    ),
    Mutation(
        "retry-of-one-rank",
        "`retry` of a rank stops that rank alone",
        change(
            f"{_LIFECYCLE}.jobs",
            "all_tasks = index is None or draft.cluster.jobs[job].is_gang",
            "whole = index is None",
        ),
    ),
    Mutation(
        "retry-forgotten",
        "`retry` reports a stopped attempt, but the log has no stop order",
        change(f"{_LIFECYCLE}.jobs", "stop(draft, attempt_id, EndReason.RETRIED)", "attempt_id.task"),
    ),
    Mutation(
        "again-takes-all",
        "`--again --failed` also submits tasks that succeeded",
        change(
            f"{_LIFECYCLE}.resubmission",
            "if task.state is not TaskState.SUCCEEDED",
            "if task.state is not None",
        ),
    ),
    Mutation(
        "again-loses-a-field",
        "a relaunched job has the default grace",
        change(
            f"{_LIFECYCLE}.resubmission",
            "return fields | _shape(job, given)",
            'return fields | _shape(job, given) | {"grace": None}',
        ),
    ),
    Mutation(
        "again-waits-again",
        "a relaunched job waits for the dependencies of the first one",
        change(
            f"{_LIFECYCLE}.resubmission",
            'fields |= {\n        "cpu": resources.cpu,',
            'fields |= {\n        "after": job.after,\n        "cpu": resources.cpu,',
        ),
    ),
    Mutation(
        "again-named-after-the-last",
        "the third job of a chain is named after the second one",
        change(f"{_LIFECYCLE}.resubmission", "while job.again is not None:", "while False:"),
    ),
    Mutation(
        "quiet-since-it-was-weighed",
        "quiet time is dated by when iris processed it, not by when the worker reported it",
        change(f"{_LIFECYCLE}.attempts", "draft.at - report.waited - report", "draft.at - report"),
    ),
    Mutation(
        "quiet-for-good",
        "a task that writes again stays marked as quiet",
        change(
            f"{_LIFECYCLE}.attempts",
            "        marked_since is not None\n        and not 0 < silent",
            "        False\n        and not 0 < silent",
        ),
    ),
    Mutation(
        "quiet-too-soon",
        "a task is marked as quiet after half of its `silent_after`",
        change(
            f"{_LIFECYCLE}.attempts",
            "or not 0 < silent_after <= report.last_output_ago",
            "or not 0 < silent_after / 2 <= report.last_output_ago",
        ),
    ),
    Mutation(
        "never-quiet",
        "no task is marked as quiet",
        change(
            f"{_LIFECYCLE}.attempts",
            "or not 0 < silent_after <= report.last_output_ago",
            "or not 0 > silent_after",
        ),
    ),
)
