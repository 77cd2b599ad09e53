"""`iris wait`: wait until jobs end; the exit code tells how."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from iris_cli.cli import complete
from iris_cli.cli.command_types import Context, argument, option
from iris_cli.core import JobState

if TYPE_CHECKING:
    from iris_cli.core.ids import JobId
    from iris_cli.ops.session import Session

EXAMPLES = """
iris wait train
iris wait train eval --timeout 2h && echo both succeeded
"""

_MAX_NAMED = 3  # failed jobs for which a command is printed


def wait(
    iris: Context,
    jobs: Annotated[list[str], argument("JOB...", "Job ids.", complete.OPEN_JOB)],
    timeout: Annotated[str | None, option("TIME", "Give up after 90s, 10m, 2h.")] = None,
) -> int:
    """Wait until jobs end; the exit code shows how they ended.

    Exit code: 0 if all succeeded, 1 if --timeout has passed, otherwise that of the worst end: 1 failed,
    9 unschedulable, 8 killed. Runs scheduling cycles until then.
    """
    from iris_cli.core.units import parse_duration
    from iris_cli.ops.names import find_jobs

    seconds = None if timeout is None else parse_duration(timeout)
    if iris.is_in_task:
        from iris_cli.cli import inside

        return inside.wait_for(iris, jobs, seconds)
    session = iris.session("iris wait")
    return wait_and_print(iris, session, find_jobs(session.view(), jobs), timeout=seconds)


def wait_and_print(
    iris: Context, session: "Session", jobs: "Sequence[JobId]", *, timeout: float | None = None
) -> int:
    """Wait for jobs, print their ends, and return the exit code. Ctrl-C ends the wait, not the jobs."""
    from iris_cli.ops.loop.foreground import wait_for
    from iris_cli.render import jobs as render

    try:
        result = wait_for(session, jobs, timeout=timeout)
    except KeyboardInterrupt:
        names = " ".join(jobs)
        continues = f"{render.continue_words(jobs)}: iris wait {names}, or iris cancel {names}"
        return iris.interrupted(f"stopped waiting; {iris.take_no_cycles_reason() or continues}")
    no_cycles = iris.take_no_cycles_reason() if result.open else ""
    cycles = iris.cycles_for_json(session)
    render.show_waited(
        iris.output, session.cluster, result, session.state, no_cycles=no_cycles, cycles=cycles
    )
    failed = [job for job, state in result.states.items() if state is JobState.FAILED]
    if failed and not iris.output.as_json:
        iris.output.message(f"details: {', '.join(f'iris why {each}' for each in failed[:_MAX_NAMED])}")
    return result.exit_code
