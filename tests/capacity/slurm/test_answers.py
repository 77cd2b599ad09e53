"""Answers of a Slurm that is not on this machine: a recorder stands for its commands."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from iris_cli.capacity.provider import ProviderError
from iris_cli.capacity.slurm.commands import CommandOutput
from iris_cli.capacity.slurm.provider import SlurmProvider, build_comment
from iris_cli.capacity.slurm.reading import SEPARATOR
from iris_cli.core.messages.cloud import CloudSlice, CloudState, Refusal
from iris_cli.core.model.slice import Slice, SliceState
from tests.support.slurm_slices import slurm_group

FAILED = CommandOutput(1, "", "error: Unable to contact slurm controller")
CGROUPS = CommandOutput(0, "ProctrackType           = proctrack/cgroup\n", "")
Answer = CommandOutput | Callable[[Sequence[str]], CommandOutput]


class Recorder:
    """Answers commands by name, and records them. A command without an answer fails."""

    def __init__(self, **answers: Answer) -> None:
        self.commands: list[Sequence[str]] = []
        self._answers = answers

    def __call__(self, command: Sequence[str]) -> CommandOutput:
        self.commands.append(command)
        answer = self._answers.get(command[0], FAILED)
        return answer if isinstance(answer, CommandOutput) else answer(command)

    def called(self, name: str) -> list[Sequence[str]]:
        return [command for command in self.commands if command[0] == name]


def job(number: int, name: str = "west-1", **fields: Any) -> dict[str, Any]:
    shown = {
        "job_id": number,
        "name": name,
        "comment": build_comment(name, "us", "west"),
        "job_state": ["PENDING"],
    }
    return {**shown, "submit_time": {"set": True, "infinite": False, "number": 5}, **fields}


def squeue(
    release: str, *jobs: dict[str, Any], errors: Sequence[object] = (), columns: CommandOutput = FAILED
) -> Callable[[Sequence[str]], CommandOutput]:
    """An `squeue` that prints these jobs as JSON, whatever the filters."""

    def answer(command: Sequence[str]) -> CommandOutput:
        if "--version" in command:
            return CommandOutput(0, f"slurm {release}\n", "")
        return (
            CommandOutput(0, json.dumps({"jobs": jobs, "errors": errors}), "")
            if "--json" in command
            else columns
        )

    return answer


def columns(state: str, nodes: str = "n[0-1]") -> CommandOutput:
    fields = ("7", "5", "NONE", "0", state, nodes, "west-1", build_comment("west-1", "us", "west"), "None")
    return CommandOutput(0, SEPARATOR.join(fields), "")


def states(*lines: tuple[str, str]) -> CommandOutput:
    return CommandOutput(0, "\n".join(SEPARATOR.join((*line, "none")) for line in lines), "")


def hostnames(command: Sequence[str]) -> CommandOutput:
    return CGROUPS if "config" in command else CommandOutput(0, "n0\nn1\n", "")


KNOWN = {
    "west-1": Slice(
        name="west-1",
        group="west",
        template=slurm_group().template,
        state=SliceState.READY,
        incarnation="7 5",
    )
}


def listed(run: Recorder) -> CloudSlice:
    [there] = SlurmProvider("us", KNOWN, run=run).list()
    return there


def test_a_later_release_is_asked_for_json() -> None:
    run = Recorder(squeue=squeue("24.05.3", job(7, state_reason="Priority")))
    [there] = SlurmProvider("us", run=run).list()
    assert (there.state, there.group, there.remark) == (
        CloudState.CREATING,
        "west",
        "Slurm job 7: PENDING (Priority)",
    )
    assert not any(each.startswith("--format") for command in run.commands for each in command)


@pytest.mark.parametrize("release", ["22.05.8", "23.02.6", "23.11.10", "24.05.0"])
def test_json_is_not_used_before_it_is_filtered(release: str) -> None:
    """Before 24.05.1, `squeue --json` ignores filters: it prints the jobs of other users, too."""
    run = Recorder(squeue=squeue(release, job(8), columns=columns("PENDING", "")))
    assert listed(run).remark == "Slurm job 7: PENDING"
    assert not any("--json" in command for command in run.commands)


def test_only_the_jobs_of_a_slice_are_cancelled_even_if_slurm_ignores_the_filter() -> None:
    run = Recorder(squeue=squeue("24.05.3", job(7), job(8, "west-2")), scancel=CommandOutput(0, "", ""))
    SlurmProvider("us", run=run).delete("west-1")
    assert run.called("scancel") == [["scancel", "7"]]


def test_other_jobs_do_not_prevent_a_submission_if_slurm_ignores_the_filter() -> None:
    run = Recorder(squeue=squeue("24.05.3", job(8, "west-2")), sbatch=CommandOutput(0, "9\n", ""))
    SlurmProvider("us", run=run).create("west-1", slurm_group())
    assert len(run.called("sbatch")) == 1


def test_json_with_errors_is_no_answer() -> None:
    """squeue can print an empty list with exit status 0 if slurmctld does not answer."""
    run = Recorder(squeue=squeue("24.05.3", errors=[{"error": "Unspecified error"}]))
    with pytest.raises(ProviderError) as refused:
        SlurmProvider("us", run=run).list()
    assert refused.value.refusal is Refusal.UNANSWERED


def test_the_end_of_a_job_is_proof_only_if_each_node_is_known_to_be_up() -> None:
    up = (("n0", "idle"), ("n1", "mixed"))
    for sinfo, is_proof in (
        (states(*up), True),
        (states(("n0", "idle"), ("n1", "down*")), False),
        (states(("n0", "idle"), ("n1", "inval")), False),
        (states(*up[:1]), False),
        (FAILED, False),
    ):
        run = Recorder(squeue=squeue("22.05.8", columns=columns("TIMEOUT")), sinfo=sinfo, scontrol=hostnames)
        assert listed(run).processes_gone is is_proof, sinfo
    never_ran = Recorder(squeue=squeue("22.05.8", columns=columns("CANCELLED", "")), scontrol=hostnames)
    assert not listed(never_ran).processes_gone


def _hang(command: Sequence[str]) -> CommandOutput:
    raise ProviderError(Refusal.UNANSWERED, f"{command[0]}: no answer after 60s")


def test_the_accounts_tell_the_end_of_a_job_that_slurmctld_has_forgotten() -> None:
    line = "7|5|CANCELLED by 1000|n[0-1]|None\n"
    forgotten = squeue("22.05.8", columns=CommandOutput(0, "", ""))
    ended = listed(
        Recorder(squeue=forgotten, sacct=CommandOutput(0, line, ""), scontrol=hostnames, sinfo=_hang)
    )
    assert (ended.state, ended.remark, ended.processes_gone) == (
        CloudState.ENDED,
        "Slurm job 7: CANCELLED",
        False,
    )
    another = CommandOutput(0, line.replace("|5|", "|6|"), "")
    for sacct in (
        another,
        CommandOutput(0, "", ""),
        CommandOutput(0, "7|5|RUN", ""),
        FAILED,
        CommandOutput(127, "", "not found"),
        _hang,
    ):
        assert SlurmProvider("us", KNOWN, run=Recorder(squeue=forgotten, sacct=sacct)).list() == ()


@pytest.mark.parametrize("answer", [FAILED, CommandOutput(0, "", "killed"), CommandOutput(-9, "", "")])
def test_an_incomplete_answer_is_no_listing(answer: CommandOutput) -> None:
    """An empty list is an answer only with exit status 0: by format, squeue prints nothing else for no jobs."""
    run = Recorder(squeue=squeue("22.05.8", columns=answer))
    if answer.status == 0:
        assert SlurmProvider("us", run=run).list() == ()
        return
    with pytest.raises(ProviderError) as refused:
        SlurmProvider("us", run=run).list()
    assert refused.value.refusal is Refusal.UNANSWERED
