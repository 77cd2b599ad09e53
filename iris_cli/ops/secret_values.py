"""The values of a job's secrets: read when a task starts, sent over stdin, and kept nowhere."""

from __future__ import annotations

import os
import shlex
import stat

from iris_cli.core.job import Job
from iris_cli.core.lifecycle.submit import MAX_STRING


class MissingSecretError(Exception):
    """A secret of the job can't be had here and now. The words name it, and never what it is."""


def secret_values(job: Job) -> dict[str, str]:
    """The secrets of a job by name. Raises MissingSecretError."""
    return {name: _value(job, name) for name in job.secrets}


def missing_secrets(job: Job) -> list[str]:
    """The secrets of a job that can't be had here and now, each with the reason if it isn't plain absence."""
    missing = []
    for name in job.secrets:
        try:
            _value(job, name)
        except MissingSecretError as error:
            missing.append(str(error))
    return missing


def _value(job: Job, name: str) -> str:
    file = job.secret_files.get(name)
    try:
        value = os.environ.get(name) if file is None else _read(file)
    except MissingSecretError as error:
        raise MissingSecretError(f"{name} ({error})") from None
    if value is None:
        raise MissingSecretError(name)
    # Bytes that weren't UTF-8 are surrogates here.
    if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
        raise MissingSecretError(f"{name} (it is no text)")
    if len(name) + 1 + len(value.encode()) > MAX_STRING:
        raise MissingSecretError(f"{name} (it is longer than {MAX_STRING} bytes)")
    return value


def _read(path: str) -> str:
    """The text of a file, less one line end. As ssh does for keys, one of ours that others can read is refused."""
    try:
        with open(path, "rb", opener=_open) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise MissingSecretError(f"{path} is no file")
            if status.st_uid == os.geteuid() and status.st_mode & 0o077:
                raise MissingSecretError(f"others can read it: chmod 600 {shlex.quote(path)}")
            data = file.read(MAX_STRING + 3)
    except OSError as error:
        raise MissingSecretError(f"{path}: {error.strerror or 'it can not be read'}") from None
    if data.endswith(b"\n"):
        data = data[:-2] if data.endswith(b"\r\n") else data[:-1]
    return data.decode("utf-8", "surrogateescape")


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe without a writer must hold up nobody
