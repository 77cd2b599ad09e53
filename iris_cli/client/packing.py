"""Pack a directory for a child job inside the task. A cycle of the cluster fetches it."""

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
    """Yield the request with its files packed into the task's outbox. Delete the packed file at the end of the block.

    If the block raises (the request was refused or not answered), the file stays, because the program may repeat the
    request. Raises UsageError, NotWritableError.
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
        return  # the packed file is deleted later, with the task's directory
