"""`iris ssh`: open a shell in a task's work directory, or on a worker."""

import os
import shlex
from collections.abc import Sequence
from typing import Annotated

from msgspec import Struct

from iris_cli.cli import complete
from iris_cli.cli.command_types import Context, argument, flag
from iris_cli.errors import IrisError

EXAMPLES = """
iris ssh train/task-3  # in its work directory
iris ssh v5a-0
iris ssh v5a-0 --print  # print the ssh command
"""


class SshDocument(Struct, frozen=True):
    """The result of `iris ssh`: the ssh command line, not run."""

    argv: Sequence[str]


def ssh(
    iris: Context,
    what: Annotated[str, argument("TASK|WORKER", "Task or worker.", complete.LIVE_OR_WORKER)],
    show: Annotated[bool, flag("--print", "Print the command instead of running it.")] = False,
) -> None:
    """Open a shell in a task's work directory, or on a worker.

    Uses the system's ssh. The shell has the task's IRIS_* variables and none of its chips. Only the host key on
    record is accepted.
    """
    from iris_cli.ops.workers.execute import ssh_command

    session = iris.session("iris ssh")
    words = ssh_command(session, what)
    iris.output.warnings(session.messages)
    if iris.output.as_json:
        iris.output.document(SshDocument(words))
    elif show:
        iris.output.line(shlex.join(words))
    else:
        iris.output.flush()
        try:
            os.execvp(words[0], words)  # noqa: S606 - an argument vector, no shell
        except OSError as error:
            hint = "install an OpenSSH client" if isinstance(error, FileNotFoundError) else ""
            raise IrisError(f"ssh can't be run: {error.strerror}", hint=hint) from error
