"""What a check of one host finds, and what it says to type."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from iris_cli.config.schema import HostConfig
from iris_cli.core.attributes import AttributeValue
from iris_cli.core.ids import WorkerId
from iris_cli.core.messages.observations import SILENT, ProbeReport, Silence, SilenceKind
from iris_cli.core.model.worker import Connection, Worker, WorkerCondition
from iris_cli.errors import ExitCode
from iris_cli.ops.checks import host_checks as checks
from iris_cli.ops.checks.findings import Finding, Level
from iris_cli.remote.host_keys import PresentedKey
from tests.support.lab import Lab

GIB = 1 << 30
W = WorkerId("v4a-0")
AT = Connection(host="10.0.0.1", user="me", port=2222, key="/keys/id")
WORKER = Worker(id=W, connection=AT, boot_id="boot", incarnation="life")
HOST = HostConfig(
    worker=W, connection=AT, attributes={"zone": AttributeValue("us-central2-b")}, cpu=4, memory=8 * GIB
)
REPORT = ProbeReport(
    worker=W, boot_id="boot", incarnation="life", cpus=4, memory=8 * GIB, disk_free=50 * GIB, chips=4
)


def seen(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.level.value, finding.text) for finding in findings]


def test_a_healthy_worker_is_told_in_one_line() -> None:
    assert seen(checks.host_findings(WORKER, HOST, REPORT, 0.0)) == [
        ("ok", "up, 4 cores, 8GiB of memory, 4 chips")
    ]


@pytest.mark.parametrize(
    ("changed", "skew", "refusal", "level", "text", "fix"),
    [
        ({"boot_id": "b2"}, 0, "", "warn", "was rebooted", "iris schedule --once"),
        ({"incarnation": "x"}, 0, "", "fail", "its iris directory was replaced", "--accept-key v4a-0"),
        (
            {"incarnation": "x", "boot_id": "b2"},
            0,
            "",
            "fail",
            "it may have been re-created",
            "--accept-key v4a-0",
        ),
        ({}, 31, "", "warn", "31s ahead of this machine", "timedatectl"),
        ({}, -3600, "", "warn", "1h behind this machine", "timedatectl"),
        ({"disk_free": GIB - 1}, 0, "", "warn", "of disk free", "iris gc"),
        ({"disk_free": 0}, 0, "", "warn", "only 0B of disk", "iris gc"),
        ({"warnings": ("processes end at logout",)}, 0, "", "warn", "processes end at logout", ""),
        ({}, 0, "a network file system", "fail", "unusable: a network file system", "iris worker probe"),
        ({"cpus": 2}, 0, "", "warn", "says 4 cores, the host has 2", "cluster.yaml"),
        ({"memory": 4 * GIB}, 0, "", "warn", "says 8GiB of memory, the host has 4GiB", "cluster.yaml"),
    ],
)
def test_each_fault_of_a_worker_has_its_fix(
    changed: dict[str, Any], skew: float, refusal: str, level: str, text: str, fix: str
) -> None:
    (finding,) = checks.host_findings(WORKER, HOST, replace(REPORT, **changed), skew, refusal)
    assert (finding.level, finding.subject) == (level, "worker v4a-0")
    assert text in finding.text
    assert fix in finding.fix


def test_a_small_skew_of_the_clocks_is_no_fault() -> None:
    assert seen(checks.host_findings(WORKER, None, REPORT, 30.0))[0][0] == "ok"


def test_a_worker_that_was_never_probed_has_no_identity_to_lose() -> None:
    new = replace(WORKER, boot_id="", incarnation="")
    assert seen(checks.host_findings(new, HOST, REPORT, 0.0))[0][0] == "ok"


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({}, []),
        ({"zone": "us-central2-b"}, []),
        ({"zone": "us-west4-a"}, ["cluster.yaml says zone=us-central2-b, the host says zone=us-west4-a"]),
        (
            {"zone": "us-central2-b", "preemptible": "true"},
            ["cluster.yaml says preemptible=false, the host says preemptible=true"],
        ),
    ],
)
def test_where_the_configuration_says_otherwise_is_shown(
    metadata: dict[str, str], expected: list[str]
) -> None:
    host = replace(HOST, attributes={**HOST.attributes, "preemptible": AttributeValue("false")})
    assert checks.differences(host, replace(REPORT, metadata=tuple(metadata.items()))) == expected


@pytest.mark.parametrize(
    ("kind", "fix"),
    [
        (SilenceKind.UNREACHABLE, "ssh -p 2222 -i /keys/id me@10.0.0.1 true"),
        (SilenceKind.AUTH, "ssh -v -p 2222 -i /keys/id me@10.0.0.1 true"),
        (SilenceKind.HOST_KEY, "iris worker probe --accept-key v4a-0"),
        (SilenceKind.UNKNOWN_HOST, "iris worker probe --accept-key v4a-0"),
        (SilenceKind.PROTOCOL, "login shell"),
    ],
)
def test_each_silence_has_its_fix(kind: SilenceKind, fix: str) -> None:
    finding = checks.silence_finding(WORKER, Silence(worker=W, kind=kind, step="connect", detail="no route"))
    assert (finding.level, finding.code) == (Level.FAIL, ExitCode.UNREACHABLE)
    assert finding.text == ("no answer (connect: no route)" if kind in SILENT else "connect: no route")
    assert fix in finding.fix


def test_what_is_typed_goes_the_way_that_iris_goes() -> None:
    """Through the jump host of cluster.yaml; and a shell reads it as it is meant."""
    way = replace(WORKER.connection, proxy_jump="me@bastion:2200", key="/my keys/id", user="LAB\\me", port=0)
    silence = Silence(worker=W, kind=SilenceKind.UNREACHABLE, step="connect", detail="no route")
    fix, _, _ = checks.silence_finding(replace(WORKER, connection=way), silence).fix.partition("  # ")
    assert fix == "ssh -J me@bastion:2200 -i '/my keys/id' 'LAB\\me@10.0.0.1' true"


def test_what_is_typed_for_a_node_of_a_slurm_job_is_a_step() -> None:
    way = replace(WORKER.connection, allocation="7", node="n3", login="login-1")
    silence = Silence(worker=W, kind=SilenceKind.UNREACHABLE, step="srun", detail="expired")
    fix = checks.silence_finding(replace(WORKER, connection=way), silence).fix
    assert fix.startswith("ssh -p 2222 -i /keys/id me@login-1 srun --jobid=7 --overlap --nodelist=n3 ")


def test_the_transports_own_hint_wins() -> None:
    silence = Silence(worker=W, kind=SilenceKind.AUTH, step="auth", detail="denied", hint="ssh-add x")
    assert checks.silence_finding(WORKER, silence).fix == "ssh-add x"


def test_who_is_refused_by_a_vm_of_google_is_told_how_its_key_gets_there() -> None:
    silence = Silence(worker=W, kind=SilenceKind.AUTH, step="authentication", detail="denied", hint="ask Ann")
    (fix, _, rest) = checks.silence_finding(WORKER, silence, replace(HOST, slice="v4a")).fix.partition("  # ")
    assert fix == "gcloud compute tpus tpu-vm ssh v4a --zone us-central2-b --worker all --command true"
    assert rest.endswith("or ask Ann")
    # A worker without a slice may be a host of any provider: only the hint remains.
    assert checks.silence_finding(WORKER, silence, HOST).fix == "ask Ann"


def test_a_slice_that_is_gone_is_one_finding_and_google_knows_of_it() -> None:
    def away(number: int) -> Finding:
        worker = WorkerId(f"v4a-{number}")
        detail = f"worker {worker} at 10.0.0.{number}:22: timed out"
        silence = Silence(
            worker=worker, kind=SilenceKind.UNREACHABLE, step="connect", detail=detail, hint="ssh"
        )
        host = replace(HOST, worker=worker, slice="v4a")
        return checks.silence_finding(replace(WORKER, id=worker), silence, host, whole_slice=True)

    assert {(away(number).text, away(number).fix.partition("  #")[0]) for number in range(4)} == {
        ("no answer (connect: timed out)", "gcloud compute tpus tpu-vm describe v4a --zone us-central2-b")
    }


@pytest.mark.parametrize(
    ("detail", "text"),
    [
        (
            "worker {} rejected user 'me' with key ssh-ed25519 SHA256:x",
            "rejected user 'me' with key ssh-ed25519 SHA256:x",
        ),
        ("worker {}: timeout after 10 s", "timeout after 10 s"),
        ("worker {} shows ssh-ed25519 SHA256:x", "shows ssh-ed25519 SHA256:x"),
    ],
)
def test_what_many_hosts_say_alike_is_one_finding(detail: str, text: str) -> None:
    """With a wrong key, 64 hosts refuse in the same words: the screen shows them once."""

    def refused(number: int) -> Finding:
        worker = WorkerId(f"v4a-{number}")
        silence = Silence(
            worker=worker, kind=SilenceKind.AUTH, step="s", detail=detail.format(worker), hint="h"
        )
        return checks.silence_finding(replace(WORKER, id=worker), silence)

    assert {(refused(number).text, refused(number).fix) for number in range(4)} == {(f"s: {text}", "h")}


def test_all_that_the_configuration_says_otherwise_of_a_worker_is_one_finding() -> None:
    smaller = replace(REPORT, cpus=2, memory=4 * GIB)
    (finding,) = checks.host_findings(WORKER, HOST, smaller, 0.0)
    assert finding.text == (
        "cluster.yaml says 4 cores, the host has 2; cluster.yaml says 8GiB of memory, the host has 4GiB"
    )


def test_the_way_out_is_named_only_for_a_lost_worker_that_jobs_wait_for() -> None:
    lab = Lab().worker("w").job("train").schedule().reports("train/* running")
    silence = Silence(worker=WorkerId("w"), kind=SilenceKind.TIMEOUT, step="SSH banner", detail="no answer")
    busy = lab.the_worker("w")
    lost = replace(busy, condition=WorkerCondition.LOST)
    fixes = [checks.silence_finding(each, silence).fix for each in (busy, lost, replace(lost, claims={}))]
    assert [fix.partition("if that host is gone for good: ")[2] for fix in fixes] == [
        "",
        "iris worker forget --dead w",
        "",
    ]


def test_one_host_under_two_names_is_found() -> None:
    """Each name has a directory and an incarnation of its own there."""
    alias = replace(REPORT, worker=WorkerId("alias"), incarnation="other")
    neighbor = replace(REPORT, worker=WorkerId("neighbor"), incarnation="third")
    rebooted = replace(REPORT, worker=WorkerId("clone"), boot_id="another", incarnation="fourth")
    key, other = PresentedKey("ssh-ed25519", "SHA256:a", "a"), PresentedKey("ssh-ed25519", "SHA256:b", "b")
    keys = {REPORT.worker: [key], "alias": [key], "neighbor": [other], "clone": [key]}
    (finding,) = checks.alias_findings([REPORT, alias, neighbor, rebooted], keys.__getitem__)
    assert finding.text.startswith("same boot and host key as alias:")


def test_workers_that_share_a_directory_are_found() -> None:
    twin = replace(REPORT, worker=WorkerId("v4a-1"))
    other = replace(REPORT, worker=WorkerId("v4a-2"), incarnation="other")
    (finding,) = checks.directory_findings([REPORT, twin, other])
    assert finding.text.startswith("same host as v4a-1")
