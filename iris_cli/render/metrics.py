"""Metrics for Prometheus: https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format"""

from collections.abc import Iterator, Mapping

from iris_cli.ops.views.metrics import Metrics

_FAMILIES = (
    ("jobs", "state", "Open jobs by state."),
    ("tasks", "state", "Tasks of open jobs by state."),
    ("ended", "state", "Jobs that ended in the last 24 hours by state."),
    ("workers", "status", "Workers by status."),
    (
        "slices",
        "state",
        "Slices by state: busy, unusable (not busy, and a worker accepts no tasks), or free.",
    ),
    (
        "chips",
        "state",
        "TPU chips and GPUs by state: busy, unusable (not busy, and their worker accepts no tasks), or free.",
    ),
    ("chip_seconds", "use", "Used and idle chip-seconds of TPU chips and GPUs in the last 24 hours."),
)
_NAMES = {"ended": "jobs_ended_24h", "chip_seconds": "chip_seconds_24h"}


def prometheus_text(metrics: Metrics) -> str:
    """Return the metrics as text. Each metric is a gauge."""
    return "".join(f"{line}\n" for line in _lines(metrics))


def _lines(metrics: Metrics) -> Iterator[str]:
    for name, label, text in _FAMILIES:
        values: Mapping[str, float] = getattr(metrics, name)
        full = f"iris_{_NAMES.get(name, name)}"
        yield from _head(full, text)
        for each in sorted(values):
            yield f'{full}{{{label}="{_escape(each)}"}} {values[each]:.15g}'
    if metrics.last_cycle_age is not None:
        yield from _head("iris_last_cycle_age_seconds", "Time since the last cycle.")
        yield f"iris_last_cycle_age_seconds {metrics.last_cycle_age:.15g}"
    yield from _head("iris_cycles_running", "1 if the loop, cron or a command runs cycles, else 0.")
    yield f"iris_cycles_running {int(metrics.runner is not None)}"


def _head(name: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} gauge"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
