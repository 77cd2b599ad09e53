"""`AsyncIrisClient`: the client for programs that use asyncio."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from iris_cli.client.iris_client import IrisClient, Job
from iris_cli.client.records import ANSWER_TIMEOUT

S = TypeVar("S")
T = TypeVar("T")
P = ParamSpec("P")


async def _in_thread(call: Callable[[], T]) -> T:
    """Run a call in a daemon thread, and return its result."""
    import asyncio  # slow to import
    from concurrent.futures import Future

    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # otherwise a cancelled coroutine would cancel the future

    def run() -> None:
        try:
            result = call()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name="iris", daemon=True).start()
    return await asyncio.wrap_future(future)


class _Wrapper(Generic[S]):
    """Base of the asyncio classes. `wrapped` is the client or the job whose methods are called in threads."""

    def __init__(self, wrapped: S) -> None:
        self.wrapped = wrapped


def _coroutine(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[_Wrapper[S], P], Coroutine[Any, Any, T]]:
    """Return a method that calls `method` of the wrapped object in a thread."""

    @wraps(method)
    async def call(self: _Wrapper[S], /, *args: P.args, **keywords: P.kwargs) -> T:
        return await _in_thread(partial(method, self.wrapped, *args, **keywords))

    return call


def _submission(
    method: Callable[Concatenate[S, P], Job],
) -> Callable[Concatenate[_Wrapper[S], P], Coroutine[Any, Any, AsyncJob]]:
    """Return a method like `_coroutine` that returns an AsyncJob."""

    @wraps(method)
    async def call(self: _Wrapper[S], /, *args: P.args, **keywords: P.kwargs) -> AsyncJob:
        return AsyncJob(await _in_thread(partial(method, self.wrapped, *args, **keywords)))

    return call


class AsyncIrisClient(_Wrapper[IrisClient]):
    """The methods of `IrisClient` as coroutines, each in a thread. `submit`, `again` and `job` return an `AsyncJob`.

    If a coroutine is cancelled, its call continues in the thread, and the result is lost. Use `timeout` to end a wait.
    `on_line` is called in the thread of the call.
    """

    def __init__(
        self,
        state_dir: str | os.PathLike[str] | None = None,
        config: str | os.PathLike[str] | None = None,
        *,
        answer_timeout: float | None = ANSWER_TIMEOUT,
        lock_timeout: float | None = None,
    ) -> None:
        super().__init__(
            IrisClient(state_dir, config, answer_timeout=answer_timeout, lock_timeout=lock_timeout)
        )

    @property
    def client(self) -> IrisClient:
        return self.wrapped

    def job(self, job_id: str) -> AsyncJob:
        """Return the job with this id. A method of the job fails if the job does not exist. Raises UsageError."""
        return AsyncJob(self.client.job(job_id))

    submit = _submission(IrisClient.submit)
    status = _coroutine(IrisClient.status)
    wait = _coroutine(IrisClient.wait)
    wait_all = _coroutine(IrisClient.wait_all)
    list_tasks = _coroutine(IrisClient.list_tasks)
    task_status = _coroutine(IrisClient.task_status)
    task_logs = _coroutine(IrisClient.task_logs)
    logs = _coroutine(IrisClient.logs)
    pull = _coroutine(IrisClient.pull)
    cancel = _coroutine(IrisClient.cancel)
    retry = _coroutine(IrisClient.retry)
    again = _submission(IrisClient.again)
    endpoints = _coroutine(IrisClient.endpoints)
    register_endpoint = _coroutine(IrisClient.register_endpoint)
    remove_endpoint = _coroutine(IrisClient.remove_endpoint)
    close = _coroutine(IrisClient.close)

    async def __aenter__(self) -> AsyncIrisClient:
        return self

    async def __aexit__(self, *_raised: object) -> None:
        await self.close()


class AsyncJob(_Wrapper[Job]):
    """The methods of `Job` as coroutines. `job` is the `Job`."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.job = job
        self.id = job.id

    status = _coroutine(Job.status)
    wait = _coroutine(Job.wait)
    tasks = _coroutine(Job.tasks)
    logs = _coroutine(Job.logs)
    pull = _coroutine(Job.pull)
    cancel = _coroutine(Job.cancel)
    retry = _coroutine(Job.retry)
    again = _submission(Job.again)
    endpoints = _coroutine(Job.endpoints)

    def __repr__(self) -> str:
        return f"<AsyncJob {self.id}>"

    def __str__(self) -> str:
        return self.id
