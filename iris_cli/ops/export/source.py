"""The source of an export: a job in the state directory, or a job file."""

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, structs

from iris_cli.config.job_file import load_job_file, require_command
from iris_cli.config.job_script import is_script, load_job_script
from iris_cli.config.schema import Defaults
from iris_cli.core import AttributeValue, Cluster, Job, JobRequest, attributes, clip, lookup, parse_job_id
from iris_cli.core.lifecycle import request_fields, submit
from iris_cli.errors import ConfigError, UsageError
from iris_cli.ops import cluster_handle, names
from iris_cli.ops.cycle.environment import hash_lines, read_line
from iris_cli.ops.export.gke_tpu import gke_types
from iris_cli.ops.session import Session

_YAML = (".yaml", ".yml")


class Source(Struct, frozen=True, kw_only=True):
    """A job to export, with data that the job's record lacks.

    `default_env`: the variables that `cluster.yaml` sets for all tasks. `workdir`: the directory that a job file ships.
    `lines`: the line of each task if the job has an `--each-line` file.
    """

    job: Job
    default_env: Mapping[str, str]
    workdir: str = ""
    lines: tuple[str, ...] = ()
    image: str = ""

    @property
    def starts_together(self) -> bool:
        """True if all tasks start and end together, because the job is a gang or has only one task."""
        return self.job.is_gang or (self.job.replicas == 1 and not self.job.indexes)


def from_state(session: Session, name: str) -> Source:
    """Return an open or ended job of the state directory. Raises NotFoundError, UsageError."""
    cluster = session.view()
    job = cluster.jobs[names.find_job(cluster, name)]
    if job.client:
        raise UsageError(f"{clip(job.id)} ran on a terminal", hint="write a job file for its command")
    lines = (read_line(session.state, job, index) for index in range(job.replicas if job.each_line else 0))
    try:
        task_lines = tuple(line or "" for line in lines)
    except ValueError as error:
        raise UsageError(str(error)) from error
    return Source(job=job, default_env=session.config.defaults.env, lines=task_lines, image=job.image)


def defaults_of(handle: cluster_handle.ClusterHandle) -> Defaults:
    """Return the defaults in `cluster.yaml`; no defaults if that file does not exist. Raises ConfigError."""
    try:
        handle.config_file  # noqa: B018 - raises ConfigError if it finds no file
    except ConfigError:
        if handle.config_path is not None or os.environ.get("IRIS_CONFIG"):
            raise
        return Defaults()
    return handle.config.defaults


def from_file(path: Path, defaults: Defaults) -> Source:
    """Return the job of a job file or a job script, without submitting it. Raises ConfigError, UsageError."""
    is_yaml = path.suffix in _YAML
    job_request = require_command(load_job_file(path), path) if is_yaml else _script_request(path)
    request = request_fields.merge_requests(job_request, defaults.job)
    after = tuple(map(parse_job_id, request.after or ()))
    # The job's dependencies, its image and its resources belong to the other engine, so they are not checked.
    accepted = structs.replace(hash_lines(request), after=None, image=None, force=True)
    job = submit.accept(Cluster(), accepted, _fictitious_workers(request))
    lines = request.each_line
    return Source(
        job=structs.replace(job, after=after),
        default_env=defaults.env,
        workdir=str(Path(request.workdir).absolute()) if request.workdir is not None else "",
        lines=tuple(lines[index] for index in job.indexes) if lines is not None else (),
        image=request.image or "",
    )


def is_job_file(path: Path) -> bool:
    """Return True for the path of a job file or a job script, and False for the name of a job."""
    return path.suffix in _YAML or is_script(path)


def _script_request(path: Path) -> JobRequest:
    """Return the request of a job script, whose command is the path of the script. Raises ConfigError, UsageError."""
    request, script = load_job_script(path), path.resolve()
    if not os.access(script, os.X_OK):
        raise UsageError(f"{clip(str(path))} is not executable", hint=f"chmod +x {clip(str(path))}")
    top = Path(request.workdir).resolve() if request.workdir is not None else script.parent
    program = f"./{script.relative_to(top)}" if script.is_relative_to(top) else str(script)
    return structs.replace(request, command=(program,), workdir=str(top), job_script=None)


def _fictitious_workers(request: JobRequest) -> submit.PossibleWorkers:
    """Return a fictitious worker for a TPU type that only GKE has, so that `accept` accepts it; () for other types."""
    known = gke_types().get(request.tpu or "")
    if known is None or lookup(known.name) is not None:
        return ()
    return (
        {
            attributes.DEVICE_TYPE_ATTRIBUTE_KEY: AttributeValue("tpu"),
            attributes.DEVICE_VARIANT_ATTRIBUTE_KEY: AttributeValue(known.name),
            attributes.TPU_VM_COUNT_ATTRIBUTE_KEY: AttributeValue(known.vms),
        },
    )
