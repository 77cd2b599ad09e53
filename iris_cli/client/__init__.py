"""The Python client, for programs on the operator's machine and inside tasks."""

from iris_cli.client.async_client import AsyncIrisClient, AsyncJob
from iris_cli.client.iris_client import IrisClient, Job, WaitTimeoutError
from iris_cli.client.records import Endpoint, JobInfo, JobStatus, LogLine, TaskStatus, get_job_info
from iris_cli.client.request_channel import UnansweredError
from iris_cli.core import Constraint, ConstraintOp, JobState, TaskState
from iris_cli.errors import IrisError

__all__ = [
    "AsyncIrisClient",
    "AsyncJob",
    "Constraint",
    "ConstraintOp",
    "Endpoint",
    "IrisClient",
    "IrisError",
    "Job",
    "JobInfo",
    "JobState",
    "JobStatus",
    "LogLine",
    "TaskState",
    "TaskStatus",
    "UnansweredError",
    "WaitTimeoutError",
    "get_job_info",
]
