"""Putting a new `cluster.yaml` in the place of the old one."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from iris_cli.errors import IrisError, NotWritableError


def read_file(path: Path) -> bytes:
    """A file as it is. Raises NotWritableError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise NotWritableError(f"{path} can't be read: {error.strerror or error}") from error


def replace_config(path: Path, before: bytes, after: bytes) -> None:
    """Write a file anew at once, with the permissions that it had; a link goes on leading to it.

    Raises IrisError if it was changed meanwhile, NotWritableError.
    """
    target = path.resolve()
    draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        known = target.stat()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(draft, flags, 0o600), "wb") as file:
            file.write(after)
            file.flush()
            with suppress(PermissionError):  # to give a file away takes more than to write it
                os.fchown(file.fileno(), known.st_uid, known.st_gid)
            os.fchmod(file.fileno(), stat.S_IMODE(known.st_mode))
            os.fsync(file.fileno())
        if target.read_bytes() != before:
            raise IrisError(f"{path} was changed meanwhile: nothing was written", hint="run it again")
        os.replace(draft, target)
    except OSError as error:
        raise NotWritableError(f"{path} can't be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            draft.unlink()
