"""A gang of two that runs, files of it in memory, and where they are pulled to."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from iris_cli.core.ids import Token
from iris_cli.ops.files.pull import Pulled, pull
from iris_cli.ops.files.pull_attempt import PulledAttempt
from iris_cli.ops.session import Session
from iris_cli.remote.task_runner import TaskRunner
from tests.ops.world import World
from tests.support.lab import Lab
from tests.support.remote_files import RemoteFiles


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A gang of two that runs."""
    lab = Lab().slice("a", "v4-16").job("train", tpu="v4-16").schedule().reports("train/* running")
    return World(lab, tmp_path / "state")


@pytest.fixture
def remote() -> RemoteFiles:
    return RemoteFiles()


@pytest.fixture
def rank0(world: World) -> Token:
    return world.lab.attempt("train", 0).token


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """Where the files of rank 0 belong."""
    return tmp_path / "here/train/task-0/attempt-0"


def pulled(
    world: World, remote: RemoteFiles, here: Path, what: str = "train/task-0", **options: object
) -> Pulled:
    return pull(session_with(world, remote), what, here.parents[2], **options)  # type: ignore[arg-type]  # by name


def session_with(world: World, remote: RemoteFiles) -> Session:
    """A session whose runner fetches from `remote`."""
    session = world.session()
    session.make_runner = lambda _: cast("TaskRunner", SimpleNamespace(outputs=remote))
    return session


def row(world: World, remote: RemoteFiles, here: Path) -> PulledAttempt:
    (only,) = pulled(world, remote, here).attempts
    return only


def tree(top: Path) -> dict[str, bytes]:
    return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}
