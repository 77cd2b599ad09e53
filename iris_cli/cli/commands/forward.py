"""`iris forward`: forward a port of this machine to a port of a task."""

from contextlib import closing
from typing import Annotated

from msgspec import Struct

from iris_cli.cli import complete
from iris_cli.cli.command_types import Context, argument

EXAMPLES = """
iris forward board 6006  # then open http://127.0.0.1:6006
iris forward train/task-0 8889:8888  # port 8889 of this machine
iris forward board tensorboard  # an endpoint by name
"""


class ForwardDocument(Struct, frozen=True):
    """The result of `iris forward`, printed when it listens on `address` and `port` of this machine.

    `worker` and `remote_port` are the current destination. Both are null if the task does not run.
    """

    address: str
    port: int
    task: str
    worker: str | None
    remote_port: int | None


def forward(
    iris: Context,
    what: Annotated[str, argument("JOB|TASK", "Task, or job with one task.", complete.LIVE)],
    port: Annotated[str, argument("[LOCAL:]PORT|ENDPOINT", "Port of the task, or one of its endpoints.")],
) -> None:
    """Forward a port of this machine to a port of a task.

    Listens on 127.0.0.1 until Ctrl-C or the end of the task. After a retry of the task, new connections
    go to its new worker.
    """
    from iris_cli.ops.workers import forward as operation

    wanted = operation.parse_request(port)
    session = iris.session("iris forward")
    task = operation.find_task(session.view(), what, wanted)
    iris.output.warnings(session.messages)
    location = operation.port_location(session.cluster, task.id, wanted.remote)
    destination = location if isinstance(location, operation.PortLocation) else None
    local = wanted.local or (
        wanted.remote if isinstance(wanted.remote, int) else destination and destination.port
    )
    assert local  # only a running task has named ports
    forwarding = operation.Forward(
        session, iris.transport, task.id, wanted.remote, operation.listen(what, wanted, local)
    )
    with closing(forwarding):
        address = f"{operation.LOOPBACK}:{local}"
        if iris.output.as_json:
            worker, remote = (destination.worker, destination.port) if destination else (None, None)
            iris.output.document(ForwardDocument(operation.LOOPBACK, local, str(task.id), worker, remote))
        elif iris.output.quiet:
            iris.output.line(address)
        else:
            on_worker = f" on {destination.worker}" if destination else ""
            kind = "port" if isinstance(wanted.remote, int) else "endpoint"
            iris.output.line(
                f"forwarding {address} to {kind} {wanted.remote} of {task.id}{on_worker}; Ctrl-C to stop"
            )
        if isinstance(location, str):
            iris.output.message(f"{location}: connections are closed until it runs")
        iris.output.flush()
        iris.output.message(forwarding.run())
