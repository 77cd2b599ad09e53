"""`iris set`: change the priority or the scheduling timeout of open jobs."""

from typing import Annotated

from iris_cli.cli import complete
from iris_cli.cli.command_types import Context, argument, option
from iris_cli.core.model.job import Priority
from iris_cli.errors import UsageError

EXAMPLES = """
iris set eval --priority high
iris set sweep-1 sweep-2 --scheduling-timeout 6h
"""


def set_(
    iris: Context,
    jobs: Annotated[list[str], argument("JOB...", "Open jobs.", complete.OPEN_JOB)],
    priority: Annotated[
        str | None, option("NAME", "high, normal or low.", offer=complete.offer_words(Priority))
    ] = None,
    scheduling_timeout: Annotated[
        str | None, option("TIME", "Give up if not placed within this time: 90s, 2h; 0: never.")
    ] = None,
) -> None:
    """Change the priority or the scheduling timeout of jobs.

    Running tasks continue.
    """
    from iris_cli.core.text import one_of
    from iris_cli.core.units import format_duration, parse_duration
    from iris_cli.ops.jobs.change import change
    from iris_cli.render.jobs import show_changed

    if priority is None and scheduling_timeout is None:
        raise UsageError("nothing to set", hint="use --priority NAME or --scheduling-timeout TIME")
    rank = None if priority is None else Priority(one_of(priority, Priority))
    seconds = None if scheduling_timeout is None else parse_duration(scheduling_timeout)
    session = iris.session("iris set")
    result = change(session, jobs, priority=rank, scheduling_timeout=seconds)
    words = [] if rank is None else [f"priority {rank}"]
    if seconds is not None:
        words.append(f"scheduling timeout {format_duration(seconds) if seconds else 'none'}")
    show_changed(iris.output, session.cluster, result, ", ".join(words), iris.cycles_for_json(session))
    iris.print_no_cycles_reason()
