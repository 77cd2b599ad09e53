"""Command line of the system's ssh for a shell on a worker, or in the work directory of a task."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from iris_cli.core import Connection, Worker, WorkerId, clip
from iris_cli.errors import NotFoundError, UsageError
from iris_cli.ops.cycle.environment import device_hiding_variables
from iris_cli.ops.names import select_tasks
from iris_cli.ops.session import Session
from iris_cli.ops.workers.execute import task_environment
from iris_cli.remote.launch_request import container_steps
from iris_cli.remote.srun import srun_words, ssh_connection
from iris_cli.remote.worker_script import directory_word

_DIRECTORIES = ("IRIS_TASK_DIR", "IRIS_WORKDIR", "IRIS_OUTPUT_DIR")
_LOGIN_SHELL = 'cd; exec "${SHELL:-/bin/sh}" -l'
_ANY_SHELL = ("sh", "-c", "if command -v bash >/dev/null 2>&1; then exec bash; else exec sh; fi")


def ssh_command(session: Session, name: str) -> list[str]:
    """Return the ssh or srun command for a task, a job with one task, or a worker. Raises NotFoundError, UsageError.

    ssh accepts only the worker's recorded host key. For a Slurm login host, this machine's SSH configuration decides.
    `~/.ssh/config` sets the options that `cluster.yaml` omits, and the options of jump hosts.
    """
    cluster = session.view()
    if name in cluster.workers and name not in cluster.jobs:
        worker = cluster.workers[WorkerId(name)]
        return _command_line(session, worker, _shell("", device_hiding_variables(worker)))
    tasks = select_tasks(cluster, name, kinds="task or worker")
    if len(tasks) > 1:
        raise UsageError(
            f"{clip(name)} has {len(tasks)} tasks: name one of them", hint=f"iris ssh {tasks[0][0].id}"
        )
    task, attempt = tasks[0]
    if attempt is None or attempt.worker not in cluster.workers:
        raise NotFoundError(f"{task.id} is not on a worker", hint=f"iris why {task.id}")
    worker = cluster.workers[attempt.worker]
    hiding_variables = device_hiding_variables(worker)
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
    root = directory_word(session.target(worker).connection.remote_dir)
    directory = f"{root}/{session.cluster_id}/{worker.id}/a/{attempt.token}"
    return _command_line(session, worker, _shell(directory, env, image))


def _command_line(session: Session, worker: Worker, shell: list[str]) -> list[str]:
    """Return the argument vector that runs the command `shell` in a terminal, by ssh or by srun."""
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
    steps += [container_steps(variables, _ANY_SHELL) if image else 'exec "${SHELL:-/bin/sh}"']
    script = "; ".join(steps)
    return [f"exec /bin/sh -c {shlex.quote(script)}"]
