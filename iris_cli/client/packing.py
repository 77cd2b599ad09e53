"""A directory that goes with a child job: packed inside the task, and fetched from there by whoever polls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from iris_cli.core import JobRequest, Limits
from iris_cli.errors import NotWritableError
from iris_cli.journal.files.workspaces import Workspaces
from iris_cli.ops.workspace.pack import pack, tar_chunks


@contextmanager
def packed_in(task_dir: Path, request: JobRequest) -> Iterator[JobRequest]:
    """The request with its files packed into the outbox of the task; once it was answered they are cleared away.

    A request that is refused, or not answered yet, may be of somebody who asks again: then they stay.
    Raises UsageError, NotWritableError.
    """
    store = Workspaces(task_dir / "outbox" / ".packed")
    workspace, _ = pack(
        request,
        lambda found: store.put(tar_chunks(found)),
        limit=Limits().workspace_size,
        own=(task_dir.resolve(),),
    )
    yield replace(request, workdir=None, job_script=None, workspace=workspace)
    try:
        store.remove(workspace.hash)
    except NotWritableError:
        return  # it goes with the directory of the task
