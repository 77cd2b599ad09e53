"""What a check-up finds, and what it says to type."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from iris_cli.config.schema import ClusterConfig, HostConfig
from iris_cli.core.attributes import AttributeValue
from iris_cli.core.events.events import SlicesAdopted
from iris_cli.core.ids import WorkerId
from iris_cli.core.messages.observations import ProbeReport, Silence, SilenceKind
from iris_cli.core.model.slice import Provider, ScaleGroup, SliceTemplate
from iris_cli.core.model.worker import Connection, Worker
from iris_cli.errors import ConfigError, ExitCode, IrisError
from iris_cli.ops.checks import host_checks as checks
from iris_cli.ops.checks.findings import Finding, Level, exit_code, failure, success, warning
from iris_cli.ops.doctor import examine
from iris_cli.ops.session import Session
from tests.ops.world import World
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


@pytest.fixture(autouse=True)
def no_ssh_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The operator's own SSH files are none of the tests' business."""
    monkeypatch.setattr(checks, "SSH_CONFIG", tmp_path / "no-such-config")
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


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
    assert finding.text == "no answer (connect: no route)"
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


def test_two_workers_on_one_host_are_found() -> None:
    twin = replace(REPORT, worker=WorkerId("v4a-1"))
    other = replace(REPORT, worker=WorkerId("v4a-2"), incarnation="other")
    (finding,) = checks.directory_findings([REPORT, twin, other])
    assert finding.text.startswith("same host as v4a-1")


@pytest.mark.parametrize(
    ("findings", "code"),
    [
        ([], 0),
        ([success("a", "b"), warning("a", "b")], 0),
        ([failure("a", "b")], 1),
        ([failure("w", "b", code=ExitCode.UNREACHABLE), failure("a", "b")], 7),
        ([failure("w", "b", code=ExitCode.UNREACHABLE), failure("log", "b", code=ExitCode.LOG_DAMAGED)], 6),
        ([failure("log", "b", code=ExitCode.LOG_DAMAGED), failure("c", "b", code=ExitCode.CONFIG)], 3),
        ([failure("state", "b", code=ExitCode.LOCKED)], 1),
    ],
)
def test_the_exit_code_says_what_to_put_right_first(findings: list[Finding], code: int) -> None:
    assert exit_code(findings) == code


# The whole examination


def check(world: World, session: Session | None = None, *, offline: bool = False) -> list[Finding]:
    used = session or world.session()
    return list(examine(lambda: used.config, lambda _: used, offline=offline))


def by_subject(findings: list[Finding], subject: str) -> list[Finding]:
    return [finding for finding in findings if finding.subject == subject]


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(Lab().worker("w").worker("x"), tmp_path / "state")
    world.answers("w")
    world.answers("x")
    return world


def with_key(session: Session, key: Path) -> Session:
    hosts = [
        replace(host, connection=replace(host.connection, key=str(key))) for host in session.config.hosts
    ]
    session.config = replace(session.config, hosts=tuple(hosts))
    return session


def test_in_order_everything_is_looked_at_and_nothing_is_wrong(world: World, client_key: Path) -> None:
    findings = check(world, with_key(world.session(), client_key))
    assert [finding.subject for finding in findings] == [
        *("config", "keys", "worker w", "worker x", "state", "log", "invariants", "cycles")
    ]
    assert exit_code(findings) == 0


def test_offline_no_host_is_asked(world: World) -> None:
    world.hosts.probes.clear()
    assert by_subject(check(world, offline=True), "worker w") == []


def test_a_check_up_changes_nothing(world: World) -> None:
    session = world.session()
    before = {path.name: path.read_bytes() for path in world.directory.iterdir()}
    check(world, session)
    assert {path.name: path.read_bytes() for path in world.directory.iterdir()} == before


def test_the_clock_of_a_host_is_measured_against_ours(world: World) -> None:
    world.answers("w", clock=world.clock.now() + 100)
    (finding,) = by_subject(check(world), "worker w")
    assert finding.text == "clock is 1m40s ahead of this machine"


def test_attempts_that_the_log_never_saw_make_a_worker_unusable(world: World) -> None:
    world.answers("w", tokens=("f" * 32,))
    (finding,) = by_subject(check(world), "worker w")
    assert finding.level is Level.FAIL
    assert "not in the log" in finding.text


def test_a_broken_configuration_does_not_hide_the_rest(world: World) -> None:
    def broken() -> ClusterConfig:
        raise ConfigError("bad", problems=("cluster.yaml:3: ssh: wrong", "cluster.yaml:9: too much"))

    session = world.session()
    session.config = ClusterConfig(path=world.directory)
    findings = list(examine(broken, lambda _: session))
    assert [finding.text for finding in by_subject(findings, "config")] == [
        *("cluster.yaml:3: ssh: wrong", "cluster.yaml:9: too much")
    ]
    assert [finding.level for finding in by_subject(findings, "worker w")] == ["ok"]
    assert exit_code(findings) is ExitCode.CONFIG


def test_without_any_state_directory_the_check_up_ends_in_words() -> None:
    def missing(*_: object) -> Any:
        raise ConfigError("there is no cluster.yaml", hint="create one: iris init")

    findings = list(examine(missing, missing))
    said = [(finding.subject, finding.fix) for finding in findings]
    assert said == [("config", "create one: iris init")]  # once


def test_a_damaged_log_is_named_by_line_and_the_rest_goes_on(world: World) -> None:
    session = world.session()
    log = world.directory / "events.jsonl"
    data = bytearray(log.read_bytes())
    data[data.index(b"\n") + 30] ^= 1
    log.write_bytes(data)
    findings = check(world, session)
    assert all(finding.level is Level.FAIL for finding in by_subject(findings, "log"))
    assert by_subject(findings, "log")[0].text.startswith("line 2 ")
    assert "iris log salvage" in by_subject(findings, "log")[0].fix
    assert by_subject(findings, "cycles") != []
    assert exit_code(findings) is ExitCode.LOG_DAMAGED


def test_an_unfinished_last_line_is_only_worth_a_look(world: World) -> None:
    session = world.session()
    with (world.directory / "events.jsonl").open("ab") as log:
        log.write(b'{"seq":')
    assert [finding.level for finding in by_subject(check(world, session), "log")] == ["ok", "warn"]


def test_an_open_state_directory_comes_with_its_chmod_line(world: World) -> None:
    session = world.session()
    world.directory.chmod(0o755)
    (finding,) = by_subject(check(world, session), "state")
    assert (finding.code, finding.fix) == (ExitCode.NOT_WRITABLE, f"chmod 700 {world.directory}")


def test_before_the_first_command_the_hosts_are_looked_at_all_the_same(tmp_path: Path, world: World) -> None:
    session = world.session()
    fresh = replace(session, state=World(Lab(), tmp_path / "new")._state(), cluster=type(session.cluster)())
    findings = check(world, fresh)
    assert [finding.level for finding in by_subject(findings, "log")] == ["ok"]
    assert [finding.level for finding in by_subject(findings, "worker w")] == ["ok"]


@pytest.mark.parametrize(
    ("age", "job", "level"), [(60, True, "ok"), (3600, True, "warn"), (3600, False, "ok")]
)
def test_a_dead_cron_matters_only_where_something_waits(
    world: World, age: float, job: bool, level: str
) -> None:
    if job:
        world.lab.job("train")
    session = world.session()
    at = {"at": session.clock.now() - age}
    session.state.write_heartbeat(at, "cron", {**at, "interval": 60.0})
    (finding,) = by_subject(check(world, session, offline=True), "cycles")
    assert finding.level == level
    assert finding.fix == ("iris loop start, or iris cron install" if level == "warn" else "")


def test_workers_that_take_nothing_are_named_with_the_way_back(world: World) -> None:
    world.lab.drain("w", "disk is noisy")
    (finding,) = by_subject(check(world, offline=True), "worker w")
    assert (finding.text, finding.fix) == (
        "draining (disk is noisy)",
        "iris worker uncordon w  # ends the drain",
    )


@pytest.mark.parametrize("scaled", [True, False])
def test_a_copy_is_told_from_the_directory_that_looks_after_slices(world: World, *, scaled: bool) -> None:
    """Unless there are none to look after."""
    session = world.session()
    if scaled:
        template = SliceTemplate(provider=Provider.MANUAL, type="v4-32", zone="us-central2-b")
        session.config = replace(session.config, scale_groups=(ScaleGroup(name="east", template=template),))
    with session.transaction() as draft:
        draft.record(SlicesAdopted(place=session.state.slice_owner.place, where="laptop:/here"))
    assert by_subject(check(world, session, offline=True), "slices") == []
    with session.transaction() as draft:
        draft.record(SlicesAdopted(place=":1", where="desk:/elsewhere"))
    found = by_subject(check(world, session, offline=True), "slices")
    assert [(each.text, each.fix) for each in found] == scaled * [
        (
            "slices are managed from desk:/elsewhere; this state directory was copied or moved",
            "iris autoscale --adopt  # only if the other directory is no longer in use",
        )
    ]


def test_an_error_on_the_way_to_the_hosts_is_a_finding(world: World) -> None:
    session = world.session()

    def unable(_: str) -> Any:
        raise IrisError("no way out", hint="plug it in")

    session.make_runner = unable
    (finding,) = by_subject(check(world, session), "hosts")
    assert (finding.text, finding.fix) == ("no way out", "plug it in")


def test_a_key_that_others_can_read_is_refused(client_key: Path) -> None:
    client_key.chmod(0o644)
    (finding,) = checks.check_keys([replace(AT, key=str(client_key))])
    assert finding.level is Level.FAIL
    assert "chmod" in finding.fix


def test_a_key_that_is_missing_is_named(tmp_path: Path) -> None:
    (finding,) = checks.check_keys([replace(AT, key=str(tmp_path / "gone"))])
    assert str(tmp_path / "gone") in finding.text


@pytest.fixture
def client_key(tmp_path: Path) -> Path:
    from tests.support.sshd import write_key

    path = tmp_path / "id_ed25519"
    write_key(path)
    os.chmod(path, 0o600)
    return path
