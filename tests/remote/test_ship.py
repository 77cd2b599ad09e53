"""Uploads of packed workspaces: complete, harmless, and once; or none."""

from __future__ import annotations

import io
import os
import signal
import stat
import subprocess
import tarfile
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from iris_cli.core.messages.observations import RemoteState, Silence, WorkerReport
from iris_cli.remote.task_runner import Shipment
from iris_cli.remote.transport import Script, ScriptResult, Target
from tests.remote.conftest import ProbedHost
from tests.support.archives import Archive, archive, ordinary, shipment
from tests.support.local_transport import REQUIRED, only_tools
from tests.support.waiting import until
from tests.support.worker_host import WorkerHost, at_once

S = RemoteState
TAR = archive(ordinary)


def tree(path: Path) -> dict[str, str]:
    """Return the content of a directory: contents of files, with `x ` before executable ones, and targets of links."""
    found = {}
    for each in path.rglob("*"):
        if each.is_symlink():
            found[str(each.relative_to(path))] = f"-> {each.readlink()}"
        elif each.is_file():
            executable = "x " if each.stat().st_mode & stat.S_IXUSR else ""
            found[str(each.relative_to(path))] = executable + each.read_text()
    return found


def as_packed(tar: bytes, directory: Path) -> dict[str, str]:
    """Return the same for the archive, without programs of the worker."""
    directory.mkdir()
    with tarfile.open(fileobj=io.BytesIO(tar)) as opened:
        opened.extractall(directory, filter="tar")
    return tree(directory)


def report(answer: WorkerReport | Silence) -> WorkerReport:
    assert isinstance(answer, WorkerReport), answer
    return answer


def left_over(host: WorkerHost) -> list[str]:
    return sorted(path.name for path in (host.root / "w").glob("*") if ".part." in path.name)


def test_a_workspace_arrives_as_it_was_packed_and_read_only(host: WorkerHost, tmp_path: Path) -> None:
    sent = shipment(TAR)
    token = host.request("true").token
    answer = report(host.ship(sent, token))
    assert (answer.lacking, [each.state for each in answer.attempts]) == ((), [S.ABSENT])
    there = host.root / "w" / sent.hash
    assert tree(there) == as_packed(TAR, tmp_path / "expected")
    for path in (there, *there.rglob("*")):
        if not path.is_symlink():
            assert path.stat().st_mode & 0o7277 == 0, path
            assert path.stat().st_mode & stat.S_IRUSR
            assert path.stat().st_uid == os.getuid()
    assert left_over(host) == []


def test_the_second_time_nothing_is_sent(host: WorkerHost) -> None:
    report(host.ship(shipment(TAR)))
    once = host.transport.payload_bytes
    assert once > 0
    assert report(host.ship(shipment(TAR))).lacking == ()
    assert host.transport.payload_bytes == once


def test_an_empty_workspace_is_one(host: WorkerHost) -> None:
    sent = shipment(archive(lambda a: a))
    for _ in range(2):
        assert report(host.ship(sent)).lacking == ()
    assert tree(host.root / "w" / sent.hash) == {}


HOSTILE: dict[str, Callable[[Archive], object]] = {
    "absolute name": lambda a: a.file("/tmp/iris-escaped"),
    "name above": lambda a: a.file("../escaped"),
    "name above, inside": lambda a: a.file("a/../../escaped"),
    "name with dots at its end": lambda a: a.directory("a").directory("a/.."),
    "link to an absolute path": lambda a: a.link("out", "/etc/passwd"),
    "link above": lambda a: a.link("out", "../../escaped"),
    "link above from a directory": lambda a: a.link("a/b/out", "../../../escaped"),
    "link above by way of another": lambda a: a.link("a/up", "..").link("out", "a/up/../../escaped"),
    "link that seems to lead to two places": lambda a: a.link("out", "x out -> y"),
    "file behind a link": lambda a: a.link("out", ".").file("out/file"),
    "file behind a link that leads outside": lambda a: a.link("out", "/tmp").file("out/iris-escaped"),
    "link and file of one name": lambda a: a.link("a", "b").file("a"),
    "hard link outside": lambda a: a.hard_link("out", "/etc/passwd"),
    "hard link above": lambda a: a.hard_link("out", "../../incarnation"),
    "hard link inside": lambda a: a.file("a").hard_link("b", "a"),
    "hard link with a misleading target": lambda a: a.hard_link("a", "x a"),
    "device": lambda a: a.member("null", tarfile.CHRTYPE, devmajor=1, devminor=3),
    "disk": lambda a: a.member("sda", tarfile.BLKTYPE, devmajor=8),
    "pipe": lambda a: a.member("pipe", tarfile.FIFOTYPE),
    "setuid": lambda a: a.file("root", mode=0o4755),
    "setgid": lambda a: a.file("root", mode=0o2755),
    "owner who looks like a link": lambda a: a.member(
        "out", tarfile.SYMTYPE, linkname="/etc", uname="out -> a"
    ),
}
LISTED_DIFFERENTLY = (
    "absolute name",
    "name above",
    "link above",
    "link that seems to lead to two places",
    "file behind a link that leads outside",
    "hard link outside",
    "hard link inside",
    "device",
    "pipe",
    "setuid",
    "owner who looks like a link",
)
"""One of each kind of line that a tar prints: those of busybox differ. The soak tries all with both."""
LIES: dict[str, Callable[[bytes], Shipment]] = {
    "another hash": lambda tar: shipment(tar, hash="0" * 64),
    "larger than it says": lambda tar: shipment(tar, size=len(tar) - 512),
    "smaller than it says": lambda tar: shipment(tar, size=len(tar) + 512),
    "larger than the limit": lambda tar: shipment(tar, limit=len(tar) - 1),
    "bomb": lambda tar: shipment(bytes(8 << 20), hash="0" * 64, size=1 << 20),
    "no gzip": lambda tar: shipment(tar, packed=b"plain text"),
    "gzip that ends too early": lambda tar: shipment(tar, packed=bytes(shipment(tar).chunks()[0][:-9])),  # type: ignore[index]  # a list
    "no tar": lambda _: shipment(b"plain text" * 1000),
    "tar that ends too early": lambda tar: shipment(archive(lambda a: a.file("a", bytes(9000)))[:4000]),
}


def is_refused(host: WorkerHost, sent: Shipment) -> str:
    """Check that only the worker rejects it, and leaves nothing except the refused attempt; return the reason."""
    before = outside(host)
    token = host.request("true").token
    answer = report(host.ship(sent, token))
    (attempt,) = answer.attempts
    assert (attempt.state, attempt.cause, answer.lacking) == (S.NOSTART, "workspace", (sent.hash,))
    assert os.listdir(host.root / "w") == []
    assert outside(host) == before
    assert not Path("/tmp/iris-escaped").exists()
    return attempt.log_tail


def outside(host: WorkerHost) -> set[str]:
    """Return the files on the worker except those of attempts."""
    return {
        str(path) for path in host.directory.rglob("*") if "/a/" not in f"{path}/" and "/w/" not in f"{path}/"
    }


@pytest.fixture(params=["dash", "busybox", pytest.param("bash", marks=pytest.mark.soak)])
def unpacker(request: pytest.FixtureRequest, probed_host: ProbedHost) -> WorkerHost:
    """A worker with the usual `tar`, or that of busybox."""
    return probed_host(request.param)


@pytest.mark.parametrize(
    ("shell", "archives"),
    [
        ("dash", HOSTILE),
        ("busybox", LISTED_DIFFERENTLY),
        pytest.param("busybox", HOSTILE, marks=pytest.mark.soak),
        pytest.param("bash", HOSTILE, marks=pytest.mark.soak),
    ],
    ids=["dash", "busybox", "busybox-all", "bash"],
)
def test_a_harmful_archive_is_rejected(
    probed_host: ProbedHost, shell: str, archives: Collection[str]
) -> None:
    host = probed_host(shell)
    for what in archives:
        words = is_refused(host, shipment(archive(lambda a: HOSTILE[what](a.file("harmless")))))  # noqa: B023 - called at once
        assert words.startswith("iris: not started: its workspace can't be received: "), what


def test_an_archive_with_false_properties_is_rejected(host: WorkerHost) -> None:
    for what, lie in LIES.items():
        assert is_refused(host, lie(TAR)), what


def test_a_file_of_holes_is_refused(unpacker: WorkerHost, tmp_path: Path) -> None:
    """A few KiB that claim to be a TiB."""
    with (tmp_path / "holes").open("wb") as file:
        file.truncate(1 << 40)
    packing = ["tar", "--format=gnu", "-Scf", "-", "-C", str(tmp_path), "holes"]
    made = subprocess.run(packing, capture_output=True, check=False)
    if made.returncode != 0:
        pytest.skip("no GNU tar on this machine")
    assert is_refused(unpacker, shipment(made.stdout))


FEW_TOOLS = [*REQUIRED, "gzip", "link", "setsid", "sync", "tar"]


def test_a_host_that_can_check_no_sum_takes_nothing(probed_host: ProbedHost, tmp_path: Path) -> None:
    host = probed_host(tools=only_tools("dash", tmp_path / "few", FEW_TOOLS))
    host.transport.env["PATH"] = str(tmp_path / "few")
    assert "sha256sum" in is_refused(host, shipment(TAR))


@pytest.mark.parametrize("missing", ["gzip", "tar"])
def test_a_command_that_unpacking_lacks_is_named(
    probed_host: ProbedHost, tmp_path: Path, missing: str
) -> None:
    tools = [name for name in FEW_TOOLS if name != missing]
    host = probed_host(tools=only_tools("dash", tmp_path / "few", [*tools, "sha256sum"]))
    host.transport.env["PATH"] = str(tmp_path / "few")
    assert f"missing commands: {missing}" in is_refused(host, shipment(TAR))


def test_sent_data_has_time_to_arrive_over_a_slow_line(
    dash_host: WorkerHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed: list[float] = []
    run = dash_host.transport.run

    def noting(target: Target, script: Script) -> ScriptResult:
        allowed.append(script.timeout)
        return run(target, script)

    monkeypatch.setattr(dash_host.transport, "run", noting)
    for size in (0, 1 << 20, 2 << 20, 1 << 30):
        dash_host.ship(replace(shipment(TAR), packed_size=size, chunks=lambda: [b""]))
    nothing, some, *all_of_it = (round(each - allowed[0]) for each in allowed)
    assert (nothing, some, all_of_it) == (0, 32, [64, 64])  # at 32 KiB/s


def test_an_interrupted_transfer_proves_and_leaves_nothing(host: WorkerHost) -> None:
    sent, token = shipment(TAR), host.request("true").token
    for cut in (0, 1, 100, sent.packed_size - 1):
        host.transport.cut_after = cut
        assert isinstance(host.ship(sent, token), Silence)
        assert host.state(token) is S.ABSENT
        assert os.listdir(host.root / "w") == []
    host.transport.cut_after = None
    assert report(host.ship(sent, token)).lacking == ()


def test_any_number_of_calls_may_bring_it_at_the_same_time(host: WorkerHost) -> None:
    sent = shipment(TAR)
    answers: list[Any] = []
    assert not at_once([lambda: answers.append(host.ship(sent))] * 6)
    assert all(isinstance(answer, WorkerReport) for answer in answers)
    assert os.listdir(host.root / "w") == [sent.hash]
    assert report(host.ship(sent)).lacking == ()


def test_no_second_upload_starts_while_one_is_running(dash_host: WorkerHost) -> None:
    sent = shipment(TAR)
    arrived = dash_host.directory / "arrived"
    os.mkfifo(arrived)

    def chunks() -> list[bytes]:
        arrived.read_bytes()  # until the test says so
        return list(sent.chunks())

    slow = Shipment(hash=sent.hash, size=sent.size, packed_size=sent.packed_size, chunks=chunks)
    answers: list[Any] = []

    def meanwhile() -> None:
        until(lambda: left_over(dash_host))
        token = dash_host.request("true").token
        answers.append(dash_host.ship(sent, token))
        answers.append(dash_host.state(token))
        arrived.write_bytes(b"")

    assert not at_once([lambda: dash_host.ship(slow), meanwhile])
    assert (answers[0].lacking, answers[1]) == ((sent.hash,), S.ABSENT)
    assert os.listdir(dash_host.root / "w") == [sent.hash]


STEPS = ["tar", "mv"]
MORE_STEPS = ["head", "gzip", "sha256sum", "find", "chmod", "sync", "rm", "awk"]


def fatal(step: str, directory: Path, *, number: int, after: bool) -> Path:
    """Return a directory for PATH in which a program kills the call at its n-th use, before or after its work."""
    real = subprocess.run(["sh", "-c", f"command -v {step}"], capture_output=True, text=True, check=True)
    directory.mkdir()
    (directory / step).write_text(
        f"""#!/bin/sh
echo >>{directory}/calls
[ "$(wc -l <{directory}/calls)" -eq {number} ] || exec {real.stdout.strip()} "$@"
{f'{real.stdout.strip()} "$@"' if after else ""}
kill -9 0
"""
    )
    (directory / step).chmod(0o755)
    return directory


@pytest.mark.parametrize("step", [*STEPS, *(pytest.param(s, marks=pytest.mark.soak) for s in MORE_STEPS)])
def test_files_of_a_killed_call_are_removed_by_the_next_one(
    probed_host: ProbedHost, tmp_path: Path, step: str
) -> None:
    host = probed_host("dash")
    path, killed = host.transport.env["PATH"], 0
    for number in (1, 2):
        for after in (False, True):
            sent = shipment(archive(lambda a: ordinary(a.file(f"{number}{after}"))))  # noqa: B023 - called at once
            tools = fatal(step, tmp_path / f"{number}{after}", number=number, after=after)
            host.transport.env["PATH"] = f"{tools}:{path}"
            killed += isinstance(host.ship(sent), Silence)
            host.transport.env["PATH"] = path
            assert report(host.ship(sent)).lacking == (), (number, after)
            assert left_over(host) == [], (number, after)
            assert f"{number}{after}" in tree(host.root / "w" / sent.hash)
    assert killed >= 2


def test_a_part_of_an_older_boot_is_removed(host: WorkerHost) -> None:
    sent = shipment(TAR)
    (host.root / "w").mkdir()
    old = host.root / "w" / f"{sent.hash}.part.1.1.another-boot"
    (old / "deep").mkdir(parents=True)
    (old / "deep/file").write_text("")
    (old / "deep").chmod(0o500)
    report(host.ship(sent))
    assert os.listdir(host.root / "w") == [sent.hash]


def test_a_receiver_without_data_times_out(dash_host: WorkerHost) -> None:
    sent = shipment(TAR)
    sleeper = subprocess.Popen(["sleep", "1000"])
    try:
        ticks = Path(f"/proc/{sleeper.pid}/stat").read_text().rpartition(") ")[2].split()[19]
        part = dash_host.root / "w" / f"{sent.hash}.part.{sleeper.pid}.{ticks}.{dash_host.boot_id}"
        part.mkdir(parents=True)
        (part / "gz").write_text("")
        assert report(dash_host.ship(sent)).lacking == (sent.hash,)
        for path in (part / "gz", part):
            os.utime(path, (1e9, 1e9))
        assert report(dash_host.ship(sent)).lacking == ()
        assert part.exists()
    finally:
        sleeper.send_signal(signal.SIGKILL)
        sleeper.wait()


def test_a_different_host_accepts_nothing(dash_host: WorkerHost) -> None:
    answer = dash_host.runner.ship(
        dash_host.target, shipment(TAR), [], boot_id="another", incarnation=dash_host.incarnation
    )
    assert report(answer).attempts == ()
    assert not (dash_host.root / "w").exists()
