"""Run an operator's command next to running tasks, or on a worker. Ctrl-C stops the command everywhere."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing

from msgspec import Struct

from iris_cli.core import Attempt, AttemptState, Cluster, Task, Worker, count
from iris_cli.core.ids import AttemptId, TaskId, Token, WorkerId
from iris_cli.core.lifecycle.display import task_displays
from iris_cli.core.messages.observations import Silence
from iris_cli.errors import NotFoundError, UsageError
from iris_cli.ops.cycle.environment import (
    array_variables,
    device_hiding_variables,
    environment,
    placement_of,
    read_line,
)
from iris_cli.ops.names import find_worker, select_tasks
from iris_cli.ops.session import Session
from iris_cli.remote.worker_calls import CommandEnd, CommandRequest


class CommandResult(Struct, frozen=True, kw_only=True):
    """The result on one worker or for one task.

    `end`: how the command ended. `silence`: why the worker did not answer. `note`: why the command was not sent.
    `timeout`: the time limit of the command in seconds.
    """

    worker: WorkerId | None
    task: TaskId | None = None
    end: CommandEnd | None = None
    silence: Silence | None = None
    note: str = ""
    timeout: float = 0.0

    @property
    def succeeded(self) -> bool:
        return self.end is not None and self.end.exit_code == 0 and not self.end.timed_out


class _Order(Struct, frozen=True):
    """A command to run on a worker, for `task` unless it is None."""

    worker: Worker
    task: TaskId | None
    request: CommandRequest


def execute(
    session: Session,
    subject: str,
    command: Sequence[str],
    *,
    ranks: Sequence[int] = (),
    timeout: float = 60.0,
) -> list[CommandResult]:
    """Run a command in the environment of each running task of a job, or of one task, or on a worker (`subject`).

    Return the results in order of the ranks. After Ctrl-C, stop the command everywhere before raising
    KeyboardInterrupt. Raises NotFoundError and UsageError.
    """
    if not command or not command[0] or command[0].startswith("-"):
        raise UsageError("there is no command to run", hint="iris exec JOB|TASK|WORKER -- COMMAND ...")
    cluster = session.view()
    orders, found = _orders(session, cluster, subject, command, ranks, timeout)
    with closing(_results(session, orders)) as results:
        found += results
    return sorted(found, key=lambda each: (each.task is not None, each.task.index if each.task else 0))


def _orders(
    session: Session,
    cluster: Cluster,
    subject: str,
    command: Sequence[str],
    ranks: Sequence[int],
    timeout: float,
) -> tuple[list[_Order], list[CommandResult]]:
    """Return the commands to send, and the results for tasks that are not running."""

    def order(worker: Worker, env: Mapping[str, str], task: TaskId | None, attempt: Token | None) -> _Order:
        image = cluster.jobs[task.job].image if task is not None else ""
        token = Token(session.randomness.hexadecimal(16))
        request = CommandRequest(
            token=token, argv=tuple(command), env=env, attempt=attempt, image=image, timeout=timeout
        )
        return _Order(worker, task, request)

    if subject in cluster.workers and subject not in cluster.jobs:
        if ranks:
            raise UsageError(f"{subject} is a worker: --rank is for jobs")
        worker = find_worker(cluster, subject)
        return [order(worker, worker_environment(session, worker), None, None)], []
    orders, not_running = [], []
    for task, attempt in select_tasks(cluster, subject, ranks=ranks, kinds="job, task or worker"):
        if attempt is None or attempt.state not in (AttemptState.RUNNING, AttemptState.STOPPING):
            note = f"not running ({task_displays(cluster, task.job)[task.index]})"
            worker_id = attempt.worker if attempt else None
            not_running.append(CommandResult(worker=worker_id, task=task.id, note=note))
        else:
            env = task_environment(session, cluster, task, attempt)
            orders.append(order(cluster.workers[attempt.worker], env, task.id, attempt.token))
    return orders, not_running


def task_environment(session: Session, cluster: Cluster, task: Task, attempt: Attempt) -> dict[str, str]:
    """Return a task's environment without its secrets and devices. Raises NotFoundError."""
    try:
        placement = placement_of(cluster, AttemptId(task.id, attempt.number))
    except KeyError as error:
        raise NotFoundError(
            f"{task.id}: worker {error.args[0]} (of another rank) is no longer in the cluster",
            hint=f"name the worker of this task: {attempt.worker}",
        ) from error
    # The environment of a task's container contains the secrets. Hide them from the command.
    hidden = dict.fromkeys(placement.job.secrets, "") if placement.job.image else {}
    env = {**environment(placement, _default_env(session, placement.worker), {}), **hidden}
    try:
        line = read_line(session.state, placement.job, placement.index)
    except ValueError:
        line = None
    return {**env, **array_variables(placement, line), **device_hiding_variables(placement.worker)}


def worker_environment(session: Session, worker: Worker) -> dict[str, str]:
    """Return the default environment of a worker, with its accelerators hidden."""
    return {**_default_env(session, worker), **device_hiding_variables(worker)}


def _default_env(session: Session, worker: Worker) -> Mapping[str, str]:
    host = session.hosts.get(worker.id)
    return host.env if host is not None else session.config.defaults.env


def _results(session: Session, orders: Sequence[_Order]) -> Generator[CommandResult, None, None]:
    unanswered = {order.request.token: order for order in orders}

    def run(order: _Order) -> tuple[_Order, CommandResult]:
        answer = session.runner.commands.run(session.target(order.worker), order.request)
        silence, end = (answer, None) if isinstance(answer, Silence) else (None, answer)
        timeout = order.request.timeout
        return order, CommandResult(
            worker=order.worker.id, task=order.task, end=end, silence=silence, timeout=timeout
        )

    _ = session.runner  # creates the runner before the threads use it
    try:
        for batch in session.fan_out(orders, run, what="running", noun="command"):
            for order, executed in batch:
                del unanswered[order.request.token]
                yield executed
    finally:
        if unanswered:
            _stop_commands(session, list(unanswered.values()))


def _stop_commands(session: Session, orders: Sequence[_Order]) -> None:
    """Stop the commands that are still running. On silent workers, commands end at their timeout."""
    session.tell(f"stopping {count(len(orders), 'command')}")
    by_worker: dict[WorkerId, list[_Order]] = {}
    for order in orders:
        by_worker.setdefault(order.worker.id, []).append(order)

    def stop(orders_of_worker: list[_Order]) -> Silence | None:
        return session.runner.commands.end(
            session.target(orders_of_worker[0].worker), [order.request.token for order in orders_of_worker]
        )

    for batch in session.fan_out(list(by_worker.values()), stop, what="ending"):
        for silence in batch:
            if silence is not None:
                session.tell(f"{silence.worker}: {silence.detail}; the command ends there at its timeout")
