"""The scheduler: assign pending tasks to workers, with a typed reason for each task that stays pending."""

from iris_cli.core.scheduling.cycle import SchedulingResult, find_assignments
from iris_cli.core.scheduling.explain.explanation import Change, ChangeKind, ExpectedStart, Explanation
from iris_cli.core.scheduling.independent import independent_assignments, unaffected_jobs
from iris_cli.core.scheduling.placement import Assignment
from iris_cli.core.scheduling.plan import Plan, plan
from iris_cli.core.scheduling.reasons import Reason, ReasonKind
