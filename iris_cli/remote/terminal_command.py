"""The command of a terminal on a worker that starts an attempt there."""

from __future__ import annotations

import shlex

from iris_cli.core.ids import Token
from iris_cli.remote.launch_request import MARKER
from iris_cli.remote.transport import Target
from iris_cli.remote.worker_script import directory_word


def terminal_command(cluster_id: str, target: Target, token: Token) -> str:
    """What starts a prepared attempt on the terminal that it runs on; it ends with the attempt.

    What the wrapper itself prints goes nowhere; the task has the terminal by the descriptors 7 and 8.
    """
    root = directory_word(target.connection.remote_dir)
    steps = (
        f"d={root}/{cluster_id}/{target.worker}/a/{token}",
        f"export {MARKER}={token}",
        '[ ! -r "$d/run" ] || exec sh "$d/run" start 7>&1 8>&2 >/dev/null 2>&1',
    )
    return f"exec /bin/sh -c {shlex.quote('; '.join(steps))}"
