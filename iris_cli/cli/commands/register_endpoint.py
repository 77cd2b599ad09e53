"""`iris register-endpoint`: register a port of this task."""

from typing import Annotated

from iris_cli.cli.command_types import Context, argument, flag, option, whole_number
from iris_cli.core.text import parse_pairs
from iris_cli.errors import UsageError

EXAMPLES = """
iris register-endpoint tensorboard 6006
iris register-endpoint api 8080 --metadata version=2
iris register-endpoint tensorboard --remove
"""


def register_endpoint(
    iris: Context,
    name: Annotated[str, argument("NAME", "Name of the endpoint.")],
    port: Annotated[int | None, argument("[PORT]", "The port on this host.", parser=whole_number)] = None,
    metadata: Annotated[
        list[str] | None, option("NAME=VALUE", "Metadata for clients of the endpoint.")
    ] = None,
    remove: Annotated[bool, flag("--remove", "Remove the endpoint.")] = False,
) -> None:
    """Register a port of this task under a name.

    The endpoint is removed when the attempt ends.
    """
    from iris_cli.client.outbox import decode_answer
    from iris_cli.core.messages.requests import Registered, RegisterEndpoint, Removed, RemoveEndpoint

    if not iris.is_in_task:
        raise UsageError(
            "endpoints can only be registered from inside a task",
            hint="run this command inside a job; `iris status JOB` lists registered endpoints",
        )
    parsed = parse_pairs("--metadata", metadata or ())
    answer: Removed | Registered
    if remove:
        answer = decode_answer(iris.outbox.ask(RemoveEndpoint(name=name)), Removed)
    elif port is None:
        raise UsageError("the endpoint has no port", hint="iris register-endpoint NAME PORT")
    else:
        wanted = RegisterEndpoint(name=name, port=port, metadata=parsed)
        answer = decode_answer(iris.outbox.ask(wanted), Registered)
    if iris.output.as_json:
        iris.output.document(answer)
