"""Disk usage of attempts on a worker."""

from __future__ import annotations

from pathlib import Path

from iris_cli.core.messages.observations import UsageReport
from tests.support.waiting import until
from tests.support.worker_host import WorkerHost

BIG = 512 << 10


def test_files_are_counted_and_a_reaped_attempt_takes_nothing(host: WorkerHost) -> None:
    big = host.launch(
        "sh", "-c", f"head -c {BIG} /dev/zero >file; mkdir deep; head -c {BIG} /dev/zero >deep/file"
    )
    small = host.launch("true")
    host.wait(big)
    host.wait(small)
    sizes = host.usage(big, small)
    assert 2 * BIG <= sizes[big] < 3 * BIG
    assert 0 < sizes[small] < BIG
    until(lambda: host.reaped(big) == {big})
    assert host.usage(big, small) == {small: sizes[small]}


def test_a_call_changes_nothing_even_for_running_attempts(host: WorkerHost) -> None:
    token = host.running("sleep", "1000")
    before = {path.name for path in host.attempt_dir(token).iterdir()}
    assert set(host.usage(token)) == {token}
    assert {path.name for path in host.attempt_dir(token).iterdir()} == before


def test_a_missing_attempt_a_tombstone_and_a_link_take_nothing(host: WorkerHost, tmp_path: Path) -> None:
    absent, tombstone, link = (host.request("true").token for _ in range(3))
    host.stop(tombstone)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_bytes(bytes(BIG))
    host.attempt_dir(link).symlink_to(tmp_path / "outside")
    assert host.usage(absent, tombstone, link) == {}


def test_a_worker_without_its_directory_has_nothing(dash_host: WorkerHost) -> None:
    token = dash_host.launch("true")
    dash_host.wait(token)
    (dash_host.root / "a").rename(dash_host.root / "elsewhere")
    answer = dash_host.runner.usage(dash_host.target, [token])
    (dash_host.root / "elsewhere").rename(dash_host.root / "a")
    assert isinstance(answer, UsageReport)
    assert (answer.sizes, answer.incarnation) == ((), "")
