"""A directory of a task, packed into its outbox for a child job. A part of the program of tasks."""

from __future__ import annotations

import gzip
import hashlib
import os
from typing import Iterator

from iris_cli.remote.inside.archive import (
    END,
    END_SIZE,
    ChangedError,
    Entry,
    contents,
    entry_of,
    oddity,
    padded,
)
from iris_cli.remote.inside.mail import Failure, Json, Mail, remove
from iris_cli.remote.inside.values import MOST_WORKSPACE_BYTES


def packed_path(mail: Mail, name: str) -> str:
    return os.path.join(mail.outbox, ".packed", f"{name}.tar.gz")


def pack(word: str, mail: Mail) -> Json:
    """Pack a directory and return the `workspace` of the request. Raises Failure."""
    top = os.path.realpath(word)
    check_directory(word, top, mail)
    try:
        found = [each for name in sorted(walk(top, ""), key=os.fsencode) if (each := entry_of(top, name))]
    except OSError as error:
        raise not_packed(f"{error.filename} can't be read: {error.strerror}") from error
    for entry in found:
        if oddity(entry):
            raise not_packed(f"{word} holds {oddity(entry)}: {entry.name}")
    size = sum(len(each.header) + padded(each.size) for each in found) + END_SIZE
    if not found or size > MOST_WORKSPACE_BYTES:
        raise not_packed(f"{word} takes {size} bytes" if found else f"there is nothing to ship in {word}")
    sha256 = write_archive(top, found, mail)
    return {"hash": sha256, "size": size, "files": len(found), "name": os.path.basename(top)}


def write_archive(top: str, found: list[Entry], mail: Mail) -> str:
    """Write the archive into the outbox, named by the SHA-256 of the tar file in it, which is returned."""
    draft = packed_path(mail, f".draft.{os.getpid()}")
    digest = hashlib.sha256()
    try:
        os.makedirs(os.path.dirname(draft), 0o700, exist_ok=True)
        with open(draft, "wb") as raw, gzip.GzipFile("", "wb", 6, raw, 0) as file:
            for data in archive(top, found):
                digest.update(data)
                file.write(data)
        os.rename(draft, packed_path(mail, digest.hexdigest()))
    except ChangedError as error:
        raise not_packed(f"{error} changed while it was being packed") from error
    except OSError as error:
        raise mail.unwritable(error) from error
    finally:
        remove(draft)
    return digest.hexdigest()


def archive(top: str, found: list[Entry]) -> Iterator[bytes]:
    """The bytes of the tar file."""
    for entry in found:
        yield entry.header
        if entry.target is not None:
            continue
        try:
            yield from contents(top, entry)
        except OSError as error:
            raise not_packed(f"{entry.name} can't be read: {error.strerror}") from error
    yield END


def walk(top: str, below: str) -> Iterator[str]:
    """The names of everything below a directory that is no directory itself, without those of git."""
    with os.scandir(os.path.join(top, below)) as listed:
        for each in listed:
            if each.name != ".git" and each.is_dir(follow_symlinks=False):
                yield from walk(top, f"{below}{each.name}/")
            elif each.name != ".git":
                yield below + each.name


def check_directory(word: str, top: str, mail: Mail) -> None:
    """Refuse a directory from which only the whole iris can choose files, and one that nobody means."""
    if not os.path.isdir(top):
        raise not_packed(f"{word} is no directory")
    if top in ("/", os.path.realpath(os.environ.get("HOME") or "/")):
        raise not_packed(f"{word} is more than a workspace")
    if f"{os.path.realpath(mail.task_dir)}/".startswith(f"{top}/"):
        raise not_packed(f"{word} holds the directories of this task")
    if os.path.lexists(os.path.join(top, ".irisignore")):
        raise not_packed(f"{word} has an .irisignore, which only the whole iris reads")
    parts = top.split("/")
    for count in range(2, len(parts) + 1):
        if os.path.lexists("/".join([*parts[:count], ".git"])):
            raise not_packed(f"{word} is in a git work tree, which only the whole iris reads")


def not_packed(message: str) -> Failure:
    return Failure(f"--workdir: {message}", "submit it by the Python client, or name another directory")
