"""Pull the files of a job from its workers.

Files in `IRIS_OUTPUT_DIR` are written to a directory, stdout and stderr to the state directory.
"""

from collections.abc import Sequence
from pathlib import Path
from threading import Lock

from msgspec import Struct

from iris_cli.core import Attempt, AttemptId, Cluster, JobId, WorkerId
from iris_cli.core.ids import is_attempt_name
from iris_cli.core.messages.observations import SILENT, Silence
from iris_cli.errors import NotWritableError, UsageError
from iris_cli.journal.log.recovery import Damage
from iris_cli.ops.cycle.answers import SilentError, answered
from iris_cli.ops.files.local_tree import open_tree
from iris_cli.ops.files.pull_attempt import PulledAttempt, Puller, shorten
from iris_cli.ops.logs.logs import has_output_on_worker, no_output_reason
from iris_cli.ops.names import select_tasks
from iris_cli.ops.session import Session
from iris_cli.remote.output_calls import FileList

Selected = tuple[AttemptId, Attempt]

_ATTEMPTS_PER_LIST = 16  # attempts listed in one call, whose answer has a size limit


class Pulled(Struct, frozen=True, kw_only=True):
    """Result of a pull, by task and attempt. `directory` contains one directory per task."""

    job: JobId
    directory: Path
    attempts: tuple[PulledAttempt, ...]
    messages: tuple[str, ...] = ()
    log_damage: Damage | None = None


def pull(
    session: Session,
    name: str,
    directory: Path,
    *,
    ranks: Sequence[int] = (),
    number: int | None = None,
) -> Pulled:
    """Fetch the files of a job, a task or an attempt. `number` selects one attempt of each task (None: all attempts).

    The files of an attempt are written to `<directory>/<job>/task-<index>/attempt-<number>`. Existing files that differ
    are replaced. Raises NotFoundError, UsageError, NotWritableError.
    """
    cluster = session.view()
    selected = _attempts_with_files(cluster, name, ranks, number)
    by_worker: dict[WorkerId, list[Selected]] = {}
    results: dict[AttemptId, PulledAttempt] = {}
    for attempt_id, attempt in selected:
        if has_output_on_worker(cluster, attempt):
            by_worker.setdefault(attempt.worker, []).append((attempt_id, attempt))
        else:
            results[attempt_id] = _unfetched(directory, attempt_id, attempt, no_output_reason(attempt, None))
    if by_worker:
        _ = session.runner  # creates the runner before the threads use it
    job_pull = _JobPull(session, cluster, directory)
    with session.progress(lambda: ("pulling", job_pull.bytes_moved, 0, "bytes")):
        for batch in session.fan_out(
            list(by_worker.items()), lambda item: job_pull.pull_worker(*item), what=""
        ):
            results |= {result.attempt: result for of_worker in batch for result in of_worker}
    job = selected[0][0].task.job if selected else JobId(name)
    return Pulled(
        job=job,
        directory=directory / job,
        attempts=tuple(results[attempt_id] for attempt_id, _ in selected),
        messages=tuple(session.messages),
        log_damage=session.damage,
    )


def _attempts_with_files(
    cluster: Cluster, name: str, ranks: Sequence[int], number: int | None
) -> list[Selected]:
    """Return the selected attempts that may have written files, by task and number."""
    found = select_tasks(cluster, name, ranks=ranks, attempt=number)
    only_one = number is not None or is_attempt_name(name)
    return [
        (AttemptId(task.id, each.number), each)
        for task, attempt in found
        for each in ([attempt] if only_one and attempt is not None else task.attempts)
        if each.acknowledged or each.started_at is not None or each.live
    ]


def _unfetched(directory: Path, attempt_id: AttemptId, attempt: Attempt, *problems: str) -> PulledAttempt:
    return PulledAttempt(
        attempt=attempt_id,
        worker=attempt.worker,
        directory=directory / str(attempt_id),
        problems=list(problems),
    )


def _unanswered(directory: Path, attempt_id: AttemptId, attempt: Attempt, silence: Silence) -> PulledAttempt:
    result = _unfetched(directory, attempt_id, attempt, silence.problem)
    result.silent, result.silence = silence.kind in SILENT, silence
    return result


class _JobPull:
    """State shared by the threads of one pull."""

    def __init__(self, session: Session, cluster: Cluster, directory: Path) -> None:
        self._session, self._cluster, self._directory = session, cluster, directory
        self._lock = Lock()
        self.bytes_moved = 0

    def report_progress(self, size: int) -> None:
        with self._lock:
            self.bytes_moved += size

    def pull_worker(self, worker: WorkerId, attempts: Sequence[Selected]) -> list[PulledAttempt]:
        """Pull all attempts of one worker, in order. Runs in a separate thread."""
        results: list[PulledAttempt] = []
        for start in range(0, len(attempts), _ATTEMPTS_PER_LIST):
            batch = attempts[start : start + _ATTEMPTS_PER_LIST]
            listed_at = self._session.clock.now()
            try:
                clock, lists = self._list_files(worker, batch)
                for (attempt_id, attempt), found in zip(batch, lists, strict=True):
                    results.append(self._pull_attempt(attempt_id, attempt, found, clock, listed_at))
            except SilentError as error:
                rest = attempts[len(results) :]
                return results + [_unanswered(self._directory, *each, error.silence) for each in rest]
        return results

    def _list_files(self, worker: WorkerId, attempts: Sequence[Selected]) -> tuple[float, list[FileList]]:
        """Return the worker's clock and the file lists. Raises SilentError."""
        calls, target = self._session.runner.outputs, self._session.target(self._cluster.workers[worker])
        answer = answered(calls.list_files(target, [attempt.token for _, attempt in attempts]))
        lists = list(answer.lists)
        for index, found in enumerate(lists):
            if found.cut and len(lists) > 1:
                # List this attempt again alone, because then its list may be longer.
                lists[index] = answered(calls.list_files(target, [found.token])).lists[0]
        return answer.clock, lists

    def _pull_attempt(
        self, attempt_id: AttemptId, attempt: Attempt, found: FileList, clock: float, listed_at: float
    ) -> PulledAttempt:
        """Pull one attempt. Raises SilentError and NotWritableError."""
        result = _unfetched(self._directory, attempt_id, attempt)
        target = self._session.target(self._cluster.workers[attempt.worker])
        puller = Puller(
            calls=self._session.runner.outputs,
            target=target,
            token=attempt.token,
            clock=clock,
            result=result,
            report_progress=self.report_progress,
        )
        if found.gone and attempt.started_at is not None:
            result.problems.append(f"its files were removed from worker {attempt.worker}")
        if found.link:
            result.problems.append("its output directory is a link (not followed)")
        if found.partial:
            result.problems.append("some directories can't be read")
        if found.cut:
            result.problems.append(f"too many files: only {len(found.files)} were listed")
        try:
            puller.pull_logs(found, attempt_id, self._session.state.task_logs, listed_at)
            if any(name not in (b"out", b"err") for name, _ in found.files):
                with open_tree(result.directory) as tree:
                    puller.pull(found, tree)
        except UsageError as error:
            result.problems.append(error.message)
        except OSError as error:
            raise NotWritableError(
                f"{result.directory} can't be written: {error.strerror or error}"
            ) from error
        result.notes, result.problems = shorten(result.notes), shorten(result.problems)
        return result
