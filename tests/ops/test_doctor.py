"""What a check-up finds, and what it says to type."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from iris_cli.config.schema import ClusterConfig
from iris_cli.core.events.events import SlicesAdopted
from iris_cli.core.model.slice import Provider, ScaleGroup, SliceTemplate
from iris_cli.core.model.worker import Connection
from iris_cli.errors import ConfigError, ExitCode, IrisError
from iris_cli.ops.checks import host_checks as checks
from iris_cli.ops.checks.findings import Finding, Level, exit_code, failure, success, warning
from iris_cli.ops.doctor import examine
from iris_cli.ops.session import Session
from tests.ops.world import World
from tests.support.lab import Lab

AT = Connection(host="10.0.0.1", user="me", port=2222, key="/keys/id")


@pytest.fixture(autouse=True)
def no_ssh_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The operator's own SSH files are none of the tests' business."""
    monkeypatch.setattr(checks, "SSH_CONFIG", tmp_path / "no-such-config")
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


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
    assert finding.fix.startswith("iris worker unwedge w  #")


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


def test_uncordon_is_not_the_way_back_for_a_worker_that_the_configuration_no_longer_has(world: World) -> None:
    world.lab.job("train").schedule().reports("train/* running").configure("w")
    world.lab.worker("v").drain("v", "its slice is deleted: preempted")
    (finding,) = by_subject(check(world, offline=True), "worker w")
    assert finding.text == "draining (removed from cluster.yaml)"
    assert "uncordon" not in finding.fix
    (finding,) = by_subject(check(world, offline=True), "worker v")
    assert (finding.text, "uncordon" in finding.fix) == ("draining (its slice is deleted: preempted)", False)


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
