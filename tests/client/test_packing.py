"""What a program inside a task brings along for a child job: packed before it is asked for, cleared away after."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from iris_cli.client import IrisClient, UnansweredError
from iris_cli.client.outbox import Outbox
from iris_cli.core.messages.requests import Answer, Request, Submit
from iris_cli.core.model.job import Workspace
from iris_cli.errors import UsageError
from tests.client.operator_thread import OperatorThread

PATIENCE = 120.0


@pytest.fixture
def task_dir(tmp_path: Path) -> Path:
    for name in ("outbox", "inbox"):
        (tmp_path / name).mkdir()
    return tmp_path


def client_of(task_dir: Path, patience: float | None = PATIENCE) -> IrisClient:
    return IrisClient.with_backend(Outbox(task_dir, patience))


def submitted(request: Request) -> Answer:
    assert isinstance(request, Submit)
    return {"job": f"train/{request.job.name}", "created": True}


def code_in(directory: Path) -> Path:
    (directory / "code/sub").mkdir(parents=True)
    (directory / "code/run.sh").write_text("#!/bin/sh\ncat sub/data\n")
    (directory / "code/sub/data").write_text("as it was\n")
    return directory / "code"


def names_in(packed: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as file:
        return file.getnames()


def test_a_directory_is_packed_before_it_is_asked_for_and_cleared_away_after(task_dir: Path) -> None:
    found: list[tuple[Workspace, bytes, str | None]] = []

    def decide(request: Request) -> Answer:
        assert isinstance(request, Submit)
        workspace = request.job.workspace
        assert workspace is not None
        packed = (task_dir / f"outbox/.packed/{workspace.hash}.tar.gz").read_bytes()
        found.append((workspace, packed, request.job.workdir))
        return submitted(request)

    code = code_in(task_dir / "work")
    with OperatorThread(task_dir, decide):
        for _ in range(2):
            client_of(task_dir).submit(["sh", "run.sh"], name="eval", workdir=code)
    (workspace, packed, workdir), again = found
    assert (workspace.name, workspace.files, workdir) == ("code", 2, None)
    assert hashlib.sha256(gzip.decompress(packed)).hexdigest() == workspace.hash
    assert names_in(packed) == ["run.sh", "sub/data"]
    assert again[0] == workspace, "the same files have the same name for ever"
    assert list((task_dir / "outbox/.packed").iterdir()) == []


def test_the_requests_of_the_task_itself_are_not_packed(task_dir: Path) -> None:
    (task_dir / "work").mkdir()
    (task_dir / "work/a").write_text("a")
    (task_dir / "outbox/.hidden").write_text("b")
    with OperatorThread(task_dir, submitted) as operator:
        client_of(task_dir).submit(["x"], name="eval", workdir=task_dir / "work")
        with pytest.raises(UsageError, match="nothing to ship"):
            client_of(task_dir).submit(["x"], name="eval", workdir=task_dir)
    assert len(operator.asked) == 1


def test_unanswered_requests_keep_their_files(task_dir: Path) -> None:
    code = code_in(task_dir / "work")
    with pytest.raises(UnansweredError):
        client_of(task_dir, 0.05).submit(["x"], name="eval", workdir=code, request_id="one")
    assert len(list((task_dir / "outbox/.packed").iterdir())) == 1
    with OperatorThread(task_dir, submitted) as operator:
        client_of(task_dir).submit(["x"], name="eval", workdir=code, request_id="one")
    assert list(operator.done) == ["one"]
    assert list((task_dir / "outbox/.packed").iterdir()) == []


def test_lines_go_with_the_request_and_are_bounded(task_dir: Path) -> None:
    with OperatorThread(task_dir, submitted) as operator:
        client_of(task_dir).submit(["x"], name="eval", each_line=["a", "", "Ä"])
        with pytest.raises(UsageError, match="more than 65536"):
            client_of(task_dir).submit(["x"], name="eval", each_line=["a" * 1000] * 100)
    assert operator.asked[0].job.each_line == ("a", "", "Ä")
