"""The directives of a job script are a job file: the same fields, paths and strictness."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from iris_cli.config.job_script import MAX_BYTES, is_script, load_job_script
from iris_cli.core.constraint_syntax import parse_constraint
from iris_cli.core.model.job import EnvPreset, JobRequest, Priority
from iris_cli.errors import ConfigError

Load = Callable[[str | bytes], JobRequest]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def write_and_load(text: str | bytes) -> JobRequest:
        (tmp_path / "job.sh").write_bytes(text.encode() if isinstance(text, str) else text)
        return load_job_script(tmp_path / "job.sh")

    return write_and_load


def test_directives_stand_among_the_first_comments(load: Load, tmp_path: Path) -> None:
    (tmp_path / "some.env").write_text("A=file\nB=file\n")
    (tmp_path / "lines").write_text("one\ntwo words\n")
    said = load(
        "#!/usr/bin/env -S python3 -u\n"
        "# Train. ##IRIS turns a directive off:\n"
        "##IRIS --replicas 7\n"
        "\n"
        "#IRIS --tpu v5e-16 --cpu=0.5 --memory 512MiB   # the whole slice\n"
        "#IRIS\t--name train --priority high --timeout 90m\n"
        "   # indented\n"
        "#IRIS --env-file some.env -e B=x=y --env 'C=two words'\n"
        "#IRIS --label team=a --label color=#fff\n"
        "#IRIS -c 'region in us-west4,us-central2' --constraint !slow\n"
        "#IRIS --prefer pool=1\n"
        "#IRIS --secret KEY=@keys/k --secret TOKEN\n"
        "#IRIS --workdir .. --each-line lines --array 0-1%1\n"
        "#IRIS --ports http,grpc --ports metrics --after first --after 2\n"
        "#IRIS --setup 'pip install -r \"requirements.txt\"' --env-preset jax\n"
        "#IRIS --force --fail-fast --group-by rack --gpu 4 --tolerate spot --grace 5\n"
        "#IRIS\n"
        "print('#IRIS in the middle of a line is text')\n"
        " #IRIS --name indented\n"
    )
    wanted = ("region in us-west4,us-central2", "!slow", "~pool=1")
    assert said == JobRequest(
        job_script=str(tmp_path / "job.sh"),
        tpu="v5litepod-16",
        gpu="auto:4",
        cpu=0.5,
        memory=512 << 20,
        name="train",
        priority=Priority.HIGH,
        timeout=5400.0,
        env={"A": "file", "B": "x=y", "C": "two words"},
        labels={"team": "a", "color": "#fff"},
        constraints=tuple(map(parse_constraint, wanted)),
        secrets=(f"KEY=@{tmp_path}/keys/k", "TOKEN"),
        workdir=str(tmp_path / ".."),
        each_line=("one", "two words"),
        array="0-1%1",
        ports=("http", "grpc", "metrics"),
        after=("first", "2"),
        setup='pip install -r "requirements.txt"',
        env_preset=EnvPreset.JAX,
        force=True,
        keep_going=False,
        group_by="rack",
        tolerate=("spot",),
        grace=5.0,
    )


def test_a_script_without_directives_says_nothing_but_itself(load: Load, tmp_path: Path) -> None:
    assert load("#!/bin/sh\ndate\n") == JobRequest(job_script=str(tmp_path / "job.sh"))


def test_a_variable_without_a_value_is_that_of_this_shell(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IRIS_TEST_REGION", "here=there")
    with pytest.raises(ConfigError, match="1 problem"):  # names of iris stay its own
        load("#!/bin/sh\n#IRIS -e IRIS_TEST_REGION\n")
    monkeypatch.setenv("TEST_REGION", "here=there")
    assert load("#!/bin/sh\n#IRIS -e TEST_REGION\n").env == {"TEST_REGION": "here=there"}


def test_text_that_is_no_directive_may_have_any_encoding(load: Load) -> None:
    assert load(b"#!/bin/sh\n# caf\xe9\n#IRIS --cpu 2\necho caf\xe9\n").cpu == 2.0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"#!\n", ":1: its first line names no program (write #!/bin/sh)"),
        (
            b"#!/bin/sh\r\n#IRIS --cpu 2\r\n",
            ":1: its lines end with CR LF, which no worker can run (dos2unix job.sh)",
        ),
        (b"#!/bin/sh\n#IRIS --label a=\xe9\n", ":2: it is not UTF-8 text"),
        (b"\xef\xbb\xbf#!/bin/sh\n", ":1: it begins with a byte order mark, which no worker can run"),
        (
            b"#!/bin/sh\n#IRIS --cpu 2 -- train.py\n",
            ":2: '--' is not an option (write #IRIS --OPTION VALUE; arguments: iris launch SCRIPT -- ARGUMENTS)",
        ),
        (
            b"#!/bin/sh\n" + bytes(MAX_BYTES),
            ":1: it is larger than 1 MiB (ship programs and data with --workdir)",
        ),
        (b"#!/bin/sh\n#IRIS --secret KEY=hunter2\n", ":2: --secret[0]: "),
    ],
    ids=lambda value: repr(value[:30]),
)
def test_what_no_worker_could_run_is_refused(load: Load, tmp_path: Path, content: bytes, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(content)
    (problem,) = refused.value.problems
    assert problem.startswith(f"{tmp_path}/job.sh{said}")
    assert "hunter2" not in problem


def test_a_script_is_a_file_that_begins_as_one(tmp_path: Path) -> None:
    marked = b"\xef\xbb\xbf#!/bin/sh\n"  # refused later, with the reason
    for name, content in (("a", b"#!/bin/sh\n"), ("marked", marked), ("b", b"# no\n"), ("c", b"")):
        (tmp_path / name).write_bytes(content)
    assert [is_script(tmp_path / name) for name in ("a", "marked", "b", "c", "d", ".")] == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become a user without its power over files")
def test_a_script_that_this_user_may_not_read_is_named(tmp_path: Path) -> None:
    """It is not told to begin with `#!`, as it does."""
    (tmp_path / "job.sh").write_text("#!/bin/sh\n")
    (tmp_path / "job.sh").chmod(0)
    words = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", sys.executable, "-m", "iris_cli"]
    ran = subprocess.run(
        [*words, "launch", "job.sh"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (2, "error: job.sh can't be read: Permission denied\n")
