"""`iris launch`: submit a job, run one cycle, print its id."""

from typing import Annotated, Any

import typer

from iris_cli.cli.command_types import CommandMayFollow, Commands, argument, command_of
from iris_cli.cli.commands import launching
from iris_cli.cli.job_options import option, with_job_fields
from iris_cli.core.model.job_fields import INSIDE, OUTPUT

_EXAMPLES = """
iris launch --tpu v5e-16 --workdir . -- python3 train.py  # a gang
iris launch --cpu 4 --replicas 10 --workdir . -- ./shard.sh  # ten tasks
iris launch job.yaml --name second-try  # or job.sh
iris launch --array 0-99%8 --workdir . -- ./simulate  # 8 at a time
"""


def register(app: Commands) -> None:
    app.command(epilog=_EXAMPLES, cls=CommandMayFollow)(launch)


@with_job_fields
def launch(
    context: typer.Context,
    jobfile: Annotated[
        list[str] | None,
        argument("[JOBFILE]", "Job file (YAML), or script with #IRIS lines; options override it."),
    ] = None,
    wait: Annotated[
        bool, option("--wait", group=OUTPUT, text="Wait until the job ends; the exit code tells how.")
    ] = False,
    follow: Annotated[bool, option("--follow", group=OUTPUT, text="Print the logs until the end.")] = False,
    dry_run: Annotated[
        bool, option("--dry-run", group=OUTPUT, text="Show where the job would be placed; submit nothing.")
    ] = False,
    no_schedule: Annotated[bool, option("--no-schedule", group=OUTPUT, text="Submit only.")] = False,
    no_inherit_constraints: Annotated[
        bool,
        option(
            "--no-inherit-constraints",
            group=INSIDE,
            text="Submit the child without the constraints of its job.",
        ),
    ] = False,
    request_id: Annotated[
        str | None,
        option(
            "--request-id",
            group=INSIDE,
            value="ID",
            text="Submit no second job if the same id was used before.",
        ),
    ] = None,
    **fields: Any,
) -> int:
    """Submit a job, place it and start it; print its id.

    Starts the background loop if nobody else runs cycles. The loop ends with the last job.
    """
    return launching.launch(context.obj, context.params, jobfile or [], command_of(context))
