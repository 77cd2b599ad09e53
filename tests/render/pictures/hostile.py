"""The same where names are long, and where whatever others may write wants to be taken for more than data."""

from __future__ import annotations

from iris_cli.remote.command_calls import CommandEnd
from tests.render.pictures.picture import Picture
from tests.render.scenes import EVIL
from tests.render.stage import Stage

JOB = "a-job-whose-name-is-as-long-as-names-may-be-and-not-a-bit-longer"[:63]


def _writes(stage: Stage) -> None:
    for rank in range(4):
        stage.hosts.says("gang/task-" + str(rank), f"{EVIL}\n{'x' * 300}\n")
        stage.hosts.ran[f"v5a-{rank}"] = CommandEnd(
            exit_code=0, output=f"{EVIL}\n".encode("utf-8", "replace")
        )


PICTURES = {
    "hostile": Picture(
        line="iris status",
        then=(
            f"iris status {JOB}",
            "iris status gang",
            "iris status '\x1b[31mred \u202e[bold]x[/bold]'",
            "iris why picky",
            f"iris why {JOB}",
            "iris history",
            "iris workers",
            "iris worker show cpu-1",
            "iris report",
            "iris logs gang",
            "iris exec gang -- true",
            f"iris wait {JOB}",
            "iris schedule --dry-run",
            "iris schedule --once",
        ),
        scene="hostile",
        prepare=_writes,
    ),
}
