"""The options of a batch script, and what Slurm has no counterpart for. tests/e2e runs such scripts on a real Slurm."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from iris_cli.errors import UsageError
from iris_cli.ops.export import shell
from iris_cli.ops.export.counterparts import Engine
from iris_cli.ops.export.export import Export, export
from tests.ops.export.exporting import lost, source, to_sbatch


def options(exported: Export) -> list[str]:
    """The options, up to the first command as sbatch reads them."""
    found = []
    for line in exported.text.splitlines():
        if line and not line.startswith("#"):
            break
        if line.startswith("#SBATCH "):
            found.append(line.removeprefix("#SBATCH "))
    return found


_ALWAYS = ["--ntasks-per-node=1", "--requeue", "--open-mode=append"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ["--nodes=1", "--export=NONE"]),
        ({"replicas": 4, "coscheduling": {"group_by": "rack"}}, ["--nodes=4", "--export=NONE"]),
        ({"replicas": 4}, ["--nodes=1", "--array=0-3", "--export=NONE"]),
        ({"array": "0-9,20%3"}, ["--nodes=1", "--array=0-9,20%3", "--export=NONE"]),
        (
            {"timeout": "90s", "signal": "USR2@30s"},
            ["--nodes=1", "--time=2", "--signal=USR2@30", "--export=NONE"],
        ),
        (
            {"timeout": "2h", "signal": "WINCH@30s"},  # Slurm knows it by its number only
            ["--nodes=1", "--time=120", "--signal=28@30", "--export=NONE"],
        ),
        (
            {"cpu": 2.5, "memory": "1500MiB", "gpu": "h100:8"},
            ["--nodes=1", "--cpus-per-task=3", "--mem=1500M", "--gres=gpu:h100:8", "--export=NONE"],
        ),
        ({"gpu": "auto"}, ["--nodes=1", "--gres=gpu:1", "--export=NONE"]),
        ({"secrets": ["A", "B", "C=@/f"]}, ["--nodes=1", "--export=A,B"]),
        ({"after": ["prep"]}, ["--nodes=1", "--kill-on-invalid-dep=yes", "--export=NONE"]),
        ({"priority": "low"}, ["--nodes=1", "--nice", "--export=NONE"]),
    ],
    ids=str,
)
def test_fields_of_a_job_become_options_of_sbatch(
    fields: dict[str, Any], expected: list[str], tmp_path: Path
) -> None:
    exported = to_sbatch(tmp_path, queue="main", **fields)
    assert sorted(options(exported)) == sorted(["--job-name=train", "--partition=main", *_ALWAYS, *expected])


def test_a_job_that_may_not_start_again_says_so(tmp_path: Path) -> None:
    assert "--no-requeue" in options(to_sbatch(tmp_path, max_retries_preemption=0))


def test_what_has_no_counterpart_is_told_on_stderr_in_comments_and_by_strict(tmp_path: Path) -> None:
    fields: dict[str, Any] = {
        "tpu": "v4-32",
        "slices": 2,
        "lease": "1h",
        "grace": "5m",
        "timeout": "90s",
        "cpu": 0.5,
        "labels": {"a": "b"},
        "image": "img",
        "constraints": ['pool="a\n#SBATCH --nodes=9"'],
        "prefer": ["zone=b"],
        "priority": "high",
        "max_retries_preemption": 3,
    }
    exported = to_sbatch(tmp_path, **fields)
    expected = (
        "labels grace lease tpu cpu constraints prefer image slices priority timeout max_retries_preemption"
    )
    assert sorted(lost(exported)) == sorted(expected.split())
    comments = [line for line in exported.text.splitlines() if line.startswith("# not exported: ")]
    assert len(comments) == len(lost(exported))
    assert len([each for each in options(exported) if "nodes" in each]) == 1
    with pytest.raises(UsageError, match="12 fields not exported to sbatch: labels, grace"):
        export(source(tmp_path, **fields), Engine.SBATCH, strict=True)
    assert export(source(tmp_path), Engine.SBATCH, strict=True).notes == ()


def test_what_is_left_to_do_is_told_and_is_no_loss(tmp_path: Path) -> None:
    exported = to_sbatch(tmp_path, after=["prep", "data"], secrets=["TOKEN"], workdir=".", array="0-2000:100")
    assert lost(exported) == []
    assert {note.field: note.text for note in exported.notes} == {
        "after": "submit with: sbatch --dependency=afterok:ID_OF_prep:ID_OF_data",
        "secrets": "export TOKEN in the shell of sbatch",
        "workdir": f"every node must see {tmp_path}",
        "array": "index 2000 needs a MaxArraySize above it (1001 by default)",
    }


def test_an_early_signal_comes_as_early_as_slurm_can_send_it(tmp_path: Path) -> None:
    exported = to_sbatch(tmp_path, timeout="48h", signal="USR1@24h")
    assert "--signal=USR1@65535" in options(exported)
    assert lost(exported) == ["signal"]
    assert lost(to_sbatch(tmp_path, timeout="48h", signal="USR1@65535s")) == []


@pytest.mark.parametrize(("tasks", "expected"), [(1001, []), (1002, ["array"])])
def test_more_tasks_than_slurm_takes_by_default_are_a_thing_to_do(
    tasks: int, expected: list[str], tmp_path: Path
) -> None:
    assert [note.field for note in to_sbatch(tmp_path, replicas=tasks).notes] == expected
    gang = to_sbatch(tmp_path, replicas=tasks, coscheduling={"group_by": "tpu-name"})
    assert gang.notes == ()


@pytest.mark.parametrize("word", ["sh", "dash", "bash", "busybox sh"])
def test_every_word_arrives_in_any_shell(word: str) -> None:
    hostile = [
        "",
        "'",
        '"$x`id`$(id)\\',
        "a\nb\n",
        "\t",
        "\x1b[31m\r\x07\x7f",
        "é\u202e\U0001f600",
        "-n",
        "*",
    ]
    script = f"printf '%s\\0' {' '.join(map(shell.quoted, hostile))}"
    assert all(letter.isprintable() or letter in "\t\n" for letter in script)
    ran = subprocess.run([*word.split(), "-c", script], capture_output=True, check=True)
    assert ran.stdout.decode().split("\0")[:-1] == hostile


def test_a_script_that_slurm_would_not_take_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text(f"{'x' * 1000}\n" * 5000)
    with pytest.raises(UsageError, match="and Slurm accepts 4194304"):
        to_sbatch(tmp_path, each_line="lines")
    with pytest.raises(UsageError, match="is not the name of a partition"):
        to_sbatch(tmp_path, queue="a\n#SBATCH --nodes=9")
