"""The pure heart of iris: what a cluster is, what happens to it, who is placed where. No I/O, no clock."""

from iris_cli.core.constraints import AttributeValue, Constraint, ConstraintOp, build_worker_attributes
from iris_cli.core.ids import AttemptId, JobId, TaskId, Token, WorkerId, clip, is_name
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.job import CoschedulingConfig, Job, JobRequest, JobState, Priority, Workspace
from iris_cli.core.model.limits import Limits
from iris_cli.core.model.task import Attempt, AttemptState, End, EndReason, Task, TaskState
from iris_cli.core.model.worker import Amounts, Claim, Connection, Worker, WorkerCondition
from iris_cli.core.resources import Device, Resources
from iris_cli.core.units import count, format_duration, format_memory

# fmt: off
__all__ = [
    "Amounts", "Attempt", "AttemptId", "AttemptState", "AttributeValue", "Claim", "Cluster",
    "Connection", "Constraint", "ConstraintOp", "CoschedulingConfig", "Device", "End", "EndReason",
    "Job", "JobId", "JobRequest", "JobState", "Limits", "Priority", "Resources", "Task", "TaskId",
    "TaskState", "Token", "Worker", "WorkerCondition", "WorkerId", "Workspace",
    "build_worker_attributes", "clip", "count", "format_duration", "format_memory", "is_name",
]
# fmt: on
