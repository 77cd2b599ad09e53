"""Print the result of a cycle, and what runs cycles: the background loop, cron or a systemd timer."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType

from iris_cli.config.schema import Mode
from iris_cli.core import Cluster, TaskId, WorkerId, format_duration
from iris_cli.core.messages.observations import SilenceKind
from iris_cli.files import last_lines
from iris_cli.journal.files.runners import LOOP, LoopOrder, Runner
from iris_cli.ops.checks.findings import Finding
from iris_cli.ops.cycle.cycle import CycleResult
from iris_cli.ops.views.cycles import VALIDATE, Cycles, cycles_words, fix_of
from iris_cli.ops.views.view import CycleAge, reason_words
from iris_cli.render import layout, tables
from iris_cli.render.console import Output

if TYPE_CHECKING:
    from iris_cli.core.scheduling import Plan, ReasonKind
    from iris_cli.ops.loop.run import LoopPass
    from iris_cli.render.slices import PassDocument


class Assigned(Struct, frozen=True):
    """A task that was assigned in a cycle, and its worker."""

    task: TaskId
    worker: WorkerId


class Waiting(Struct, frozen=True):
    """A pending task or gang with its first reason. `id`: the task, or the gang's job. `reason`: its kind."""

    id: str
    reason: ReasonKind
    text: str


class SilentWorker(Struct, frozen=True):
    """A worker that did not answer in a cycle, and why."""

    worker: WorkerId
    kind: SilenceKind
    detail: str


class CycleDocument(Struct, frozen=True):
    """The result of one cycle of `iris schedule`. `asked`: number of workers that were polled.

    `scaling`: the result of the autoscaler, which ran before the cycle; absent if the autoscaler did not run.
    """

    assigned: Sequence[Assigned]
    waiting: Sequence[Waiting]
    silent: Sequence[SilentWorker]
    asked: int
    scaling: PassDocument | UnsetType = UNSET


def show_cycle(
    output: Output, cluster: Cluster, result: CycleResult, scaling: PassDocument | None = None
) -> None:
    """Print placements, pending tasks with reasons, and silent workers. `scaling`: autoscaler's result, for JSON."""
    plan = result.plan
    if output.as_json:
        output.document(
            CycleDocument(
                [Assigned(each.task, each.worker) for each in result.assigned],
                [
                    Waiting(str(key), reasons[0].kind, reasons[0].text)
                    for key, reasons in (plan.waiting.items() if plan else ())
                    if reasons
                ],
                [SilentWorker(each.worker, each.kind, each.detail) for each in result.silent],
                result.polled,
                UNSET if scaling is None else scaling,
            )
        )
        return
    for line in placement_lines(result):
        output.done(line)
    for line in silence_lines(cluster, result):
        output.message(line)


class BusyDocument(Struct, frozen=True):
    """The result with `--lock-timeout 0` if another command holds the lock, and nothing was done. `busy` names it."""

    busy: str


def show_busy(output: Output, holder: str) -> None:
    """Print that nothing was done, because another command holds the lock. `holder`: the message about the lock."""
    if output.as_json:
        output.document(BusyDocument(holder))
    else:
        output.message(f"busy: {holder}")


def silence_lines(cluster: Cluster, result: CycleResult) -> Iterator[str]:
    """Yield a line for each worker that did not answer, with a hint."""
    for silence in result.silent:
        yield silence.words(silence.worker)
        if silence.hint and silence.worker in cluster.workers:
            yield f"hint: {silence.hint}"


def placement_lines(result: CycleResult) -> Iterator[str]:
    """Yield a line for each job with placed tasks, and for each reason with its unschedulable or pending tasks."""
    for _, group in groupby(result.assigned, key=lambda each: each.task.job):
        placed = list(group)
        where = tables.fold(each.worker for each in placed)
        yield f"assigned {tables.fold(str(each.task) for each in placed)} to {where}"
    for why, tasks in unschedulable_tasks(result.plan).items() if result.plan else ():
        if tasks:
            yield f"{tables.fold(map(str, tasks))} UNSCHEDULABLE: {why}"
    waiting = result.plan.waiting.items() if result.plan else ()
    reasons_by_key = ((str(key), reason_words(reasons) or "no reason known") for key, reasons in waiting)
    for keys, why in tables.group_by_text(reasons_by_key):
        yield f"pending {tables.fold(keys)}: {why}"


def unschedulable_tasks(plan: Plan) -> dict[str, list[TaskId]]:
    """Return the tasks that the plan ends as UNSCHEDULABLE, by reason."""
    return {
        "scheduling timeout exceeded": list(plan.timed_out_tasks),
        "dependency did not succeed": list(plan.dependency_failed),
    }


class StartedDocument(Struct, frozen=True):
    """The result of `iris loop start`. `running` is false if no job is open."""

    pid: int | None
    running: bool


class StoppedDocument(Struct, frozen=True):
    """The result of `iris loop stop`. `pid` is null if no loop was running."""

    stopped: bool
    pid: int | None


class LoopDocument(Struct, frozen=True, kw_only=True):
    """The result of `iris loop show`. `loop` is the setting in cluster.yaml, `output` the end of the loop's log.

    While cluster.yaml is invalid, `loop` is null and `invalid` is its first problem; otherwise `invalid` is empty.
    """

    cycles: Cycles
    loop: Mode | None
    invalid: str
    stopped: bool
    stopped_by: str
    killed_at_logout: bool
    output: Sequence[str]


class LoopLog:
    """Log of the background loop. A line is omitted if the previous pass of the loop had the same line."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._previous_lines: frozenset[str] = frozenset()

    def write(self, *lines: str) -> None:
        from iris_cli.ops.loop.start import write_loop_log

        write_loop_log(map(layout.clean_line, lines), self._now())

    def record(self, cluster: Cluster, loop_pass: LoopPass) -> None:
        """Write the lines of a pass, without the lines of the previous pass."""
        lines = [f"no cycle could be run: {loop_pass.trouble}"] if loop_pass.trouble else []
        if loop_pass.result is not None:
            lines += [*placement_lines(loop_pass.result), *silence_lines(cluster, loop_pass.result)]
        if new := [line for line in lines if line not in self._previous_lines]:
            self.write(*new)
            if loop_pass.fault is not None:
                self.write(*"".join(traceback.format_exception(loop_pass.fault)).splitlines())
        self._previous_lines = frozenset(lines)


def show_started(output: Output, loop: Runner | None) -> None:
    """Print the pid of the loop. `loop`: None if no loop was started, because no job is open."""
    if output.as_json:
        output.document(StartedDocument(_pid(loop), running=loop is not None))
    elif loop is None:
        output.done("nothing to do: no pending or running jobs")
    else:
        output.done(f"background loop running (pid {loop.pid}); it ends with the last job")


def _pid(loop: Runner | None) -> int | None:
    return loop.pid or None if loop is not None else None


def show_stopped(output: Output, loop: Runner | None) -> None:
    if output.as_json:
        output.document(StoppedDocument(stopped=True, pid=_pid(loop)))
    elif loop is None:
        output.done("no loop was running; to start one: iris loop start")
    else:
        output.done(f"stopped the background loop (pid {loop.pid}); to start it again: iris loop start")


def show_loop(
    output: Output,
    cycles: Cycles,
    order: LoopOrder,
    *,
    mode: Mode | None,
    log: Sequence[str],
    killed_at_logout: bool,
    invalid: str = "",
) -> None:
    """Print what runs cycles, whether a loop may start, and the end of the loop's log.

    `order`: the last `iris loop start` or `stop`. `mode`: `loop` in cluster.yaml. If cluster.yaml is invalid, `invalid`
    is its first problem, and `mode` is None.
    """
    if output.as_json:
        output.document(
            LoopDocument(
                cycles=cycles,
                loop=mode,
                invalid=invalid,
                stopped=order.stopped,
                stopped_by=order.by if order.stopped else "",
                killed_at_logout=killed_at_logout,
                output=log,
            )
        )
        return
    output.line(cycles_words(cycles))
    if output.quiet:
        return
    if invalid:
        output.line(f"{invalid}{_consequence(cycles)}")
        output.line(f"hint: {VALIDATE}")
    if mode is Mode.OFF:
        output.line("cluster.yaml says loop: off")
    elif order.stopped:
        output.line(f"the loop was stopped at {order.since} (by {order.by}); to start it: iris loop start")
    if killed_at_logout:
        output.line("the loop ends when you log out; to avoid that: loginctl enable-linger")
    for trouble in cycles.troubles:
        if not (invalid and fix_of(trouble) == VALIDATE):  # otherwise printed above
            output.line(trouble)
    for line in log:
        output.line(f"  {line}")


def _consequence(cycles: Cycles) -> str:
    """Return the effect of an invalid cluster.yaml on cycles; '' if something else than the loop runs cycles."""
    if not cycles.by:
        return "; no cycle runs until this is corrected"
    return "; the loop places nothing until this is corrected" if cycles.by == LOOP else ""


class InstalledDocument(Struct, frozen=True):
    """The result of `iris cron install`. `changed` is false if the same entry was installed before."""

    installed: str
    changed: bool
    warnings: Sequence[str]


class RemovedDocument(Struct, frozen=True):
    """The result of `iris cron remove`: the removed entries."""

    removed: Sequence[str]


class CronDocument(Struct, frozen=True):
    """The result of `iris cron show`. `crontab` and `systemd` are the installed entries, empty if there are none.

    `last_cycle_age` is the age in seconds of cron's last cycle, or of any last cycle if there is no entry. `output` is
    the end of cron's log.
    """

    crontab: str
    systemd: str
    last_cycle_age: float | None
    stale: bool
    output: Sequence[str]


def show_installed(
    output: Output, where: str, *, changed: bool, keys: Sequence[Finding], missing: Sequence[Finding]
) -> None:
    """Print the installed entry, and what cron can't use: `keys` that need an SSH agent, and `missing` variables.

    `where`: the crontab line, or the name of the systemd timer.
    """
    for finding in keys:
        output.message(f"warning: cron has no SSH agent, so it can't log in: {finding.text}")
    for finding in missing:
        output.message(f"{finding.text}; to set it for cron: {finding.fix}")
    if output.as_json:
        warnings = [each.text for each in (*keys, *missing)]
        output.document(InstalledDocument(where, changed, warnings))
        return
    output.done(
        f"{'installed' if changed else 'nothing changed, already installed with these options'}: {where}"
    )
    output.done("next: iris cron show (after the first cycle)")


def show_removed(output: Output, removed: Sequence[str]) -> None:
    if output.as_json:
        output.document(RemovedDocument(removed))
        return
    output.done(f"removed: {', '.join(removed)}" if removed else "nothing to remove")


def show_cron(output: Output, found: dict[str, str], cycle: CycleAge, log: Path) -> None:
    """Print the entry `found` in `crontab` and in `systemd` ('': none), the age of the last cycle, and the log's end.

    `cycle`: the last cycle of cron; if there is no entry, of any runner.
    """
    log_lines = last_lines(log)
    if output.as_json:
        output.document(CronDocument(found["crontab"], found["systemd"], cycle.age, cycle.stale, log_lines))
        return
    for where, what in found.items():
        if what:
            output.line(f"{where}: {what}")
    if not any(found.values()):
        output.line("not installed: iris cron install --every 1m")
    ago = f"{format_duration(cycle.age)} ago" if cycle.age is not None else "never"
    late = " (late)" if cycle.stale and cycle.age is not None else ""
    output.line(f"last cycle of cron: {ago}{late}" if any(found.values()) else f"last cycle: {ago}")
    for each in log_lines:
        output.line(f"  {each}")
