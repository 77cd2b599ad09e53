"""Job files say the same as the options of `iris launch`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import fields

from iris_cli.config.job_file import load_job_file
from iris_cli.config.variable_files import read_env_file
from iris_cli.core.constraint_syntax import parse_constraint
from iris_cli.core.model.job import EnvPreset, JobRequest, Priority, ReplaceLost
from iris_cli.errors import ConfigError

VALID = Path(__file__).parent / "valid" / "job"

Load = Callable[[str], JobRequest]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def write_and_load(text: str) -> JobRequest:
        (tmp_path / "job.yaml").write_text(text)
        return load_job_file(tmp_path / "job.yaml")

    return write_and_load


def test_every_field_can_be_written() -> None:
    assert load_job_file(VALID / "everything.yaml") == JobRequest(
        name="train",
        command=("python", "train.py", "--name", "two words"),
        tpu="v5litepod-16",
        cpu=0.5,
        memory=512 << 20,
        replicas=8,
        slices=2,
        spread=True,
        keep_going=False,
        constraints=tuple(
            parse_constraint(each) for each in ("region in us-west4,us-central2", "!slow", "~pool=large")
        ),
        tolerate=("experimental",),
        group_by="tpu-name",
        env={"LR": "0.10", "DEBUG": "true"},
        secrets=("WANDB_API_KEY",),
        workdir=str(VALID / "src"),
        setup="pip install -r requirements.txt",
        env_preset=EnvPreset.JAX,
        priority=Priority.HIGH,
        max_retries_failure=3,
        max_retries_preemption=10,
        max_task_failures=0,
        scheduling_timeout=7200.0,
        timeout=3 * 86400.0,
        setup_timeout=90.0,
        grace=90.0,
        lease=7200.0,
        silent_after=2700.0,
        replace_lost=ReplaceLost.NEVER,
        labels={"team": "a", "run": "7"},
        after=("prepare", "parent/child"),
        ports=("http", "metrics"),
        signal="USR1@2m",
        array="0-7%4",
        each_line=("one", "", "two words"),
        image="ghcr.io/lab/train:3",
        force=True,
    )


def test_no_field_of_a_request_is_forgotten() -> None:
    request = load_job_file(VALID / "everything.yaml")
    unsaid = {item.name for item in fields(JobRequest) if getattr(request, item.name) is None}
    become = {"gpu", "workspace", "lines"}  # what a workdir and each_line become, for one
    assert unsaid == become | {
        "memory_default",
        "max_task_failures_default",
        "inherit_constraints",
        "again",
        "failed",
        "client",
        "job_script",
    }  # not of files


def test_the_file_of_a_secret_is_found_from_wherever_it_is_read_later(load: Load, tmp_path: Path) -> None:
    said = load("command: [x]\nsecrets: [A, B=@keys/b, C=@/etc/c, D=@~/d]\n").secrets
    assert said == ("A", f"B=@{tmp_path}/keys/b", "C=@/etc/c", f"D=@{Path.home()}/d")


@pytest.mark.parametrize("entry", ["KEY=hunter2", "KEY=", "KEY=@", "2KEY=hunter2", "IRIS_KEY", "BASH_KEY"])
def test_a_secret_whose_value_is_written_down_is_refused_and_not_repeated(load: Load, entry: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(f"command: [x]\nsecrets: [{entry}]\n")
    assert "hunter2" not in str(refused.value.problems)


def test_omitted_fields_are_absent() -> None:
    assert load_job_file(VALID / "smallest.yaml") == JobRequest(command=("python", "train.py"))


def test_an_empty_list_differs_from_an_omitted_one(load: Load) -> None:
    request = load("command: [a]\nconstraints: []\nenv: {}\n")
    assert (request.constraints, request.env) == ((), {})


def test_a_script_is_run_by_a_shell() -> None:
    request = load_job_file(VALID / "script.yaml")
    assert request.command == ("/bin/sh", "-c", "set -e\nmake data && python train.py\n")
    assert request.gpu == "h100:4"


def test_a_script_with_a_first_line_for_bash_is_run_by_bash(load: Load) -> None:
    command = load('script: "#!/usr/bin/env bash\\ntrue"').command
    assert command is not None
    assert command[0] == "/bin/bash"


@pytest.mark.parametrize(
    ("written", "gpu"),
    [("4", "auto:4"), ("1", "auto"), ("h100", "h100"), ("h100:1", "h100"), ("auto:2", "auto:2")],
)
def test_gpus_are_asked_for_by_model_and_count(load: Load, written: str, gpu: str) -> None:
    assert load(f"command: [a]\ngpu: {written}\n").gpu == gpu


def test_any_tpu_is_auto(load: Load) -> None:
    assert load("command: [a]\ntpu: auto\n").tpu == "auto"


def test_words_of_a_command_keep_their_text(load: Load) -> None:
    assert load("command: [run, 1.10, 017, true, '']").command == ("run", "1.10", "017", "true", "")


def test_env_overrides_env_files_and_later_files_override(load: Load, tmp_path: Path) -> None:
    (tmp_path / "a.env").write_text("A=a\nB=a\nC=a\n")
    (tmp_path / "b.env").write_text("B=b\nC=b\n")
    assert load("command: [x]\nenv_file: [a.env, b.env]\nenv: {C: job}\n").env == {
        "A": "a",
        "B": "b",
        "C": "job",
    }
    assert load("command: [x]\nenv_file: a.env\n").env == {"A": "a", "B": "a", "C": "a"}


def test_an_env_file_is_read_literally(tmp_path: Path) -> None:
    path = tmp_path / "some.env"
    path.write_text(
        "# comment\n\nPLAIN=a b\nexport EXPORTED=x\nQUOTED=\"a # b\"\nSINGLE='$HOME'\n"
        "EMPTY=\nEQUALS=a=b\r\n SPACED = c \nPAGES=a\u2028b\x0cc\x85d\n",
        "utf-8",
    )
    assert read_env_file(path) == {
        "PLAIN": "a b",
        "EXPORTED": "x",
        "QUOTED": "a # b",
        "SINGLE": "$HOME",
        "EMPTY": "",
        "EQUALS": "a=b",
        "SPACED": "c",
        "PAGES": "a\u2028b\x0cc\x85d",
    }


@pytest.mark.parametrize(
    "field", ["secrets: [A=@{}]", "env_file: {}", "env_file: [{}]", "each_line: {}", "workdir: {}"]
)
def test_a_file_in_the_home_of_nobody_is_a_mistake_in_the_job_file(load: Load, field: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(f"command: [x]\n{field.format('~iris-nobody/f')}\n")
    assert "~iris-nobody/f: no such home directory" in refused.value.problems[0]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"A=1\nnonsense\n", ":2: not a variable (write NAME=value)"),
        (b"1A=x\n", ":1: '1A' is not the name of an environment variable"),
        (b"IRIS_TASK_ID=x\n", ":1: IRIS_TASK_ID is set by iris"),
        (b"A=\xff\n", ":1: not UTF-8 text"),
        (b"A=\0\n", ":1: not a file of variables"),
        (b"A=" + b"x" * (1 << 20), ":1: not a file of variables"),
    ],
    ids=lambda value: repr(value[:20]),
)
def test_a_wrong_env_file_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "some.env"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        read_env_file(path)
    assert refused.value.problems[0].startswith(f"{path}{said}")


def test_a_directory_is_not_said_to_be_absent(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        read_env_file(tmp_path)
    assert refused.value.problems == (f"{tmp_path}:1: not a regular file",)
