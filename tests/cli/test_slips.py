"""Slips of the pen, wherever one can be made: what is said is what was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from iris_cli.cli import app
from iris_cli.core.text import did_you_mean, nearest, one_of
from iris_cli.errors import ExitCode, UsageError
from tests.render.scenes import busy, session_of

USAGE, ABSENT = ExitCode.USAGE, ExitCode.NOT_FOUND

# What is typed, what it comes to, and what was meant.
SLIPS = [
    ("stauts", USAGE, "'status'"),  # commands
    ("log verfy", USAGE, "'verify'"),
    ("cron instal", USAGE, "'install'"),
    ("ls", USAGE, "'status'"),  # commands of other tools
    ("squeue", USAGE, "'status'"),
    ("sbatch job.sh", USAGE, "'launch'"),
    ("kill train", USAGE, "'cancel'"),
    ("nodes", USAGE, "'workers'"),
    ("drain cpu-0", USAGE, "'worker drain'"),
    ("apply -f job.yaml", USAGE, "'launch'"),
    ("bsub -n 4 ./a.sh", USAGE, "'launch'"),
    ("kubectl get pods", USAGE, "'status'"),
    ("taint cpu-0 slow", USAGE, "'worker taint'"),
    ("launch --retries 3 -- true", USAGE, "'--max-retries-failure'"),  # options of other tools
    ("launch --max-retries 3 -- true", USAGE, "'--max-retries-failure'"),
    ("launch --nodes=2 -- true", USAGE, "'--replicas' or '--slices'"),
    ("launch -N2 -- true", USAGE, "'--replicas' or '--slices'"),
    ("launch --ntasks 8 -- true", USAGE, "'--replicas'"),
    ("launch -n 8 -- true", USAGE, "'--replicas'"),
    ("launch --gpus 2 -- true", USAGE, "'--gpu'"),
    ("launch --gres gpu:2 -- true", USAGE, "'--gpu'"),
    ("worker uncordn v5a-0", USAGE, "'uncordon'"),
    ("cluster imprt x", USAGE, "'import'"),
    ("status --lable x", USAGE, "'--label'"),  # options
    ("--jsn status", USAGE, "'--json'"),
    ("status --verbos", USAGE, "'--verbose'"),
    ("launch --tup v5litepod-16 -- true", USAGE, "'--tpu'"),
    ("log export --aftr 3", USAGE, "'--after'"),
    ("launch --tolerat x -- true", USAGE, "'--tolerate'"),
    ("status trian", ABSENT, "'train'"),  # jobs
    ("status train/task-0", ABSENT, "'train'"),
    ("wait eavl", ABSENT, "'eval'"),
    ("cancel trian", ABSENT, "'train'"),
    ("cancel trian --prefix", ABSENT, "'train'"),
    ("history trian", ABSENT, "'train'"),
    ("launch --dry-run --after trian -- true", ABSENT, "'train'"),
    ("logs trian", ABSENT, "'train'"),  # jobs and tasks
    ("logs train/tsk-0", ABSENT, "'train/task-0'"),
    ("logs trian/task-1", ABSENT, "'train/task-1'"),
    ("stacks train/2", ABSENT, "'train/task-2'"),
    ("pull train/taks-3", ABSENT, "'train/task-3'"),
    ("why train/task-2/attempt-0", ABSENT, "'train/task-2'"),
    ("exec trian -- true", ABSENT, "'train'"),
    ("exec v5a0 -- true", ABSENT, "'v5a-0'"),  # workers
    ("ssh v5a0", ABSENT, "'v5a-0'"),
    ("why cpu0", ABSENT, "'cpu-0'"),
    ("worker show cpu0", ABSENT, "'cpu-0'"),
    ("worker drain cpu0", ABSENT, "'cpu-0'"),
    ("worker unwedge cpu0", ABSENT, "'cpu-0'"),
    ("status --state runing", USAGE, "'running'"),  # states
    ("logs train --stream bth", USAGE, "'both'"),  # words of which there are few
    ("stacks train --signal UR1", USAGE, "'USR1'"),
    ("launch --dry-run --signal URS1@20 -- true", USAGE, "'USR1'"),
    ("launch --dry-run --env-preset slrum -- true", USAGE, "'slurm'"),
    ("launch --dry-run --priority hihg -- true", USAGE, "'high'"),
    ("launch --dry-run --replace-lost nver -- true", USAGE, "'never'"),
    ("cluster import --address intenal x", USAGE, "'internal'"),
    ("cluster import --from gpc", USAGE, "'gcp'"),
    ("launch --dry-run --tpu v5litpod -- true", USAGE, "'v5litepod-8'"),  # types
    ("launch --dry-run --tpu v5litpod-16 -- true", ExitCode.UNSCHEDULABLE, "'v5litepod-16'"),
]
# What is no error, but most probably one of the person's.
DOUBTS = [
    ("status --label taem=nlp", "no job has the label 'taem'; did you mean 'team'?"),
    ("status --label team=vison", "no job has the label team=vison; did you mean 'vision'?"),
    ("launch --dry-run --force -c regoin=us -- true", "did you mean 'region'?"),
    ("launch --dry-run --force --group-by regoin --replicas 2 -- true", "did you mean 'region'?"),
]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cluster whose log is that of the busy lab, with nobody to ask. What is refused changes nothing of it."""
    root = tmp_path_factory.mktemp("slips")
    session_of(busy(), root / "state")
    path = root / "cluster.yaml"
    path.write_text("cluster: {name: lab}\nworkers: [{id: cpu-0, host: nowhere.invalid}]\n")
    return path


@pytest.mark.parametrize(("line", "code", "meant"), SLIPS)
def test_a_slip_gets_what_was_meant(
    line: str, code: ExitCode, meant: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(["--config", str(config), *line.split()]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("error: ") == 1
    assert f"hint: did you mean {meant}?" in said.err


@pytest.mark.parametrize(("line", "words"), DOUBTS)
def test_a_label_that_no_job_has_is_reported_with_a_similar_one(
    line: str, words: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(["--config", str(config), *line.split()]) == ExitCode.OK
    assert words in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("cancel train --reason \udcff", "--reason"),
        ("worker drain cpu-0 --reason \udcff", "--reason"),
        ("worker forget cpu-0 --reason \udcff", "--reason"),
        ("exec cpu-0 -- echo \udcff", "argument 1"),
        ("launch --dry-run --force --gpu \udcff -- true", "device"),
        ("launch --dry-run -- echo \udcff", "argument 1"),
    ],
)
def test_bytes_that_are_no_text_are_refused_before_they_reach_the_log(
    line: str, field: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(["--config", str(config), *line.split()]) == USAGE
    assert f"error: {field} is not valid UTF-8 text" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["why v5a", "worker drain v5a", "exec v5a -- true", "ssh v5a"])
def test_a_slice_is_told_from_its_workers(
    line: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(["--config", str(config), *line.split()]) == ExitCode.NOT_FOUND
    assert "hint: v5a is a slice; its workers are v5a-0, v5a-1, v5a-2, v5a-3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("exec train nvidia-smi", "hint: put -- before the command: -- nvidia-smi"),
        ("status train extra", "error: unexpected argument for `iris status`: extra"),
        ("status --at", "hint: iris status --help"),
        ("frobnicate", "hint: iris --help"),
        ("status --frobnicate", "hint: iris status --help"),
        ("status qqq", "hint: `iris status` lists the jobs"),
        ("worker show qqq", "hint: `iris workers` lists the workers"),
        ("status --version", "hint: it goes before the command: iris --version"),
        ("status --versio", "hint: iris status --help"),
        ("--versio", "hint: did you mean '--version'?"),
        ("status --state-dir", "error: --state-dir needs a value"),
        ("status --state-dir=", "error: --state-dir needs a value"),
        ("history --limit x", "'x' is not a whole number\n"),
        ("launch --replicas x -- true", "'x' is not a whole number\n"),
        ("launch --replicas 2.0 -- true", "invalid value for '--replicas': '2.0' is not a whole number\n"),
        ("launch --replicas 1_0 -- true", "invalid value for '--replicas': '1_0' is not a whole number\n"),
        ("launch --slices ٣ -- true", "invalid value for '--slices': '٣' is not a whole number\n"),
        ("launch --cpu 1_0 -- true", "invalid value for '--cpu': '1_0' is not a number\n"),
        ("launch --cpu inf -- true", "invalid value for '--cpu': 'inf' is not a number\n"),
        ("launch --timeout 1_0 -- true", "--timeout: '1_0' is not a duration\n"),
        ("wait train --timeout ٣", "'٣' is not a duration\n"),
        ("logs train --attempt -1", "invalid value for '--attempt': -1 is less than 0\n"),
        ("logs train --rank 1_0", "invalid value for '--rank': '1_0' is not a whole number\n"),
        ("schedule --lock-timeout soon", "'soon' is not a number\n"),
        ("schedule --lock-timeout nan", "nan is not a number of seconds to wait"),
        ("schedule --interval nan", "invalid value for '--interval': 'nan' is not a duration\n"),
        ("schedule --interval 50ms", "invalid value for '--interval': 50ms is less than 0.1s\n"),
        ("autoscale --interval inf", "invalid value for '--interval': 'inf' is not a duration\n"),
        ("watch --interval 1e10", "is not a number of seconds to wait"),
    ],
)
def test_a_word_like_no_other_gets_the_command_that_lists_them(
    line: str, words: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(["--config", str(config), *line.split()]) in (ExitCode.USAGE, ExitCode.NOT_FOUND)
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("group", ["worker", "log", "cron", "cluster", "config"])
def test_a_group_alone_shows_its_commands(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run([group]) == ExitCode.USAGE
    said = capsys.readouterr()
    assert (said.out, "error" in said.err) == ("", False)
    assert "Commands:\n" in said.err


@pytest.mark.parametrize(
    ("word", "words", "meant"),
    [
        ("stauts", ["status", "stacks"], "status"),
        ("west", ["west-3", "west-0", "wes"], "west-0"),  # what begins so, the first of it
        ("TRAIN-1", ["eval-1", "train-1"], "train-1"),
        ("tup", ["setup", "tpu", "group-by"], "tpu"),  # two letters swapped, however like another word it is
        ("w", ["west-0"], None),  # a letter may be the beginning of anything
        ("", ["a"], None),
        ("zebra", ["status"], None),
        ("x" * 100_000, ["status"], None),
    ],
)
def test_the_nearest_word(word: str, words: list[str], meant: str | None) -> None:
    assert nearest(word, words) == meant
    assert did_you_mean(word, words) == (f"did you mean {meant!r}?" if meant else "")


def test_one_of_a_few_words_is_taken_in_any_case() -> None:
    assert one_of(" High", ["low", "high"]) == "high"
    with pytest.raises(UsageError) as caught:
        one_of("\x1b[2Jhihg" + "h" * 500, ["low", "high"])
    assert len(caught.value.message) < 150


def test_an_option_of_another_tool_is_not_suggested_where_the_command_has_none_like_it(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(["--config", str(config), "status", "-n", "8"]) == USAGE
    assert "hint: iris status --help\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["run", "--replicas", "2", "--", "true"], ["run", "--json", "true"], ["run"]]
)
def test_an_invalid_line_of_run_has_an_exit_code_that_is_not_the_program_s(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(words) == ExitCode.NOT_RUN
    assert "hint" in capsys.readouterr().err


def test_a_taint_that_a_worker_does_not_have_is_not_said_to_be_removed(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        app.run(["--config", str(config), "worker", "taint", "cpu-0", "slow-dsk", "--remove"]) == ExitCode.OK
    )
    assert capsys.readouterr().err.endswith("cpu-0: has no taint slow-dsk\n")


def test_a_time_limit_of_zero_is_outside_the_range_in_its_error(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(["--config", str(config), "exec", "cpu-0", "--timeout", "0", "--", "true"]) == USAGE
    assert "--timeout 0 must be more than 0 and at most one day" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line", ["launch --workdir", "launch --env-file", "launch --each-line", "pull train --dir"]
)
def test_an_empty_path_is_not_taken_for_the_current_directory(
    line: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(["--config", str(config), *line.split(), "", "--", "true"]) == USAGE
    assert f"invalid value for '{line.split()[-1]}': must not be blank\n" in capsys.readouterr().err
