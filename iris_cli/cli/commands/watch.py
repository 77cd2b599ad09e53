"""`iris watch`: follow the cluster live; stop a gang when a rank fails."""

from typing import Annotated

from iris_cli.cli.command_types import Context, flag, option, parse_interval

EXAMPLES = """
iris watch --schedule  # watch and place jobs
iris watch --schedule --until-idle  # until all jobs have ended
"""


def watch(
    iris: Context,
    once: Annotated[bool, flag("--once", "Run one cycle.")] = False,
    schedule: Annotated[bool, flag("--schedule", "Also place pending jobs.")] = False,
    until_idle: Annotated[bool, flag("--until-idle", "End when every job has ended.")] = False,
    interval: Annotated[
        float,
        option("TIME", "Time between cycles (default: 2s).", parser=parse_interval),
    ] = 2.0,
) -> int:
    """Follow the cluster live.

    Polls the workers, records ends, stops a gang when a rank fails, and shows each change.
    """
    from iris_cli.cli.cycles import follow, follow_once
    from iris_cli.ops.loop import foreground

    session = iris.session("iris watch")
    steps = foreground.watch(session, interval=interval, schedule=schedule, once=once)
    if once:
        return follow_once(iris, session, steps)
    return follow(iris, session, steps, until_idle=until_idle)
