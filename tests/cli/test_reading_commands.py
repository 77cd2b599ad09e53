"""The commands that only read: no lock, no network, and an exit code that says what is wrong."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from iris_cli.cli import app
from iris_cli.errors import ExitCode
from tests.cli.test_start_up import loaded_by_each
from tests.render.scenes import busy, session_of
from tests.support.waiting import PATIENCE

Iris = Callable[..., int]

READING = [
    ("status",),
    ("status", "train"),
    ("status", "train", "--all"),
    ("status", "--at", "1h"),
    ("why", "eval"),
    ("why", "train/task-0"),
    ("why", "v5b-2"),
    ("history",),
    ("history", "train", "--limit", "2"),
    ("workers",),
    ("worker", "show", "cpu-0"),
    ("schedule", "--dry-run"),
    ("launch", "--dry-run", "--", "true"),
    ("launch", "--dry-run", "--tpu", "v5e-16", "--", "train"),
    ("launch", "--dry-run", "--force", "-c", "region=mars", "--", "true"),
]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A cluster whose log is that of the busy lab, with nobody to ask: its hosts are not there."""
    session_of(busy(), tmp_path / "state")
    path = tmp_path / "cluster.yaml"
    path.write_text("cluster: {name: lab}\nworkers: [{id: cpu-0, host: nowhere.invalid}]\n")
    return path


@pytest.fixture
def iris(config: Path) -> Iris:
    return lambda *words: app.run(["--config", str(config), *words])


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_reading_leaves_the_state_directory_as_it_was(
    words: tuple[str, ...], iris: Iris, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = config.parent / "state"
    before = {path.name: path.read_bytes() for path in state.iterdir()}
    assert iris(*words) == ExitCode.OK
    assert {path.name: path.read_bytes() for path in state.iterdir()} == before
    shown = capsys.readouterr()
    assert shown.out
    assert shown.err == ""


def test_a_dry_run_makes_no_state_directory(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(
        "cluster: {name: lab}\nworkers: [{id: w, host: nowhere.invalid}]\n"
    )
    for words in (("launch", "--dry-run", "--", "true"), ("schedule", "--dry-run")):
        assert app.run(["--config", str(tmp_path / "cluster.yaml"), *words]) == ExitCode.OK
        assert [path.name for path in tmp_path.iterdir()] == ["cluster.yaml"]


def test_a_dry_run_shows_the_host_of_each_rank_and_what_it_would_take(
    iris: Iris, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        iris("--json", "launch", "--dry-run", "--cpu", "60", "--replicas", "2", "--", "true") == ExitCode.OK
    )
    shown = json.loads(capsys.readouterr().out)
    assert [(each["task"], each["worker"]) for each in shown["placed"]] == [
        ("true-1/task-0", "v5a-0"),
        ("true-1/task-1", "v5a-0"),
    ]
    assert (shown["waiting"], shown["change"]) == ([], None)
    assert iris("--json", "launch", "--dry-run", "--force", "-c", "region=mars", "--", "true") == ExitCode.OK
    shown = json.loads(capsys.readouterr().out)
    assert [reason["kind"] for reason in shown["waiting"][0]["reasons"]] == ["constraint"]
    assert (shown["change"]["kind"], shown["change"]["subject"]) == ("drop", "region=mars")


def test_a_launch_warns_about_a_task_alone_on_a_vm_of_a_larger_slice(
    iris: Iris, capsys: pytest.CaptureFixture[str]
) -> None:
    assert iris("launch", "--dry-run", "--tpu", "auto", "--", "train") == ExitCode.OK
    warning = "warning: one task uses one VM of a slice of 4, and JAX waits for the others"
    assert warning in capsys.readouterr().err


def test_a_type_that_only_a_scale_group_has_is_accepted(
    iris: Iris, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("launch", "--dry-run", "--tpu", "v4-64", "--", "train")
    assert iris(*asked) == ExitCode.UNSCHEDULABLE
    assert "no worker or scale group has v4-64: not submitted" in capsys.readouterr().err
    template = "{provider: gcp, project: p, zone: us-west4-a, type: v4-64, runtime: v2, preemptible: true}"
    groups = f"scale_groups: [{{name: west, max_slices: 2, slice_template: {template}}}]\n"
    config.write_text(config.read_text() + groups)
    assert iris(*asked) == ExitCode.OK
    assert "no v4-64 slice exists" in capsys.readouterr().out
    assert iris("launch", "--no-schedule", "--tpu", "v4-64", "--", "train") == ExitCode.OK
    capsys.readouterr()
    assert iris("why", "train-1") == ExitCode.OK
    assert "no v4-64 slice exists" in capsys.readouterr().out
    config.write_text(config.read_text().replace("max_slices: 2", "max_slices: 0"))
    assert iris("why", "train-1") == ExitCode.OK
    assert "no worker or scale group has v4-64" in capsys.readouterr().out
    assert iris(*asked) == ExitCode.UNSCHEDULABLE


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_json_is_alone_on_stdout(
    words: tuple[str, ...], iris: Iris, capsys: pytest.CaptureFixture[str]
) -> None:
    assert iris("--json", *words) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["schema_version"] == 1


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        (("status",), "workers"),
        (("status", "train"), "tasks"),
        (("workers",), "workers"),
        (("worker", "show", "cpu-0"), ""),
        (("report",), "workers"),
        (("why", "train"), "places"),
    ],
)
def test_the_id_of_a_worker_is_called_worker_everywhere(
    words: tuple[str, ...], rows: str, iris: Iris, capsys: pytest.CaptureFixture[str]
) -> None:
    assert iris("--json", *words) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    known = {"gpu-0", "cpu-0", "cpu-1", *(f"v5{slice_}-{index}" for slice_ in "ab" for index in range(4))}
    found = {row["worker"] for row in (document[rows] if rows else [document])}
    assert set() < found <= known


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (("status",), ["train", "prep", "eval", "big"]),
        (("status", "--state", "running"), ["train", "prep"]),
        (("status", "--label", "team=vision"), ["train"]),
        (("status", "prep"), ["prep/task-0", "prep/task-1", "prep/task-2"]),
        (("worker", "show", "cpu-0"), ["cpu-0"]),
        (("why", "cpu-1"), ["draining (new disk)"]),
    ],
)
def test_quiet_output_is_one_name_a_line(
    words: tuple[str, ...], lines: list[str], iris: Iris, capsys: pytest.CaptureFixture[str]
) -> None:
    assert iris(*words, "--quiet") == ExitCode.OK
    assert capsys.readouterr().out.splitlines() == lines


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("status", "trian"), ExitCode.NOT_FOUND, "hint: did you mean 'train'?"),
        (("why", "trian"), ExitCode.NOT_FOUND, "hint: did you mean 'train'?"),
        (("history", "trian"), ExitCode.NOT_FOUND, "hint: did you mean 'train'?"),
        (("history", ""), ExitCode.NOT_FOUND, "error: no job, task or worker ''"),
        (("worker", "show", "cpu-7"), ExitCode.NOT_FOUND, "hint: did you mean"),
        (("status", "--at", "soon"), ExitCode.USAGE, "error: 'soon' is not a time"),
        (("status", "--state", "lost"), ExitCode.USAGE, "error: 'lost' is not one of pending, running,"),
        (
            ("status", "train", "--state", "running"),
            ExitCode.USAGE,
            "hint: drop them: iris status train",
        ),
        (("status", "--watch", "--at", "2h"), ExitCode.USAGE, "hint: drop one of them"),
        (("status", "trian", "--watch"), ExitCode.NOT_FOUND, "hint: did you mean 'train'?"),
        (
            ("status", "--watch", "--state", "lost"),
            ExitCode.USAGE,
            "error: 'lost' is not one of pending, running,",
        ),
        (("history", "--limit", "-1"), ExitCode.USAGE, "--limit"),
    ],
)
def test_what_can_not_be_answered_ends_with_its_own_code_and_a_hint(
    words: tuple[str, ...], code: ExitCode, said: str, iris: Iris, capsys: pytest.CaptureFixture[str]
) -> None:
    assert iris(*words) == code
    shown = capsys.readouterr()
    assert said in shown.err
    assert shown.out == ""


def test_a_damaged_log_is_shown_up_to_the_damage_with_a_banner(
    iris: Iris, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = config.parent / "state" / "events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    lines[-2] = lines[-2].replace(b'"at"', b'"xx"')
    log.write_bytes(b"".join(lines))
    assert iris("status") == ExitCode.OK
    shown = " ".join(capsys.readouterr().out.split())  # the path of the log may fill a line
    assert 0 < shown.index("is damaged") < shown.index("JOB STATE")


@pytest.mark.parametrize(
    "words", [("launch", "--dry-run", "--", "true"), ("schedule", "--dry-run"), ("autoscale", "--dry-run")]
)
def test_a_plan_from_a_damaged_log_comes_with_a_warning(
    iris: Iris, config: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    log = config.parent / "state" / "events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    lines[-2] = lines[-2].replace(b'"at"', b'"xx"')
    log.write_bytes(b"".join(lines))
    assert iris(*words) == ExitCode.OK
    shown = capsys.readouterr()
    assert shown.out
    assert "is damaged" in shown.err
    assert "only the lines before the damage were read" in shown.err


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("status", "--at", "0s"),
        ("status", "train"),
        ("why", "train"),
        ("workers",),
        ("history",),
        ("report",),
    ],
    ids=" ".join,
)
def test_a_damaged_log_is_a_field_in_json(
    iris: Iris, config: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert iris(*words, "--json") == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["log_damage"] is None
    log = config.parent / "state" / "events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    offset = sum(map(len, lines[:-2]))
    lines[-2] = lines[-2].replace(b'"at"', b'"xx"')
    log.write_bytes(b"".join(lines))
    assert iris(*words, "--json") == ExitCode.OK
    told = json.loads(capsys.readouterr().out)
    damage, place = told["log_damage"], len(lines) - 1
    assert damage["fault"] == {
        "kind": "damaged",
        "line": place,
        "offset": offset,
        "seq": place,
        "what": "the checksum is wrong",
        "file": "events.jsonl",
    }
    assert (damage["forgivable"], damage["readable"]) == (False, True)
    assert {damage["what"], damage["hint"]} <= set(told["messages"])


def test_a_cluster_without_a_log_is_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("cluster: {name: lab}\nworkers: [{id: cpu-0, host: nowhere.invalid}]\n")
    for command in ("status", "history", "workers"):
        assert app.run(["--config", str(path), command]) == ExitCode.OK
    assert "iris schedule --once" in capsys.readouterr().out
    assert not (tmp_path / "state").exists()


def test_reading_commands_load_neither_the_ssh_library_nor_the_lock(config: Path) -> None:
    lines = [f"--config {config} {line}" for line in ("why eval", "history", "workers")]
    for line, code, loaded in loaded_by_each(lines, os.environ):
        assert (line, code) == (line, ExitCode.OK)
        assert {"paramiko", "filelock"}.isdisjoint(loaded), line


def test_watch_shows_the_view_again_and_again_until_it_is_interrupted(config: Path) -> None:
    main, terminal = pty.openpty()
    command = [sys.executable, "-m", "iris_cli", "--config", str(config), "status", "--watch"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    with subprocess.Popen(
        command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment
    ) as watching:
        os.close(terminal)
        try:
            shown = b""
            while shown.count(b"v5a-[0-3]") < 2:
                shown += os.read(main, 65536)
            watching.send_signal(signal.SIGINT)
            assert watching.wait(PATIENCE) == ExitCode.INTERRUPTED
        finally:
            watching.kill()
            os.close(main)
    assert b"\x1b[?1049h" in shown  # the second screen: what stood on the first one stays


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("status", "--at", "1s"),
        ("why",),
        ("history",),
        ("history", "--all"),
        ("logs",),
        ("wait",),
    ],
    ids=" ".join,
)
def test_a_name_that_may_be_after_the_damage_is_not_said_to_be_unknown(
    words: tuple[str, ...], iris: Iris, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = config.parent / "state" / "events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:2], lines[2].replace(b'"seq"', b'"sew"'), *lines[3:]]))
    assert iris(*words, "train") in (ExitCode.NOT_FOUND, ExitCode.LOG_DAMAGED)
    error = capsys.readouterr().err
    assert "is damaged at line 3" in error
    assert "iris log verify" in error
    assert "'train'" not in error or "'train' in the valid part of the log" in error


@pytest.mark.parametrize(
    "words",
    [
        ("stacks", "train"),
        ("exec", "train", "--", "true"),
        ("export", "train", "--to", "sbatch"),
        ("loop", "show"),
        ("loop", "start"),
    ],
)
def test_a_command_that_reads_a_damaged_log_warns(
    words: tuple[str, ...], iris: Iris, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = config.parent / "state" / "events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:-1], lines[-1].replace(b'"seq"', b'"sew"')]))
    (config.parent / "state" / "snapshot").unlink(missing_ok=True)
    iris(*words)
    assert f"is damaged at line {len(lines)}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [("why", "cpu-9"), ("worker", "show", "cpu-9"), ("worker", "drain", "cpu-9"), ("ssh", "cpu-9")]
)
def test_a_configured_worker_that_no_cycle_has_registered_is_named_as_such(
    words: tuple[str, ...], iris: Iris, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text("cluster: {name: lab}\nworkers: [{id: cpu-9, host: nowhere.invalid}]\n")
    assert iris(*words) == ExitCode.NOT_FOUND
    hint = "it is configured, but no cycle has registered it yet: iris schedule"
    assert capsys.readouterr().err.splitlines()[-1] == f"hint: {hint}"


def test_an_error_about_a_name_mentions_a_damaged_archive(
    iris: Iris, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert iris("log", "compact") == ExitCode.OK
    (segment,) = (config.parent / "state" / "archive").iterdir()
    segment.write_bytes(segment.read_bytes()[:300])
    capsys.readouterr()
    assert iris("history", "train", "--all") == ExitCode.NOT_FOUND
    assert "in the valid part of the log" in (error := capsys.readouterr().err)
    assert segment.name in error


def test_a_dry_run_with_lines_places_a_task_for_each_line(
    iris: Iris, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "inputs.txt").write_text("a\nb\n")
    launch = (
        "launch",
        "--dry-run",
        "--each-line",
        str(tmp_path / "inputs.txt"),
        "--cpu",
        "0.1",
        "--",
        "true",
    )
    assert iris("--json", *launch) == ExitCode.OK
    shown = json.loads(capsys.readouterr().out)
    assert [each["task"] for each in shown["placed"]] == ["true-1/task-0", "true-1/task-1"]
    assert shown["waiting"] == []
