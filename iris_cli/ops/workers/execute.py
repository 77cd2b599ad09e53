"""Run an operator's command next to running tasks, or on a worker. Build the ssh command for a shell there.

Ctrl-C stops a command everywhere.
"""

import shlex
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing

from msgspec import Struct

from iris_cli.core import Attempt, AttemptState, Cluster, Connection, Task, Worker, clip, count, group_pairs
from iris_cli.core.ids import AttemptId, TaskId, Token, WorkerId
from iris_cli.core.lifecycle.display import not_running_words
from iris_cli.core.messages.observations import Silence
from iris_cli.errors import NotFoundError, UsageError
from iris_cli.ops.cycle import environment
from iris_cli.ops.names import find_worker, names_worker, select_tasks
from iris_cli.ops.session import Session
from iris_cli.remote import command_calls, launch_request, worker_script


class CommandResult(Struct, frozen=True, kw_only=True):
    """The result on one worker or for one task.

    `end`: how the command ended. `silence`: why the worker did not answer. `note`: why the command was not sent.
    `timeout`: the time limit of the command in seconds.
    """

    worker: WorkerId | None
    task: TaskId | None = None
    end: command_calls.CommandEnd | None = None
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
    request: command_calls.CommandRequest


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
        request = command_calls.CommandRequest(
            token=token, argv=tuple(command), env=env, attempt=attempt, image=image, timeout=timeout
        )
        return _Order(worker, task, request)

    if names_worker(cluster, subject):
        if ranks:
            raise UsageError(f"{subject} is a worker: --rank is for jobs")
        worker = find_worker(cluster, subject)
        return [order(worker, worker_environment(session, worker), None, None)], []
    orders, not_running = [], []
    for task, attempt in select_tasks(cluster, subject, ranks=ranks, kinds="job, task or worker"):
        if attempt is None or attempt.state not in (AttemptState.RUNNING, AttemptState.STOPPING):
            note = not_running_words(cluster, task)
            worker_id = attempt.worker if attempt else None
            not_running.append(CommandResult(worker=worker_id, task=task.id, note=note))
        else:
            env = task_environment(session, cluster, task, attempt)
            orders.append(order(cluster.workers[attempt.worker], env, task.id, attempt.token))
    return orders, not_running


def task_environment(session: Session, cluster: Cluster, task: Task, attempt: Attempt) -> dict[str, str]:
    """Return a task's environment without its secrets and devices. Raises NotFoundError."""
    try:
        placement = environment.placement_of(cluster, AttemptId(task.id, attempt.number))
    except KeyError as error:
        raise NotFoundError(
            f"{task.id}: worker {error.args[0]} (of another rank) is no longer in the cluster",
            hint=f"name the worker of this task: {attempt.worker}",
        ) from error
    # The environment of a task's container contains the secrets. Hide them from the command.
    hidden = dict.fromkeys(placement.job.secrets, "") if placement.job.image else {}
    env = {**environment.environment(placement, session.default_env(placement.worker), {}), **hidden}
    try:
        line = environment.read_line(session.state, placement.job, placement.index)
    except ValueError:
        line = None
    return {
        **env,
        **environment.array_variables(placement, line),
        **environment.device_hiding_variables(placement.worker),
    }


def worker_environment(session: Session, worker: Worker) -> dict[str, str]:
    """Return the default environment of a worker, with its accelerators hidden."""
    return {**session.default_env(worker), **environment.device_hiding_variables(worker)}


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
    by_worker = group_pairs((order.worker.id, order) for order in orders)

    def stop(orders_of_worker: list[_Order]) -> Silence | None:
        return session.runner.commands.end(
            session.target(orders_of_worker[0].worker), [order.request.token for order in orders_of_worker]
        )

    for batch in session.fan_out(list(by_worker.values()), stop, what="ending"):
        for silence in batch:
            if silence is not None:
                session.tell(f"{silence.worker}: {silence.detail}; the command ends there at its timeout")


# The command line of the system's ssh, for a shell on a worker or in the work directory of a task.


_DIRECTORIES = ("IRIS_TASK_DIR", "IRIS_WORKDIR", "IRIS_OUTPUT_DIR")
_LOGIN_SHELL = 'cd; exec "${SHELL:-/bin/sh}" -l'
_ANY_SHELL = ("sh", "-c", "if command -v bash >/dev/null 2>&1; then exec bash; else exec sh; fi")


def ssh_command(session: Session, name: str) -> list[str]:
    """Return the ssh or srun command for a task, a job with one task, or a worker. Raises NotFoundError, UsageError.

    ssh accepts only the worker's recorded host key. For a Slurm login host, this machine's SSH configuration decides.
    `~/.ssh/config` sets the options that `cluster.yaml` omits, and the options of jump hosts.
    """
    cluster = session.view()
    if names_worker(cluster, name):
        worker = cluster.workers[WorkerId(name)]
        return _command_line(session, worker, _shell("", environment.device_hiding_variables(worker)))
    tasks = select_tasks(cluster, name, kinds="task or worker")
    if len(tasks) > 1:
        raise UsageError(
            f"{clip(name)} has {len(tasks)} tasks: name one of them", hint=f"iris ssh {tasks[0][0].id}"
        )
    task, attempt = tasks[0]
    if attempt is None or attempt.worker not in cluster.workers:
        raise NotFoundError(f"{task.id} is not on a worker", hint=f"iris why {task.id}")
    worker = cluster.workers[attempt.worker]
    hiding_variables = environment.device_hiding_variables(worker)
    # Pass only variables of iris and of devices, because other variables may be private, and every user of a host can
    # read the arguments of a command.
    all_variables = task_environment(session, cluster, task, attempt)
    del all_variables["IRIS_TASK_DEFAULT_ENV_JSON"]
    env = {
        key: value
        for key, value in all_variables.items()
        if key.startswith("IRIS_") or key in hiding_variables
    }
    image = cluster.jobs[task.id.job].image
    root = worker_script.directory_word(session.target(worker).connection.remote_dir)
    directory = f"{root}/{session.cluster_id}/{worker.id}/a/{attempt.token}"
    return _command_line(session, worker, _shell(directory, env, image))


def _command_line(session: Session, worker: Worker, shell: list[str]) -> list[str]:
    """Return the argument vector that runs the command `shell` in a terminal, by ssh or by srun."""
    from iris_cli.remote.srun import srun_words, ssh_connection

    connection = session.target(worker).connection
    if not connection.allocation:
        only_recorded_key = {
            "HostKeyAlias": worker.id,
            "UserKnownHostsFile": _config_word(str(session.state.known_hosts.absolute())),
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
            "UpdateHostKeys": "no",
        }
        return [*_ssh(only_recorded_key, connection), *shell]
    words = [*srun_words(connection), "--pty", "/bin/sh", "-c", *(shell or [_LOGIN_SHELL])]
    login = ssh_connection(connection)
    return words if login is None else [*_ssh({}, login), shlex.join(words)]


def _ssh(options: dict[str, str], connection: Connection) -> list[str]:
    if connection.key:
        options = {**options, "IdentityFile": _config_word(connection.key), "IdentitiesOnly": "yes"}
    if connection.proxy_jump:
        options = {**options, "ProxyJump": connection.proxy_jump}
    words = ["ssh", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]
    words += ["-l", connection.user] if connection.user else []
    words += ["-p", str(connection.port)] if connection.port else []
    return [*words, "-t", "--", connection.host]


def _config_word(path: str) -> str:
    """Return a path quoted as the value of an ssh option. Raises UsageError for a path that ssh can't represent."""
    if '"' in path or "${" in path or any(ord(char) < 32 for char in path):
        raise UsageError(f"{clip(path)!r} can't be passed to ssh", hint="choose a path without quotes")
    return f'"{path.replace("%", "%%")}"'


def _shell(directory: str, env: Mapping[str, str], image: str = "") -> list[str]:
    """Return the remote command: a shell with these variables, in the work directory of an attempt.

    `directory` is the attempt's directory, or ''. If `directory` and `env` are empty, return [], which starts a login
    shell. If the task has an image, the shell runs in the task's container.
    """
    if not directory and not env:
        return []
    steps = []
    if directory:
        gone = "echo 'iris: the directory of this task no longer exists' >&2"
        steps += [
            f"d={directory}",
            'export IRIS_TASK_DIR="$d" IRIS_WORKDIR="$d/work" IRIS_OUTPUT_DIR="$d/output"',
            f'cd "$d/work" || {gone}',
            "unset d",
        ]
    steps += [f"export {name}={shlex.quote(value)}" for name, value in env.items()]
    variables = [word for name in (*env, *_DIRECTORIES) for word in ("-e", name)]
    steps += [launch_request.container_steps(variables, _ANY_SHELL) if image else 'exec "${SHELL:-/bin/sh}"']
    script = "; ".join(steps)
    return [f"exec /bin/sh -c {shlex.quote(script)}"]
