"""`AsyncIrisClient`: the client for programs that use asyncio."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine
from functools import partial, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from iris_cli.client.iris_client import IrisClient, Job
from iris_cli.client.port import ANSWER_TIMEOUT

if TYPE_CHECKING:
    from asyncio import Future

T = TypeVar("T")
P = ParamSpec("P")
Called = Callable[Concatenate[IrisClient, P], T]
Method = Callable[Concatenate["AsyncIrisClient", P], Coroutine[Any, Any, T]]
CalledOfJob = Callable[Concatenate[Job, P], T]
MethodOfJob = Callable[Concatenate["AsyncJob", P], Coroutine[Any, Any, T]]


async def _in_thread(call: Callable[[], T]) -> T:
    """Return the result of a call in a daemon thread."""
    import asyncio  # slow to import

    loop = asyncio.get_running_loop()
    future: Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # there is a result if there is no error

    def run() -> None:
        try:
            ended = partial(settle, call(), None)
        except BaseException as error:
            ended = partial(settle, None, error)
        try:
            loop.call_soon_threadsafe(ended)
        except RuntimeError:  # the loop was closed: nobody awaits the call
            return

    threading.Thread(target=run, name="iris", daemon=True).start()
    return await future


def _of_client(method: Called[P, T]) -> Method[P, T]:
    @wraps(method)
    async def call(self: AsyncIrisClient, /, *args: P.args, **keywords: P.kwargs) -> T:
        return await _in_thread(partial(method, self.client, *args, **keywords))

    return call


def _of_job(method: CalledOfJob[P, T]) -> MethodOfJob[P, T]:
    @wraps(method)
    async def call(self: AsyncJob, /, *args: P.args, **keywords: P.kwargs) -> T:
        return await _in_thread(partial(method, self.job, *args, **keywords))

    return call


def _submits(method: Called[P, Job]) -> Method[P, AsyncJob]:
    @wraps(method)
    async def call(self: AsyncIrisClient, /, *args: P.args, **keywords: P.kwargs) -> AsyncJob:
        return AsyncJob(await _in_thread(partial(method, self.client, *args, **keywords)))

    return call


def _submits_again(method: CalledOfJob[P, Job]) -> MethodOfJob[P, AsyncJob]:
    @wraps(method)
    async def call(self: AsyncJob, /, *args: P.args, **keywords: P.kwargs) -> AsyncJob:
        return AsyncJob(await _in_thread(partial(method, self.job, *args, **keywords)))

    return call


class AsyncIrisClient:
    """The methods of `IrisClient` as coroutines, each in a thread. `submit` and `job` return an `AsyncJob`.

    `client` is the `IrisClient`. A call whose await is cancelled continues in its thread without a reader; use
    `timeout` to end a wait. `on_line` is called in that thread.
    """

    def __init__(
        self,
        state_dir: str | os.PathLike[str] | None = None,
        config: str | os.PathLike[str] | None = None,
        *,
        answer_timeout: float | None = ANSWER_TIMEOUT,
        lock_timeout: float | None = None,
    ) -> None:
        self.client = IrisClient(state_dir, config, answer_timeout=answer_timeout, lock_timeout=lock_timeout)

    @classmethod
    def on(cls, client: IrisClient) -> AsyncIrisClient:
        """Return an asyncio client that uses this client."""
        made = cls.__new__(cls)
        made.client = client
        return made

    def job(self, job_id: str) -> AsyncJob:
        """Return a job by its id; the first call on it fails if it does not exist. Raises UsageError."""
        return AsyncJob(self.client.job(job_id))

    submit = _submits(IrisClient.submit)
    status = _of_client(IrisClient.status)
    wait = _of_client(IrisClient.wait)
    wait_all = _of_client(IrisClient.wait_all)
    list_tasks = _of_client(IrisClient.list_tasks)
    task_status = _of_client(IrisClient.task_status)
    task_logs = _of_client(IrisClient.task_logs)
    logs = _of_client(IrisClient.logs)
    pull = _of_client(IrisClient.pull)
    cancel = _of_client(IrisClient.cancel)
    retry = _of_client(IrisClient.retry)
    again = _submits(IrisClient.again)
    endpoints = _of_client(IrisClient.endpoints)
    register_endpoint = _of_client(IrisClient.register_endpoint)
    remove_endpoint = _of_client(IrisClient.remove_endpoint)
    close = _of_client(IrisClient.close)

    async def __aenter__(self) -> AsyncIrisClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncJob:
    """The methods of `Job` as coroutines. `job` is the `Job`."""

    __slots__ = ("id", "job")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.id = job.id

    status = _of_job(Job.status)
    wait = _of_job(Job.wait)
    tasks = _of_job(Job.tasks)
    logs = _of_job(Job.logs)
    pull = _of_job(Job.pull)
    cancel = _of_job(Job.cancel)
    retry = _of_job(Job.retry)
    again = _submits_again(Job.again)
    endpoints = _of_job(Job.endpoints)

    def __repr__(self) -> str:
        return f"<AsyncJob {self.id}>"

    def __str__(self) -> str:
        return self.id
