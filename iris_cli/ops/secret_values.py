"""Values of a job's secrets. iris reads them when a task starts, sends them over stdin, and never stores them."""

import os
import shlex
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from iris_cli.core import MAX_STRING, Cluster, JobId
from iris_cli.core.model.job import Job, MissingInputs
from iris_cli.journal.state_dir import StateDir

_MIN_LENGTH = 4  # bytes; shorter values are not masked in output, because they occur in ordinary text

NOT_SET = "not set in this shell"


class MissingSecretError(Exception):
    """A secret of the job can't be read now. The message says why, and never contains the value."""


def secret_values(job: Job) -> dict[str, str]:
    """Return the secrets of a job by name. Raises MissingSecretError."""
    return {name: _read_value(job, name) for name in job.secrets}


def missing_secrets(job: Job) -> dict[str, str]:
    """Return the names of a job's secrets that can't be read now, each with the reason."""
    missing = {}
    for name in job.secrets:
        try:
            _read_value(job, name)
        except MissingSecretError as error:
            missing[name] = str(error)
    return missing


def _read_value(job: Job, name: str) -> str:
    file = job.secret_files.get(name)
    value = os.environ.get(name) if file is None else _read_file(file)
    if value is None:
        raise MissingSecretError(NOT_SET)
    # In the environment, surrogates stand for bytes that are not UTF-8.
    if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
        raise MissingSecretError("not text")
    if len(name) + 1 + len(value.encode()) > MAX_STRING:
        raise MissingSecretError(f"longer than {MAX_STRING} bytes")
    return value


def values_to_mask(job: Job) -> tuple[bytes, ...]:
    """Return the secret values to mask in a job's output. Values that are short or can't be read now are omitted."""
    values = []
    for name in job.secrets:
        with suppress(MissingSecretError):
            values.append(_read_value(job, name).encode())
    return tuple(sorted((each for each in values if len(each) >= _MIN_LENGTH), key=len, reverse=True))


def mask(data: bytes, values: Iterable[bytes]) -> bytes:
    """Return `data` with every secret value replaced by asterisks, one per byte.

    If `data` begins with the end of a secret value, that end is replaced, too.
    """
    for value in values:
        data = data.replace(value, b"*" * len(value))
        end = next((value[at:] for at in range(1, len(value) - 3) if data.startswith(value[at:])), b"")
        data = b"*" * len(end) + data[len(end) :]
    return data


def _read_file(path: str) -> str:
    """Return the text of a secret's file without its last line feed. Like ssh, reject files that others can read."""
    try:
        with open(path, "rb", opener=_open_nonblocking) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise MissingSecretError(f"{path} is not a regular file")
            if status.st_uid == os.geteuid() and status.st_mode & 0o077:
                raise MissingSecretError(f"{path} is readable by others (chmod 600 {shlex.quote(path)})")
            data = file.read(MAX_STRING + 3)
    except OSError as error:
        raise MissingSecretError(f"{path}: {error.strerror or 'not readable'}") from None
    if data.endswith(b"\n"):
        data = data[:-2] if data.endswith(b"\r\n") else data[:-1]
    return data.decode("utf-8", "surrogateescape")


def _open_nonblocking(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # opening a pipe without a writer must not block


def missing_for_jobs(cluster: Cluster, state: StateDir | None) -> MissingInputs:
    """Return the secrets, and with `state` also the files, that open jobs need and this process lacks."""
    open_jobs = [job for job in cluster.open_jobs() if job.end is None]
    return MissingInputs(
        secrets={
            job.id: [f"{name}: {problem}" for name, problem in missing.items()]
            for job in open_jobs
            if (missing := missing_secrets(job))
        },
        files={job.id: why for job in open_jobs if state is not None and (why := _missing_file(state, job))},
    )


def secrets_of_loop(
    cluster: Cluster,
    missing_in_loop: Mapping[JobId, Sequence[str]],
    missing_in_this_process: Mapping[JobId, Sequence[str]],
    checked_at: float,
) -> dict[JobId, Sequence[str]]:
    """Return the secrets that the background loop lacks, by job, with reasons.

    `missing_in_loop`: names of the secrets that the loop lacked at `checked_at` (seconds since the epoch). The loop has
    not checked jobs that were submitted later. For these jobs, return the secrets that this process lacks.
    """
    result = {
        job_id: problems
        for job_id, problems in missing_in_this_process.items()
        if cluster.jobs[job_id].submitted_at > checked_at
    }
    for job_id, job_names in missing_in_loop.items():
        job = cluster.jobs.get(job_id)
        files = missing_secrets(job) if job is not None and job.secret_files else {}
        own = job.secret_files if job is not None else {}
        why = {name: "not in the loop's environment" for name in job_names if name not in own}
        why |= {name: problem for name, problem in files.items() if problem != NOT_SET}
        result[job_id] = [
            f"{name}: {why.get(name, 'not readable by the background loop')}" for name in job_names
        ]
    return result


def _missing_file(state: StateDir, job: Job) -> str:
    """Return which stored file of the job is missing, or ''."""
    if job.workspace is not None and not state.workspaces.has(job.workspace.hash):
        return f"its packed workspace {job.workspace.hash[:12]} is gone; launch the job again"
    if job.each_line is not None and not state.lines.has(job.each_line.hash):
        return "its --each-line file is gone; launch the job again"
    return ""
