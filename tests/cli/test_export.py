"""`iris export`: jobs of the state directory and job files, with and without a `cluster.yaml`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from iris_cli.cli import app
from iris_cli.errors import ExitCode
from tests.ops.export.exporting import container, document_of


def iris(*words: str) -> int:
    return app.run(list(words))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory, the current one."""
    monkeypatch.chdir(tmp_path)
    for name in ("IRIS_CONFIG", "XDG_CONFIG_HOME", "IRIS_STATE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


Capture = pytest.CaptureFixture[str]


def test_a_job_file_needs_no_cluster(place: Path, capsys: Capture) -> None:
    (place / "job.yaml").write_text("command: [echo, 'é\x7e']\nlease: 1h\n")
    assert iris("export", "job.yaml", "--to", "sbatch") == ExitCode.OK
    printed = capsys.readouterr()
    assert printed.err == "not exported: lease (no counterpart)\n"
    assert "#SBATCH --job-name=echo-1\n" in printed.out
    assert iris("export", "job.yaml", "--to", "sbatch", "--out", "job.sbatch") == ExitCode.OK
    assert (place / "job.sbatch").read_text() == printed.out
    assert capsys.readouterr().out == "wrote job.sbatch\n"
    assert sorted(path.name for path in place.iterdir()) == ["job.sbatch", "job.yaml"]


def test_a_job_script_is_run_where_it_is(place: Path, capsys: Capture) -> None:
    (place / "runs").mkdir()
    script = place / "runs" / "train.sh"
    script.write_text("#!/bin/sh\n#IRIS --cpu 2 --timeout 1h\necho hello\n")
    assert iris("export", "runs/train.sh", "--to", "sbatch") == ExitCode.USAGE
    assert "hint: chmod +x runs/train.sh" in capsys.readouterr().err
    script.chmod(0o755)
    assert iris("export", "runs/train.sh", "--to", "sbatch") == ExitCode.OK
    printed = capsys.readouterr()
    assert f"cd -- {place}/runs || exit" in printed.out
    assert "set -- ./train.sh\n" in printed.out
    assert "#SBATCH --cpus-per-task=2\n" in printed.out
    assert printed.err == f"to do: workdir: every node must see {place}/runs\n"
    script.write_text(f"#!/bin/sh\n#IRIS --workdir {place}\n")
    assert iris("export", "runs/train.sh", "--to", "sbatch") == ExitCode.OK
    assert "set -- ./runs/train.sh\n" in capsys.readouterr().out


def test_strict_writes_nothing(place: Path, capsys: Capture) -> None:
    (place / "job.yaml").write_text("command: 'true'\nlease: 1h\n")
    code = iris("export", "job.yaml", "--to", "sbatch", "--out", "job.sbatch", "--strict")
    assert code == ExitCode.USAGE
    assert "1 field not exported to sbatch: lease" in capsys.readouterr().err
    assert not (place / "job.sbatch").exists()


def test_the_defaults_of_a_cluster_count_for_a_job_file(place: Path, capsys: Capture) -> None:
    (place / "job.yaml").write_text("name: a\ncommand: 'true'\nenv: {B: job}\n")
    defaults = "defaults: {memory: 3GiB, env: {A: cluster, B: cluster}}"
    (place / "cluster.yaml").write_text(f"cluster: {{name: lab}}\nworkers: []\n{defaults}\n")
    assert iris("export", "job.yaml", "--to", "jobset", "--image", "img") == ExitCode.OK
    told = container(document_of(capsys.readouterr().out))
    env = {each["name"]: each.get("value") for each in told["env"]}
    assert (env["A"], env["B"]) == ("cluster", "job")
    assert json.loads(env["IRIS_TASK_DEFAULT_ENV_JSON"]) == {"A": "cluster", "B": "cluster"}
    assert told["resources"]["requests"]["memory"] == str(3 << 30)
    assert iris("export", "job.yaml", "--to", "sbatch") == ExitCode.OK
    script = capsys.readouterr().out
    assert script.index("export A=cluster") < script.index("export B=job")
    assert "--mem=3072M" in script


def test_a_cluster_that_is_named_must_be_there(place: Path, capsys: Capture) -> None:
    (place / "job.yaml").write_text("command: 'true'\n")
    assert iris("--config", "none.yaml", "export", "job.yaml", "--to", "sbatch") == ExitCode.CONFIG
    assert "none.yaml" in capsys.readouterr().err


def test_a_job_of_the_state_directory_is_exported_as_it_was_launched(place: Path, capsys: Capture) -> None:
    (place / "cluster.yaml").write_text("cluster: {name: lab}\nworkers: []\n")
    (place / "lines").write_text("a\nb\nc d\n")
    (place / "work").mkdir()
    (place / "work" / "file").write_text("x")
    launch = ("launch", "--no-schedule", "--force", "--name", "sweep", "--workdir", "work")
    assert iris(*launch, "--each-line", "lines", "--array", "0,2", "--", "true") == ExitCode.OK
    (place / "lines").write_text("changed\n" * 3)
    capsys.readouterr()
    assert iris("--json", "export", "sweep", "--to", "sbatch") == ExitCode.OK
    found = json.loads(capsys.readouterr().out)
    assert (found["job"], found["to"], found["file"]) == ("sweep", "sbatch", None)
    assert "1) IRIS_EACH_LINE='c d' ;;" in found["text"]
    assert "#SBATCH --array=0,2\n" in found["text"]
    [note] = found["notes"]
    assert note == {
        "field": "workdir",
        "text": "the packed workspace 'work' is not exported: submit from a directory with the same files",
        "lost": True,
    }
    assert iris("export", "sweeep", "--to", "sbatch") == ExitCode.NOT_FOUND
    assert "did you mean 'sweep'" in capsys.readouterr().err
