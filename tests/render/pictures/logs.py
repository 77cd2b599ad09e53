"""What tasks write, as `iris logs` tells it."""

from __future__ import annotations

from iris_cli.core.messages.observations import SilenceKind
from tests.render.pictures.picture import Picture
from tests.render.stage import Stage


def _writes(stage: Stage) -> None:
    """All ranks step on, rank 2 behind the others; rank 3 warns."""
    for rank in range(4):
        task = f"train/task-{rank}"
        stage.hosts.says(task, "compiling\n")
        stage.hosts.says(
            task,
            "".join(f"step {step} loss {2.5 - step / 10:.1f}\n" for step in range(3 if rank == 2 else 6)),
        )
    stage.hosts.says("train/task-3", "W cache is cold\n", "err")


def _colours(stage: Stage) -> None:
    """A program that thinks that it has a terminal, and one that wants ours."""
    _writes(stage)
    stage.hosts.says("train/task-0", "\x1b[32mgreen\x1b[0m \x1b]0;mine\x07 [bold]x[/bold] 日本 \u202e\tq\r\n")


def _silent(stage: Stage) -> None:
    for host in stage.hosts.hosts.values():
        host.silence = SilenceKind.UNREACHABLE


def _fails_in_a_file(stage: Stage) -> None:
    """Each rank names the same file by the path of its own work directory."""
    for rank in range(4):
        work = f"/home/me/.iris/lab/w/a/{stage.hosts.attempt(f'train/task-{rank}')}/work"
        stage.hosts.says(f"train/task-{rank}", f'  File "{work}/train.py", line 9, in <module>\n', "err")


PICTURES = {
    "logs": Picture(
        line="iris logs train",
        then=(
            "iris logs --no-fold train --tail 1",
            "iris logs train --rank 3",
            "iris logs train/task-2 --tail all",
            "iris logs --diff train",
        ),
        prepare=_writes,
    ),
    "logs-paths": Picture(
        line="iris logs train --stream err",
        then=("iris logs train --rank 1 --raw",),
        prepare=_fails_in_a_file,
    ),
    "logs-hostile": Picture(line="iris logs train --rank 0 --tail 1", prepare=_colours),
    "logs-kept": Picture(line="iris logs train", scene="failed_gang", prepare=_silent),
}
