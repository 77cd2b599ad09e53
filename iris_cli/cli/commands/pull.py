"""`iris pull`: copy output files of tasks from the workers."""

from pathlib import Path
from typing import Annotated

from iris_cli.cli import complete
from iris_cli.cli.command_types import Context, Ranks, argument, option, parse_path, whole_index
from iris_cli.core.work_paths import PULL_DIRECTORY
from iris_cli.errors import ExitCode

EXAMPLES = """
iris pull train  # into iris-out/train/task-N/attempt-M
iris pull train --rank 0 --dir /data/runs
iris pull train/task-3 --attempt 0
"""


def pull(
    iris: Context,
    what: Annotated[str, argument("JOB|TASK", "Job or task.", complete.JOB_OR_TASK)],
    directory: Annotated[
        Path,
        option("DIR", "Copy to DIR/JOB/task-N/attempt-M.", "--dir", parser=parse_path, show_default=True),
    ] = Path(PULL_DIRECTORY),
    rank: Ranks = None,
    attempt: Annotated[int | None, option("N", "Only this attempt of each task.", parser=whole_index)] = None,
) -> int:
    """Copy the files in IRIS_OUTPUT_DIR from the workers.

    The logs are copied too, to the state directory. Files that are already complete are skipped, partial files
    continue, changed files are replaced.
    """
    from iris_cli.ops.files import pull as operation
    from iris_cli.render import files as render

    found = operation.pull(iris.session("iris pull"), what, directory, ranks=rank or (), number=attempt)
    render.show_pulled(iris.output, found)
    if any(row.silence is not None for row in found.attempts):
        return ExitCode.UNREACHABLE
    return ExitCode.FAILED if any(row.problems for row in found.attempts) else ExitCode.OK
