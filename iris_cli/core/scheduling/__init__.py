"""The scheduler: assign pending tasks to workers, with a typed reason for each task that stays pending."""

from iris_cli.core.scheduling.cycle import SchedulingResult, Waiting, WaitingKey, find_assignments
from iris_cli.core.scheduling.explain.expected import ExpectedStart, time_limits
from iris_cli.core.scheduling.explain.explanation import (
    Change,
    ChangeKind,
    ConstraintCount,
    DimensionCount,
    Explanation,
    NearMiss,
    Taker,
)
from iris_cli.core.scheduling.independent import Independent, independent, untouched
from iris_cli.core.scheduling.placement import Assignment
from iris_cli.core.scheduling.plan import Plan, plan
from iris_cli.core.scheduling.reasons import Reason, ReasonKind

# fmt: off
__all__ = [
    "Assignment", "Change", "ChangeKind", "ConstraintCount", "DimensionCount", "ExpectedStart",
    "Explanation", "Independent", "NearMiss", "Plan", "Reason", "ReasonKind", "SchedulingResult", "Taker", "Waiting",
    "WaitingKey", "find_assignments", "independent", "plan", "time_limits", "untouched",
]
# fmt: on
