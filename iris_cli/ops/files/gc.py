"""Garbage collection: files of ended attempts on workers, and unneeded files in the state directory.

Files are found and measured first, then removed with the operator's consent. Excludes attempts that are live,
or whose end is not proven.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import takewhile

from msgspec import Struct, structs

from iris_cli.core import AttemptId, AttemptState, Cluster, Worker, WorkerCondition, WorkerId
from iris_cli.core.lifecycle import reaping
from iris_cli.core.messages.observations import Silence
from iris_cli.core.model.cluster import BATCH
from iris_cli.journal.files.leftovers import Leftover, leftovers, remove_leftover
from iris_cli.journal.log.recovery import Damage
from iris_cli.ops.cycle import observe, reap
from iris_cli.ops.cycle.calls import Call
from iris_cli.ops.cycle.observe import Answer
from iris_cli.ops.session import Session

_UNSURE = frozenset({WorkerCondition.UNPROBED, WorkerCondition.UNTRUSTED})


class WorkerFiles(Struct, frozen=True, kw_only=True):
    """Files of ended attempts on one worker, in bytes by attempt.

    `removed` are the removed attempts, `left` those whose removal takes longer. `caches` are bytes of long
    unused workspaces and set-ups, `caches_removed` the removed part. `problem` says why the sizes are unknown
    or the files can't be removed now; `silent`: the worker did not answer.
    """

    worker: WorkerId
    sizes: Mapping[AttemptId, int]
    removed: tuple[AttemptId, ...] = ()
    left: tuple[AttemptId, ...] = ()
    caches: int = 0
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
    """All files found; `files` are in the state directory."""

    workers: tuple[WorkerFiles, ...] = ()
    files: tuple[Leftover, ...] = ()
    messages: tuple[str, ...] = ()
    log_damage: Damage | None = None

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.workers) + sum(each.bytes for each in self.files)

    @property
    def anything(self) -> bool:
        """True if something can be removed now."""
        return bool(self.files) or any(
            (each.sizes or each.caches) and not each.problem for each in self.workers
        )


def find(session: Session, older_than: float = 0.0) -> Garbage:
    """Measure files of attempts, and in the state directory, that are more than `older_than` seconds old."""
    cluster = session.view()
    now = session.clock.now()
    shipped = any(job.workspace is not None for job in cluster.jobs.values())
    workers = [
        (worker, ended)
        for worker in cluster.workers.values()
        if (ended := reaping.ended_before(cluster, worker, now - older_than))
        or (shipped and worker.condition is WorkerCondition.HEALTHY)
    ]
    found = [
        each
        for batch in session.fan_out(
            workers,
            lambda item: _measure(session, cluster, *item, older_than if shipped else None),
            what="measuring",
        )
        for each in batch
        if each.sizes or each.caches or each.problem
    ]
    order = {worker.id: place for place, (worker, _) in enumerate(workers)}
    return Garbage(
        workers=tuple(sorted(found, key=lambda each: order[each.worker])),
        files=leftovers(session.state.path, now - older_than, _needed(cluster)),
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
    """Measure one worker in its own thread. Caches unused for `unused_for` seconds count; None skips them."""
    nothing = WorkerFiles(worker=worker.id, sizes=dict.fromkeys(ended, 0))
    if worker.condition in _UNSURE:
        return structs.replace(nothing, problem=f"it is {worker.condition}: iris worker probe {worker.id}")
    sizes: dict[AttemptId, int] = {}
    for start in range(0, len(ended), BATCH):
        tokens = {cluster.attempt(each).token: each for each in ended[start : start + BATCH]}
        said = session.runner.usage(session.target(worker), list(tokens))
        if isinstance(said, Silence):
            return structs.replace(nothing, problem=f"no answer: {said.detail}", silent=True)
        if (said.boot_id, said.incarnation) != (worker.boot_id, worker.incarnation):
            return structs.replace(nothing, problem=_ANOTHER)
        sizes |= {attempt: dict(said.sizes).get(token, 0) for token, attempt in tokens.items()}
    unused = 0 if unused_for is None else reap.unused(session, cluster, worker, unused_for, remove=False)
    if isinstance(unused, Silence):
        return structs.replace(nothing, problem=f"no answer: {unused.detail}", silent=True)
    return structs.replace(nothing, sizes=sizes, caches=unused)


_ANOTHER = "the host was rebooted or re-created: iris schedule --once"


def remove(session: Session, found: Garbage, older_than: float = 0.0) -> Garbage:
    """Remove the files found, on reachable workers, in batches of attempts.

    `older_than` must equal the value given to `find`, in seconds. Raises LockedError, LogDamagedError and
    NotWritableError, because removals are logged.
    """
    rows = {each.worker: each for each in found.workers}
    asked: dict[WorkerId, set[AttemptId]] = {worker: set() for worker in rows}
    while calls := _next_calls(session, rows, asked):
        session.take_turn()  # before removing: a removal must be loggable
        for batch in session.fan_out(calls, lambda call: _reap(session, call), what="removing"):
            with session.transaction() as draft:
                observe.weigh(session, draft, batch)
            for answer in batch:
                worker, attempts = answer.known.worker, tuple(answer.known.reaped.values())
                asked[worker].update(attempts)
                rows[worker] = _told(session.cluster, rows[worker], answer, attempts)
    _remove_caches(session, rows, older_than)
    return structs.replace(found, workers=tuple(rows.values()), files=_remove_files(session, found.files))


def _needed(cluster: Cluster) -> frozenset[str]:
    """Return the hashes of files packed for open jobs."""
    packed = [each for job in cluster.open_jobs() for each in (job.workspace, job.each_line)]
    return frozenset(each.hash for each in packed if each is not None)


def _remove_files(session: Session, files: Sequence[Leftover]) -> tuple[Leftover, ...]:
    """Remove files; check packed files again under the lock, since a new job may need them."""
    if not any(each.packed for each in files):
        return tuple(map(remove_leftover, files))
    with session.transaction() as draft:
        needed = _needed(draft.cluster)
        return tuple(
            structs.replace(each, problem="a job needs it now")
            if each.packed in needed
            else remove_leftover(each)
            for each in files
        )


def _remove_caches(session: Session, rows: dict[WorkerId, WorkerFiles], older_than: float) -> None:
    cluster = session.view()
    full = [row for row in rows.values() if row.caches and not row.problem and row.worker in cluster.workers]

    def act(row: WorkerFiles) -> WorkerFiles:
        worker = cluster.workers[row.worker]
        left = reap.unused(session, cluster, worker, older_than, remove=True)
        if isinstance(left, Silence):
            return structs.replace(row, problem=f"no answer: {left.detail}", silent=True)
        return structs.replace(row, caches_removed=max(0, row.caches - left))

    for batch in session.fan_out(full, act, what="removing"):
        rows.update({row.worker: row for row in batch})


def _next_calls(
    session: Session, rows: dict[WorkerId, WorkerFiles], asked: Mapping[WorkerId, set[AttemptId]]
) -> list[Call]:
    """Return the next call for each worker: its oldest attempts, as far as they were found."""
    cluster = session.view()
    calls = []
    for row in rows.values():
        wanted = row.sizes.keys() - asked[row.worker]
        if row.problem or not wanted or row.worker not in cluster.workers:
            continue
        outputs = cluster.outputs.get(row.worker)
        batch = tuple(takewhile(wanted.__contains__, outputs.first)) if outputs is not None else ()
        if any(attempt.state is not AttemptState.RUNNING for _, attempt in cluster.live_on(row.worker)):
            rows[row.worker] = structs.replace(row, problem="a task is starting or stopping: try again")
        elif batch:
            reaped = {cluster.attempt(attempt).token: attempt for attempt in batch}
            known = structs.replace(observe.known_of(cluster, row.worker), reaped=reaped)
            target = session.target(cluster.workers[row.worker])
            calls.append(Call(known=known, act=partial(session.runner.reap, target, list(reaped))))
    return calls


def _reap(session: Session, call: Call) -> Answer:
    """Run a call in its own thread."""
    asked_at = session.clock.now()
    return observe.heard(session, call.known, asked_at, call.act())


def _told(cluster: Cluster, row: WorkerFiles, answer: Answer, attempts: tuple[AttemptId, ...]) -> WorkerFiles:
    if isinstance(answer.seen, Silence):
        return structs.replace(row, problem=f"no answer: {answer.seen.detail}", silent=True)
    gone = tuple(each for each in attempts if cluster.attempt(each).reaped_at is not None)
    left = tuple(each for each in attempts if each not in gone)
    return structs.replace(row, removed=(*row.removed, *gone), left=(*row.left, *left))
