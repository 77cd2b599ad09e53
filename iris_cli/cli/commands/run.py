"""`iris run`: run an interactive program through the queue."""

import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

from msgspec import Struct

from iris_cli.cli.command_types import CommandAfterDashes, Context, command_words
from iris_cli.cli.job_options import add_job_options, parse_request
from iris_cli.errors import ExitCode, IrisError, UsageError

CLS = CommandAfterDashes
EXAMPLES = """
iris run --tpu v5litepod-8 -- bash  # a shell with the chips
iris run --tpu v4-8 --workdir . -- python3 -m pdb train.py
iris run --cpu 8 --memory 32GB --timeout 8h -- ipython
"""
_UNAVAILABLE_FIELDS = frozenset(
    (
        *("replicas", "slices", "array", "each_line", "again", "failed", "group_by", "spread"),
        *("max_retries_failure", "max_retries_preemption", "max_task_failures", "keep_going", "silent_after"),
    )
)
"""Job fields without an option of `iris run`, because it runs one task, without retries, on a terminal."""


class RunDocument(Struct, frozen=True):
    """The result of `iris run`, printed when the program has ended. `exit_code` is null if it is unknown."""

    job: str
    worker: str | None
    exit_code: int | None
    display: str


@partial(add_job_options, without=_UNAVAILABLE_FIELDS)
def run(iris: Context, **fields: Any) -> int:
    """Run an interactive program through the queue.

    It is queued like any job and uses this terminal: Ctrl-C, Ctrl-Z and the window size reach the program.
    The job ends with the connection. Exit code: that of the program (128+n for signal n); 255 if iris failed.
    """
    try:
        return _run(iris, fields, command_words(iris))
    except IrisError as error:
        error.exit_code = ExitCode.NOT_RUN
        raise


def _run(iris: Context, fields: Mapping[str, Any], command: tuple[str, ...]) -> int:
    from iris_cli.ops.jobs.interactive import LocalTerminal
    from iris_cli.ops.jobs.interactive import run as operation

    request = parse_request(fields, command)
    session = iris.session("iris run")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "iris run needs a terminal", hint="without a terminal: iris launch --follow -- COMMAND ..."
        )
    result = operation(session, iris.transport, request, LocalTerminal(), iris.output.message)
    code = ExitCode.NOT_RUN if result.exit_code is None else result.exit_code
    if iris.output.as_json:
        iris.output.document(RunDocument(result.job, result.worker, result.exit_code, result.display))
    elif code:
        iris.output.message(f"{result.job}: {result.display}" + (f": {result.cause}" if result.cause else ""))
    return code
