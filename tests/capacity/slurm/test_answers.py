"""Answers of a Slurm that is not on this machine: a recorder stands for its commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from iris_cli.capacity.provider import ProviderError
from iris_cli.capacity.slurm.commands import SEPARATOR, CommandOutput
from iris_cli.capacity.slurm.provider import SlurmProvider, build_comment
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


def columns(state: str, nodes: str = "n[0-1]", name: str = "west-1", number: int = 7) -> CommandOutput:
    comment = build_comment(name, "us", "west")
    fields = (str(number), "5", "NONE", "0", state, nodes, name, comment, "None")
    return CommandOutput(0, SEPARATOR.join(fields) + "\n", "")


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


def test_only_the_jobs_of_a_slice_are_cancelled_even_if_slurm_ignores_the_filter() -> None:
    both = columns("PENDING", "").stdout + columns("PENDING", "", "west-2", 8).stdout
    run = Recorder(squeue=CommandOutput(0, both, ""), scancel=CommandOutput(0, "", ""))
    SlurmProvider("us", run=run).delete("west-1")
    assert run.called("scancel") == [["scancel", "7"]]


def test_other_jobs_do_not_prevent_a_submission_if_slurm_ignores_the_filter() -> None:
    run = Recorder(squeue=columns("PENDING", "", "west-2", 8), sbatch=CommandOutput(0, "9\n", ""))
    SlurmProvider("us", run=run).create("west-1", slurm_group())
    assert len(run.called("sbatch")) == 1


def test_the_end_of_a_job_is_proof_only_if_each_node_is_known_to_be_up() -> None:
    up = (("n0", "idle"), ("n1", "mixed"))
    for sinfo, is_proof in (
        (states(*up), True),
        (states(("n0", "idle"), ("n1", "down*")), False),
        (states(("n0", "idle"), ("n1", "inval")), False),
        (states(*up[:1]), False),
        (FAILED, False),
    ):
        run = Recorder(squeue=columns("TIMEOUT"), sinfo=sinfo, scontrol=hostnames)
        assert listed(run).processes_gone is is_proof, sinfo
    never_ran = Recorder(squeue=columns("CANCELLED", ""), scontrol=hostnames)
    assert not listed(never_ran).processes_gone


def _hang(command: Sequence[str]) -> CommandOutput:
    raise ProviderError(Refusal.UNANSWERED, f"{command[0]}: no answer after 60s")


def test_the_accounts_tell_the_end_of_a_job_that_slurmctld_has_forgotten() -> None:
    line = "7|5|CANCELLED by 1000|n[0-1]|None\n"
    forgotten = CommandOutput(0, "", "")
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
    run = Recorder(squeue=answer)
    if answer.status == 0:
        assert SlurmProvider("us", run=run).list() == ()
        return
    with pytest.raises(ProviderError) as refused:
        SlurmProvider("us", run=run).list()
    assert refused.value.refusal is Refusal.UNANSWERED
