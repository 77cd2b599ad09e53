"""What iris reads from the output of Slurm's commands.

The columns are those of 22.05, which `test_allocations.py` also reads from a real Slurm.
"""

from __future__ import annotations

import pytest

from iris_cli.capacity.slurm.commands import (
    SEPARATOR,
    node_troubles,
    parse_grants,
    parse_sacct,
    parse_squeue,
    tracks_by_cgroup,
)
from iris_cli.core import SliceHost
from iris_cli.core.messages.cloud import CloudState

GIB = 1 << 30


def squeue(*fields: str) -> str:
    return SEPARATOR.join(fields)


def test_jobs_are_read_from_the_columns_of_22_05() -> None:
    text = "\n".join(
        (
            squeue(
                "7", "1795680001", "NONE", "0", "PENDING", "", "west-0f1e-1", "iris-us:west:11", "Dependency"
            ),
            squeue(
                "6", "1795680000", "1795683600", "0", "RUNNING", "n[0-1]", "west-0f1e-1", "(null)", "None"
            ),
            squeue("5", "1795670000", "1795673600", "0", "TIMEOUT", "n2", "other", "", "TimeLimit"),
            squeue("half", "a", "line"),
        )
    )
    pending, running, over = parse_squeue(text)
    assert (pending.id, pending.cloud_state, pending.ends_at) == (7, CloudState.CREATING, None)
    assert pending.describe() == "Slurm job 7: PENDING (Dependency)"
    assert (running.nodes, running.ends_at, running.uid) == ("n[0-1]", 1795683600, "0")
    assert (running.incarnation, running.cloud_state) == ("6 1795680000", CloudState.READY)
    assert over.has_ended
    assert over.describe() == "Slurm job 5: TIMEOUT (TimeLimit)"


COMMENT = "iris-us:west:11"
HOSTILE = "a\x1fb\x1c\x1d\x1e\x85\u2028 '\"$(id)\r\x1b[31m"


def test_control_characters_in_a_reason_hide_no_job() -> None:
    line = squeue("7", "5", "NONE", "0", "RUNNING", "n0", "west-1", COMMENT, f"{HOSTILE}\nmore")
    [job] = parse_squeue(line)
    assert (job.id, job.name, job.comment, job.reason) == (7, "west-1", COMMENT, HOSTILE)


def test_names_and_comments_with_control_characters_are_not_taken_for_ours() -> None:
    lines = (
        squeue("7", "5", "NONE", "0", "RUNNING", "n0", f"x{SEPARATOR}west-1", COMMENT, "None"),
        squeue("8", "5", "NONE", "0", "RUNNING", "n0", f"x{SEPARATOR}west-1\n", COMMENT, "None"),
        squeue("9", "5", "NONE", "0", "RUNNING", "n0", "west-1", COMMENT, "None"),
    )
    assert [
        job.id for job in parse_squeue("\n".join(lines)) if (job.name, job.comment) == ("west-1", COMMENT)
    ] == [9]


def test_an_unknown_state_proves_nothing() -> None:
    [job] = parse_squeue(squeue("1", "5", "N/A", "0", "MELTING", "", "a", "b", "None"))
    assert (job.cloud_state, job.has_ended) == (CloudState.CREATING, False)


@pytest.mark.parametrize(("state", "gone"), [("TIMEOUT", True), ("NODE_FAIL", False), ("RUNNING", False)])
def test_the_end_of_a_job_on_a_node_that_failed_proves_nothing(state: str, gone: bool) -> None:
    [job] = parse_squeue(squeue("1", "5", "N/A", "0", state, "n0", "a", "b", "None"))
    assert job.processes_may_be_gone is gone


def test_the_end_of_a_job_is_read_from_the_accounts() -> None:
    """By the manual page of sacct, release 22.05: `--parsable2` separates fields by `|`."""
    text = "12|1795680000|CANCELLED by 1000|n[0-1]|None\n"
    job = parse_sacct(text, "12")
    assert job is not None
    assert (job.state, job.nodes, job.incarnation, job.has_ended) == (
        "CANCELLED",
        "n[0-1]",
        "12 1795680000",
        True,
    )
    assert parse_sacct(text, "1") is None
    never_started = parse_sacct("13|1795680000|CANCELLED by 1000|None assigned|None\n", "13")
    assert never_started is not None
    assert never_started.nodes == ""
    assert parse_sacct("", "12") is None


def test_what_was_granted_on_each_node() -> None:
    """The line of `scontrol --details show job` in 22.05; GPUs by the documentation of gres.conf."""
    text = (
        "JobId=12 JobName=west-0f1e-1 NodeList=n[0-2] NumNodes=3 NumCPUs=6 JOB_GRES=gpu:a100:6 "
        "Nodes=n[0-1] CPU_IDs=0-1 Mem=2048 GRES=gpu:a100:2(IDX:0-1) "
        "Nodes=n2 CPU_IDs=0,4-5 Mem=0 GRES=gpu:a100:2(IDX:1,3) "
        "MinCPUsNode=1 TresPerNode=gres:gpu:a100:2"
    )
    assert parse_grants(text) == [
        SliceHost(host="n[0-1]", cpus=2, memory=2 * GIB, gpus=(0, 1)),
        SliceHost(host="n2", cpus=3, memory=0, gpus=(1, 3)),
    ]
    assert parse_grants("Nodes=n0 CPU_IDs=0 Mem=0 GRES= ") == [
        SliceHost(host="n0", cpus=1, memory=0, gpus=())
    ]


def test_nodes_that_are_not_simply_up() -> None:
    lines = (
        squeue("n0", "mixed", "none"),
        squeue("n1", "draining", f"bad disk {HOSTILE}\nn2{SEPARATOR}idle{SEPARATOR}none"),
        squeue("n2", "down*", "Not responding"),
        squeue("n2", "idle", "none"),
        squeue("n3", "idle~", "none"),
        squeue("n4", "allocated", ""),
        squeue("n5", "inval", ""),
    )
    assert node_troubles("\n".join(lines)) == {
        "n0": "",
        "n1": f"draining (bad disk {HOSTILE})",
        "n2": "down* (Not responding)",
        "n3": "",
        "n4": "",
        "n5": "inval",
    }


def test_whether_processes_are_tracked_by_cgroup() -> None:
    assert tracks_by_cgroup("PriorityType = x\nProctrackType           = proctrack/cgroup\n")
    assert not tracks_by_cgroup("ProctrackType           = proctrack/linuxproc\n")
