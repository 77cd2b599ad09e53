"""The pure core of iris: the cluster model, its events, its lifecycle and the scheduler. It has no I/O and no clock."""

from iris_cli.core.attributes import (
    PREEMPTIBLE_ATTRIBUTE_KEY,
    REGION_ATTRIBUTE_KEY,
    TPU_NAME_ATTRIBUTE_KEY,
    ZONE_ATTRIBUTE_KEY,
    region_of_zone,
    scalar_of,
)
from iris_cli.core.constraints import AttributeValue, Constraint, ConstraintOp, build_worker_attributes
from iris_cli.core.ids import (
    AttemptId,
    JobId,
    RequestId,
    TaskId,
    Token,
    WorkerId,
    clip,
    depth_of,
    is_name,
    parent_of,
    parse_job_id,
    parse_task_id,
    root_of,
)
from iris_cli.core.model.array import format_indexes, parse_array
from iris_cli.core.model.cluster import Cluster, state_of
from iris_cli.core.model.job import (
    CoschedulingConfig,
    Job,
    JobRequest,
    JobState,
    Origin,
    Priority,
    ReplaceLost,
    Signature,
    Workspace,
)
from iris_cli.core.model.limits import Limits
from iris_cli.core.model.past import Table, in_memory
from iris_cli.core.model.slice import (
    INCOMPLETE,
    Addresses,
    Provider,
    ScaleGroup,
    Slice,
    SliceHost,
    SliceState,
    SliceTemplate,
    slice_attributes,
    slice_of,
)
from iris_cli.core.model.task import (
    Attempt,
    AttemptState,
    End,
    Ended,
    EndReason,
    Fact,
    Stopping,
    Task,
    TaskState,
)
from iris_cli.core.model.variables import MAX_STRING, check_variable, is_variable, secret_source
from iris_cli.core.model.worker import NOWHERE, Amounts, Claim, Connection, Worker, WorkerCondition
from iris_cli.core.resources import Device, Resources
from iris_cli.core.text import did_you_mean, pattern
from iris_cli.core.topology import canonical_type, describe, lookup
from iris_cli.core.units import count, format_duration, format_memory, parse_index

# fmt: off
__all__ = [
    "INCOMPLETE", "MAX_STRING", "NOWHERE", "PREEMPTIBLE_ATTRIBUTE_KEY", "REGION_ATTRIBUTE_KEY",
    "TPU_NAME_ATTRIBUTE_KEY", "ZONE_ATTRIBUTE_KEY", "Addresses", "Amounts", "Attempt", "AttemptId",
    "AttemptState", "AttributeValue", "Claim", "Cluster", "Connection", "Constraint", "ConstraintOp",
    "CoschedulingConfig", "Device", "End", "EndReason", "Ended", "Fact", "Job", "JobId", "JobRequest",
    "JobState", "Limits", "Origin", "Priority", "Provider", "ReplaceLost", "RequestId", "Resources",
    "ScaleGroup", "Signature", "Slice", "SliceHost", "SliceState", "SliceTemplate", "Stopping", "Table",
    "Task", "TaskId", "TaskState", "Token", "Worker", "WorkerCondition", "WorkerId", "Workspace",
    "build_worker_attributes", "canonical_type", "check_variable", "clip", "count", "depth_of", "describe",
    "did_you_mean", "format_duration", "format_indexes", "format_memory", "in_memory", "is_name",
    "is_variable", "lookup", "parent_of", "parse_array", "parse_index", "parse_job_id", "parse_task_id",
    "pattern", "region_of_zone", "root_of", "scalar_of", "secret_source", "slice_attributes", "slice_of",
    "state_of",
]
# fmt: on
