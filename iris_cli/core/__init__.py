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
from iris_cli.core.decorators import cached_by_argument, gc_paused
from iris_cli.core.grouping import group_pairs
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
from iris_cli.core.model.cluster import Cluster, Table, state_of, values_in_memory
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
from iris_cli.core.text import check_utf8, did_you_mean, nearest, pattern
from iris_cli.core.topology import canonical_type, describe, lookup
from iris_cli.core.units import count, format_cores, format_duration, format_memory, parse_index
