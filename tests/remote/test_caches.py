"""Caches on a worker are removed when they were unused for long, never while they are used."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from iris_cli.core.messages.observations import CacheReport, RemoteState
from iris_cli.remote.launch_request import set_up_key
from tests.remote.conftest import ProbedHost, copy_of
from tests.remote.test_ship import left_over
from tests.remote.test_workspaces import WORKSPACE, asks, ready, ship, store
from tests.support.archives import archive, shipment
from tests.support.waiting import until
from tests.support.worker_host import WorkerHost

DAY = 86_400.0
OTHER = shipment(archive(lambda a: a.file("other", bytes(100_000))))


def caches(host: WorkerHost, *keep: str, unused_for: float = DAY, remove: bool = False) -> dict[str, int]:
    answer = host.runner.caches.unused(
        host.target,
        boot_id=host.boot_id,
        incarnation=host.incarnation,
        keep=keep,
        unused_for=unused_for,
        remove=remove,
    )
    assert isinstance(answer, CacheReport), answer
    return dict(answer.sizes)


def age(path: Path, seconds: float) -> None:
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))


@pytest.fixture(scope="module")
def model(probed_homes: ProbedHost, tmp_path_factory: pytest.TempPathFactory) -> WorkerHost:
    """A worker with two workspaces and a set-up, to be copied."""
    made = copy_of(
        probed_homes("dash"), WorkerHost(tmp_path_factory.mktemp("model"), probed_homes("dash").tools)
    )
    ship(made)
    ship(made, OTHER)
    ready(made, asks(made, "true", setup="echo made >made"))
    made.clean_up()
    return made


@pytest.fixture
def used(model: WorkerHost, worker: WorkerHost) -> WorkerHost:
    """A worker with two workspaces and a set-up, two days after they were used."""
    copy_of(model, worker)
    for path in (*(worker.root / "w").iterdir(), store(worker)):
        age(path, 2 * DAY)
    return worker


def test_long_unused_cache_entries_are_listed_and_deleted(used: WorkerHost) -> None:
    key = set_up_key(WORKSPACE.hash, "echo made >made")
    names = {f"w/{WORKSPACE.hash}", f"w/{OTHER.hash}", f"s/{key}"}
    sizes = caches(used)
    assert sizes.keys() == names
    assert sizes[f"w/{OTHER.hash}"] >= 100_000
    assert caches(used).keys() == names  # the call without `remove` changes nothing
    until(lambda: not caches(used, remove=True))
    assert os.listdir(used.root / "w") == os.listdir(used.root / "s") == []
    ship(used)
    ready(used, asks(used, "true", setup="echo made >made"))


def test_cache_entries_are_renamed_before_deletion(used: WorkerHost, tmp_path: Path) -> None:
    slow, go = used.tools / "rm", tmp_path / "go"
    slow.unlink(missing_ok=True)  # busybox is behind it
    waiting = f"n=0; until [ -e {go} ] || [ $((n += 1)) -gt 1200 ]; do sleep 0.05; done"
    slow.write_text(f'#!/bin/sh\n{waiting}\nexec {shutil.which("rm")} "$@"\n')
    slow.chmod(0o755)
    caches(used, remove=True)
    assert os.listdir(used.root / "w")
    for name in (*os.listdir(used.root / "w"), *os.listdir(used.root / "s")):
        assert ".gone." in name
    go.touch()
    until(lambda: not os.listdir(used.root / "w") and not os.listdir(used.root / "s"))


def test_caches_of_live_attempts_are_kept(used: WorkerHost) -> None:
    key = set_up_key(WORKSPACE.hash, "echo made >made")
    until(lambda: not caches(used, WORKSPACE.hash, key, remove=True))
    assert os.listdir(used.root / "w") == [WORKSPACE.hash]
    assert os.listdir(used.root / "s") == [key]


def test_recently_used_caches_are_kept(used: WorkerHost) -> None:
    key = set_up_key(WORKSPACE.hash, "echo made >made")
    ready(used, asks(used, "true", setup="echo made >made"))
    until(lambda: not caches(used, remove=True))
    assert os.listdir(used.root / "w") == [WORKSPACE.hash]
    assert os.listdir(used.root / "s") == [key]
    assert caches(used, unused_for=0.0, remove=True) == {}  # new entries are always kept
    assert os.listdir(used.root / "w") == [WORKSPACE.hash]


def test_leftovers_of_dead_processes_are_deleted_at_once(used: WorkerHost) -> None:
    for name in (f"{OTHER.hash}.part.1.1.another-boot", f"{OTHER.hash}.gone.0123"):
        (used.root / "w" / name / "deep").mkdir(parents=True)
        (used.root / "w" / name / "deep").chmod(0o500)
    key = set_up_key(WORKSPACE.hash, "echo made >made")
    assert caches(used, WORKSPACE.hash, OTHER.hash, key).keys() == {f"w/{OTHER.hash}"}
    until(lambda: not caches(used, WORKSPACE.hash, OTHER.hash, remove=True))
    assert left_over(used) == []
    assert sorted(os.listdir(used.root / "w")) == sorted([WORKSPACE.hash, OTHER.hash])


def test_nothing_else_is_touched(used: WorkerHost, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("")
    age(precious, 2 * DAY)
    (used.root / "w" / ("0" * 64)).symlink_to(precious)
    (used.root / "w" / "notes").mkdir()
    age(used.root / "w" / "notes", 2 * DAY)
    until(lambda: not caches(used, remove=True))
    assert (precious / "file").exists()
    assert sorted(os.listdir(used.root / "w")) == ["0" * 64, "notes"]


def test_a_different_boot_loses_no_cache_entries(used: WorkerHost) -> None:
    used.boot_id = "another"
    assert caches(used, remove=True) == {}
    assert len(os.listdir(used.root / "w")) == 2


def test_a_copy_outlives_the_cache_it_came_from(used: WorkerHost) -> None:
    request = asks(used, "cat", "made", setup="echo made >made")
    ready(used, request)
    for path in (*(used.root / "w").iterdir(), store(used)):
        age(path, 2 * DAY)
    until(lambda: not caches(used, remove=True))
    used.go(request.token)
    assert used.wait(request.token).state is RemoteState.EXITED
    assert used.output(request.token) == b"made\n"
