"""`iris gc`: remove files of ended work."""

from typing import Annotated

from iris_cli.cli import consent
from iris_cli.cli.command_types import Context, flag, option
from iris_cli.errors import ExitCode

EXAMPLES = """
iris gc --dry-run  # what would be removed
iris gc  # show it, ask, remove
iris gc --older-than 7d --yes
"""


def gc(
    iris: Context,
    older_than: Annotated[str, option("TIME", "Keep files newer than this.", show_default=True)] = "0s",
    dry_run: Annotated[bool, flag("--dry-run", "Show what would be removed; remove nothing.")] = False,
    yes: Annotated[bool, flag("--yes", "Remove without asking.")] = False,
) -> int:
    """Remove files of ended work from workers and this machine.

    Removes ended attempts and unused workspaces from workers, and old files of this machine. Attempts that run or
    may run are never touched. The log keeps how each attempt ended.
    """
    from iris_cli.core.units import format_memory, parse_duration
    from iris_cli.ops.files import gc as operation
    from iris_cli.render import files as render

    session = iris.session("iris gc")
    age = parse_duration(older_than)
    found = operation.find(session, age)
    if not iris.output.as_json and (not (iris.output.quiet and yes) or dry_run):
        render.show_garbage(iris.output, found)
    question = f"Remove {format_memory(found.bytes)}?"
    wanted = found.can_remove and not dry_run
    if wanted and consent.is_given(iris, question, yes=yes, action="remove"):
        found = operation.remove(session, found, age)
        if not iris.output.as_json:
            render.show_removed(iris.output, found)
    if iris.output.as_json:
        iris.output.document(render.garbage_document(found))
    return ExitCode.UNREACHABLE if any(each.silent for each in found.workers) else ExitCode.OK
