"""Every field of a job has a row in the table of counterparts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from iris_cli.core.model.job_fields import JOB_FIELDS
from iris_cli.ops.export.counterparts import COUNTERPARTS, Engine
from iris_cli.ops.export.export import export
from tests.ops.export.exporting import source

_ABOUT_THE_SUBMISSION = {"force"}


def test_the_table_has_the_fields_of_job_files() -> None:
    fields = [row.file_key for row in JOB_FIELDS if row.job_file and row.name not in _ABOUT_THE_SUBMISSION]
    assert sorted(row.field for row in COUNTERPARTS) == sorted(fields)


_VALUES: dict[str, dict[str, Any]] = {
    "tpu": {"tpu": "v4-8"},
    "image": {"image": "img"},
    "workdir": {"workdir": "."},
    "labels": {"labels": {"a": "b"}},
    "priority": {"priority": "high"},
    "after": {"after": ["prep"]},
    "max_task_failures": {"replicas": 2, "max_task_failures": 1},
    "replace_lost": {"replace_lost": "always"},
    "scheduling_timeout": {"scheduling_timeout": "1h"},
    "setup_timeout": {"setup": "true", "setup_timeout": "1h"},
    "grace": {"grace": "5m"},
    "signal": {"signal": "USR1@1m", "timeout": "1h"},
    "lease": {"lease": "1h"},
    "silent_after": {"silent_after": "1h"},
    "constraints": {"constraints": ["pool=a"]},
    "prefer": {"prefer": ["pool=a"]},
    "tolerate": {"tolerate": ["slow"]},
    "spread": {"tpu": "v4-16", "slices": 2, "spread": True},
}


def test_a_field_without_a_counterpart_is_told_whenever_a_job_has_it(tmp_path: Path) -> None:
    for engine in Engine:
        silent = []
        for row in COUNTERPARTS:
            if not row.text(engine):
                notes = export(source(tmp_path, **_VALUES[row.field]), engine).notes
                silent += [] if any(note.lost and note.field == row.field for note in notes) else [row.field]
        assert (engine, silent) == (engine, [])


def test_a_plain_job_loses_nothing(tmp_path: Path) -> None:
    plain = source(tmp_path, cpu=2, memory="2GiB", env={"A": "b"}, setup="true", timeout="1h")
    assert export(plain, Engine.SBATCH, strict=True).notes == ()
    assert export(plain, Engine.JOBSET, image="img", strict=True).notes == ()
