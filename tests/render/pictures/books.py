"""The event log, what is fetched, and what is thrown away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from iris_cli.core.ids import AttemptId, JobId, TaskId, WorkerId
from iris_cli.core.messages.observations import SILENT, Silence, SilenceKind
from iris_cli.core.messages.requests import CancelAnswer, EndpointPart, JobAnswer, JobPart, TaskPart
from iris_cli.journal.log.archive import Compacted, Segment
from iris_cli.journal.log.position import Position
from iris_cli.ops.files.pull import Pulled
from iris_cli.ops.files.pull_attempt import PulledAttempt
from iris_cli.render import event_log, files, jobs
from iris_cli.render.console import Output
from tests.render.pictures.picture import Picture
from tests.render.stage import Stage


def _damage(stage: Stage) -> None:
    """A bit of the 20th line has changed on the disk."""
    lines = stage.log.read_bytes().splitlines(keepends=True)
    lines[20] = lines[20].replace(b'"seq"', b'"sEq"', 1)
    stage.log.write_bytes(b"".join(lines))


def _old_backup(stage: Stage) -> None:
    lines = stage.log.read_bytes().splitlines(keepends=True)
    stage.log.write_bytes(b"".join(lines[:-2]))


def _compacted(stage: Stage) -> None:
    stage.typed("log compact")


def _moved(output: Output) -> None:
    """What the archive takes depends on the library that packs it."""
    name = "events-000000000001-000000001200.jsonl.gz"
    segment = Segment(path=Path(f"/home/me/my-cluster/state/archive/{name}"), first=1, last=1200)
    end = Position(line=2, offset=300, seq=1201)
    done = Compacted(
        segment=segment,
        bytes_before=68_000_000,
        bytes_archived=4_500_000,
        bytes_after=300,
        end=end,
        file=(1, 2),
    )
    event_log.show_compacted(output, done)


def _of(rank: int) -> AttemptId:
    return AttemptId(TaskId(JobId("train"), rank), 0)


def _silences() -> Iterator[tuple[int, Silence]]:
    for rank in (3, 4, 5, 6):
        worker = WorkerId(f"v5a-{rank}")
        yield (
            rank,
            Silence(worker=worker, kind=SilenceKind.UNREACHABLE, step="connect", detail="no route to host"),
        )
    detail = "v5a-7-host rejected user 'me'"
    yield 7, Silence(worker=WorkerId("v5a-7"), kind=SilenceKind.AUTH, step="authentication", detail=detail)


def _pulled(output: Output) -> None:
    """Two came whole, of one a file was too large, four did not answer, one rejected the key."""
    home = Path("/home/me/my-cluster/out/train")
    rows = [
        PulledAttempt(
            attempt=_of(rank),
            worker=WorkerId(f"v5a-{rank}"),
            directory=home / f"task-{rank}",
            files=3,
            bytes=5 << 20,
            log_bytes=900,
        )
        for rank in (0, 1)
    ]
    rows.append(
        PulledAttempt(
            attempt=_of(2),
            worker=WorkerId("v5a-2"),
            directory=home / "task-2",
            files=1,
            bytes=1 << 10,
            unchanged=2,
            log_bytes=900,
            notes=["1 symbolic link skipped"],
            problems=["ckpt/big.bin: not fetched, the file keeps changing"],
        )
    )
    rows += [
        PulledAttempt(
            attempt=_of(rank),
            worker=WorkerId(f"v5a-{rank}"),
            directory=home / f"task-{rank}",
            problems=[f"{silence.step}: {silence.detail}"],
            silent=silence.kind in SILENT,
            silence=silence,
        )
        for rank, silence in _silences()
    ]
    files.show_pulled(output, Pulled(job=JobId("train"), directory=home, attempts=tuple(rows)))


_CHILD = JobAnswer(
    job=JobPart(id="train/eval", state="FAILED", why="exit 1"),
    tasks=[
        TaskPart(id="train/eval/task-0", state="SUCCEEDED", worker="cpu-0"),
        TaskPart(id="train/eval/task-1", state="FAILED", worker="cpu-1", why="exit 1"),
    ],
    endpoints=[EndpointPart(task="train/eval/task-0", name="http", address="cpu-0", port=8080)],
)

PICTURES = {
    "log": Picture(line="iris log verify", then=("iris log salvage",)),
    "log-damaged": Picture(
        line="iris log verify",
        then=(
            "iris status",
            "iris launch -- true",
            "iris log salvage",
            "iris log salvage --yes",
            "iris log verify",
        ),
        prepare=_damage,
    ),
    "log-old-backup": Picture(
        line="iris log salvage", then=("iris log salvage --accept-loss",), prepare=_old_backup
    ),
    "log-compact": Picture(line="iris log compact", show=_moved),
    "log-compacted": Picture(
        line="iris log compact",
        then=("iris log verify", "iris history --limit 3", "iris history --limit 3 --all"),
        prepare=_compacted,
    ),
    "log-export": Picture(line="iris log export --after 13", scene="failed_gang", as_json=False),
    "gc": Picture(
        line="iris gc --dry-run", then=("iris gc", "iris gc --yes"), scene="retried_gang", answers=("n",)
    ),
    "gc-in-the-way": Picture(line="iris gc --yes"),
    "pull": Picture(line="iris pull train --dir out", show=_pulled),
    "status-inside": Picture(
        line="iris status train/eval", show=lambda output: jobs.show_status_inside(output, _CHILD)
    ),
    "wait-inside": Picture(
        line="iris wait train/eval train/other",
        show=lambda output: jobs.show_waited_inside(
            output, {JobId("train/eval"): _CHILD, JobId("train/other"): None}
        ),
    ),
    "cancel-inside": Picture(
        line="iris cancel train/eval train/other",
        show=lambda output: jobs.show_cancelled_inside(
            output,
            {
                JobId(job): CancelAnswer(job, cancelled=state == "KILLED", state=state)
                for job, state in {"train/eval": "KILLED", "train/other": "SUCCEEDED"}.items()
            },
        ),
    ),
}
