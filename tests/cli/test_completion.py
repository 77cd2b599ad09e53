"""What Tab offers: names out of the log, in real shells, and nothing that a shell would run."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from select import select

import pytest

from iris_cli.cli import app, complete
from iris_cli.core.model.job import EnvPreset, JobState, Priority, ReplaceLost
from iris_cli.ops.logs.log_reading import BOTH
from tests.render.scenes import busy, session_of
from tests.support.waiting import PATIENCE

Completed = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a cluster with the busy log, and of an `iris` to be found on the path."""
    root = tmp_path_factory.mktemp("lab")
    session_of(busy(), root / "state")
    (root / "cluster.yaml").write_text(
        "cluster: {name: lab}\nworkers: [{id: cpu-0, host: nowhere.invalid}]\n"
    )
    program = root / "bin" / "iris"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m iris_cli "$@"\n')
    program.chmod(0o755)
    return root


def environment(lab: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("IRIS_")}
    paths = {
        "PATH": f"{lab / 'bin'}:{kept['PATH']}",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    return {**kept, **paths, "IRIS_CONFIG": str(lab / "cluster.yaml"), "HOME": str(lab), "TERM": "dumb"}


@pytest.fixture
def completed(lab: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Completed:
    """What is offered for a line up to the cursor."""
    monkeypatch.setenv("_IRIS_COMPLETE", "complete_bash")
    monkeypatch.setenv("IRIS_CONFIG", str(lab / "cluster.yaml"))
    monkeypatch.delenv("IRIS_STATE_DIR", raising=False)

    def offers(line: str) -> list[str]:
        words = [
            piece for word in line.split(" ") for piece in re.split("([=:@]+)", word) if piece or not word
        ]
        monkeypatch.setenv("COMP_WORDS", "\n".join(words))  # as bash cuts it, and says it
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        with pytest.raises(SystemExit):
            app.run([])
        said = capsys.readouterr()
        assert said.err == ""
        return said.out.split()

    return offers


@pytest.mark.parametrize(
    ("line", "offers"),
    [
        ("iris sta", "status stacks"),
        ("iris log", "logs log"),
        ("iris status --a", "--at --all"),
        ("iris logs tr", "train"),
        ("iris logs train/", "train/task-0 train/task-1 train/task-2 train/task-3"),
        ("iris logs train/task-3", "train/task-3"),
        ("iris --json logs tr", "train"),
        ("iris status ", "train prep eval big"),
        ("iris cancel e", "eval"),
        ("iris cancel eval b", "big"),
        ("iris stacks ", "train prep"),
        ("iris exec v5a-", "v5a-0 v5a-1 v5a-2 v5a-3"),
        ("iris why v5a-0", "v5a-0"),
        ("iris worker dr", "drain"),
        ("iris worker show cpu", "cpu-0 cpu-1"),
        ("iris worker drain v5a-0 v5a-1", "v5a-1"),
        ("iris status --state f", "failed"),
        ("iris launch --tpu v", "v5litepod-16"),
        ("iris launch --after tr", "train"),
        ("iris launch --env-preset ", "jax slurm torchrun"),
        ("iris launch -- tr", ""),
        ("iris launch --env-preset=sl", "slurm"),  # of a word that bash cuts, what follows the last cut
        ("iris status --label te", "team=vision"),
        ("iris status --label=te", "team=vision"),
        ("iris status --label team=", "vision"),
        ("iris status --label team=v", "vision"),
        ("iris status --label=team=v", "vision"),
        ("iris status --label team=vision tr", "train"),
        ("iris launch -e A= --env-preset sl", "slurm"),
        ("iris --lock-timeout=3 logs tr", "train"),
        ("iris logs nothing-like-it", ""),
    ],
)
def test_a_line_gets_these(line: str, offers: str, completed: Completed) -> None:
    assert completed(line) == offers.split()


@pytest.mark.parametrize(
    ("line", "zsh", "fish"),
    [
        ("iris status --label te", "_arguments '*: :((\"team=vision\"))'", "team=vision"),
        ("iris status --label=te", "_arguments '*: :((\"--label=team=vision\"))'", "--label=team=vision"),
        ("iris launch --priority=", None, "--priority=high --priority=normal --priority=low"),
        (
            "iris launch -e A=b --env-preset=",
            '_arguments \'*: :(("--env-preset=jax"\n"--env-preset=slurm"\n"--env-preset=torchrun"))\'',
            "--env-preset=jax --env-preset=slurm --env-preset=torchrun",
        ),
        ("iris status --state=f tr", "_arguments '*: :((\"train\"))'", "train"),
        ("iris status --label=nothing", "_files", ""),
        ("iris --lock-timeout=3 sta", None, "status stacks"),
    ],
)
def test_shells_that_replace_whole_words_get_them_with_their_option(
    line: str,
    zsh: str | None,
    fish: str,
    lab: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("IRIS_CONFIG", str(lab / "cluster.yaml"))
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    for shell, expected in (("zsh", zsh), ("fish", fish)):
        monkeypatch.setenv("_IRIS_COMPLETE", f"complete_{shell}")
        with pytest.raises(SystemExit):
            app.run([])
        said = capsys.readouterr().out.strip()
        names = " ".join(each.partition("\t")[0] for each in said.splitlines())
        assert expected in (None, said, names)


def test_nothing_is_changed_and_nothing_is_said_where_there_is_nothing(
    lab: Path, tmp_path: Path, completed: Completed, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path.name: path.read_bytes() for path in (lab / "state").iterdir()}
    assert completed("iris logs tr") == ["train"]
    assert {path.name: path.read_bytes() for path in (lab / "state").iterdir()} == before
    for text in ("{", "cluster: {name: lab}\n"):
        (tmp_path / "cluster.yaml").write_text(text)
        monkeypatch.setenv("IRIS_CONFIG", str(tmp_path / "cluster.yaml"))
        assert completed("iris logs tr") == []
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.yaml"]


def test_neither_network_nor_lock_is_loaded(lab: Path) -> None:
    program = (
        "import atexit, sys; atexit.register(lambda: print('\\n', *sys.modules));"
        "from iris_cli.cli.app import main; main()"
    )
    env = {
        **environment(lab),
        "_IRIS_COMPLETE": "complete_bash",
        "COMP_WORDS": "iris\nlogs\ntr",
        "COMP_CWORD": "2",
    }
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False
    )
    names, _, modules = done.stdout.partition("\n")
    assert (names, done.stderr) == ("train", "")
    assert {"paramiko", "filelock", "iris_cli.remote.ssh", "iris_cli.cli.commands.launch"}.isdisjoint(
        modules.split()
    )


def test_a_completion_that_takes_too_long_offers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: object) -> Iterator[str]:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            pass
        yield "train"

    monkeypatch.setattr(complete, "TIME_LIMIT", 0.05)
    monkeypatch.setattr(complete, "_cluster", lambda _: None)
    assert complete.offer_names(slow)(None, "") == []


def test_the_number_of_offered_names_is_limited() -> None:
    assert complete.filter_names((f"job-{number}" for number in range(10_000)), "job-") == [
        f"job-{number}" for number in range(complete.MAX_OFFERED)
    ]


HOSTILE = (
    "t=$(touch ran)",
    "t=`touch ran`",
    "t=a;touch ran",
    "t=*",
    "t=a b",
    "t='",
    't="',
    "t=\n",
    "t=~",
    "t=\x1b[2J",
    "t=!!",
)


def test_names_that_a_shell_would_expand_are_not_offered() -> None:
    assert complete.filter_names([*HOSTILE, "t=fine-1.0_x/y", "t=é"], "t") == ["t=fine-1.0_x/y"]


@pytest.mark.parametrize(
    ("callback", "kind"),
    [
        (complete.offer_words(EnvPreset), EnvPreset),
        (complete.offer_words(Priority), Priority),
        (complete.offer_words(ReplaceLost), ReplaceLost),
    ],
)
def test_the_words_that_are_offered_are_those_that_are_taken(
    callback: complete.Callback, kind: type[StrEnum]
) -> None:
    assert callback(None, "") == [each.lower() for each in kind]


def test_states_and_display_words_are_offered() -> None:
    displays = ["stopped", "stopping", "retrying"]
    assert complete.STATE(None, "") == [*(each.lower() for each in JobState), *displays]
    assert complete.STATE(None, "st") == ["stopped", "stopping"]


def test_names_of_streams_are_offered() -> None:
    assert complete.STREAM(None, "") == [*BOTH, "both"]


# Real shells

BASH = 'eval "$(_IRIS_COMPLETE=source_bash iris)"\n'
ZSH = 'autoload -U compinit; compinit -u -D; eval "$(_IRIS_COMPLETE=source_zsh iris)"\n'
FISH = "_IRIS_COMPLETE=source_fish iris | source\n"
SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], BASH),
    "zsh": (["zsh", "-f", "-i"], ZSH),
    "fish": (["fish", "--no-config", "-i"], FISH),
}


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_tab_completes_the_name_of_a_job_in_a_real_shell(shell: str, lab: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    command, set_up = SHELLS[shell]
    with terminal(command, lab) as (send, wait_for):
        send(f"PS1='> '; {set_up}echo re''ady\n")
        wait_for("ready")
        wait_for("> ")
        send("iris logs tr\t")
        wait_for("iris logs train ")
        send("\x15iris status --label=te\t")
        wait_for("iris status --label=team=vision")


def test_fish_offers_the_same(lab: Path) -> None:
    if shutil.which("fish") is None:
        pytest.skip("there is no fish here")
    done = subprocess.run(
        [
            "fish",
            "--no-config",
            "-c",
            f"{FISH}complete -C 'iris logs tr'; complete -C 'iris worker show v5a-'; "
            "complete -C 'iris status --label=te'",
        ],
        env=environment(lab),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    offered = ["train", "v5a-0", "v5a-1", "v5a-2", "v5a-3", "--label=team=vision"]
    assert (done.stdout.split(), done.stderr) == (offered, "")


def test_bash_runs_and_expands_nothing_of_what_a_label_says(lab: Path, tmp_path: Path) -> None:
    if shutil.which("bash") is None:
        pytest.skip("there is no bash here")
    (tmp_path / "cluster.yaml").write_text((lab / "cluster.yaml").read_text())
    labels = [word for label in (*HOSTILE, "t=fine") if label.isprintable() for word in ("--label", label)]
    env = {**environment(lab), "IRIS_CONFIG": str(tmp_path / "cluster.yaml")}
    for number in range(0, len(labels), 2):
        words = [
            f"--config={tmp_path / 'cluster.yaml'}",
            "launch",
            "--no-schedule",
            *labels[number : number + 2],
        ]
        assert app.run([*words, "--quiet", "--", "true"]) == 0
    script = (
        BASH + "COMP_WORDS=(iris status --label t); COMP_CWORD=3; _iris_completion iris; declare -p COMPREPLY"
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.stdout == 'declare -a COMPREPLY=([0]="t=fine")\n'
    assert not list(tmp_path.rglob("ran"))


@contextmanager
def terminal(command: list[str], lab: Path) -> Iterator[tuple[Callable[[str], None], Callable[[str], None]]]:
    """A shell on a terminal of its own: how to type, and how to wait for what it shows."""
    ours, theirs = pty.openpty()
    shell = subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(lab),
        cwd=lab,
        start_new_session=True,
        close_fds=True,
    )
    os.close(theirs)
    shown = ""

    def wait_for(text: str) -> None:
        nonlocal shown
        until = time.monotonic() + PATIENCE
        while text not in shown:
            assert time.monotonic() < until, f"never showed {text!r}: {shown!r}"
            if select([ours], [], [], 0.5)[0]:
                shown += os.read(ours, 65_536).decode("utf-8", "replace")
        shown = shown.partition(text)[2]

    try:
        yield (lambda text: void(os.write(ours, text.encode()))), wait_for
    finally:
        shell.kill()
        shell.wait()
        os.close(ours)


def void(_: object) -> None:
    """Whoever types wants no result."""
