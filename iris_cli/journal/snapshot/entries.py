"""What stands in a snapshot, as the log's codec writes it: a job with its tasks, the fleet, and outputs.

What reads raises ValueError, TypeError or KeyError for what isn't of this kind.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from iris_cli.core.cluster import Cluster
from iris_cli.core.dataclass import dataclass
from iris_cli.core.endpoints import Announced
from iris_cli.core.ids import AttemptId, JobId, WorkerId, parse_attempt_id
from iris_cli.core.job import Job
from iris_cli.core.outputs import Outputs
from iris_cli.core.slice import GroupRecord, Keeper, Slice
from iris_cli.core.task import Task
from iris_cli.core.worker import Ghost, Worker
from iris_cli.journal.codec import decode_record, encode_record
from iris_cli.journal.snapshot.form import DamagedSnapshotError, with_crc

_ID = re.compile(rb'\{"id":"([^"]+)",')  # how the line of a job begins
LISTED = re.compile(rb'^\{"id":"([^"]+)","order":(\d+),"replicas":(\d+)(,"children":)?', re.MULTILINE)
"""What is said of it before it is read."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A job with its tasks, by index, and its children."""

    job: Job
    tasks: tuple[Task, ...]
    children: tuple[JobId, ...]


def encode_job(cluster: Cluster, job: Job) -> dict[str, Any]:
    """A job and what became of it; a task that nothing has happened to is left out."""
    entry: dict[str, Any] = {"id": job.id, "order": job.order, "replicas": job.replicas}
    if children := cluster.children.get(job.id):
        entry["children"] = list(children)
    tasks = (task for task in cluster.tasks_of(job.id) if task != Task(id=task.id))
    return {**entry, "job": encode_record(job), "tasks": [encode_record(task) for task in tasks]}


def job_line(cluster: Cluster, job: Job) -> bytes:
    return with_crc(encode_job(cluster, job)) + b",\n"


def id_of(line: bytes) -> bytes:
    """The job that a line is about. Raises DamagedSnapshotError."""
    match = _ID.match(line)
    if match is None:
        raise DamagedSnapshotError("a job")
    return match[1]


def decode_job(entry: Mapping[str, Any]) -> Whole:
    """The job in an entry of `encode_job`."""
    job = decode_record(Job, entry["job"])
    happened = {task.id: task for task in (decode_record(Task, each) for each in entry["tasks"])}
    tasks = tuple(happened.get(task) or Task(id=task) for task in job.task_ids)
    return Whole(job, tasks, tuple(JobId(child) for child in entry.get("children", ())))


def encode_fleet(cluster: Cluster) -> dict[str, Any]:
    return {
        "name": cluster.name,
        "workers": [encode_record(worker) for worker in cluster.workers.values()],
        "ghosts": {
            worker: [encode_record(ghost) for ghost in ghosts] for worker, ghosts in cluster.ghosts.items()
        },
        "endpoints": {str(attempt): encode_record(each) for attempt, each in cluster.endpoints.items()},
        "slices": [encode_record(each) for each in cluster.slices.values()],
        "scale_groups": [encode_record(each) for each in cluster.scale_groups.values()],
        "keeper": encode_record(cluster.keeper) if cluster.keeper is not None else None,
    }


def decode_fleet(entry: Mapping[str, Any]) -> Cluster:
    """The cluster without its jobs and outputs."""
    workers = [decode_record(Worker, each) for each in entry["workers"]]
    return Cluster(
        name=entry["name"],
        workers={worker.id: worker for worker in workers},
        ghosts={
            WorkerId(worker): tuple(decode_record(Ghost, each) for each in ghosts)
            for worker, ghosts in entry["ghosts"].items()
        },
        endpoints={
            parse_attempt_id(attempt): decode_record(Announced, each)
            for attempt, each in entry["endpoints"].items()
        },
        slices={each.name: each for each in (decode_record(Slice, it) for it in entry["slices"])},
        scale_groups={
            each.name: each for each in (decode_record(GroupRecord, it) for it in entry["scale_groups"])
        },
        keeper=decode_record(Keeper, entry["keeper"]) if entry["keeper"] is not None else None,
    )


def encode_outputs(outputs: Outputs) -> dict[str, Any]:
    """As texts that are read only when somebody asks for the outputs of that worker."""
    return {
        "full": [" ".join(map(str, batch)) for batch in outputs.full],
        "last": " ".join(map(str, outputs.last)),
        "asked_at": outputs.asked_at,
    }


def decode_outputs(entry: Mapping[str, Any]) -> Outputs:
    """The outputs in an entry of `encode_outputs`."""
    full, last = map(_attempts, entry["full"]), _attempts(entry["last"])
    return Outputs(full=tuple(full), last=last, asked_at=entry["asked_at"])


def _attempts(text: str) -> tuple[AttemptId, ...]:
    return tuple(map(parse_attempt_id, text.split()))
