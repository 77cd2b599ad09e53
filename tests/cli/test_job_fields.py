"""Every field of a job, as an option and in a job file: the same job in the log; and an option wins over the file."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import fields

from iris_cli.cli.job_options import parse_request
from iris_cli.core.model.job import JobRequest
from iris_cli.errors import ExitCode
from tests.support.site import Site

FIELDS: dict[str, tuple[list[str], Any, dict[str, Any]]] = {
    # field: words of the command line, what a job file says, what the log says
    "tpu": (["--tpu", "v5e-16"], "v5litepod-16", {}),
    "cpu": (["--cpu", "0.5"], 0.5, {}),
    "memory": (
        ["--memory", "2GiB"],
        "2GiB",
        {
            "resources": {
                "cpu": 0.5,
                "memory": 2 << 30,
                "device": {"kind": "tpu", "variant": "v5litepod-16"},
            },
            "memory_limit": True,
        },
    ),
    "replicas": (["--replicas", "8"], 8, {"replicas": 8}),
    "slices": (["--slices", "2"], 2, {"slices": 2, "coscheduling": {"group_by": "tpu-name"}}),
    "spread": (["--spread"], True, {"spread": True}),
    "constraints": (["-c", "pool=a", "-c", "!slow"], ["pool=a", "!slow"], {}),
    "prefer": (
        ["--prefer", "zone=b"],
        ["zone=b"],
        {
            "constraints": [
                {"key": "pool", "op": "EQ", "value": "a"},
                {"key": "slow", "op": "NOT_EXISTS"},
                {"key": "zone", "op": "EQ", "value": "b", "mode": "PREFERRED"},
            ]
        },
    ),
    "tolerate": (["--tolerate", "spot"], ["spot"], {"tolerations": ["spot"]}),
    "env_file": (["--env-file", "some.env"], "some.env", {}),
    "env": (
        ["-e", "B=job", "--env", "C="],
        {"B": "job", "C": ""},
        {"env": {"A": "file", "B": "job", "C": ""}},
    ),
    "secrets": (
        ["--secret", "TOKEN", "--secret", "KEY=@keys/k"],
        ["TOKEN", "KEY=@keys/k"],
        {"secrets": ["TOKEN", "KEY"], "secret_files": {"KEY": "HERE/keys/k"}},
    ),
    "image": (["--image", "ghcr.io/lab/train:3"], "ghcr.io/lab/train:3", {"image": "ghcr.io/lab/train:3"}),
    "setup": (["--setup", "make x"], "make x", {"setup": "make x"}),
    "env_preset": (["--env-preset", "slurm"], "slurm", {"env_preset": "slurm"}),
    "priority": (["--priority", "high"], "high", {"priority": "high"}),
    "max_retries_failure": (["--max-retries-failure", "3"], 3, {"max_retries_failure": 3}),
    "max_retries_preemption": (["--max-retries-preemption", "5"], 5, {"max_retries_preemption": 5}),
    "scheduling_timeout": (["--scheduling-timeout", "2h"], "2h", {"scheduling_timeout": 7200.0}),
    "timeout": (["--timeout", "10m"], "10m", {"timeout": 600.0}),
    "setup_timeout": (["--setup-timeout", "90s"], "90s", {"setup_timeout": 90.0}),
    "grace": (["--grace", "45"], 45, {"grace": 45.0}),
    "lease": (["--lease", "1h"], "1h", {"lease": 3600.0}),
    "silent_after": (["--silent-after", "0"], 0, {"silent_after": 0.0}),
    "replace_lost": (["--replace-lost", "always"], "always", {"replace_lost": "always"}),
    "labels": (
        ["--label", "team=a", "--label", "x="],
        {"team": "a", "x": ""},
        {"labels": {"team": "a", "x": ""}},
    ),
    "after": (["--after", "first"], ["first"], {"after": ["first"]}),
    "ports": (["--ports", "http,grpc"], ["http", "grpc"], {"ports": ["http", "grpc"]}),
    "signal": (["--signal", "SIGUSR2@2m"], "SIGUSR2@2m", {"signal": {"name": "USR2", "lead": 120.0}}),
    "force": (["--force"], True, {}),
    "max_task_failures": (["--max-task-failures", "0"], 0, {}),
    "keep_going": (["--fail-fast"], False, {}),
}
OTHERS: dict[str, tuple[list[str], Any, dict[str, Any]]] = {
    "gpu": (
        ["--gpu", "h100:2"],
        "h100:2",
        {"resources": {"device": {"kind": "gpu", "variant": "h100", "count": 2}}},
    ),
    "array": (["--array", "0,2-3%2"], "0,2-3%2", {"array": "0,2-3", "max_running": 2, "replicas": 3}),
    "each_line": (["--each-line", "lines"], "lines", {"each_line": {"count": 4, "size": 8}}),
    "max_task_failures": (["--max-task-failures", "2"], 2, {"max_task_failures": 2}),
    "keep_going": (["--keep-going"], True, {"keep_going": True}),
    "force": (["--force"], True, {}),
}
RACK: dict[str, tuple[list[str], Any, dict[str, Any]]] = {
    "coscheduling": (["--group-by", "rack"], {"group_by": "rack"}, {"coscheduling": {"group_by": "rack"}}),
}
COMMAND = ["run", "two words"]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    for name in ("IRIS_STATE_DIR", "IRIS_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "cluster.yaml").write_text(
        "cluster: {name: lab}\nworkers: [{id: w, host: nowhere.invalid}]\n"
    )
    (tmp_path / "some.env").write_text("A=file\nB=file\n")
    (tmp_path / "lines").write_text("a\nb\nc\nd\n")
    return Site(tmp_path, [])


def launched(site: Site, *words: str) -> dict[str, Any]:
    """The job as the log has it, without its name."""
    site.iris("launch", "--no-schedule", *words)
    job: dict[str, Any] = site.events()[-1]["job"]
    del job["id"]
    job.get("each_line", {}).pop("hash", None)
    return job


@pytest.mark.parametrize("said", [FIELDS, OTHERS, RACK], ids=["gang", "array", "rack"])
def test_each_field_means_the_same_as_an_option_and_in_a_job_file(
    site: Site, said: dict[str, tuple[list[str], Any, dict[str, Any]]]
) -> None:
    site.iris("launch", "--no-schedule", "--name", "first", "--", "true")
    file = {"command": COMMAND, **{name: written for name, (_, written, _) in said.items()}}
    (site.directory / "job.yaml").write_text(yaml.safe_dump(file))
    options = [word for words, _, _ in said.values() for word in words]
    by_options = launched(site, *options, "--", *COMMAND)
    by_file = launched(site, "job.yaml")
    assert by_options == by_file
    expected = {
        "command": COMMAND,
        **{name: value for _, _, logged in said.values() for name, value in logged.items()},
    }
    assert by_options == json.loads(json.dumps(expected).replace("HERE", str(site.directory)))


@pytest.mark.parametrize("said", [FIELDS, OTHERS, RACK], ids=["gang", "array", "rack"])
def test_each_field_means_the_same_as_an_option_and_as_a_directive(
    site: Site, said: dict[str, tuple[list[str], Any, dict[str, Any]]]
) -> None:
    site.iris("launch", "--no-schedule", "--name", "first", "--", "true")
    lines = [f"#IRIS {shlex.join(words)}" for words, _, _ in said.values()]
    (site.directory / "job.sh").write_text("\n".join(["#!/bin/sh", "", *lines, 'echo "$@"', ""]))
    options = [word for words, _, _ in said.values() for word in words]
    by_options = launched(site, *options, "--", *COMMAND)
    by_script = launched(site, "job.sh", "--", *COMMAND)
    assert by_script.pop("workspace").keys() == {"hash", "size", "files", "name"}
    assert by_script.pop("command") == ["./job.sh", *COMMAND]
    assert by_options.pop("command") == COMMAND
    assert by_script == by_options


def test_every_field_is_among_them() -> None:
    told = {*FIELDS, *OTHERS, *RACK, "name", "command"} - {"prefer", "env_file", "coscheduling"} | {
        "group_by"
    }
    shipped, inside_a_task = {"workdir", "workspace", "lines"}, {"inherit_constraints"}
    of_the_cluster = {"memory_default", "max_task_failures_default"}
    of_another_job, of_a_terminal, of_a_script = {"again", "failed"}, {"client"}, {"job_script"}
    assert {item.name for item in fields(JobRequest)} - told == (
        shipped | inside_a_task | of_the_cluster | of_another_job | of_a_terminal | of_a_script
    )


def test_a_directory_is_text_in_the_request_as_its_type_says() -> None:
    assert parse_request({"workdir": Path("work")}, ("a",)).workdir == "work"


def test_an_image_that_could_be_an_option_is_refused_and_nothing_is_recorded(site: Site) -> None:
    site.iris("launch", "--no-schedule", "--", "true")
    recorded = site.events()
    (site.directory / "job.yaml").write_text("{command: [a], image: --privileged}")
    for words in (["job.yaml"], ["--image=--privileged", "--force", "--", "a"]):
        refused = site.iris("launch", "--no-schedule", *words, code=ExitCode.USAGE)
        assert refused.err.startswith("error: '--privileged' can't be the name of an image\nhint: ")
    assert site.events() == recorded


def test_an_option_wins_over_the_job_file_and_of_variables_both_stay(site: Site) -> None:
    (site.directory / "job.yaml").write_text(
        "{command: [a], cpu: 2, timeout: 1h, env: {A: file, B: file}, labels: {x: file}, array: 0-9, ports: [p]}"
    )
    job = launched(
        site,
        "job.yaml",
        "--cpu",
        "4",
        "-e",
        "A=option",
        "--label",
        "y=option",
        "--array",
        "3",
        "--ports",
        "q",
        "--",
        "b",
    )
    assert job == {
        "command": ["b"],
        "resources": {"cpu": 4.0},
        "timeout": 3600.0,
        "env": {"A": "option", "B": "file"},
        "labels": {"x": "file", "y": "option"},
        "array": "3",
        "keep_going": True,
        "ports": ["q"],
    }


def test_a_preferred_constraint_does_not_replace_the_required_ones_of_the_job_file(site: Site) -> None:
    (site.directory / "job.yaml").write_text(
        "{command: [a], constraints: [region=us], prefer: [rack=1], force: true}"
    )
    (site.directory / "job.sh").write_text("#!/bin/sh\n#IRIS -c region=us --prefer rack=1 --force\necho\n")
    for file in ("job.yaml", "job.sh"):
        found = launched(site, file, "--prefer", "zone=b")["constraints"]
        assert [each["key"] for each in found] == ["zone", "region"]
        found = launched(site, file, "-c", "zone=b")["constraints"]
        assert [each["key"] for each in found] == ["zone", "rack"]


def test_a_secret_in_the_home_of_nobody_is_a_mistake_in_the_options(site: Site) -> None:
    refused = site.iris("launch", "--secret", "A=@~iris-nobody/f", "--", "true", code=ExitCode.USAGE)
    assert "~iris-nobody/f: no such home directory" in refused.err
