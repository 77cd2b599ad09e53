"""`iris exec`: run a command next to the tasks of a job, or on a worker."""

from typing import Annotated

from iris_cli.cli import complete
from iris_cli.cli.command_types import CommandAfterDashes, Context, Ranks, argument, command_words, option
from iris_cli.errors import ExitCode, UsageError

CLS = CommandAfterDashes
EXAMPLES = """
iris exec train -- nvidia-smi  # on the host of every rank
iris exec train --rank 0 --rank 3 -- sh -c 'tail -n 3 loss.csv; df -h .'
iris exec v5a-0 --timeout 10m -- du -sh .cache  # on a worker
"""


def exec_(
    iris: Context,
    target: Annotated[str, argument("JOB|TASK|WORKER", "Job, task or worker.", complete.LIVE_OR_WORKER)],
    rank: Ranks = None,
    timeout: Annotated[str, option("TIME", "Kill it after this long: 30s, 10m.", show_default=True)] = "60s",
) -> int:
    """Run a command next to each running task, or on a worker.

    Runs in the work directory and with the environment of the task, but without its chips and secrets. Standard
    input is empty. Identical output is shown once. On Ctrl-C or timeout all processes of the command are killed.

    Exit code: 1 if the command failed on a host or a task is not running; 7 if a worker did not answer.
    """
    from iris_cli.core.units import parse_duration
    from iris_cli.ops.workers.execute import execute as run
    from iris_cli.render.logs.log_lines import show_executed

    seconds = parse_duration(timeout)
    if not 0 < seconds <= 86_400:
        raise UsageError(f"--timeout {timeout[:20]} must be more than 0 and at most one day")
    session = iris.session("iris exec")
    results = run(session, target, command_words(iris), ranks=tuple(rank or ()), timeout=seconds)
    iris.output.warnings(session.messages)
    show_executed(iris.output, results)
    if any(each.silence for each in results):
        return ExitCode.UNREACHABLE
    return ExitCode.OK if all(each.succeeded for each in results) else ExitCode.FAILED
