"""What iris reads from the output of Slurm's commands.

The texts are written by hand, in the forms that Slurm's commands print: the columns of 22.05, which
`test_allocations.py` also reads from a real Slurm, and the JSON of later releases (plugin v0.0.39: a state and plain
times; v0.0.40: a list of states, and times with `set`). None of them is a recording.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from iris_cli.capacity.slurm.reading import (
    MARK,
    Grant,
    grants_of,
    is_silent,
    job_of_sacct,
    jobs_of_json,
    jobs_of_squeue,
    node_troubles,
    release_of,
    tracks_by_cgroup,
)
from iris_cli.core.messages.cloud import CloudState

GIB = 1 << 30


def squeue(*fields: str) -> str:
    return MARK.join(fields)


def test_jobs_of_22_05() -> None:
    text = "\n".join(
        (
            squeue(
                "7", "1795680001", "N/A", "0", "PENDING", "Dependency", "", "west-0f1e-1", "iris-us:west:11"
            ),
            squeue(
                "6", "1795680000", "1795683600", "0", "RUNNING", "None", "n[0-1]", "west-0f1e-1", "(null)"
            ),
            squeue("5", "1795670000", "1795673600", "0", "TIMEOUT", "TimeLimit", "n2", "other", ""),
            squeue("half", "a", "line"),
        )
    )
    pending, running, over = jobs_of_squeue(text)
    assert (pending.id, pending.cloud_state, pending.ends_at) == (7, CloudState.CREATING, None)
    assert pending.words() == "Slurm job 7: PENDING (Dependency)"
    assert (running.nodes, running.ends_at, running.uid) == ("n[0-1]", 1795683600, "0")
    assert (running.incarnation, running.cloud_state) == ("6 1795680000", CloudState.READY)
    assert over.is_over
    assert over.words() == "Slurm job 5: TIMEOUT (TimeLimit)"


def in_json(**fields: Any) -> str:
    return json.dumps({"meta": {}, "jobs": [fields], "errors": []})


def number(value: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": value}


@pytest.mark.parametrize(
    "text",
    [
        in_json(
            job_id=12,
            name="west-0f1e-1",
            comment="iris-us:west:11",
            job_state="RUNNING",
            state_reason="None",
            nodes="n[0-1]",
            user_id=1000,
            submit_time=1795680000,
            end_time=1795683600,
        ),
        in_json(
            job_id=12,
            name="west-0f1e-1",
            comment="iris-us:west:11",
            job_state=["RUNNING"],
            state_reason="None",
            nodes="n[0-1]",
            user_id=1000,
            submit_time=number(1795680000),
            end_time=number(1795683600),
        ),
    ],
    ids=["23.02", "23.11"],
)
def test_a_job_in_the_json_of_later_releases(text: str) -> None:
    [job] = jobs_of_json(text)
    plain = squeue(
        "12",
        "1795680000",
        "1795683600",
        "1000",
        "RUNNING",
        "None",
        "n[0-1]",
        "west-0f1e-1",
        "iris-us:west:11",
    )
    assert [job] == jobs_of_squeue(plain)


def test_flags_and_unset_times_in_json() -> None:
    unset = {"set": False, "infinite": False, "number": 0}
    text = in_json(job_id=3, job_state=["TIMEOUT", "COMPLETING"], submit_time=number(5), end_time=unset)
    [job] = jobs_of_json(text)
    assert (job.cloud_state, job.ends_at) == (CloudState.DELETING, None)
    with pytest.raises((LookupError, TypeError, ValueError, AttributeError)):
        jobs_of_json("[]")


def test_an_unknown_state_proves_nothing() -> None:
    [job] = jobs_of_squeue(squeue("1", "5", "N/A", "0", "MELTING", "None", "", "a", "b"))
    assert (job.cloud_state, job.is_over) == (CloudState.CREATING, False)


@pytest.mark.parametrize(("state", "swept"), [("TIMEOUT", True), ("NODE_FAIL", False), ("RUNNING", False)])
def test_the_end_of_a_job_on_a_node_that_failed_proves_nothing(state: str, swept: bool) -> None:
    [job] = jobs_of_squeue(squeue("1", "5", "N/A", "0", state, "None", "n0", "a", "b"))
    assert job.may_be_swept is swept


def test_releases() -> None:
    assert release_of("slurm-wlm 22.05.8\n") == (22, 5)
    assert release_of("slurm 23.11.10-1") == (23, 11)
    assert release_of("slurm 24.05\n") == (24, 5)
    assert release_of("") == ()


def test_the_end_of_a_job_in_the_accounts() -> None:
    """By the manual page of sacct, release 22.05: `--parsable2` separates fields by `|`."""
    text = "12|1795680000|1795683600|1000|CANCELLED by 1000|None|n[0-1]|west-0f1e-1\n"
    job = job_of_sacct(text, "12")
    assert job is not None
    assert (job.state, job.nodes, job.incarnation, job.is_over) == (
        "CANCELLED",
        "n[0-1]",
        "12 1795680000",
        True,
    )
    assert job_of_sacct(text, "1") is None
    assert job_of_sacct("", "12") is None


def test_what_was_granted_on_each_node() -> None:
    """The line of `scontrol --details show job` in 22.05; GPUs by the documentation of gres.conf."""
    text = (
        "JobId=12 JobName=west-0f1e-1 NodeList=n[0-2] NumNodes=3 NumCPUs=6 JOB_GRES=gpu:a100:6 "
        "Nodes=n[0-1] CPU_IDs=0-1 Mem=2048 GRES=gpu:a100:2(IDX:0-1) "
        "Nodes=n2 CPU_IDs=0,4-5 Mem=0 GRES=gpu:a100:2(IDX:1,3) "
        "MinCPUsNode=1 TresPerNode=gres:gpu:a100:2"
    )
    assert grants_of(text) == [
        Grant(nodes="n[0-1]", cpus=2, memory=2 * GIB, gpus=(0, 1)),
        Grant(nodes="n2", cpus=3, memory=0, gpus=(1, 3)),
    ]
    assert grants_of("Nodes=n0 CPU_IDs=0 Mem=0 GRES= ") == [Grant(nodes="n0", cpus=1, memory=0, gpus=())]


def test_nodes_that_are_not_simply_up() -> None:
    lines = (
        squeue("n0", "mixed", "none"),
        squeue("n1", "draining", "bad disk"),
        squeue("n2", "down*", "Not responding"),
        squeue("n3", "idle~", "none"),
        squeue("n4", "allocated", ""),
    )
    found = node_troubles("\n".join(lines))
    assert found == {"n1": "draining (bad disk)", "n2": "down* (Not responding)"}
    assert all(map(is_silent, found.values()))


def test_whether_processes_are_tracked_by_cgroup() -> None:
    assert tracks_by_cgroup("PriorityType = x\nProctrackType           = proctrack/cgroup\n")
    assert not tracks_by_cgroup("ProctrackType           = proctrack/linuxproc\n")
