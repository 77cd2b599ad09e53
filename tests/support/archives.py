"""Packed workspaces, valid and invalid."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Callable
from typing import Any

from iris_cli.remote.task_runner import Shipment

Fill = Callable[["Archive"], object]


class Archive:
    """Builds a tar file."""

    def __init__(self, form: int = tarfile.PAX_FORMAT) -> None:
        self._file = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._file, mode="w", format=form)  # noqa: SIM115 - closed by `bytes`

    def file(self, name: str, data: bytes = b"data\n", mode: int = 0o644, **fields: Any) -> Archive:
        return self.member(name, tarfile.REGTYPE, data=data, mode=mode, **fields)

    def directory(self, name: str) -> Archive:
        return self.member(name, tarfile.DIRTYPE, mode=0o755)

    def link(self, name: str, target: str) -> Archive:
        return self.member(name, tarfile.SYMTYPE, linkname=target, mode=0o777)

    def hard_link(self, name: str, target: str) -> Archive:
        return self.member(name, tarfile.LNKTYPE, linkname=target)

    def member(self, name: str, kind: bytes, *, data: bytes = b"", **fields: Any) -> Archive:
        info = tarfile.TarInfo(name)
        info.type, info.size = kind, len(data)
        for field, value in fields.items():
            setattr(info, field, value)
        self._tar.addfile(info, io.BytesIO(data))
        return self

    def bytes(self) -> bytes:
        self._tar.close()
        return self._file.getvalue()


def archive(fill: Fill, form: int = tarfile.PAX_FORMAT) -> bytes:
    made = Archive(form)
    fill(made)
    return made.bytes()


def shipment(tar: bytes, **changes: Any) -> Shipment:
    """Return the shipment of an archive; `changes` are false fields."""
    packed = changes.pop("packed", None) or gzip.compress(tar, 1, mtime=0)
    fields: dict[str, Any] = {
        "hash": hashlib.sha256(tar).hexdigest(),
        "size": len(tar),
        "packed_size": len(packed),
        "chunks": lambda: [packed[at : at + 65536] for at in range(0, len(packed), 65536)],
    }
    return Shipment(**fields | changes)


def ordinary(a: Archive) -> None:
    """Add every kind of member that a workspace may have."""
    a.file("README")
    a.directory("bin")
    a.file("bin/run it.sh", b"#!/bin/sh\necho ran\n", mode=0o755)
    a.file(".hidden/-rf", b"")
    a.file("ünï/" + "deep/" * 30 + "x" * 90)
    a.link("bin/latest", "run it.sh")
    a.link("bin/up", "../README")
    a.link("bin/top", "..")
    a.link("dangling", "./nowhere/at-all")
