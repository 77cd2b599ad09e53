"""What tasks write, as `iris logs` tells it."""

from __future__ import annotations

from iris_cli.core.observations import SilenceKind
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


PICTURES = {
    "logs-folded": Picture(line="iris logs train", prepare=_writes),
    "logs-not-folded": Picture(line="iris logs --no-fold train --tail 1", prepare=_writes),
    "logs-one-rank": Picture(line="iris logs train --rank 3", prepare=_writes),
    "logs-all": Picture(line="iris logs train/task-2 --tail all", prepare=_writes),
    "logs-diff": Picture(line="iris logs --diff train", prepare=_writes),
    "logs-hostile": Picture(line="iris logs train --rank 0 --tail 1", prepare=_colours),
    "logs-kept": Picture(line="iris logs train", scene="failed_gang", prepare=_silent),
    "logs-waiting": Picture(line="iris logs big"),
    "logs-misspelt": Picture(line="iris logs trian"),
    "logs-no-rank": Picture(line="iris logs train --rank 9"),
    "logs-diff-follow": Picture(line="iris logs --diff --follow train"),
    "logs-follow-over": Picture(line="iris logs --follow train", scene="failed_gang"),
}
