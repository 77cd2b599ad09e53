"""The same where names are long, and where whatever others may write wants to be taken for more than data."""

from __future__ import annotations

from iris_cli.remote.operator_calls import CommandEnd
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
    "hostile-status": Picture(line="iris status", scene="hostile"),
    "hostile-job": Picture(line=f"iris status {JOB}", scene="hostile"),
    "hostile-gang": Picture(line="iris status gang", scene="hostile"),
    "hostile-why": Picture(line="iris why picky", scene="hostile"),
    "hostile-why-failed": Picture(line=f"iris why {JOB}", scene="hostile"),
    "hostile-history": Picture(line="iris history", scene="hostile"),
    "hostile-workers": Picture(line="iris workers", scene="hostile"),
    "hostile-worker": Picture(line="iris worker show cpu-1", scene="hostile"),
    "hostile-report": Picture(line="iris report", scene="hostile"),
    "hostile-plan": Picture(line="iris schedule --dry-run", scene="hostile"),
    "hostile-schedule": Picture(line="iris schedule --once", scene="hostile"),
    "hostile-wait": Picture(line=f"iris wait {JOB}", scene="hostile"),
    "hostile-logs": Picture(line="iris logs gang", scene="hostile", prepare=_writes),
    "hostile-exec": Picture(line="iris exec gang -- true", scene="hostile", prepare=_writes),
    "hostile-name": Picture(line="iris status '\x1b[31mred \u202e[bold]x[/bold]'", scene="hostile"),
}
