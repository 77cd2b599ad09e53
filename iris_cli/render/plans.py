"""Print what a cycle would do (--dry-run): placements, pending tasks, and the directory to ship."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType

from iris_cli.core import Cluster, JobId, TaskId, WorkerId, Workspace, count, format_memory, group_pairs
from iris_cli.render.console import Output
from iris_cli.render.cycles import unschedulable_tasks
from iris_cli.render.layout import Renderable
from iris_cli.render.tables import FOLD_ABOVE, fold, folded_rows, table, text

if TYPE_CHECKING:
    from iris_cli.core.scheduling import Assignment, Change, Plan, Reason
    from iris_cli.ops.workspace.pack import Listing


class PlacedTask(Struct, frozen=True):
    """A task that would be assigned. `gpus`: indexes. `chosen`: why this worker, if another worker ranks higher."""

    task: TaskId
    worker: WorkerId
    gpus: Sequence[int]
    chosen: str


class WaitingSubject(Struct, frozen=True):
    """A task or gang that would stay pending, and the reasons. `subject`: id of the task, or of the gang's job."""

    subject: str
    reasons: Sequence[Reason]


class PlanDocument(Struct, frozen=True, kw_only=True):
    """The result of `--dry-run` of `iris schedule` and `iris launch`. `unschedulable`: tasks that would end.

    `kept`: for each pending gang or task with a reservation, the reserved groups or the reserved worker. `change`: the
    single change that would let the job run. `workspace` is absent without `--workdir`.
    """

    placed: Sequence[PlacedTask]
    waiting: Sequence[WaitingSubject]
    unschedulable: Sequence[TaskId]
    kept: Mapping[str, Sequence[str]]
    change: Change | None
    workspace: ShippedDirectory | UnsetType = UNSET


def show_plan(
    output: Output, plan: Plan, cluster: Cluster, job: JobId | None = None, *, shipped: Listing | None = None
) -> None:
    """Print the plan. `job`: print only this job, and the single change that would let it run.

    `shipped`: the files of the directory to ship with the job; None if there is no directory.
    """
    placed = [each for each in plan.assignments if job in (None, each.task.job)]
    waiting = {key: plan.waiting[key] for key in plan.waiting if job in (None, _job_of(key))}
    ended = {
        why: [task for task in tasks if job in (None, task.job)]
        for why, tasks in unschedulable_tasks(plan).items()
    }
    chosen = plan.result.notable_choices()
    change = plan.waiting.explain(next(iter(waiting))).change if job is not None and waiting else None
    if output.as_json:
        reserved = plan.result.reservations.items()
        output.document(
            PlanDocument(
                placed=[
                    PlacedTask(each.task, each.worker, each.gpus, chosen.get(each.task, ""))
                    for each in placed
                ],
                waiting=[WaitingSubject(str(key), reasons) for key, reasons in waiting.items()],
                unschedulable=[*chain(*ended.values())],
                kept={str(key): groups for key, groups in reserved if job in (None, _job_of(key))},
                change=change,
                workspace=UNSET if shipped is None else _shipped_directory(shipped),
            )
        )
    elif output.quiet:
        for each in placed:
            output.line(f"{each.task} {each.worker}")
    else:
        _show_tables(output, cluster, placed, chosen, waiting, ended)
        if change is not None:
            output.line()
            output.line(f"{change.label}: {change}")
        if shipped is not None:
            output.line()
            _show_shipped(output, shipped)


def _job_of(key: TaskId | JobId) -> JobId:
    return key.job if isinstance(key, TaskId) else key


def _show_tables(
    output: Output,
    cluster: Cluster,
    placed: list[Assignment],
    chosen: Mapping[TaskId, str],
    waiting: dict[TaskId | JobId, tuple[Reason, ...]],
    ended: Mapping[str, list[TaskId]],
) -> None:
    parts: list[Renderable] = []
    if placed:
        parts.append(table(("TASK", "WOULD RUN ON", "GPUS", "BECAUSE"), _placed_rows(placed, chosen)))
    if waiting:
        rows = folded_rows(
            waiting.items(),
            lambda entry: _name(cluster, entry[0]),
            lambda entry: tuple(reason.text for reason in entry[1]),
        )
        lines = [
            ("" if number else name, why) for name, *reasons in rows for number, why in enumerate(reasons)
        ]
        parts.append(table(("STILL PENDING", "WHY"), lines))
    for why, tasks in ended.items():
        if tasks:
            parts.append(text(f"would become UNSCHEDULABLE: {fold(map(str, tasks))} ({why})", "red"))
    for number, part in enumerate(parts or [text("no pending jobs", "dim")]):
        if number:
            output.line()
        output.show(part)


def _name(cluster: Cluster, key: TaskId | JobId) -> str:
    """Return the name to print: the task's id, or the job's id if the job is a gang or has a single task."""
    if isinstance(key, TaskId) and cluster.jobs[key.job].replicas == 1:
        return key.job
    return str(key)


def _placed_rows(placed: Iterable[Assignment], chosen: Mapping[TaskId, str]) -> list[tuple[str, ...]]:
    by_job = group_pairs((each.task.job, each) for each in placed)
    rows: list[tuple[str, ...]] = []
    for group in by_job.values():
        why = chosen.get(group[0].task, "")
        if len(group) > FOLD_ABOVE:
            rows.append(
                (fold(str(each.task) for each in group), fold(each.worker for each in group), "", why)
            )
        else:
            rows += [
                (str(each.task), each.worker, ",".join(map(str, each.gpus)), chosen.get(each.task, ""))
                for each in group
            ]
    return rows


class ShippedFile(Struct, frozen=True):
    """A file, or a link to `target`. `size` in bytes."""

    name: str
    size: int
    executable: bool
    target: str | None


class ShippedDirectory(Struct, frozen=True):
    """The directory that `iris launch` would ship. `size`: bytes of the tar file."""

    directory: Path
    chosen_by: str
    size: int
    files: Sequence[ShippedFile]


def workspace_words(workspace: Workspace) -> str:
    """Return name, files, size and start of the hash: `vision, 42 files, 1.20MiB, 0f1e2d3c4b5a`."""
    files, size = count(workspace.files, "file"), format_memory(workspace.size)
    return f"{workspace.name}, {files}, {size}, {workspace.hash[:12]}"


def _show_shipped(output: Output, listing: Listing) -> None:
    files = count(len(listing.entries), "file")
    output.line(f"would ship {listing.directory}: {files}, {format_memory(listing.size)} ({listing.rule})")
    rows = [(each.name, format_memory(each.size)) for each in listing.largest]
    output.show(table(("BIGGEST", "SIZE"), rows))


def _shipped_directory(listing: Listing) -> ShippedDirectory:
    files = [ShippedFile(each.name, each.size, each.executable, each.target) for each in listing.entries]
    return ShippedDirectory(listing.directory, listing.rule, listing.size, files)
