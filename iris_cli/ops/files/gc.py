"""Delete files of ended attempts on workers, and unneeded files in the state directory.

Files are found and measured first, and deleted with the operator's consent. Files of live attempts, and of attempts
whose end is not proven, are excluded.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import ClassVar

from msgspec import Struct, field, structs

from iris_cli.core import AttemptId, AttemptState, Cluster, Worker, WorkerCondition, WorkerId
from iris_cli.core.lifecycle import reaping
from iris_cli.core.messages.observations import Silence
from iris_cli.core.model.cluster import BATCH
from iris_cli.journal.files.unneeded import UnneededFile, delete_unneeded_file, find_unneeded_files
from iris_cli.journal.log.recovery import Damage
from iris_cli.ops.cycle import observe
from iris_cli.ops.cycle.calls import Call, unused_bytes
from iris_cli.ops.session import Session

_UNKNOWN_STATE = frozenset({WorkerCondition.UNPROBED, WorkerCondition.UNTRUSTED})
_HOST_CHANGED = "the host was rebooted or re-created: iris schedule --once"


class WorkerFiles(Struct, frozen=True, kw_only=True):
    """Files of ended attempts on one worker. `sizes` are bytes by attempt.

    `left`: the attempts whose files the worker is still deleting. `caches`: the size in bytes of workspaces and set-ups
    that were unused for long. `problem`: why the sizes are unknown, or why nothing can be deleted now. `silent`: True
    if the worker did not answer.
    """

    OMITTED: ClassVar = ("sizes", "caches_removed", "silent")
    worker: WorkerId
    sizes: Mapping[AttemptId, int]
    removed: tuple[AttemptId, ...] = ()
    left: tuple[AttemptId, ...] = ()
    caches: int = field(default=0, name="cache_bytes")
    caches_removed: int = 0
    problem: str = ""
    silent: bool = False

    @property
    def bytes(self) -> int:
        return sum(self.sizes.values()) + self.caches

    @property
    def bytes_removed(self) -> int:
        return sum(self.sizes[attempt] for attempt in self.removed) + self.caches_removed


class Garbage(Struct, frozen=True, kw_only=True):
    """All files that were found: `files` in the state directory, and the files on `workers`."""

    workers: tuple[WorkerFiles, ...] = ()
    files: tuple[UnneededFile, ...] = ()
    messages: tuple[str, ...] = ()
    log_damage: Damage | None = None

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.workers) + sum(each.bytes for each in self.files)

    @property
    def can_remove(self) -> bool:
        """True if any file can be deleted now."""
        return bool(self.files) or any(
            (each.sizes or each.caches) and not each.problem for each in self.workers
        )


def find(session: Session, older_than: float = 0.0) -> Garbage:
    """Find and measure files of attempts and of the state directory that are older than `older_than` seconds."""
    cluster = session.view()
    now = session.clock.now()
    has_workspaces = any(job.workspace is not None for job in cluster.jobs.values())
    workers = [
        (worker, ended)
        for worker in cluster.workers.values()
        if (ended := reaping.attempts_ended_before(cluster, worker, now - older_than, now))
        or (has_workspaces and worker.condition is WorkerCondition.HEALTHY)
    ]
    found = [
        each
        for batch in session.fan_out(
            workers,
            lambda item: _measure(session, cluster, *item, older_than if has_workspaces else None),
            what="measuring",
        )
        for each in batch
        if each.sizes or each.caches or each.problem
    ]
    order = {worker.id: position for position, (worker, _) in enumerate(workers)}
    return Garbage(
        workers=tuple(sorted(found, key=lambda each: order[each.worker])),
        files=find_unneeded_files(session.state.path, now - older_than, _needed_hashes(cluster)),
        messages=tuple(session.messages),
        log_damage=session.damage,
    )


def _measure(
    session: Session,
    cluster: Cluster,
    worker: Worker,
    ended: Sequence[AttemptId],
    unused_for: float | None,
) -> WorkerFiles:
    """Measure the files of the `ended` attempts, and the caches unused for `unused_for` seconds, on one worker.

    If `unused_for` is None, measure no caches. Runs in a separate thread.
    """
    unmeasured = WorkerFiles(worker=worker.id, sizes=dict.fromkeys(ended, 0))
    if worker.condition in _UNKNOWN_STATE:
        return structs.replace(unmeasured, problem=f"it is {worker.condition}: iris worker probe {worker.id}")
    sizes: dict[AttemptId, int] = {}
    for start in range(0, len(ended), BATCH):
        tokens = {cluster.attempt(each).token: each for each in ended[start : start + BATCH]}
        usage = session.runner.usage(session.target(worker), list(tokens))
        if isinstance(usage, Silence):
            return structs.replace(unmeasured, problem=usage.note, silent=True)
        if (usage.boot_id, usage.incarnation) != (worker.boot_id, worker.incarnation):
            return structs.replace(unmeasured, problem=_HOST_CHANGED)
        sizes |= {attempt: dict(usage.sizes).get(token, 0) for token, attempt in tokens.items()}
    unused: int | Silence = 0
    if unused_for is not None:
        unused = unused_bytes(session, cluster, worker, unused_for, remove=False)
    if isinstance(unused, Silence):
        return structs.replace(unmeasured, problem=unused.note, silent=True)
    return structs.replace(unmeasured, sizes=sizes, caches=unused)


def remove(session: Session, found: Garbage, older_than: float = 0.0) -> Garbage:
    """Delete the files in `found`, and record the deletion in the log. Files on workers are deleted in batches.

    `older_than` must be the value given to `find`, in seconds. Raises LockedError, LogDamagedError, NotWritableError.
    """
    files_by_worker = {each.worker: each for each in found.workers}

    def send(call: Call) -> observe.WorkerAnswer:
        called_at = session.clock.now()
        return observe.validated_answer(session, call.context, called_at, call.act())

    calls = _next_calls(session, files_by_worker)
    if calls:
        session.lock_once()  # BEFORE deleting, because the deletion must be recorded
    files = _remove_files(session, found.files)  # first, because on a full disk the log needs their space
    while calls:
        for batch in session.fan_out(calls, send, what="removing"):
            with session.transaction() as draft:
                observe.record_answers(session, draft, batch)
            for answer in batch:
                worker = answer.context.worker
                files_by_worker[worker] = _with_answer(session.cluster, files_by_worker[worker], answer)
        calls = _next_calls(session, files_by_worker)
    _remove_caches(session, files_by_worker, older_than)
    return structs.replace(found, workers=tuple(files_by_worker.values()), files=files)


def _needed_hashes(cluster: Cluster) -> frozenset[str]:
    """Return the hashes of packed files that open jobs need."""
    packed = [each for job in cluster.open_jobs() for each in (job.workspace, job.each_line)]
    return frozenset(each.hash for each in packed if each is not None)


def _remove_files(session: Session, files: Sequence[UnneededFile]) -> tuple[UnneededFile, ...]:
    """Delete files in the state directory. Check packed files again under the lock, because a new job may need them."""
    if not any(each.packed for each in files):
        return tuple(map(delete_unneeded_file, files))
    with session.transaction() as draft:
        needed = _needed_hashes(draft.cluster)
        return tuple(
            structs.replace(each, problem="a job needs it now")
            if each.packed in needed
            else delete_unneeded_file(each)
            for each in files
        )


def _remove_caches(session: Session, files_by_worker: dict[WorkerId, WorkerFiles], older_than: float) -> None:
    cluster = session.view()
    measured = (
        files for files in files_by_worker.values() if files.worker in cluster.workers and not files.problem
    )
    with_caches = [files for files in measured if files.caches]

    def remove_caches(files: WorkerFiles) -> WorkerFiles:
        remaining = unused_bytes(session, cluster, cluster.workers[files.worker], older_than, remove=True)
        if isinstance(remaining, Silence):
            return structs.replace(files, problem=remaining.note, silent=True)
        return structs.replace(files, caches_removed=max(0, files.caches - remaining))

    for batch in session.fan_out(with_caches, remove_caches, what="removing"):
        files_by_worker.update({files.worker: files for files in batch})


def _next_calls(session: Session, files_by_worker: dict[WorkerId, WorkerFiles]) -> list[Call]:
    """Return the next call for each worker. The call deletes the files of the oldest remaining attempts."""
    cluster = session.view()
    calls = []
    for files in files_by_worker.values():
        unsent = files.sizes.keys() - {*files.removed, *files.left}
        if files.problem or not unsent or files.worker not in cluster.workers:
            continue
        outputs = cluster.outputs.get(files.worker)
        batch = tuple(takewhile(unsent.__contains__, outputs.oldest_batch)) if outputs is not None else ()
        if any(
            attempt.state is not AttemptState.RUNNING for _, attempt in cluster.live_attempts_on(files.worker)
        ):
            files_by_worker[files.worker] = structs.replace(
                files, problem="a task is starting or stopping; run `iris gc` again"
            )
        elif batch:
            reaped = {cluster.attempt(attempt).token: attempt for attempt in batch}
            context = structs.replace(observe.call_context(cluster, files.worker), reaped=reaped)
            target = session.target(cluster.workers[files.worker])
            calls.append(Call(context=context, act=partial(session.runner.reap, target, list(reaped))))
    return calls


def _with_answer(cluster: Cluster, files: WorkerFiles, answer: observe.WorkerAnswer) -> WorkerFiles:
    if isinstance(answer.observation, Silence):
        return structs.replace(files, problem=answer.observation.note, silent=True)
    attempts = answer.context.reaped.values()
    gone = tuple(each for each in attempts if cluster.attempt(each).reaped_at is not None)
    left = tuple(each for each in attempts if each not in gone)
    return structs.replace(files, removed=(*files.removed, *gone), left=(*files.left, *left))
