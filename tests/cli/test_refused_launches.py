"""`iris launch` refuses what can never run on this cluster, and queues it with `--force`."""

from __future__ import annotations

from pathlib import Path

import pytest

from iris_cli.cli import app
from iris_cli.errors import ExitCode
from tests.render.scenes import busy, session_of


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cluster of probed workers, and a directory with a script and a secret that others can read."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WANDB", raising=False)
    session_of(busy(), tmp_path / "state")
    (tmp_path / "job.sh").write_text("#!/bin/sh\n")
    (tmp_path / "tok").write_text("t0ken")
    (tmp_path / "tok").chmod(0o644)
    path = tmp_path / "cluster.yaml"
    path.write_text("cluster: {name: lab}\nworkers: [{id: cpu-0, host: nowhere.invalid}]\n")
    return path


REFUSED = [
    ("--cpu 4000 -- true", ExitCode.UNSCHEDULABLE, "no worker has 4000 cores (largest: "),
    ("--memory 90TiB -- true", ExitCode.UNSCHEDULABLE, "no worker has 90TiB of memory (largest: "),
    ("-c region=mars -- true", ExitCode.UNSCHEDULABLE, "no worker satisfies region=mars: not submitted"),
    ("--replicas 99 --group-by region -- true", ExitCode.UNSCHEDULABLE, "no region group has 99 workers"),
    ("--tpu auto --replicas 3 -- true", ExitCode.UNSCHEDULABLE, "no slice has 3 VMs (slices have "),
    ("--secret WANDB -- true", ExitCode.USAGE, "not submitted: secret WANDB: not set in this shell"),
    ("--secret KEY=@tok -- true", ExitCode.USAGE, "tok is readable by others (chmod 600 "),
    ("-- ./job.sh", ExitCode.USAGE, "./job.sh is not shipped: a task starts in an empty directory"),
]


@pytest.mark.parametrize(("line", "code", "words"), REFUSED, ids=[line for line, _, _ in REFUSED])
def test_a_job_that_can_never_run_is_refused_unless_it_is_forced(
    line: str, code: ExitCode, words: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = config.parent / "state" / "events.jsonl"
    before = log.read_bytes()
    launch = ["--config", str(config), "launch", "--no-schedule", "--name", "odd"]
    assert app.run([*launch, *line.split()]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert words in said.err
    assert "--force submits the job anyway" in said.err
    assert "t0ken" not in said.err
    assert log.read_bytes() == before
    assert app.run([*launch, "--force", *line.split()]) == ExitCode.OK
    assert capsys.readouterr().out.startswith("odd\n")


@pytest.mark.parametrize("line", ["--workdir . -- ./job.sh", "--setup make -- ./job.sh", "-- /bin/job.sh"])
def test_a_program_that_may_be_there_is_accepted(line: str, config: Path) -> None:
    launch = ["--config", str(config), "launch", "--no-schedule"]
    assert app.run([*launch, *line.split()]) == ExitCode.OK


def test_a_job_that_ends_at_once_says_so(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    iris = ["--config", str(config)]
    assert app.run([*iris, "launch", "--no-schedule", "--name", "first", "--", "true"]) == ExitCode.OK
    assert app.run([*iris, "cancel", "first"]) == ExitCode.OK
    capsys.readouterr()
    assert app.run([*iris, "launch", "--name", "second", "--after", "first", "--", "true"]) == ExitCode.OK
    assert "second: UNSCHEDULABLE: dependency did not succeed: first (KILLED" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "code", "words"),
    [
        ("a.yaml", "command: 'true'\nworkdir: no", 3, "a.yaml:2: workdir: no is not a directory"),
        ("a.sh", "#!/bin/sh\n#IRIS --workdir no\n", 3, "a.sh:2: workdir: no is not a directory"),
        ("a.yaml", "name: a", 2, "a.yaml has no command\nhint: add command: or script: to the file"),
    ],
)
def test_the_error_about_a_job_file_names_the_file(
    name: str, text: str, code: int, words: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(name).write_text(text)
    launch = ["--config", str(config), "launch", "--dry-run", name]
    assert app.run(launch) == code
    assert words in capsys.readouterr().err
    assert app.run([*launch, "--workdir", ".", "--", "true"]) == 0  # options override the file
