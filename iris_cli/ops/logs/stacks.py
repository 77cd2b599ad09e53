"""Stacks of the running ranks of a job for `iris stacks`, grouped by equal stacks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from iris_cli.core import Attempt, AttemptState, Task, TaskId, WorkerId
from iris_cli.core.lifecycle.display import task_displays
from iris_cli.core.messages.observations import Silence
from iris_cli.core.messages.stacks import Frame, Thread, threads_of
from iris_cli.ops.names import select_tasks
from iris_cli.ops.session import Session
from iris_cli.remote.worker_calls import Program, Programs

MAIN, CHILD, OTHER = "main", "child", "thread"
"""The main thread of a rank's first Python program, of its further ones, and all other threads."""


class RankStacks(Struct, frozen=True, kw_only=True):
    """The answer or silence of one task's worker, or a note why it was not polled; `threads` by program."""

    task: TaskId
    worker: WorkerId | None = None
    answer: Programs | None = None
    threads: tuple[tuple[Thread, ...], ...] = ()
    silence: Silence | None = None
    note: str = ""

    @property
    def asked(self) -> bool:
        return self.answer is not None or self.silence is not None

    @property
    def found(self) -> bool:
        """True if there is any stack."""
        return any(self.threads)

    def programs(self) -> Iterator[tuple[Program, tuple[Thread, ...]]]:
        if self.answer is not None:
            yield from zip(self.answer.programs, self.threads, strict=True)


class SharedStack(Struct, frozen=True, kw_only=True):
    """Threads of one kind with equal stacks. `ranks` ascend; `threads` counts the threads of all ranks."""

    kind: str
    frames: tuple[Frame, ...]
    ranks: tuple[int, ...]
    threads: int


def stacks(session: Session, what: str, *, ranks: Sequence[int] = (), consent: str = "") -> list[RankStacks]:
    """Return the stacks of the running tasks of a job, or of one task, by rank. Each worker is polled once.

    `consent` is a signal for programs that have not declared its purpose. Raises NotFoundError and UsageError.
    """
    cluster = session.view()
    found: list[RankStacks] = []
    by_worker: dict[WorkerId, list[tuple[Task, Attempt]]] = {}
    for task, attempt in select_tasks(cluster, what, ranks=ranks):
        if attempt is None or attempt.state not in (AttemptState.RUNNING, AttemptState.STOPPING):
            note = f"not running ({task_displays(cluster, task.job)[task.index]})"
            found.append(RankStacks(task=task.id, worker=attempt.worker if attempt else None, note=note))
        elif attempt.worker not in cluster.workers:
            note = f"worker {attempt.worker} is no longer in the cluster"
            found.append(RankStacks(task=task.id, worker=attempt.worker, note=note))
        else:
            by_worker.setdefault(attempt.worker, []).append((task, attempt))

    def ask(worker: WorkerId) -> list[RankStacks]:
        mine = by_worker[worker]
        tokens = [attempt.token for _, attempt in mine]
        answer = session.runner.stacks.read(session.target(cluster.workers[worker]), tokens, consent=consent)
        if isinstance(answer, Silence):
            return [RankStacks(task=task.id, worker=worker, silence=answer) for task, _ in mine]
        return [_rank(task, worker, each) for (task, _), each in zip(mine, answer, strict=True)]

    if by_worker:
        _ = session.runner  # created once, before any thread uses it
        for batch in session.fan_out(list(by_worker), ask, what="reading stacks"):
            for results in batch:
                found += results
    return sorted(found, key=lambda each: each.task.index)


def places(results: Iterable[RankStacks]) -> list[SharedStack]:
    """Return distinct stacks: main threads first, then by number of ranks, so deviating ranks come last."""
    ranks: dict[tuple[str, tuple[Frame, ...]], list[int]] = {}
    for each in results:
        for kind, thread in _kinds(each):
            ranks.setdefault((kind, thread.frames), []).append(each.task.index)
    found = [
        SharedStack(kind=kind, frames=frames, ranks=tuple(sorted(set(those))), threads=len(those))
        for (kind, frames), those in ranks.items()
    ]
    order = (MAIN, CHILD, OTHER)
    return sorted(found, key=lambda each: (order.index(each.kind), -len(each.ranks), each.ranks))


def _kinds(result: RankStacks) -> Iterator[tuple[str, Thread]]:
    first = MAIN
    for threads in result.threads:
        for thread in threads:
            yield first if thread.is_main else OTHER, thread
        if threads:
            first = CHILD


def _rank(task: Task, worker: WorkerId, answer: Programs) -> RankStacks:
    threads = tuple(threads_of(each.dump) for each in answer.programs)
    return RankStacks(task=task.id, worker=worker, answer=answer, threads=threads)
