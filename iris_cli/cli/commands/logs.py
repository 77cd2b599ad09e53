"""`iris logs`: show the output of tasks."""

from contextlib import closing
from typing import TYPE_CHECKING, Annotated

from iris_cli.cli import complete
from iris_cli.cli.command_types import Context, Ranks, argument, flag, option, whole_index
from iris_cli.core.text import one_of, parse_tail
from iris_cli.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from iris_cli.ops.logs.log_reading import Query
    from iris_cli.ops.session import Session

EXAMPLES = """
iris logs train  # last lines of all ranks
iris logs train --follow  # follow until the job ends
iris logs train/task-3 --attempt 0 --tail all  # all output of attempt 0
iris logs train --diff  # how ranks differ
"""


Tail = Annotated[
    str | None,
    option("N|all", "Lines of each task and stream (default: 20; with --diff 500).", "--tail", "-n"),
]
Stream = Annotated[
    str,
    option(
        "out|err|both", "Standard output, standard error, or both.", offer=complete.STREAM, show_default=True
    ),
]
What = Annotated[str, argument("JOB|TASK", "Job or task.", complete.JOB_OR_TASK)]
AttemptNumber = Annotated[
    int | None, option("N", "Attempt number (default: the last one).", parser=whole_index)
]


def logs(
    iris: Context,
    what: What,
    follow: Annotated[bool, flag("--follow -f", "Follow the output until the job ends.")] = False,
    tail: Tail = None,
    rank: Ranks = None,
    attempt: AttemptNumber = None,
    no_fold: Annotated[bool, flag("--no-fold", "Do not fold identical lines of ranks.")] = False,
    diff: Annotated[bool, flag("--diff", "Show only what differs between ranks.")] = False,
    raw: Annotated[bool, flag("--raw", "Show paths below the work directory as written.")] = False,
    stream: Stream = "both",
) -> int:
    """Show the output of tasks, all ranks at once.

    Reads from the workers; if a worker is gone, shows the copy on this machine. With --follow, runs scheduling cycles
    until the job ends. In the output, paths below a task's work directory are relative to it, except with --raw or
    --json.
    """
    from iris_cli.ops.logs.log_diff import TAIL
    from iris_cli.ops.logs.log_diff import diff as compare
    from iris_cli.ops.logs.log_reading import BOTH, Query
    from iris_cli.ops.logs.logs import fetch
    from iris_cli.render.logs import log_lines as render

    if diff and (follow or iris.is_in_task):
        wrong = "--diff can't be combined with --follow" if follow else "--diff can't be used inside a task"
        raise UsageError(wrong, hint=f"iris logs {what} --diff" if follow else f"iris logs {what}")
    lines = parse_tail(tail or (str(TAIL) if diff else "20"))
    wanted = one_of(stream, (*BOTH, "both"))
    query = Query(
        tail=lines,
        ranks=tuple(rank or ()),
        attempt=attempt,
        streams=BOTH if wanted == "both" else (wanted,),
        dated=diff,
        relative=not raw and (diff or not iris.output.as_json),
    )
    if iris.is_in_task:
        from iris_cli.cli import inside

        return inside.logs(iris, what, query, follow=follow, folded=not no_fold)
    session = iris.session("iris logs")
    if follow:
        return _follow(iris, session, what, query, folded=not no_fold)
    if query.tail is None and not (diff or iris.output.as_json):
        return _show_all(iris, session, what, query, folded=not no_fold)
    found = fetch(session, what, query)
    iris.output.warnings(session.messages)
    if diff:
        render.show_diff(iris.output, compare(found, query.tail), found)
    else:
        render.show_logs(iris.output, found, folded=not no_fold)
    return ExitCode.UNREACHABLE if any(log.silence for log in found) else ExitCode.OK


def _show_all(iris: Context, session: "Session", what: str, query: "Query", *, folded: bool) -> int:
    """Print complete logs part by part, so that memory use does not grow with their size."""
    from iris_cli.ops.logs.follow import Step
    from iris_cli.ops.logs.logs import LogFetch
    from iris_cli.render.logs.log_lines import LogPrinter

    fetching = LogFetch(session, what, query)
    iris.output.warnings(session.messages)
    with closing(LogPrinter(iris.output, prefixed=fetching.tasks > 1, folded=folded)) as printer:
        for texts in fetching.turns():
            printer.step(Step(texts=texts, is_full_poll=True))
        found = fetching.logs({})
        printer.step(Step(texts=[line.as_text() for log in found for line in log.lines]))
    printer.notes(found)
    return ExitCode.UNREACHABLE if any(log.silence for log in found) else ExitCode.OK


def follow_job(iris: Context, session: "Session", job: str) -> int:
    """Print the output of a job, and run cycles, until the job ends."""
    from iris_cli.ops.logs.log_reading import Query

    return _follow(iris, session, job, Query(tail=None, relative=not iris.output.as_json), folded=True)


def _follow(iris: Context, session: "Session", what: str, query: "Query", *, folded: bool) -> int:
    from iris_cli.ops.logs.follow import Follower
    from iris_cli.render.logs.log_lines import LogPrinter

    follower = Follower(session, what, query)
    printer = LogPrinter(iris.output, prefixed=follower.tasks > 1, folded=folded)
    printed: set[str] = set()
    try:
        with closing(printer):
            for step in follower.steps():
                for message in session.messages:
                    if message not in printed:
                        printed.add(message)
                        iris.output.warning(message)
                printer.step(step)
    except KeyboardInterrupt:
        continue_words = f"{what} continues: iris logs {what} --follow"
        return iris.interrupted(f"stopped following; {iris.take_no_cycles_reason() or continue_words}")
    return ExitCode.UNREACHABLE if follower.cut_short else ExitCode.OK
