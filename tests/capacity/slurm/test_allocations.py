"""What only the provider of a real Slurm does."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from iris_cli.capacity.provider import ProviderError
from iris_cli.capacity.slurm.commands import Ran, error_of, run_here
from iris_cli.capacity.slurm.provider import SlurmProvider
from iris_cli.capacity.slurm.submission import sbatch
from iris_cli.core.messages.cloud import CloudSlice, CloudState, Refusal
from iris_cli.core.model.slice import Slice, SliceState
from tests.support.slurm import Slurm
from tests.support.slurm_slices import Settled, slurm_group
from tests.support.waiting import until

GROUP = slurm_group()


@pytest.fixture
def lab(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
    try:
        yield slurm
    finally:
        slurm.empty()


def known(seen: CloudSlice, state: SliceState = SliceState.READY) -> dict[str, Slice]:
    """The log after this list."""
    made = Slice(
        name=seen.name,
        group=seen.group,
        template=GROUP.template,
        state=state,
        hosts=seen.hosts,
        incarnation=seen.incarnation,
    )
    return {seen.name: made}


def test_of_several_jobs_with_one_name_the_oldest_is_kept(lab: Slurm) -> None:
    """A lost answer, and a second submission before the first one has arrived."""
    for _ in range(3):
        lab.run(*sbatch("west-1", "us", GROUP))
    first = min(map(int, lab.run("squeue", "--noheader", "--format=%i").split()))
    [there] = Settled("us").list()
    assert there.incarnation.startswith(f"{first} ")
    until(lambda: lab.run("squeue", "--noheader", "--format=%i").split() == [str(first)])


def test_a_node_list_a_directory_and_what_was_granted(lab: Slurm) -> None:
    Settled("us").create("west-1", slurm_group(directives=("--cpus-per-task=2", "--mem=100M"), time=3600.0))
    before = time.time()
    [there] = Settled("us").list()
    assert [each.host for each in there.hosts] == ["n0", "n1"]
    assert {(each.cpus, each.gpus, each.remote_dir) for each in there.hosts} == {
        (2, (), "/tmp/iris-0/west-1")
    }
    assert there.ends_at is not None
    assert 3600 - 60 < there.ends_at - before < 3600 + 60


def test_the_end_of_an_allocation_is_listed_until_the_log_has_it(lab: Slurm) -> None:
    Settled("us").create("west-1", GROUP)
    [there] = Settled("us").list()
    lab.run("scancel", there.incarnation.split()[0])
    [ended] = Settled("us", known(there)).list()
    assert (ended.state, ended.swept) == (CloudState.ENDED, False)  # without cgroups its processes may live
    assert "CANCELLED" in ended.detail
    assert Settled("us").list() == ()


def test_a_pending_job_says_why(lab: Slurm) -> None:
    SlurmProvider("us").create("west-1", slurm_group(directives=("--begin=now+1hour",)))
    found: list[CloudSlice] = []

    def is_told() -> bool:
        found[:] = SlurmProvider("us").list()
        return "BeginTime" in found[0].remark

    until(is_told, lambda: found)
    assert found[0].state is CloudState.CREATING
    assert found[0].ends_at is None


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"partition": "nowhere"}, Refusal.INVALID),
        ({"directives": ("--mem=1T",)}, Refusal.INVALID),
        ({"gres": "gpu:2"}, Refusal.INVALID),
        ({"directives": ("--no-such-option",)}, Refusal.INVALID),
    ],
)
def test_refused_requests(lab: Slurm, options: dict[str, Any], refusal: Refusal) -> None:
    with pytest.raises(ProviderError) as refused:
        SlurmProvider("us").create("west-1", slurm_group(**options))
    assert refused.value.refusal is refusal, refused.value.message
    assert "sbatch" in refused.value.message
    assert lab.run("squeue", "--noheader").strip() == ""


def test_without_slurmctld_nothing_is_known(lab: Slurm) -> None:
    lab.stop_controller()
    try:
        for call in (SlurmProvider("us").list, lambda: SlurmProvider("us").create("west-1", GROUP)):
            with pytest.raises(ProviderError) as refused:
                call()
            assert refused.value.refusal is Refusal.UNANSWERED, refused.value.message
    finally:
        lab.start_controller()


def test_a_submission_that_is_killed_leaves_one_allocation_or_none(lab: Slurm) -> None:
    for pause in (0.0, 0.005, 0.01, 0.02, 0.05):
        with subprocess.Popen(
            sbatch("west-1", "us", GROUP), env=lab.environ, stdout=subprocess.DEVNULL
        ) as submitting:
            time.sleep(pause)
            submitting.kill()
    Settled("us").create("west-1", GROUP)
    [there] = Settled("us").list()
    assert there.state is CloudState.READY


def test_the_commands_get_no_secret_and_no_option_of_this_process(
    lab: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    monkeypatch.setenv("SBATCH_PARTITION", "nowhere")
    monkeypatch.setenv("SQUEUE_STATES", "PENDING")
    Settled("us").create("west-1", GROUP)
    [there] = Settled("us").list()
    assert there.state is CloudState.READY
    seen = dict(line.partition("=")[::2] for line in run_here(["env"]).stdout.splitlines())
    assert seen.keys() <= {
        "HOME",
        "LC_ALL",
        "LOGNAME",
        "PATH",
        "SHELL",
        "SLURM_CONF",
        "SLURM_TIME_FORMAT",
        "USER",
    }


def test_a_later_release_is_asked_for_json() -> None:
    """A recorder stands for a Slurm that is not here; what it prints is in test_reading."""
    commands: list[Sequence[str]] = []
    comment = next(each for each in sbatch("west-1", "us", GROUP) if each.startswith("--comment=")).partition(
        "="
    )[2]
    job = {
        "job_id": 7,
        "name": "west-1",
        "comment": comment,
        "job_state": ["PENDING"],
        "state_reason": "Priority",
    }

    def run(command: Sequence[str]) -> Ran:
        commands.append(command)
        if "--version" in command:
            return Ran(0, "slurm 23.11.4\n", "")
        return Ran(0, json.dumps({"jobs": [job]}), "") if "--json" in command else Ran(1, "", "not asked")

    [there] = SlurmProvider("us", run=run).list()
    assert (there.state, there.group, there.remark) == (
        CloudState.CREATING,
        "west",
        "Slurm job 7: PENDING (Priority)",
    )
    assert not any(each.startswith("--format") for command in commands for each in command)


def test_errors_by_their_words() -> None:
    words = {
        "sbatch: error: Batch job submission failed: Invalid partition name specified": Refusal.INVALID,
        "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size "
        "and/or time limits)": Refusal.QUOTA,
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)": Refusal.UNANSWERED,
        "sbatch: error: Batch job submission failed: Access/permission denied": Refusal.DENIED,
        "something new": Refusal.UNANSWERED,
    }
    for text, refusal in words.items():
        assert error_of("sbatch", Ran(1, "", text)).refusal is refusal, text


def test_slurm_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ProviderError) as refused, contextlib.nullcontext():
        run_here(["squeue"])
    assert "is Slurm installed here?" in refused.value.message
