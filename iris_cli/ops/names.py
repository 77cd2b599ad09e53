"""Find jobs, tasks and workers by name, with hints for similar names."""

from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct

from iris_cli.core import Attempt, Cluster, Job, JobId, JobState, Task, TaskId, Worker, WorkerId, clip
from iris_cli.core.attributes import TPU_NAME_ATTRIBUTE_KEY, AttributeValue
from iris_cli.core.ids import is_attempt_name, parse_attempt_id, parse_task_id
from iris_cli.core.lifecycle.display import DisplayWord, filter_words
from iris_cli.core.text import did_you_mean, nearest, one_of
from iris_cli.errors import NotFoundError, UsageError

_MAX_NAMES = 4
_DIGITS = "0123456789"
STATES = tuple(word.lower() for word in (*JobState, *DisplayWord))  # words accepted by `--state`, in any case


def find_job(cluster: Cluster, text: str) -> JobId:
    """Return the job with exactly this id. Raises NotFoundError."""
    if text in cluster.jobs:
        return JobId(text)
    raise unknown_name(cluster, text, "job")


def find_jobs(cluster: Cluster, names: list[str], *, prefix: bool = False) -> list[JobId]:
    """Return the jobs with the ids `names`, or with `prefix` all jobs that begin with them.

    Raises NotFoundError, and UsageError for an empty prefix: it would match every job, and is an unset shell variable.
    """
    if not prefix:
        return list(dict.fromkeys(find_job(cluster, name) for name in names))
    if not all(names):
        raise UsageError("an empty prefix would match all jobs", hint="select jobs with --label or --state")
    found = [job for job in cluster.jobs if any(job.startswith(name) for name in names)]
    if not found:
        raise NotFoundError(
            f"no job begins with {clip(', '.join(names))!r}", hint=_hint(cluster, names[0], "job")
        )
    return found


def find_workers(cluster: Cluster, names: list[str]) -> list[Worker]:
    """Return the workers with the ids `names`, without duplicates. Raises NotFoundError."""
    return [find_worker(cluster, name) for name in dict.fromkeys(names)]


def names_worker(cluster: Cluster, text: str) -> bool:
    """Return whether `text` names a worker to run a command on. An open or live job of this name has precedence."""
    job = cluster.jobs.get(JobId(text))
    is_over = job is None or (job.end is not None and not cluster.live_attempts_of(job.id))
    return is_over and text in cluster.workers


def find_worker(cluster: Cluster, text: str) -> Worker:
    """Return the worker with exactly this id. Raises NotFoundError."""
    if text in cluster.workers:
        return cluster.workers[WorkerId(text)]
    raise unknown_name(cluster, text, "worker")


def find_task(cluster: Cluster, text: str, kinds: str) -> Task:
    """Return the task with exactly this id. `kinds`: as in `unknown_name`. Raises NotFoundError."""
    if is_attempt_name(text):
        raise unknown_name(cluster, text, kinds)
    (task,), _ = _parse_subject(cluster, text, kinds)
    return task


def unknown_name(cluster: Cluster, text: str, kinds: str) -> NotFoundError:
    """Return the error for an unknown id. `kinds`: what the id could be, such as `job, task or worker`."""
    worker = text if "worker" in kinds else ""
    return NotFoundError(f"no {kinds} {clip(text)!r}", hint=_hint(cluster, text, kinds), worker=worker)


def unknown_task(cluster: Cluster, task: TaskId) -> NotFoundError:
    last = TaskId(task.job, cluster.jobs[task.job].replicas - 1)
    return NotFoundError(f"{clip(task.job)} has no task-{task.index}", hint=f"the last task is {last}")


def _hint(cluster: Cluster, text: str, kinds: str) -> str:
    """Return a hint with the most likely correction, or with the commands that list names."""
    jobs = cluster.jobs if "job" in kinds else ()
    workers = cluster.workers if "worker" in kinds else ()
    hints = (
        _task_hint(cluster, text) if "task" in kinds else "",
        _slice_hint(cluster, text) if "worker" in kinds else "",
        did_you_mean(clip(text.partition("/task-")[0]), [*jobs, *workers]),
    )
    lists = {"job": "`iris status` lists the jobs", "worker": "`iris workers` lists the workers"}
    return next(filter(None, hints), "; ".join(text for kind, text in lists.items() if kind in kinds))


def _task_hint(cluster: Cluster, text: str) -> str:
    """Return the hint `did you mean 'train/task-3'?` for `train/3`, `trian/tsk-3` or one of its attempts, or ''."""
    head, _, tail = text.partition("/attempt-")[0].rpartition("/")
    number = tail[len(tail.rstrip(_DIGITS)) :]
    job = nearest(clip(head), cluster.jobs) if head else None
    if job is None or not 0 < len(number) < 10:
        return ""
    task = TaskId(JobId(job), int(number))
    return f"did you mean {str(task)!r}?" if task in cluster.tasks else ""


def _slice_hint(cluster: Cluster, text: str) -> str:
    """Return a hint that lists the workers of a slice; '' if `text` is not the name of a slice."""
    name = AttributeValue(text)
    found = sorted(
        (each.id for each in cluster.workers.values() if each.attributes.get(TPU_NAME_ATTRIBUTE_KEY) == name),
        key=lambda worker: (len(worker), worker),  # v5a-2 before v5a-10
    )
    if not found:
        return ""
    names = ", ".join(found[:_MAX_NAMES]) + (", ..." if len(found) > _MAX_NAMES else "")
    return f"{text} is a slice; its workers are {names}"


def select_tasks(
    cluster: Cluster,
    name: str,
    *,
    ranks: Collection[int] = (),
    attempt: int | None = None,
    kinds: str = "job or task",
) -> list[tuple[Task, Attempt | None]]:
    """Return the tasks of a job, or one task, each with one attempt.

    `name`: id of a job, task or attempt. `ranks`: ranks to select (default: all). `attempt`: number of the attempt
    (default: the last attempt, or None if the task was never placed). `kinds`: the accepted kinds of names, for error
    messages. Raises NotFoundError, UsageError.
    """
    tasks, number = _parse_subject(cluster, name, kinds)
    if ranks:
        missing = set(ranks) - {task.index for task in tasks}
        if missing:
            raise NotFoundError(
                f"{clip(name)} has no rank {min(missing)}",
                hint=f"the ranks are {tasks[0].index} to {tasks[-1].index}"
                if len(tasks) > 1
                else f"the only rank is {tasks[0].index}",
            )
        tasks = [task for task in tasks if task.index in ranks]
    if attempt is not None:
        if number not in (None, attempt):
            raise UsageError(f"{clip(name)} and --attempt {attempt} contradict each other")
        number = attempt
    if number is None:
        return [(task, task.current) for task in tasks]
    found = [task for task in tasks if 0 <= number < len(task.attempts)]
    if not found:
        attempts = max(len(task.attempts) for task in tasks)
        hint = f"the last attempt is {attempts - 1}" if attempts else f"{clip(name)} was never placed"
        raise NotFoundError(f"{clip(name.partition('/attempt-')[0])} has no attempt {number}", hint=hint)
    return [(task, task.attempts[number]) for task in found]


def _parse_subject(cluster: Cluster, name: str, kinds: str) -> tuple[list[Task], int | None]:
    """Return the tasks of a job, or one task. If `name` is an attempt, also return the attempt's number."""
    if name in cluster.jobs:
        return cluster.tasks_of(JobId(name)), None
    number = None
    try:
        if is_attempt_name(name):
            attempt_id = parse_attempt_id(name)
            task_id, number = attempt_id.task, attempt_id.number
        else:
            task_id = parse_task_id(name)
    except UsageError:
        raise unknown_name(cluster, name, kinds) from None
    if task_id.job not in cluster.jobs:
        raise unknown_name(cluster, name, kinds)
    if task_id not in cluster.tasks:
        raise unknown_task(cluster, task_id)
    return [cluster.tasks[task_id]], number


class JobFilter(Struct, frozen=True):
    """Accepts jobs with all `labels` and one of the `states`. An empty tuple accepts every job.

    A state is a job state of the log, or a displayed state such as `STOPPING`. A label with the value None accepts any
    value.
    """

    labels: tuple[tuple[str, str | None], ...] = ()
    states: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.labels or self.states)

    def matches(self, cluster: Cluster, job: Job) -> bool:
        return all(key in job.labels and value in (None, job.labels[key]) for key, value in self.labels) and (
            not self.states or not filter_words(cluster, job.id).isdisjoint(self.states)
        )

    def unknown_labels(self, cluster: Cluster) -> Iterator[str]:
        """Yield a message for each label that no job has, with the most similar label."""
        known: dict[str, set[str]] = {}
        for job in cluster.jobs.values():
            for key, label_value in job.labels.items():
                known.setdefault(key, set()).add(label_value)
        for key, value in self.labels:
            if key not in known:
                yield f"no job has the label {clip(key)!r}; {did_you_mean(clip(key), known)}".rstrip("; ")
            elif value is not None and value not in known[key]:
                hint = did_you_mean(clip(value), known[key])
                yield f"no job has the label {key}={clip(value)}; {hint}".rstrip("; ")


EVERY_JOB = JobFilter()


def job_filter(labels: Sequence[str], states: Sequence[str]) -> JobFilter:
    """Return a filter for labels written as `key=value` or `key`, and for states in any case. Raises UsageError."""
    return JobFilter(tuple(map(_parse_label, labels)), tuple(one_of(each, STATES).upper() for each in states))


def _parse_label(text: str) -> tuple[str, str | None]:
    key, equals, value = text.partition("=")
    if not key:
        raise UsageError(f"{clip(text)!r} is not a label", hint="write --label key=value, or --label key")
    return key, value if equals else None
