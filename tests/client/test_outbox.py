"""The client inside a task: what it asks for is asked once, whenever it is killed, and answered as it should be."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from iris_cli.client import IrisClient, JobState, UnansweredError
from iris_cli.client.outbox import Outbox
from iris_cli.client.request_channel import RequestChannel, new_request_id
from iris_cli.config.request_reading import read_request
from iris_cli.core.constraint_syntax import parse_constraint
from iris_cli.core.ids import JobId, is_request_id
from iris_cli.core.messages.requests import (
    Answer,
    Cancel,
    Endpoints,
    Refusal,
    RegisterEndpoint,
    RemoveEndpoint,
    Request,
    Status,
    Submit,
    Wait,
)
from iris_cli.core.model.task import TaskState
from iris_cli.errors import IrisError, NotFoundError, NotWritableError, UsageError
from tests.client.operator_thread import OperatorThread

PATIENCE = 120.0


JOB = {"id": "train/eval", "state": "RUNNING", "why": "", "children": ["train/eval/sub"]}
TASK = {
    "id": "train/eval/task-0",
    "state": "RUNNING",
    "attempt": 1,
    "worker": "w",
    "exit_code": None,
    "why": "",
}


@pytest.fixture
def task_dir(tmp_path: Path) -> Path:
    for name in ("outbox", "inbox"):
        (tmp_path / name).mkdir()
    return tmp_path


def client_of(task_dir: Path, patience: float | None = PATIENCE) -> IrisClient:
    return IrisClient.with_backend(Outbox(task_dir, patience))


def waiting(task_dir: Path) -> list[str]:
    return sorted(path.name for path in (task_dir / "outbox").iterdir())


def submitted(request: Request) -> Answer:
    assert isinstance(request, Submit)
    return {"job": f"train/{request.job.name}", "created": True}


def test_a_program_inside_a_task_uses_its_outbox_without_being_told(
    task_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IRIS_TASK_DIR", str(task_dir))
    monkeypatch.setenv("IRIS_JOB_ID", "train")
    monkeypatch.delenv("IRIS_STATE_DIR", raising=False)
    with OperatorThread(task_dir, submitted) as operator:
        job = IrisClient().submit(["eval"], name="eval", memory="1GiB")
    assert job.id == "train/eval"
    assert isinstance(operator.asked[0], Submit)
    monkeypatch.setenv("IRIS_STATE_DIR", str(task_dir / "state"))
    assert not isinstance(IrisClient()._backend, Outbox)
    monkeypatch.delenv("IRIS_STATE_DIR")
    assert not isinstance(IrisClient(state_dir=task_dir / "state")._backend, Outbox)


@pytest.mark.parametrize(
    ("constraints", "sent"),
    [(None, None), ([], ()), (["pool=1"], (parse_constraint("pool=1"),))],
)
def test_no_constraints_and_none_said_are_different_things(
    constraints: list[str] | None, sent: tuple[object, ...] | None, task_dir: Path
) -> None:
    with OperatorThread(task_dir, submitted) as operator:
        client_of(task_dir).submit("eval", name="eval", constraints=constraints)
    assert operator.asked[0].job.constraints == sent


def test_a_request_is_whole_private_and_has_an_id_in_order(task_dir: Path) -> None:
    channel = RequestChannel(task_dir)
    names = [channel.put(Status()) for _ in range(3)]
    assert waiting(task_dir) == sorted(names) == names
    for name in names:
        path = task_dir / "outbox" / name
        assert is_request_id(name)
        assert read_request(path.read_bytes()) == Status()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_request_has_its_name_only_when_it_is_whole_and_on_the_disk(
    task_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[list[str], int]] = []

    def sync(descriptor: int) -> None:
        visible = [name for name in waiting(task_dir) if is_request_id(name)]
        synced.append((visible, os.fstat(descriptor).st_size))

    monkeypatch.setattr(os, "fsync", sync)
    name = RequestChannel(task_dir).put(Status())
    size = (task_dir / "outbox" / name).stat().st_size
    assert synced[0] == ([], size)  # all of it, under another name
    assert synced[1][0] == [name]  # then the directory


def test_ids_of_many_threads_are_all_different() -> None:
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.extend(new_request_id() for _ in range(200))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1600


def test_what_was_answered_is_cleared_away(task_dir: Path) -> None:
    with OperatorThread(task_dir, submitted):
        client_of(task_dir).submit("eval", name="eval")
    assert waiting(task_dir) == []
    assert list((task_dir / "inbox").iterdir()) == []


def test_the_same_request_id_gets_the_first_answer_again(task_dir: Path) -> None:
    with OperatorThread(task_dir, submitted) as operator:
        for _ in range(3):
            job = client_of(task_dir).submit("eval", name="eval", request_id="eval-1")
            assert job.id == "train/eval"
        assert list(operator.done) == ["eval-1"]


def test_a_request_that_waits_under_the_same_id_is_not_put_twice(task_dir: Path) -> None:
    client = client_of(task_dir, patience=0.05)
    for _ in range(2):
        with pytest.raises(UnansweredError) as late:
            client.submit("eval", name="eval", request_id="eval-1")
        assert late.value.request_id == "eval-1"
    assert waiting(task_dir) == ["eval-1"]
    with pytest.raises(UsageError, match="another request"):
        client.submit("other", name="eval", request_id="eval-1")


@pytest.mark.parametrize("bad", ["", "../x", ".hidden", "a b", "a/b", "x" * 65, "ä"])
def test_what_is_no_request_id_is_refused(bad: str, task_dir: Path) -> None:
    with pytest.raises(UsageError):
        client_of(task_dir).submit("eval", request_id=bad)
    assert waiting(task_dir) == []


def test_without_polls_a_request_times_out(task_dir: Path) -> None:
    with pytest.raises(UnansweredError, match="no cycles are running") as late:
        client_of(task_dir, patience=0.05).submit("eval")
    assert "iris loop start" in late.value.hint
    assert int(late.value.exit_code) == 7
    assert waiting(task_dir) == [late.value.request_id]


def test_a_read_request_is_deleted_after_its_timeout(task_dir: Path) -> None:
    with pytest.raises(UnansweredError) as late:
        client_of(task_dir, patience=0.05).status("train/eval")
    assert late.value.request_id == ""
    assert waiting(task_dir) == []


@pytest.mark.parametrize(
    "answer", [{}, {"job": {}}, {"job": {**JOB, "state": "ASLEEP"}, "tasks": []}, {"job": []}]
)
def test_an_answer_of_another_version_is_an_error_with_a_hint(answer: dict[str, Any], task_dir: Path) -> None:
    with OperatorThread(task_dir, lambda _: answer), pytest.raises(IrisError, match="understood") as raised:
        client_of(task_dir).status("train/eval")
    assert "version" in raised.value.hint


def test_files_cannot_be_pulled_into_a_task(task_dir: Path) -> None:
    with pytest.raises(UsageError, match="operator's machine"):
        client_of(task_dir).job("train/eval").pull()


def test_one_refusal_ends_the_wait_for_many(task_dir: Path) -> None:
    def decide(request: Request) -> Answer | None:
        assert isinstance(request, Wait)
        return Refusal(kind="not_found", message="no job") if request.job == "train/b" else None

    with OperatorThread(task_dir, decide), pytest.raises(NotFoundError):
        Outbox(task_dir, PATIENCE).final_answers([JobId("train/a"), JobId("train/b")], None)
    assert waiting(task_dir) == []


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        (Refusal(kind="not_found", message="no job 'x'", hint="look"), NotFoundError),
        (Refusal(kind="usage", message="no", hint="yes"), UsageError),
        (Refusal(kind="refused", message="too many"), IrisError),
        (Refusal(kind="of tomorrow", message="new"), IrisError),
    ],
)
def test_a_refusal_is_the_error_that_it_is(refusal: Refusal, error: type[IrisError], task_dir: Path) -> None:
    with OperatorThread(task_dir, lambda _: refusal), pytest.raises(error) as raised:
        client_of(task_dir).cancel("train/eval")
    assert (raised.value.message, raised.value.hint) == (refusal.message, refusal.hint)


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'{"v":2,"ok":true,"result":{}}', b"[" * 100_000, b"\xff"])
def test_a_malformed_answer_is_an_error(raw: bytes, task_dir: Path) -> None:
    channel = RequestChannel(task_dir)
    name = channel.put(Status())
    (task_dir / "inbox" / name).write_bytes(raw)
    with pytest.raises(IrisError, match="answer"):
        channel.read_if_answered(name)


def test_a_directory_that_is_no_tasks_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not the outbox of a task"):
        client_of(tmp_path / "gone").submit("eval")


def test_a_full_disk_is_reported(task_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NotWritableError, match="No space left"):
        client_of(task_dir).submit("eval")
    assert waiting(task_dir) == []


def test_what_is_asked_for_is_what_is_sent(task_dir: Path) -> None:
    answers: Mapping[type, Any] = {
        Status: {"job": {**JOB, "display": "STOPPING"}, "tasks": [TASK]},
        Cancel: {"job": "train/eval", "cancelled": True},
        Endpoints: {
            "endpoints": [
                {"task": "train/task-0", "name": "http", "address": "10.0.0.1", "port": 80, "metadata": {}}
            ]
        },
        RegisterEndpoint: {},
        RemoveEndpoint: {"removed": False},
    }
    client = client_of(task_dir)
    with OperatorThread(task_dir, lambda request: answers[type(request)]) as operator:
        job = client.job("train/eval")
        status = job.status()
        assert (status.id, status.state, status.children) == (
            "train/eval",
            JobState.RUNNING,
            ("train/eval/sub",),
        )
        task = client.task_status("train/eval/task-0")
        assert (task.state, task.attempt, task.worker) == (TaskState.RUNNING, 1, "w")
        assert (status.display, task.display) == ("STOPPING", "RUNNING"), "an older iris names none"
        assert job.cancel("enough") is True
        client.register_endpoint("http", 80, {"path": "/"})
        assert client.remove_endpoint("http") is False
        (found,) = client.endpoints()
        assert (found.name, found.task, found.address) == ("http", "train/task-0", "10.0.0.1:80")
    assert operator.asked == [
        Status(job=job.id),
        Status(job=job.id),
        Cancel(job=job.id, reason="enough"),
        RegisterEndpoint(name="http", port=80, metadata={"path": "/"}),
        RemoveEndpoint(name="http"),
        Endpoints(),
    ]


def test_a_wait_is_one_request_and_is_taken_back_when_the_time_is_over(task_dir: Path) -> None:
    job = client_of(task_dir).job("train/eval")
    with pytest.raises(TimeoutError):
        job.wait(timeout=0.05)
    assert waiting(task_dir) == []
    ended = {"job": {**JOB, "state": "SUCCEEDED"}, "tasks": []}
    with OperatorThread(task_dir, lambda _: ended) as operator:
        assert job.wait() is JobState.SUCCEEDED
    assert operator.asked == [Wait(job=job.id)]


def test_many_clients_at_once_get_their_own_answers(task_dir: Path) -> None:
    found: dict[int, str] = {}

    def ask(number: int) -> None:
        found[number] = client_of(task_dir).submit("eval", name=f"eval-{number}").id

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
    with OperatorThread(task_dir, submitted):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == {number: f"train/eval-{number}" for number in range(12)}


PARENT = """
import sys
from pathlib import Path
from iris_cli.client import IrisClient
from iris_cli.client.outbox import Outbox
job = IrisClient.with_backend(Outbox(Path(sys.argv[1]), 120.0)).submit("eval", name="eval", request_id="eval-1")
sys.stdout.write(job.id)
"""


def parent(task_dir: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", PARENT, str(task_dir)], stdout=subprocess.PIPE, text=True)


def until(happened: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    while not happened():
        try:
            process.wait(0.01)
        except subprocess.TimeoutExpired:
            continue
        raise AssertionError("it ended by itself")


def test_a_program_that_is_killed_while_it_waits_gets_its_answer_when_it_asks_again(task_dir: Path) -> None:
    first = parent(task_dir)
    until(lambda: waiting(task_dir) == ["eval-1"], first)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    with OperatorThread(task_dir, submitted) as operator:
        second = parent(task_dir)
        out, _ = second.communicate(timeout=PATIENCE)
        assert (second.returncode, out) == (0, "train/eval")
        third = parent(task_dir)
        assert third.communicate(timeout=PATIENCE)[0] == "train/eval"
    assert list(operator.done) == ["eval-1"]


def test_waiting_for_the_own_job_is_an_error(task_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRIS_JOB_ID", "train/eval")
    for job in ("train/eval", "train"):
        with pytest.raises(UsageError, match=f"{job} can't end before this task"):
            client_of(task_dir).job(job).wait()
        with pytest.raises(UsageError, match="can't end before"):
            client_of(task_dir).wait(job, stream_logs_from=0)
    assert waiting(task_dir) == []


def test_a_child_that_inherits_no_constraints_may_have_preferences(task_dir: Path) -> None:
    with OperatorThread(task_dir, submitted) as operator:
        client_of(task_dir).submit(["x"], name="e", constraints=[], prefer=["pool=a"])
    asked = operator.asked[0].job
    assert (asked.constraints, asked.inherit_constraints) == ((parse_constraint("~pool=a"),), False)


@pytest.mark.parametrize(("constraints", "said"), [(None, None), (["pool=a"], False)])
def test_a_child_may_inherit_no_constraints_and_have_its_own(
    task_dir: Path, constraints: list[str] | None, said: bool | None
) -> None:
    with OperatorThread(task_dir, submitted) as operator:
        client_of(task_dir).submit(["x"], name="e", constraints=constraints, inherit_constraints=False)
    asked = operator.asked[0].job
    own = tuple(map(parse_constraint, constraints or ()))
    assert (asked.constraints, asked.inherit_constraints) == (own, said)
