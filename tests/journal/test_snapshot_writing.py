"""When the snapshot is written, and what keeps it from that: nobody notices."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from bench.cluster_files import ClusterFiles
from bench.long_log import write_past
from iris_cli.core.ids import Token
from iris_cli.journal.snapshot.reading import Snapshot
from iris_cli.journal.state_dir import StateDir
from tests.journal.histories import NEVER, Log, busy_days, same, state_in, write
from tests.journal.test_faults import BadDisk, PowerCut
from tests.support.forked import Forked
from tests.support.lab import Lab


def test_it_is_written_when_so_many_lines_came_since_the_last(tmp_path: Path) -> None:
    log = Log(tmp_path / "state", busy_days())
    stands_at = []
    for seq in range(1, len(log) + 1):
        log.grow(seq)
        log.look(every=20)
        stands_at.append(seq_of(log.snapshots[0]) if log.snapshots else 0)
    assert sorted(set(stands_at)) == list(range(0, len(log) + 1, 20))


def seq_of(snapshot: Path) -> int:
    position = json.loads(snapshot.read_bytes().split(b"\n", 1)[0])["position"]
    return int(position["seq"])


def test_it_is_private_and_one_json_value_in_each_line(tmp_path: Path) -> None:
    log = Log(tmp_path / "state", busy_days())
    log.grow(len(log))
    log.look(every=len(log))
    assert log.snapshot.stat().st_mode & 0o777 == 0o600
    _, live, opened, ended, _, *pages = map(json.loads, log.snapshot.read_bytes().splitlines())
    assert [each["job"]["id"] for each in live["jobs"]] == ["sweep", "last"]
    assert (opened, len(ended)) == (["last", "sweep"], 12)
    assert sorted(job for page in pages for job in page) == sorted(f"job-{number}" for number in range(12))
    assert [path.name for path in log.path.iterdir() if path.suffix == ".tmp"] == []


def test_every_so_many_lines_one_is_kept_in_the_archive_with_the_jobs_that_ended_since(
    tmp_path: Path,
) -> None:
    log = Log(tmp_path / "state", busy_days())
    log.grow(len(log))
    log.look(every=8)
    moments = [path for path in reversed(log.snapshots) if path != log.snapshot]
    assert [seq_of(path) for path in moments] == list(range(40, len(log) + 1, 40))
    assert {path.stat().st_mode & 0o777 for path in moments} == {0o600}
    ended = [set(json.loads(line)) for path in log.snapshots for line in path.read_bytes().splitlines()[5:]]
    assert set().union(*ended) == {f"job-{number}" for number in range(12)}
    assert sum(map(len, ended)) < 2 * 12, "a job is written when it ended and when its output was deleted"


def test_tokens_of_jobs_with_output_are_known_without_reading_archived_snapshots(tmp_path: Path) -> None:
    log = Log(tmp_path / "state", busy_days())
    log.grow(len(log))
    cluster = log.look(every=1)
    for path in log.snapshots:
        path.unlink()
    assert isinstance(cluster.past, Snapshot)
    whole = log.replayed()
    tokens = [whole.attempt(each).token for outputs in whole.outputs.values() for each in outputs.attempts]
    assert len(tokens) > 10
    assert (cluster.unknown_tokens(tokens), cluster.past.log) == ((), None)
    assert cluster.unknown_tokens([*tokens, Token("e" * 32)]) == (Token("e" * 32),)
    assert cluster.past.log is not None


@pytest.mark.parametrize("damaged", [False, True])
def test_an_archived_snapshot_found_unusable_loses_no_job(tmp_path: Path, damaged: bool) -> None:
    lab = Lab().worker("w0", cpu=4)
    for name in ("first", "second", "third"):
        lab.job(name).schedule().reports(f"{name}/* running").reports(f"{name}/* exited 0")
    over = len(lab.log)
    for _ in range(5):
        lab.drain("w0").uncordon("w0")  # nobody looks a job up for these
    for seq in range(over, over + 5):
        log = Log(tmp_path / str(seq), lab.log)
        log.grow(seq)
        log.look(every=1)
        log.grow(seq + 4)
        state = state_in(log.path)
        cluster = state.load().cluster
        assert cluster is not None
        for path in log.snapshots:
            if path == log.snapshot:
                continue
            if damaged:
                write(path, path.read_bytes().replace(b"w0", b"w1"))
            else:  # as when another process has replayed all of the log, and made a moment that needs no others
                path.unlink()
        whole = log.replayed()
        cluster = state.save_snapshot(cluster, always=True)
        assert [cluster.jobs.get(job) for job in whole.jobs] == list(whole.jobs.values())
        same(cluster, whole)
        seen = log.look(every=NEVER)
        assert [seen.jobs.get(job) for job in whole.jobs] == list(whole.jobs.values())
        same(seen, whole)


@pytest.mark.parametrize(
    ("fault", "worn"),
    [(errno.ENOSPC, False), ("short", False), (errno.EROFS, True), (PowerCut, False), (errno.EIO, True)],
)
def test_a_failing_disk_while_writing_a_snapshot_is_ignored(
    tmp_path: Path, fault: int | type[PowerCut] | str, worn: bool
) -> None:
    log = Log(tmp_path / "state", busy_days())
    log.grow(len(log))
    whole = log.replayed()
    for step in range(WRITING_STEPS):
        log.grow(30)
        for path in log.snapshots:
            path.unlink()
        log.look(every=30)
        log.grow(len(log))
        state = on_disk(log.path, disk := BadDisk(step, fault, worn), every=len(log) - 30)
        view = state.load()
        assert view.cluster is not None
        with suppress(PowerCut):
            state.save_snapshot(view.cluster)
        assert len(disk.calls) > step
        same(log.look(every=NEVER), whole)
        same(log.look(every=1), whole)
        assert log.look(every=NEVER).past is not None
    assert len(disk.calls) == WRITING_STEPS


@pytest.mark.parametrize(
    "fault",
    [errno.ENOSPC, PowerCut, *(pytest.param(each, marks=pytest.mark.soak) for each in (errno.EIO, "short"))],
)
def test_a_failing_disk_while_archiving_snapshots_is_ignored(
    tmp_path: Path, fault: int | type[PowerCut] | str
) -> None:
    for step in count():
        log = Log(tmp_path / str(step), busy_days())
        log.grow(len(log))
        whole, state = log.replayed(), on_disk(log.path, disk := BadDisk(step, fault, worn=False), every=6)
        with suppress(PowerCut):
            view = state.load()
            assert view.cluster is not None
            same(state.save_snapshot(view.cluster), whole)
        same(log.look(every=NEVER), whole)
        same(log.look(every=6), whole)
        assert log.look(every=NEVER).past is not None
        if len(disk.calls) <= step:
            break
    assert step > 2 * WRITING_STEPS


WRITING_STEPS = 5
"""Calls that can fail: cut the draft, write, sync, rename, sync the directory."""


def on_disk(path: Path, disk: BadDisk, *, every: int) -> StateDir:
    return StateDir(path, now=lambda: 1.8e9, actor="me@laptop", disk=disk, snapshot_every=every)


@pytest.mark.parametrize("obstacle", ["directory", "link", "fifo"])
def test_an_obstacle_for_the_draft_of_a_snapshot_is_ignored(tmp_path: Path, obstacle: str) -> None:
    log = Log(tmp_path / "state", busy_days())
    log.grow(len(log))
    draft = log.path / "snapshot.json.tmp"
    if obstacle == "directory":
        draft.mkdir()
    elif obstacle == "link":
        draft.symlink_to("events.jsonl")
    else:
        os.mkfifo(draft)
    before = (log.path / "events.jsonl").read_bytes()
    same(log.look(every=len(log)), log.replayed())
    assert (log.path / "events.jsonl").read_bytes() == before
    assert not log.snapshot.exists()


def test_a_reader_of_another_users_state_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(tmp_path / "state", busy_days())
    log.grow(len(log))
    log.look(every=len(log))
    of_the_owner = log.snapshot.stat()
    with monkeypatch.context() as other:
        other.setattr(os, "geteuid", lambda: of_the_owner.st_uid + 1)
        same(log.look(every=1), log.replayed())
    assert os.path.samestat(log.snapshot.stat(), of_the_owner)
    assert not log.snapshot.with_name("snapshot.json.tmp").exists()


def test_two_writers_of_snapshots_do_not_damage_each_others_files(tmp_path: Path) -> None:
    log = Log(tmp_path / "state", busy_days())
    log.grow(len(log))
    with (log.path / "snapshot.json.tmp").open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        other.write(b"half of it")
        other.flush()
        same(log.look(every=len(log)), log.replayed())
        assert (log.path / "snapshot.json.tmp").read_bytes() == b"half of it"
    assert not log.snapshot.exists()
    log.look(every=len(log))  # the other one is gone, and what it left is overwritten
    assert log.look(every=NEVER).past is not None


_WRITERS = """
import os, sys
from pathlib import Path
from iris_cli.core.evolve import replay
from tests.journal.histories import state_in

for _ in sys.stdin:  # each line asks for a writer
    writer = os.fork()
    if not writer:
        print(os.getpid(), flush=True)
    while not writer:
        state = state_in(Path(sys.argv[1]))
        state.save_snapshot(replay(state.read().transactions))
        print("kept", flush=True)
    os.waitpid(writer, 0)
    print("gone", flush=True)
"""


def test_a_kill_while_it_is_written_leaves_the_old_one_or_the_new_one(tmp_path: Path) -> None:
    log = Log(tmp_path / "state", busy_days())
    log.grow(len(log))
    whole = log.replayed()
    command = [sys.executable, "-c", _WRITERS, str(log.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writers:
        assert writers.stdin is not None
        assert writers.stdout is not None
        for round_ in range(4):
            writers.stdin.write(b"\n")
            writers.stdin.flush()
            writer = int(writers.stdout.readline())
            try:
                for _ in range(1 + round_):
                    assert writers.stdout.readline() == b"kept\n"
                time.sleep(random.random() / 50)
            finally:
                os.kill(writer, signal.SIGKILL)
            while (said := writers.stdout.readline()) != b"gone\n":
                assert said == b"kept\n"
            seen = log.look(every=NEVER)
            assert seen.past is not None
            same(seen, whole)
    assert {each.name for each in log.path.iterdir()} <= {
        "events.jsonl",
        "HEAD",
        "archive",
        "snapshot.json",
        "snapshot.json.tmp",
    }


# With commands


def iris(made: ClusterFiles, *words: str) -> str:
    """Return the stdout of a command, which prints nothing on stderr."""
    words = tuple(made.iris(*words)[3:])  # without the interpreter
    with Forked(words, cwd=made.directory, env=made.environment, text=True) as command:
        out, errors = command.communicate()
    assert (command.returncode, errors) == (0, "")
    return str(out)


def test_a_long_history_is_shown_alike_with_and_without_its_snapshot(tmp_path: Path) -> None:
    made = ClusterFiles.make(tmp_path, 8)
    write_past(tmp_path / "state", made.workers, lines := 2_000)
    snapshot = tmp_path / "state" / "snapshot.json"

    def jobs(printed: str) -> Any:
        return [
            {key: value for key, value in job.items() if key != "age_seconds"}
            for job in json.loads(printed)["jobs"]
        ]

    def status(*words: str) -> Any:
        return jobs(iris(made, "--json", *words))

    small_files = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (20_000, 20_000))
    nothing_compiled = made.environment | {"PYTHONDONTWRITEBYTECODE": "1"}  # it would be cut off, too
    done = subprocess.run(
        made.iris("--json", "status"),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        preexec_fn=small_files,
        env=nothing_compiled,
    )
    assert done.stderr == ""
    first = jobs(done.stdout)
    assert not snapshot.exists()
    assert status("status") == first
    assert seq_of(snapshot) == lines
    assert status("status") == first
    everything = status("status", "--all")
    snapshot.unlink()
    assert status("status", "--all") == everything


@pytest.mark.parametrize(("lines", "early"), [(300, False), (1500, True)])
def test_a_snapshot_is_written_earlier_if_reading_is_slow(tmp_path: Path, lines: int, early: bool) -> None:
    made = ClusterFiles.make(tmp_path, 8)
    write_past(tmp_path / "state", made.workers, lines)
    snapshot = tmp_path / "state" / "snapshot.json"

    iris(made, "status")
    assert snapshot.exists() == early
    if early:
        iris(made, "worker", "drain", made.workers[0])
        first = seq_of(snapshot)
        assert first == lines, "hardly anything came since"
