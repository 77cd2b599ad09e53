"""Directories and lines that a task brings along for a child job: all there before the child is, and once."""

from __future__ import annotations

import gzip
import os
import random
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from msgspec.structs import replace

from iris_cli.core.ids import JobId
from iris_cli.core.messages.observations import Silence
from iris_cli.core.model.limits import Limits
from iris_cli.core.model.task import TaskState
from iris_cli.core.model.worker import Worker, WorkerCondition
from iris_cli.ops.cycle import transfers
from iris_cli.ops.cycle.answers import WorkspaceFetch
from iris_cli.ops.cycle.environment import read_line
from iris_cli.ops.cycle.transfers import MAX_FETCHES, fetch
from iris_cli.ops.session import Session
from iris_cli.ops.workspace.archive import END, padded_size
from iris_cli.ops.workspace.archive import Entry as ArchiveEntry
from tests.ops.asking import EVAL, running
from tests.support.fake_runner import Entry, Host, Site


def tar(data: bytes, name: bytes = b"data") -> bytes:
    return ArchiveEntry(os.fsdecode(name), len(data)).header + data.ljust(padded_size(len(data)), b"\0") + END


CONTENT = tar(bytes(range(256)) * 2000)


def described(content: bytes = CONTENT, **other: Any) -> dict[str, Any]:
    return {"hash": sha256(content).hexdigest(), "size": len(content), "files": 3, "name": "code", **other}


def pack(task: Entry, content: bytes = CONTENT, **other: Any) -> dict[str, Any]:
    """Put it where the client does; what a request says of it."""
    said = described(content, **other)
    task.packed[said["hash"]] = gzip.compress(content, 1)
    return said


def jobs(site: Site) -> list[str]:
    return list(site.cluster.jobs)


def kept(site: Site) -> tuple[str, ...]:
    return site.session().state.workspaces.names()


def test_a_directory_is_fetched_and_the_child_has_it(tmp_path: Path) -> None:
    site, _, task = running(tmp_path)
    task.ask("1", "submit", job={**EVAL, "workspace": pack(task)})
    site.cycle()
    assert task.told("1") == {"job": "train/eval", "created": True}
    child = site.cluster.jobs[JobId("train/eval")]
    assert child.workspace is not None
    assert (child.workspace.hash, child.workspace.name) == (described()["hash"], "code")
    with site.session().state.workspaces.open(child.workspace.hash) as file:
        assert gzip.decompress(file.read()) == CONTENT


def test_what_is_here_is_not_fetched(tmp_path: Path) -> None:
    site, host, task = running(tmp_path)
    site.session().state.workspaces.put([CONTENT])
    task.ask("1", "submit", job={**EVAL, "workspace": described()})
    site.cycle()
    assert task.told("1")["created"]
    assert "packed" not in host.calls


def test_it_holds_up_no_other_request_and_not_the_other_workers(tmp_path: Path) -> None:
    site, host, task = running(tmp_path)
    host.keeps_packed = True
    task.ask("1", "submit", job={**EVAL, "workspace": pack(task)})
    task.ask("2", "submit", job={**EVAL, "name": "other"})
    site.cycle()
    assert task.told("2")["job"] == "train/other"
    assert "1" in task.outbox
    assert jobs(site) == ["train", "train/other"]
    host.keeps_packed = None
    site.cycle(60.0)
    assert task.told("1") == {"job": "train/eval", "created": True}


def test_a_slow_worker_holds_up_no_other_however_much_was_packed_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, host, slow = running(tmp_path, "w0", "w1", cpu=3.0)
    site.launch("side", cpu=3.0, memory=1 << 30)
    site.cycle()
    site.cycle()
    quick = next(each for each in site.hosts.values() if each is not host).of("side")
    for number in range(MAX_FETCHES + 1):
        workspace = pack(slow, tar(bytes([number])))
        slow.ask(str(number), "submit", job={**EVAL, "name": f"eval-{number}", "workspace": workspace})
    quick.ask("1", "submit", job={**EVAL, "workspace": pack(quick)})
    has_come, waited = Event(), []

    def slowly(session: Session, worker: Worker, *what: Any) -> WorkspaceFetch | Silence:
        if worker.id == host.name:
            waited.append(has_come.wait(60))
            return fetch(session, worker, *what)
        found = fetch(session, worker, *what)
        has_come.set()
        return found

    monkeypatch.setattr(transfers, "fetch", slowly)
    site.cycle()
    assert all(waited)
    assert quick.told("1") == {"job": "side/eval", "created": True}
    for _ in range(MAX_FETCHES):
        site.cycle()
    assert [slow.told(str(number))["created"] for number in range(MAX_FETCHES + 1)] == [True] * (
        MAX_FETCHES + 1
    )


def test_the_end_of_who_asks_waits_for_it(tmp_path: Path) -> None:
    site, host, task = running(tmp_path)
    host.keeps_packed = True
    task.ask("1", "submit", job={**EVAL, "workspace": pack(task)})
    host.exits("train")
    site.cycle()
    assert site.task("train").state is TaskState.RUNNING
    host.keeps_packed = None
    site.cycle(60.0)
    assert jobs(site) == ["train", "train/eval"]
    assert site.task("train").state is TaskState.SUCCEEDED


def die(site: Site, host: Host) -> None:
    site.crash("packed", host.name)


def die_and_forget(site: Site, host: Host) -> None:
    site.crash("packed", host.name)
    for name in kept(site):
        site.session().state.workspaces.remove(name)


def answer_is_lost(site: Site, host: Host) -> None:
    site.crash("answer", host.name)


@pytest.mark.parametrize("accident", [die, die_and_forget, answer_is_lost])
def test_a_job_is_submitted_once_even_if_a_process_is_killed(
    tmp_path: Path, accident: Callable[[Site, Host], None]
) -> None:
    site, host, task = running(tmp_path)
    task.ask("1", "submit", job={"command": ["x"], "workspace": pack(task)})
    accident(site, host)
    site.cycle(60.0)
    assert task.told("1") == {"job": "train/x-1", "created": True}
    assert jobs(site) == ["train", "train/x-1"]
    task.ask("1", "submit", job={"command": ["x"], "workspace": described()})
    site.cycle(60.0)
    assert jobs(site) == ["train", "train/x-1"]


def test_a_later_attempt_gets_the_child_that_is_there_and_nothing_is_fetched_again(tmp_path: Path) -> None:
    site, host, task = running(tmp_path, max_retries_failure=1)
    task.ask("1", "submit", job={**EVAL, "workspace": pack(task)})
    site.cycle()
    host.exits("train", 1)
    for name in kept(site):
        site.session().state.workspaces.remove(name)
    site.run(4)
    again = host.of("train")
    again.ask("1", "submit", job={**EVAL, "workspace": described()})
    site.cycle(60.0)
    assert again.told("1") == {"job": "train/eval", "created": False}


def test_who_is_being_stopped_gets_nothing(tmp_path: Path) -> None:
    site, host, task = running(tmp_path)
    host.keeps_packed = True
    task.ask("1", "submit", job={**EVAL, "workspace": pack(task)})
    site.cycle()
    host.keeps_packed, host.unkillable = None, True
    from iris_cli.ops.jobs.change import cancel

    cancel(site.session(), ["train"])
    site.cycle(60.0)
    assert "being stopped" in task.told("1")
    assert (jobs(site), kept(site)) == (["train"], ())


BOMB = 16 << 20
"""Bytes that it unpacks to; packed when it is used."""


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (None, "missing"),
        (b"", "truncated"),
        (gzip.compress(tar(b"other")), "content has changed"),
        (gzip.compress(CONTENT)[:-9], "wrong end"),
        (gzip.compress(CONTENT) + b"x", "wrong end"),
        (gzip.compress(CONTENT) + gzip.compress(b"x"), "wrong end"),
        (b"\x1f\x8bno gzip at all", "damaged"),
        (BOMB, "more than"),
        (bytes(4 << 20), "expected"),
    ],
    ids=["none", "empty", "other", "cut", "followed", "two", "no gzip", "bomb", "large"],
)
def test_what_is_not_what_was_asked_for_is_refused_and_not_kept(
    tmp_path: Path, data: bytes | int | None, why: str
) -> None:
    site, host, task = running(tmp_path)
    said = pack(task)
    if data is None:
        task.packed.clear()
    else:
        task.packed[said["hash"]] = gzip.compress(bytes(data), 1) if isinstance(data, int) else data
    task.ask("1", "submit", job={**EVAL, "workspace": said})
    task.ask("2", "submit", job={**EVAL, "name": "other"})
    site.cycle()
    assert why in task.told("1")
    assert task.told("2")["created"]
    assert (jobs(site), kept(site)) == (["train", "train/other"], ())
    assert list(site.session().state.workspaces.path.glob("*")) == []
    assert host.running[0] == "train/task-0"


@pytest.mark.parametrize(
    ("content", "why"),
    [(tar(b"x", b"/etc/cron.d/x"), "invalid path"), (tar(b"x")[:-512], "truncated")],
    ids=["absolute", "cut"],
)
def test_what_could_do_harm_is_refused_before_any_worker_has_it_and_costs_none_its_good_name(
    tmp_path: Path, content: bytes, why: str
) -> None:
    site, host, task = running(tmp_path)
    task.ask("1", "submit", job={**EVAL, "workspace": pack(task, content)})
    task.ask("2", "submit", job={**EVAL, "name": "good", "workspace": pack(task)})
    task.ask("3", "submit", job={**EVAL, "name": "plain"})
    for _ in range(3):
        site.cycle(60.0)
    assert why in task.told("1")
    assert [task.told(each)["job"] for each in "23"] == ["train/good", "train/plain"]
    assert (sorted(jobs(site)), kept(site)) == (
        ["train", "train/good", "train/plain"],
        (described()["hash"],),
    )
    assert [sent for sent, _ in host.shipped] == [described()["hash"]]
    (worker,) = site.cluster.workers.values()
    assert (worker.condition, worker.refusals) == (WorkerCondition.HEALTHY, 0)


def test_what_changes_while_it_is_fetched_is_refused(tmp_path: Path) -> None:
    site, host, task = running(tmp_path)
    data = random.Random(1).randbytes(300_000)
    said = pack(task, tar(data))
    other = gzip.compress(tar(data[::-1]))
    host.meanwhile["packed"] = lambda: host.meanwhile.update(
        packed=lambda: task.packed.update({said["hash"]: other})
    )
    task.ask("1", "submit", job={**EVAL, "workspace": said})
    site.cycle()
    assert "damaged" in task.told("1") or "content has changed" in task.told("1")
    assert (jobs(site), kept(site)) == (["train"], ())


def test_an_answer_with_less_than_was_asked_for_ends_the_fetch(tmp_path: Path) -> None:
    site, host, task = running(tmp_path)
    host.crumbs = True
    task.ask("1", "submit", job={**EVAL, "workspace": pack(task, tar(random.Random(1).randbytes(300_000)))})
    site.cycle()
    assert "truncated" in task.told("1")
    assert host.calls.count("packed") == 1


@pytest.mark.parametrize(("seconds", "size", "comes"), [(0.2, 8 << 20, True), (50.0, 1 << 20, False)])
def test_a_worker_that_sends_little_at_a_time_has_its_turn_for_a_while_only(
    tmp_path: Path, seconds: float, size: int, comes: bool
) -> None:
    """Each piece is as large as it has to be, and in time for its call."""
    site, host, task = running(tmp_path)

    def slowly() -> None:
        site.clock.sleep(seconds)
        host.meanwhile["packed"] = slowly

    host.meanwhile["packed"] = slowly
    task.ask("1", "submit", job={**EVAL, "workspace": pack(task, tar(random.Random(1).randbytes(size)))})
    site.cycle()
    said = task.told("1")
    assert said == {"job": "train/eval", "created": True} if comes else "too slow" in said
    assert (host.calls.count("packed") > 128) is comes


def test_what_is_more_than_allowed_is_refused_before_it_is_fetched(tmp_path: Path) -> None:
    limits = replace(Limits(), workspace_size=len(CONTENT))
    site, _, task = running(tmp_path, limits=limits)
    task.ask("0", "submit", job={**EVAL, "workspace": pack(task, tar(bytes(len(CONTENT))))})
    for number in range(1, 6):
        content = tar(bytes([number]) + bytes(511_999))
        task.ask(str(number), "submit", job={"command": ["x"], "workspace": pack(task, content)})
    for _ in range(3):
        site.cycle(60.0)
    assert "more than" in task.told("0")
    assert len([child for child in jobs(site) if child.startswith("train/x-")]) == 4
    assert "more than" in task.told("5")


def test_what_would_be_refused_anyway_is_not_fetched(tmp_path: Path) -> None:
    site, host, task = running(tmp_path)
    task.ask("1", "submit", job={**EVAL, "tpu": "v9-4", "workspace": pack(task)})
    site.cycle()
    assert "v9-4" in task.told("1")
    assert "packed" not in host.calls


def test_lines_travel_in_the_request_and_are_kept_as_those_of_a_launch(tmp_path: Path) -> None:
    site, _, task = running(tmp_path)
    task.ask("1", "submit", job={**EVAL, "cpu": 0.1, "each_line": ["first", "", "dritte Ä"]})
    site.cycle()
    assert task.told("1") == {"job": "train/eval", "created": True}
    child = site.cluster.jobs[JobId("train/eval")]
    assert (child.replicas, child.each_line and child.each_line.count) == (3, 3)
    assert [read_line(site.session().state, child, index) for index in range(3)] == ["first", "", "dritte Ä"]
