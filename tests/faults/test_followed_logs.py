"""A follower of logs meets partitions, restarts and its own death: what it shows is what was written, byte for byte."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from iris_cli.core.model.job import JobState
from tests.faults.conftest import use_home_of
from tests.support.desk import Desk
from tests.support.network import CableHost, CableLab, why_no_namespaces
from tests.support.site import Site
from tests.support.sshd import SshHost
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.ssh

Lab = Callable[..., list[SshHost]]

WRITE = """
number=0
while [ ! -e "{stop}" ]; do
    number=$((number + 1))
    printf '%s: line %s of a task — as it wrote it\\n' "$IRIS_TASK_INDEX.$IRIS_ATTEMPT" "$number"
    printf 'err %s\\n' "$number" >&2
    sleep 0.1
done
printf 'no line feed'
{then}
"""


class Following:
    """`iris logs JOB --follow` in a process of its own."""

    def __init__(self, site: Site, *words: str) -> None:
        self.process = site.start("logs", *words, "--follow", "--json")
        self.shown: dict[tuple[int, int, str], list[str]] = defaultdict(list)
        """Lines by rank, attempt and stream. A line that it was writing when it was killed is left out."""
        self._err: list[bytes] = []
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._readers = [
            Thread(target=self._read, daemon=True),
            Thread(target=lambda: self._err.extend(self.process.stderr or ()), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            if line.endswith(b"}\n"):
                said = json.loads(line)
                self.shown[said["rank"], said["attempt"], said["stream"]].append(said["text"])

    @property
    def said(self) -> str:
        return b"".join(self._err).decode()

    def has(self, rank: int, count: int, attempt: int = 0) -> bool:
        assert self.process.poll() is None, self.said
        return len(self.shown[rank, attempt, "out"]) >= count

    def end(self, *, kill: bool = False) -> int:
        if kill:
            self.process.kill()
        code = self.process.wait(PATIENCE)
        for reader in self._readers:
            reader.join(PATIENCE)
        return code


@contextmanager
def following(site: Site, *words: str) -> Iterator[Following]:
    made = Following(site, *words)
    try:
        yield made
    finally:
        made.process.kill()
        made.end()


def desk_of(hosts: list[SshHost], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **limits: str) -> Desk:
    (tmp_path / "operator").mkdir()
    site = Site(tmp_path / "operator", hosts)
    site.write_config({"alpha": hosts}, tpu=f"v4-{8 * len(hosts)}", backoff_first="0.1s", **limits)
    use_home_of(site, monkeypatch)
    desk = Desk(site)
    desk.until(
        lambda: (workers := desk.cluster.workers) and all(each.incarnation for each in workers.values()),
        every=2.0,
    )
    return desk


def written(desk: Desk, rank: int = 0, number: int = -1, stream: str = "out") -> bytes:
    """What an attempt has written, from the disk of its host."""
    attempt = desk.attempts("train", rank)[number]
    (file,) = (
        path
        for host in desk.site.hosts
        for path in host.home.glob(f".iris/*/{attempt.worker}/a/{attempt.token}/{stream}")
    )
    return file.read_bytes()


def as_bytes(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def test_a_partition_and_the_death_of_the_follower_lose_and_double_nothing(
    cables: CableLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why := why_no_namespaces():
        pytest.skip(f"needs network namespaces: {why}")
    hosts = [host for host in cables(2) if isinstance(host, CableHost)]
    desk = desk_of(list(hosts), tmp_path, monkeypatch, connect_timeout="2s", dispatch_timeout="2s")
    stop = tmp_path / "stop"
    desk.launch("train", "sh", "-c", WRITE.format(stop=stop, then=""), tpu="v4-16")
    try:
        desk.until(lambda: desk.state("train") is JobState.RUNNING, every=2.0)
        far = hosts[int(desk.attempt("train", 1).worker.rpartition("-")[2])]
        with following(desk.site, "train", "--tail", "all") as first:
            until(lambda: first.has(0, 10) and first.has(1, 10))
            far.cut()
            until(lambda: "no answer from worker" in first.said)
            so_far = len(first.shown[0, 0, "out"])
            until(lambda: first.has(0, so_far + 10))  # the other one is not held up
            far.heal()
            behind = written(desk, 1).count(b"\n")
            until(lambda: first.has(1, behind))
            until(lambda: "answers again" in first.said)
            first.end(kill=True)
        with following(desk.site, "train", "--tail", "5") as second:
            until(lambda: second.has(0, 10) and second.has(1, 10))
            stop.touch()
            assert second.end() == 0, second.said
    finally:
        stop.touch()
    for rank in (0, 1):
        for stream in ("out", "err"):
            there = written(desk, rank, stream=stream)
            before, after = first.shown[rank, 0, stream], second.shown[rank, 0, stream]
            assert there.startswith(as_bytes(before))
            assert (there if stream == "err" else there + b"\n").endswith(as_bytes(after))
            assert len(after) >= 5


def test_restarts_of_sshd_and_of_the_task_lose_and_double_nothing(
    ssh_lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (host,) = ssh_lab(1)
    desk = desk_of([host], tmp_path, monkeypatch)
    stop = tmp_path / "stop"
    fails_once = f'rm -f "{stop}"; [ "$IRIS_ATTEMPT" -gt 0 ]'
    desk.launch(
        "train", "sh", "-c", WRITE.format(stop=stop, then=fails_once), tpu="v4-8", max_retries_failure=1
    )
    try:
        desk.until(lambda: desk.state("train") is JobState.RUNNING, every=2.0)
        with following(desk.site, "train", "--tail", "all") as follower:
            restart_meanwhile(host, desk, follower)
            restart_meanwhile(host, desk, follower)
            grown = written(desk).count(b"\n")
            until(lambda: follower.has(0, grown))
            stop.touch()
            desk.until(lambda: len(desk.attempts("train")) == 2, every=2.0)
            desk.until(lambda: follower.has(0, 10, attempt=1), every=2.0)
            stop.touch()
            desk.until(lambda: desk.state("train") is JobState.SUCCEEDED, every=2.0)
            assert follower.end() == 0, follower.said
    finally:
        stop.touch()
    for number in (0, 1):
        assert as_bytes(follower.shown[0, number, "out"]) == written(desk, number=number) + b"\n"
        assert as_bytes(follower.shown[0, number, "err"]) == written(desk, number=number, stream="err")
    assert "train/task-0: attempt 1 on worker" in follower.said
    desk.site.iris("pull", "train")
    host.stop()
    left = desk.site.iris("logs", "train", "--tail", "all", code=7)
    assert left.out.encode() == written(desk) + b"\n" + written(desk, stream="err")
    assert "; showing what was pulled " in left.err


def restart_meanwhile(host: SshHost, desk: Desk, follower: Following) -> None:
    """The task writes on while there is no server; it doesn't notice."""
    seen = len(follower.shown[0, 0, "out"])
    until(lambda: follower.has(0, seen + 10))
    host.stop()
    grown = written(desk).count(b"\n")
    until(lambda: written(desk).count(b"\n") > grown)
    host.start()


def test_a_terminal_that_takes_nothing_holds_up_only_its_own_follower(
    ssh_lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not read stays on the worker: it is not asked for."""
    (host,) = ssh_lab(1)
    desk = desk_of([host], tmp_path, monkeypatch)
    size = 16 << 20
    desk.launch("train", "sh", "-c", f"yes 'the same again' | head -c {size}; sleep 1000", tpu="v4-8")
    desk.until(lambda: desk.state("train") is JobState.RUNNING and len(written(desk)) == size, every=2.0)
    process = desk.site.start("logs", "train", "--follow", "--tail", "all")
    try:
        status = Path(f"/proc/{process.pid}/status")
        if not status.exists():
            pytest.skip("no /proc here")
        assert process.stdout is not None
        assert process.stdout.read(1) == b"t"
        before, taken = most_memory(status), 1
        while taken < size // 4:
            taken += len(process.stdout.read(1 << 20))
        assert most_memory(status) - before < size / 2
    finally:
        process.kill()
        process.communicate()
        desk.cancel("train")
        desk.until(lambda: desk.state("train") is JobState.KILLED, every=2.0)


def most_memory(status: Path) -> int:
    """The most bytes that a process has had in use at a time."""
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) << 10
