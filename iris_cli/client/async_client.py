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
CalledWithClient = Callable[Concatenate[IrisClient, P], T]
Method = Callable[Concatenate["AsyncIrisClient", P], Coroutine[Any, Any, T]]
CalledWithJob = Callable[Concatenate[Job, P], T]
MethodOfJob = Callable[Concatenate["AsyncJob", P], Coroutine[Any, Any, T]]


async def _in_thread(call: Callable[[], T]) -> T:
    """Return the result of a call in a daemon thread."""
    import asyncio  # slow to import

    loop = asyncio.get_running_loop()
    future: Future[T] = loop.create_future()

    def set_result(result: T | None, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # there is a result if there is no error

    def run() -> None:
        try:
            callback = partial(set_result, call(), None)
        except BaseException as error:
            callback = partial(set_result, None, error)
        try:
            loop.call_soon_threadsafe(callback)
        except RuntimeError:  # the event loop is closed: nothing awaits the call
            return

    threading.Thread(target=run, name="iris", daemon=True).start()
    return await future


def _client_method(method: CalledWithClient[P, T]) -> Method[P, T]:
    @wraps(method)
    async def call(self: AsyncIrisClient, /, *args: P.args, **keywords: P.kwargs) -> T:
        return await _in_thread(partial(method, self.client, *args, **keywords))

    return call


def _job_method(method: CalledWithJob[P, T]) -> MethodOfJob[P, T]:
    @wraps(method)
    async def call(self: AsyncJob, /, *args: P.args, **keywords: P.kwargs) -> T:
        return await _in_thread(partial(method, self.job, *args, **keywords))

    return call


def _client_submission(method: CalledWithClient[P, Job]) -> Method[P, AsyncJob]:
    @wraps(method)
    async def call(self: AsyncIrisClient, /, *args: P.args, **keywords: P.kwargs) -> AsyncJob:
        return AsyncJob(await _in_thread(partial(method, self.client, *args, **keywords)))

    return call


def _job_submission(method: CalledWithJob[P, Job]) -> MethodOfJob[P, AsyncJob]:
    @wraps(method)
    async def call(self: AsyncJob, /, *args: P.args, **keywords: P.kwargs) -> AsyncJob:
        return AsyncJob(await _in_thread(partial(method, self.job, *args, **keywords)))

    return call


class AsyncIrisClient:
    """The methods of `IrisClient` as coroutines, each in a thread. `submit`, `again` and `job` return an `AsyncJob`.

    `client` is the `IrisClient`. If a coroutine is cancelled, its call continues in the thread and the result is lost.
    Use `timeout` to end a wait. `on_line` is called in the thread of the call.
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
        async_client = cls.__new__(cls)
        async_client.client = client
        return async_client

    def job(self, job_id: str) -> AsyncJob:
        """Return the job with this id. A method of the job fails if the job does not exist. Raises UsageError."""
        return AsyncJob(self.client.job(job_id))

    submit = _client_submission(IrisClient.submit)
    status = _client_method(IrisClient.status)
    wait = _client_method(IrisClient.wait)
    wait_all = _client_method(IrisClient.wait_all)
    list_tasks = _client_method(IrisClient.list_tasks)
    task_status = _client_method(IrisClient.task_status)
    task_logs = _client_method(IrisClient.task_logs)
    logs = _client_method(IrisClient.logs)
    pull = _client_method(IrisClient.pull)
    cancel = _client_method(IrisClient.cancel)
    retry = _client_method(IrisClient.retry)
    again = _client_submission(IrisClient.again)
    endpoints = _client_method(IrisClient.endpoints)
    register_endpoint = _client_method(IrisClient.register_endpoint)
    remove_endpoint = _client_method(IrisClient.remove_endpoint)
    close = _client_method(IrisClient.close)

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

    status = _job_method(Job.status)
    wait = _job_method(Job.wait)
    tasks = _job_method(Job.tasks)
    logs = _job_method(Job.logs)
    pull = _job_method(Job.pull)
    cancel = _job_method(Job.cancel)
    retry = _job_method(Job.retry)
    again = _job_submission(Job.again)
    endpoints = _job_method(Job.endpoints)

    def __repr__(self) -> str:
        return f"<AsyncJob {self.id}>"

    def __str__(self) -> str:
        return self.id
