"""What only the provider of a real Slurm does."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from iris_cli.capacity.provider import ProviderError
from iris_cli.capacity.slurm.commands import CommandOutput, convert_error, run_here
from iris_cli.capacity.slurm.provider import SlurmProvider, sbatch
from iris_cli.core.messages.cloud import CloudSlice, CloudState, Refusal
from iris_cli.core.model.slice import Slice, SliceState
from iris_cli.demo.local_slurm import URGENT
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
    assert (ended.state, ended.processes_gone) == (
        CloudState.ENDED,
        False,
    )  # without cgroups its processes may live
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
def test_a_request_that_slurm_refuses_has_its_kind_of_refusal_and_leaves_no_job(
    lab: Slurm, options: dict[str, Any], refusal: Refusal
) -> None:
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


def test_two_requests_at_once_leave_one_allocation(lab: Slurm) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: SlurmProvider("us").create("west-1", GROUP), range(4)))
    [there] = Settled("us").list()
    assert there.state is CloudState.READY
    until(lambda: len(lab.run("squeue", "--noheader", "--format=%A").split()) == 1)


def test_a_requeued_allocation_is_another_one(lab: Slurm) -> None:
    """iris submits with --no-requeue, but an administrator can change that."""
    Settled("us").create("west-1", GROUP)
    [there] = Settled("us").list()
    job = there.incarnation.split()[0]
    lab.run("scontrol", "update", f"JobId={job}", "Requeue=1")
    lab.run("scontrol", "requeue", job)
    found: list[CloudSlice] = []

    def is_pending() -> bool:
        found[:] = SlurmProvider("us", known(there)).list()
        return found[0].state is CloudState.CREATING

    until(is_pending, lambda: found)
    assert found[0].incarnation.split()[0] == job
    assert found[0].incarnation != there.incarnation


def test_a_preempted_allocation_has_ended(lab: Slurm) -> None:
    Settled("us").create("west-1", slurm_group(nodes=4, directives=("--exclusive",)))
    [there] = Settled("us").list()
    lab.run(
        "sbatch",
        f"--partition={URGENT}",
        "--nodes=4",
        "--exclusive",
        "--output=/dev/null",
        "--wrap=sleep 600",
    )
    found: list[CloudSlice] = []

    def has_ended() -> bool:
        found[:] = SlurmProvider("us", known(there)).list()
        return found[0].state is CloudState.ENDED

    until(has_ended, lambda: found)
    assert "PREEMPTED" in found[0].remark


ARRAY = ("--array=1-3", "--begin=now+1hour", "--wrap=true")


def test_jobs_of_the_same_user_with_that_name_are_not_touched(lab: Slurm) -> None:
    """A job, and an array, whose tasks have no number of their own while they are pending."""
    quiet = ("--output=/dev/null", "--job-name=west-1")
    for words in (("--comment=iris-us:west:0123456789abcdef", "--wrap=sleep 600"), ARRAY):
        job = lab.run("sbatch", "--parsable", *quiet, *words).strip()
        with pytest.raises(ProviderError, match="of another owner") as refused:
            SlurmProvider("us").create("west-1", GROUP)
        assert refused.value.refusal is Refusal.INVALID
        SlurmProvider("us").delete("west-1")
        assert SlurmProvider("us").list() == ()
        assert set(lab.run("squeue", "--noheader", "--format=%A").split()) == {job}
        lab.run("scancel", job)
        lab.ended(job)


HOSTILE = "x\x1fwest-1\n'\"$(id) \x1b[31m"


def test_hostile_names_comments_and_reasons_change_nothing(lab: Slurm) -> None:
    quiet = ("--output=/dev/null", "--begin=now+1hour", "--wrap=true")
    lab.run("sbatch", f"--job-name={HOSTILE}", f"--comment={HOSTILE}", *quiet)
    lab.run("sbatch", *ARRAY, "--output=/dev/null")
    Settled("us").create("west-1", GROUP)
    [there] = [each for each in _until_ready() if each.name == "west-1"]
    node = there.hosts[0].host
    lab.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason=bad {HOSTILE}{'!' * 500}")
    try:
        [there] = SlurmProvider("us", known(there)).list()
    finally:
        lab.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
    assert there.state is CloudState.READY
    assert there.remark.startswith(f"{node} is draining (bad x?west-1")
    assert there.remark.isprintable()
    assert len(there.remark) <= 400


def _until_ready() -> tuple[CloudSlice, ...]:
    found: list[CloudSlice] = []

    def is_ready() -> bool:
        found[:] = SlurmProvider("us").list()
        return bool(found) and found[0].state is CloudState.READY

    until(is_ready, lambda: found)
    return tuple(found)


def test_sacct_is_optional(lab: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accounting is off in this Slurm; then sacct is not installed at all. An ended duplicate is not the slice."""
    # A job that is cancelled while it starts takes seconds to end, or minutes.
    lab.run("scancel", lab.run(*sbatch("west-1", "us", GROUP), "--hold").strip())
    gone = CloudSlice(name="west-1", state=CloudState.READY, group="west", incarnation="999999 5")
    assert SlurmProvider("us", known(gone)).list() == ()
    for name in ("squeue", "sinfo", "scontrol"):
        (tmp_path / name).symlink_to(shutil.which(name) or "")
    with monkeypatch.context() as patched:
        patched.setenv("PATH", str(tmp_path))
        assert SlurmProvider("us", known(gone)).list() == ()


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


def test_an_error_of_slurm_is_told_by_its_words() -> None:
    words = {
        "sbatch: error: Batch job submission failed: Invalid partition name specified": Refusal.INVALID,
        "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size "
        "and/or time limits)": Refusal.QUOTA,
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)": Refusal.UNANSWERED,
        "sbatch: error: Batch job submission failed: Access/permission denied": Refusal.DENIED,
        "something new": Refusal.UNANSWERED,
    }
    for text, refusal in words.items():
        assert convert_error("sbatch", CommandOutput(1, "", text)).refusal is refusal, text


def test_slurm_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ProviderError) as refused:
        SlurmProvider("us").list()
    assert refused.value.refusal is Refusal.DENIED
    assert "is Slurm installed on this machine?" in refused.value.message
