"""Shell completion: offer names from the log on this machine, or nothing if reading the log takes too long.

Completion uses neither the network nor a lock. It does not offer names with characters that a shell could interpret,
because shells expand completions.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager, redirect_stdout, suppress
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any

from iris_cli.core import Cluster, JobId, pattern

MAX_OFFERED = 100
"""Maximum number of names offered at a time."""
TIME_LIMIT = 2.0
"""CPU seconds after which nothing is offered, because the user waits for the completion."""

NameSource = Callable[[Cluster, str], Iterable[str]]
Callback = Callable[[Any, str], list[str]]

_WORD_BREAKS = frozenset("=:@")
_OPTION = pattern(r".* (--[a-z-]+=)[^ ]*")
_VALUE_PREFIXES = {"complete_zsh": '"', "complete_fish": ""}
"""Keys: shells that replace the whole word. Values: the text that typer prints before an offered name."""
_SAFE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-/=+@%,")


@contextmanager
def completion_request(environ: MutableMapping[str, str]) -> Iterator[list[str]]:
    """Yield the words before the word at the cursor, without `iris`. Adapt the output of the block to the shell."""
    if "COMP_WORDS" not in environ:
        line = environ.get("_TYPER_COMPLETE_ARGS", "")
        with _change_lines(_option_prefixer(environ["_IRIS_COMPLETE"], line)):
            yield line.split(" ")[1:-1]
        return
    typed = environ["COMP_WORDS"].split("\n")
    words, kept = _join_split_words(typed[: int(environ.get("COMP_CWORD") or len(typed)) + 1])
    environ.update(COMP_WORDS="\n".join(words), COMP_CWORD=str(len(words) - 1))
    with _change_lines(lambda line: line.removeprefix(kept)):
        yield words[1:-1]


@contextmanager
def _change_lines(change: Callable[[str], str]) -> Iterator[None]:
    """Apply `change` to each line printed in the block."""
    printed = StringIO()
    try:
        with redirect_stdout(printed):
            yield
    finally:
        sys.stdout.write("".join(map(change, printed.getvalue().splitlines(keepends=True))))


def _option_prefixer(shell: str, typed: str) -> Callable[[str], str]:
    """Return a function that adds `--label=` to a printed value, if the user typed `--label=te` in zsh or fish."""
    option = _OPTION.fullmatch(typed)
    if option is None or shell not in _VALUE_PREFIXES:
        return lambda line: line
    old, new = _VALUE_PREFIXES[shell], _VALUE_PREFIXES[shell] + option[1]
    return lambda line: line.replace(old, new, 1) if line.strip() else line


def _join_split_words(words: list[str]) -> tuple[list[str], str]:
    """Return the words of a line, joined again where bash has split them at `=`, `:` and `@`.

    bash replaces only the last part of the word at the cursor. Also return the part that bash keeps.
    """
    joined: list[str] = []
    kept, after_break = "", False
    for word in words:
        is_break = bool(word) and _WORD_BREAKS.issuperset(word)
        if joined and (is_break or (after_break and word and not word.startswith("-"))):
            kept = joined[-1] + (word if is_break else "")
            joined[-1] += word
        else:
            kept = ""
            joined.append(word)
        after_break = is_break
    return joined, kept.partition("=")[2] if kept.startswith("-") else kept


def offer_names(*sources: NameSource) -> Callback:
    """Return a callback that offers the names from these sources."""

    def complete(ctx: Any, incomplete: str) -> list[str]:  # typer passes the arguments by these names
        with suppress(Exception), _time_limit():
            cluster = _cluster(ctx)
            names = (name for source in sources for name in source(cluster, incomplete))
            return filter_names(names, incomplete)
        return []

    return complete


def offer_words(values: Iterable[str]) -> Callback:
    """Return a callback that offers these words, such as the values of an enumeration."""

    def complete(ctx: Any, incomplete: str) -> list[str]:  # noqa: ARG001 - typer passes both by name
        return filter_names(map(str, values), incomplete)

    return complete


def _offer_states(ctx: Any, incomplete: str) -> list[str]:  # noqa: ARG001 - typer passes both by name
    from iris_cli.ops.names import STATES

    return filter_names(STATES, incomplete)


def filter_names(names: Iterable[str], incomplete: str) -> list[str]:
    """Return at most MAX_OFFERED distinct names that begin with `incomplete` and are safe in every shell."""
    fitting = (name for name in names if name.startswith(incomplete) and _SAFE.issuperset(name))
    return list(islice(dict.fromkeys(fitting), MAX_OFFERED))


def open_jobs(cluster: Cluster, _text: str) -> Iterator[str]:
    return (job.id for job in cluster.open_jobs())


def jobs(cluster: Cluster, text: str) -> Iterator[str]:
    """Yield job ids: open jobs first, then all jobs, the newest first."""
    yield from open_jobs(cluster, text)
    yield from reversed(list(cluster.jobs))


def tasks(cluster: Cluster, text: str) -> Iterator[str]:
    """Yield the ids of a job's tasks. `text`: the job's id, a slash, and the beginning of a task's name."""
    job = cluster.jobs.get(JobId(text.rpartition("/")[0]))
    yield from (str(task.id) for task in (cluster.tasks_of(job.id) if job is not None else ()))


def live_jobs(cluster: Cluster, _text: str) -> Iterator[str]:
    return (job.id for job in cluster.open_jobs() if cluster.live_attempts_of(job.id))


def workers(cluster: Cluster, _text: str) -> Iterable[str]:
    return cluster.workers


def labels(cluster: Cluster, _text: str) -> Iterator[str]:
    """Return `KEY=VALUE` labels of open jobs and of the last ended jobs."""
    found = (*cluster.open_jobs(), *cluster.last_ended(MAX_OFFERED))
    return (f"{key}={value}" for job in found for key, value in job.labels.items())


def device_variants(cluster: Cluster, _text: str) -> Iterator[str]:
    """Return the device variants of the workers."""
    from iris_cli.core.attributes import DEVICE_VARIANT_ATTRIBUTE_KEY

    found = (each.attributes.get(DEVICE_VARIANT_ATTRIBUTE_KEY) for each in cluster.workers.values())
    return (str(each.value) for each in found if each is not None)


def attributes(cluster: Cluster, _text: str) -> Iterator[str]:
    return (key for worker in cluster.workers.values() for key in worker.attributes)


def _cluster(context: Any) -> Cluster:
    from iris_cli.cli.context import Context
    from iris_cli.render.console import Output

    params = context.find_root().params
    config, state = (params.get(name) and Path(params[name]) for name in ("config", "state_dir"))
    completion = Context(config_path=config, state_path=state, output=Output(quiet=True))
    return completion.session("iris completion").view()


@contextmanager
def _time_limit() -> Iterator[None]:
    """Raise TimeoutError in the block after TIME_LIMIT seconds of CPU time."""

    def stop(*_: Any) -> None:
        raise TimeoutError

    old_handler = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, TIME_LIMIT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, old_handler)


OPEN_JOB = offer_names(open_jobs)
OPEN_JOB_OR_TASK = offer_names(open_jobs, tasks)
JOB = offer_names(jobs)
JOB_OR_TASK = offer_names(jobs, tasks)
ANYTHING = offer_names(jobs, tasks, workers)
LIVE = offer_names(live_jobs, tasks)
LIVE_OR_WORKER = offer_names(live_jobs, tasks, workers)
WORKER = offer_names(workers)
LABEL = offer_names(labels)
TPU = offer_names(device_variants)
ATTRIBUTE = offer_names(attributes)
STREAM = offer_words(("out", "err", "both"))
STATE = _offer_states
