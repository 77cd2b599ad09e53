"""Select jobs by label and state, for `status` and `cancel`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from iris_cli.core.ids import clip
from iris_cli.core.lifecycle.display import DisplayWord, filter_words
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.job import Job, JobState
from iris_cli.core.text import did_you_mean, one_of
from iris_cli.errors import UsageError


class JobFilter(Struct, frozen=True):
    """Jobs that have all these labels and one of these states, by the log or by their display.

    A label with value None matches any value.
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
        """Yield a message for each label that no job has, with the nearest one."""
        known: dict[str, set[str]] = {}
        for job in cluster.jobs.values():
            for key, value in job.labels.items():
                known.setdefault(key, set()).add(value)
        for key, wanted in self.labels:
            if key not in known:
                yield f"no job has a label {clip(key)!r}; {did_you_mean(clip(key), known)}".rstrip("; ")
            elif wanted is not None and wanted not in known[key]:
                meant = did_you_mean(clip(wanted), known[key])
                yield f"no job has {key}={clip(wanted)}; {meant}".rstrip("; ")


EVERY_JOB = JobFilter()
STATES = tuple(word.lower() for word in (*JobState, *DisplayWord))
"""The words that `--state` takes, in any case."""


def job_filter(labels: Sequence[str], states: Sequence[str]) -> JobFilter:
    """Parse `key=value` or `key`, and names of states in any case. Raises UsageError."""
    return JobFilter(tuple(map(_label, labels)), tuple(map(_state, states)))


def _label(text: str) -> tuple[str, str | None]:
    key, equals, value = text.partition("=")
    if not key:
        raise UsageError(f"{clip(text)!r} is not a label", hint="write --label key=value, or --label key")
    return key, value if equals else None


def _state(text: str) -> str:
    return one_of(text, STATES).upper()
