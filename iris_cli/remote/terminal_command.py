"""The command that starts an attempt on a terminal of its worker."""

from __future__ import annotations

import shlex

from iris_cli.core.ids import Token
from iris_cli.remote.launch_request import MARKER
from iris_cli.remote.transport import Target
from iris_cli.remote.worker_script import directory_word


def terminal_command(cluster_id: str, target: Target, token: Token) -> str:
    """Return the command that starts a prepared attempt on the terminal; it ends with the attempt.

    Output of the wrapper is discarded; the task gets the terminal as file descriptors 7 and 8.
    """
    root = directory_word(target.connection.remote_dir)
    steps = (
        f"d={root}/{cluster_id}/{target.worker}/a/{token}",
        f"export {MARKER}={token}",
        '[ ! -r "$d/run" ] || exec sh "$d/run" start 7>&1 8>&2 >/dev/null 2>&1',
    )
    return f"exec /bin/sh -c {shlex.quote('; '.join(steps))}"
