"""Stacks of the running ranks of a job for `iris stacks`. Ranks with equal stacks are grouped."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from iris_cli.core import Attempt, AttemptState, Task, TaskId, WorkerId, group_pairs
from iris_cli.core.lifecycle.display import not_running_words
from iris_cli.core.messages.observations import Silence
from iris_cli.core.messages.stacks import Frame, Thread, threads_of
from iris_cli.ops.names import select_tasks
from iris_cli.ops.session import Session
from iris_cli.remote.stack_calls import Program, Programs

MAIN, CHILD, OTHER = "main", "child", "thread"
"""Kinds of threads: the main thread of a rank's first Python program, main threads of its other programs, others."""


class RankStacks(Struct, frozen=True, kw_only=True):
    """The answer of one task's worker, or its silence, or a note that says why iris did not call it.

    `threads` are the threads of each program in the answer.
    """

    task: TaskId
    worker: WorkerId | None = None
    answer: Programs | None = None
    threads: tuple[tuple[Thread, ...], ...] = ()
    silence: Silence | None = None
    note: str = ""

    @property
    def has_stacks(self) -> bool:
        """True if the answer contains a stack."""
        return any(self.threads)

    def programs(self) -> Iterator[tuple[Program, tuple[Thread, ...]]]:
        if self.answer is not None:
            yield from zip(self.answer.programs, self.threads, strict=True)


class SharedStack(Struct, frozen=True, kw_only=True):
    """Threads of one kind with equal stacks. `ranks` are in ascending order. `threads` is the number of threads."""

    kind: str
    frames: tuple[Frame, ...]
    ranks: tuple[int, ...]
    threads: int


def stacks(session: Session, name: str, *, ranks: Sequence[int] = (), consent: str = "") -> list[RankStacks]:
    """Return the stacks of the running tasks of a job, or of one task, by rank. Each worker gets one call.

    `consent` is a signal that may be sent to programs that have not opened the file `stacks.<SIGNAL>`. Raises
    NotFoundError and UsageError.
    """
    cluster = session.view()
    found: list[RankStacks] = []
    by_worker: dict[WorkerId, list[tuple[Task, Attempt]]] = {}
    for task, attempt in select_tasks(cluster, name, ranks=ranks):
        if attempt is None or attempt.state not in (AttemptState.RUNNING, AttemptState.STOPPING):
            note = not_running_words(cluster, task)
            found.append(RankStacks(task=task.id, worker=attempt.worker if attempt else None, note=note))
        else:
            by_worker.setdefault(attempt.worker, []).append((task, attempt))

    def read_stacks(worker: WorkerId) -> list[RankStacks]:
        tasks = by_worker[worker]
        tokens = [attempt.token for _, attempt in tasks]
        answer = session.runner.stacks.read(session.target(cluster.workers[worker]), tokens, consent=consent)
        if isinstance(answer, Silence):
            return [RankStacks(task=task.id, worker=worker, silence=answer) for task, _ in tasks]
        return [_rank_stacks(task, worker, each) for (task, _), each in zip(tasks, answer, strict=True)]

    if by_worker:
        _ = session.runner  # creates the runner before the threads use it
        for batch in session.fan_out(list(by_worker), read_stacks, what="reading stacks"):
            for results in batch:
                found += results
    return sorted(found, key=lambda each: each.task.index)


def shared_stacks(results: Iterable[RankStacks]) -> list[SharedStack]:
    """Return the distinct stacks: main threads first, and stacks of many ranks before those of deviating ranks."""
    ranks = group_pairs(
        ((kind, thread.frames), each.task.index)
        for each in results
        for kind, thread in _threads_with_kind(each)
    )
    found = [
        SharedStack(kind=kind, frames=frames, ranks=tuple(sorted(set(numbers))), threads=len(numbers))
        for (kind, frames), numbers in ranks.items()
    ]
    order = (MAIN, CHILD, OTHER)
    return sorted(found, key=lambda each: (order.index(each.kind), -len(each.ranks), each.ranks))


def _threads_with_kind(result: RankStacks) -> Iterator[tuple[str, Thread]]:
    kind_of_main_thread = MAIN
    for threads in result.threads:
        for thread in threads:
            yield kind_of_main_thread if thread.is_main else OTHER, thread
        if threads:
            kind_of_main_thread = CHILD


def _rank_stacks(task: Task, worker: WorkerId, answer: Programs) -> RankStacks:
    threads = tuple(threads_of(each.dump) for each in answer.programs)
    return RankStacks(task=task.id, worker=worker, answer=answer, threads=threads)
