"""`AsyncIrisClient`: the same calls as coroutines, which leave the event loop free."""

from __future__ import annotations

import asyncio
import inspect
import threading
from pathlib import Path

import pytest

from iris_cli.client import AsyncIrisClient, AsyncJob, IrisClient, IrisError, Job, JobState
from iris_cli.client.outbox import Outbox
from iris_cli.core.messages.requests import Answer, Cancel, Refusal, Request, Submit, Wait
from tests.client.operator_thread import OperatorThread

PATIENCE = 120.0


def client_of(task_dir: Path) -> AsyncIrisClient:
    for name in ("outbox", "inbox"):
        (task_dir / name).mkdir(exist_ok=True)
    client = AsyncIrisClient()
    client.wrapped = IrisClient.with_backend(Outbox(task_dir, PATIENCE))
    return client


def decide(request: Request) -> Answer | None:
    match request:
        case Submit():
            return {"job": f"train/{request.job.name}", "created": True}
        case Wait():
            state = "FAILED" if request.job.endswith("bad") else "SUCCEEDED"
            return {"job": {"id": request.job, "state": state}, "tasks": []}
        case _:
            return Refusal(kind="refused", message="too late")


def test_jobs_are_submitted_and_awaited(tmp_path: Path) -> None:
    async def program() -> tuple[list[str], JobState, list[JobState]]:
        async with client_of(tmp_path) as client:
            jobs = [await client.submit(["true"], name=name) for name in ("good", "bad")]
            assert [type(job) for job in jobs] == [AsyncJob, AsyncJob]
            alone, both = await asyncio.gather(
                jobs[1].wait(), client.wait_all([jobs[0].id, jobs[1].id, jobs[0].id])
            )
            return [str(job) for job in jobs], alone, both

    with OperatorThread(tmp_path, decide):
        names, alone, both = asyncio.run(program())
    assert names == ["train/good", "train/bad"]
    assert alone is JobState.FAILED
    assert both == [JobState.SUCCEEDED, JobState.FAILED, JobState.SUCCEEDED]


def test_an_error_is_raised_where_it_is_awaited(tmp_path: Path) -> None:
    with OperatorThread(tmp_path, decide), pytest.raises(IrisError, match="too late"):
        asyncio.run(client_of(tmp_path).job("train/good").cancel())


def test_the_event_loop_runs_while_a_call_waits(tmp_path: Path) -> None:
    answered = threading.Event()

    def later(request: Request) -> Answer | None:
        return {"job": "train/good", "cancelled": True} if answered.is_set() else None

    async def program() -> bool:
        call = asyncio.ensure_future(client_of(tmp_path).cancel("train/good"))
        await asyncio.sleep(0)
        answered.set()  # the loop has come here, though nobody has answered the call
        return await call

    with OperatorThread(tmp_path, later) as operator:
        assert asyncio.run(program()) is True
    assert [type(each) for each in operator.asked] == [Cancel]


def test_a_cancelled_wait_does_not_keep_the_program_from_ending(tmp_path: Path) -> None:
    async def program() -> None:
        await asyncio.wait_for(client_of(tmp_path).job("train/good").wait(), timeout=0.01)

    with pytest.raises(TimeoutError):
        asyncio.run(program())  # nobody ever answers: the call goes on in its thread
    with OperatorThread(tmp_path, decide):
        for thread in threading.enumerate():
            if thread.name == "iris":
                thread.join(PATIENCE)
    assert list((tmp_path / "inbox").iterdir()) == []


def test_every_public_call_of_the_client_and_of_a_job_has_a_coroutine() -> None:
    def calls(kind: type) -> set[str]:
        return {name for name, each in vars(kind).items() if inspect.isfunction(each) and name[0] != "_"}

    for kind, of in ((AsyncIrisClient, IrisClient), (AsyncJob, Job)):
        assert calls(kind) == calls(of)
        others = {name for name in calls(kind) if not inspect.iscoroutinefunction(getattr(kind, name))}
        assert others == ({"job"} if kind is AsyncIrisClient else set())
