"""What the environment of a loop lacks is said with what to type."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from iris_cli.core.ids import JobId
from iris_cli.core.messages.observations import SilenceKind
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.worker import WorkerCondition
from iris_cli.journal.files.runners import LOOP, runners_of
from iris_cli.ops.loop.run import environment_troubles, missing_secrets_by_job
from iris_cli.ops.secret_values import NOT_SET
from iris_cli.ops.views.why import why
from tests.ops.loop.loop_lab import LoopLab


def troubles(cluster: Cluster, **environ: str) -> list[str]:
    return list(environment_troubles(cluster, {}, environ))


@pytest.fixture
def refused(tmp_path: Path) -> Cluster:
    """A cluster whose only worker does not accept our key any more."""
    lab = LoopLab(tmp_path, "w0")
    lab.site.launch("train")
    lab.site.cycle()
    lab.site.hosts["w0"].silence = SilenceKind.AUTH
    return lab.site.cycle(10.0)


def test_an_agent_that_is_gone_is_named(refused: Cluster, tmp_path: Path) -> None:
    assert troubles(refused, SSH_AUTH_SOCK=str(tmp_path / "gone")) == [
        "the loop's SSH agent is gone and w0 refused its key; run `iris loop start` in a shell that has an agent"
    ]


def test_a_key_that_is_refused_is_named(
    refused: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = [
        "w0 refused its key; run `iris doctor`, then run `iris loop start` in a shell that has the right one"
    ]
    assert troubles(refused) == said
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind("agent")
        assert troubles(refused, SSH_AUTH_SOCK=str(tmp_path / "agent")) == said


def test_a_key_that_this_machine_does_not_have_is_named(refused: Cluster) -> None:
    for each in refused.workers.values():
        each.condition, each.reason = WorkerCondition.SUSPECT, "key: no such key file: /home/me/.ssh/gone"
    said = "w0 can't be reached: no such key file: /home/me/.ssh/gone; run `iris doctor`"
    assert troubles(refused) == [said]


def test_without_a_refusal_nothing_is_said_of_agents(tmp_path: Path) -> None:
    assert troubles(LoopLab(tmp_path, "w0").site.cluster, SSH_AUTH_SOCK=str(tmp_path / "gone")) == []


def test_a_secret_that_only_another_shell_has_is_missing_in_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = LoopLab(tmp_path, "w0")
    monkeypatch.delenv("WANDB", raising=False)
    for name in ("train", "eval"):
        lab.site.launch(name, secrets=("WANDB",), force=True)
    lab.site.launch("plain")
    not_set = {"WANDB": "not set in this shell"}
    assert missing_secrets_by_job(lab.site.cluster) == {"train": not_set, "eval": not_set}
    assert list(environment_troubles(lab.site.cluster, missing_secrets_by_job(lab.site.cluster), {})) == [
        "secret WANDB of train, eval is not in the loop's environment; run `iris loop start` in a shell that has it"
    ]
    assert lab.run(60) is None
    assert lab.running() == ["plain/task-0"]
    said = runners_of(lab.site.session().state.read_heartbeat())[LOOP]
    assert said["missing"] == {"train": ["WANDB"], "eval": ["WANDB"]}
    assert len(said["troubles"]) == 1
    monkeypatch.setenv("WANDB", "token")
    assert missing_secrets_by_job(lab.site.cluster) == {}


def test_a_job_that_the_loop_has_not_looked_at_yet_lacks_what_this_shell_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = LoopLab(tmp_path, "w0")
    monkeypatch.delenv("WANDB", raising=False)
    said: list[str] = []

    def launch() -> None:
        lab.site.launch("train", secrets=("WANDB",), force=True)
        look()

    def look() -> None:
        said.extend(each.prospect for each in why(lab.site.session(), "train").waits)

    lab.site.gang("runs", 1)
    lab.at(47.0, launch)
    lab.at(55.0, look)
    assert lab.run(60) is None
    assert said == [
        "secret WANDB: not set in this shell",
        "secret WANDB: not in the loop's environment",
    ]


def test_a_secret_in_a_file_that_can_not_be_used_says_what_is_wrong_with_the_file(tmp_path: Path) -> None:
    lab = LoopLab(tmp_path, "w0")
    file = tmp_path / "token"
    file.write_text("secret")
    file.chmod(0o644)
    lab.site.launch("train", secrets=(f"WANDB=@{file}",), force=True)
    problem = f"{file} is readable by others (chmod 600 {file})"
    said = list(environment_troubles(lab.site.cluster, missing_secrets_by_job(lab.site.cluster), {}))
    assert said == [f"secret WANDB of train: {problem}"]
    screens = []
    lab.at(30.0, lambda: screens.append(why(lab.site.session(), "train")))
    assert lab.run(60) is None
    [[wait]] = [each.waits for each in screens]
    assert wait.prospect == f"secret WANDB: {problem}"


def test_many_jobs_that_lack_the_same_secret_make_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = LoopLab(tmp_path, "w0")
    missing = {JobId(f"job-{number}"): dict.fromkeys("AB", NOT_SET) for number in range(5)}
    said = list(environment_troubles(lab.site.cluster, missing, {}))
    assert [each.partition(" is not")[0] for each in said] == [
        "secret A of job-0, job-1, job-2 and 2 more",
        "secret B of job-0, job-1, job-2 and 2 more",
    ]
