"""A workspace goes to each worker that lacks it once, before anything starts there; or nothing starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from iris_cli.core.ids import JobId, WorkerId
from iris_cli.core.messages.observations import RemoteState, SilenceKind
from iris_cli.core.model.job import JobState, Workspace
from iris_cli.core.model.task import AttemptState, TaskState
from iris_cli.core.model.worker import WorkerCondition
from iris_cli.ops.cycle.transfers import Shipping
from iris_cli.ops.jobs.change import cancel
from iris_cli.ops.views.view import load_view
from tests.support.fake_hosts import silence_of
from tests.support.fake_runner import Site
from tests.support.onlooker import Onlooker

CONTENT = bytes(range(256)) * 4000


def packed(site: Site, content: bytes = CONTENT) -> Workspace:
    found, size = site.session().state.workspaces.put([content])
    return Workspace(hash=found, size=size, files=1, name="code")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(tmp_path, "w0", "w1", "w2")
    made.cycle()  # so that all are probed
    return made


def started(site: Site, job: str, tasks: int = 1) -> bool:
    return all(site.attempt(job, index).state is AttemptState.RUNNING for index in range(tasks))


def test_it_is_sent_once_however_many_attempts_wait_for_it(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.cycle()
    site.hosts["w0"].calls.clear()
    site.launch("many", replicas=4, workspace=packed(site))
    site.cycle()
    assert started(site, "many", 4)
    assert len(site.hosts["w0"].shipped) == 1
    assert site.hosts["w0"].calls[-4:] == ["prepare", "ship", "prepare", "go"]


def test_where_it_is_nothing_is_sent(site: Site) -> None:
    workspace = packed(site)
    for name in ("first", "second"):
        site.launch(name, replicas=3, cpu=1.0, workspace=workspace)
        site.cycle()
        site.cycle(15.0)
        assert started(site, name, 3)
    assert sum(len(host.shipped) for host in site.hosts.values()) == len(
        [host for host in site.hosts.values() if host.workspaces]
    )


def test_what_has_no_workspace_is_launched_as_ever(site: Site) -> None:
    for host in site.hosts.values():
        host.calls.clear()
    site.launch("plain")
    site.cycle()
    assert [call for host in site.hosts.values() for call in host.calls] == ["prepare"]


def test_a_gang_starts_when_all_of_its_workers_have_it(site: Site) -> None:
    workspace = packed(site)
    site.hosts["w1"].workspaces.add(workspace.hash)
    site.gang("train", 3, workspace=workspace)
    site.cycle()
    assert started(site, "train", 3)
    assert {name: len(host.shipped) for name, host in site.hosts.items()} == {"w0": 1, "w1": 0, "w2": 1}


def test_two_workspaces_go_to_one_worker(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.cycle()
    site.launch("one", workspace=packed(site))
    site.launch("other", workspace=packed(site, b"other"))
    site.cycle()
    assert started(site, "one")
    assert started(site, "other")
    assert len(site.hosts["w0"].shipped) == 2


@pytest.mark.parametrize("cause", ["disk", "workspace"])
def test_a_worker_that_can_not_have_it_has_refused(tmp_path: Path, cause: str) -> None:
    site = Site(tmp_path, "w0", "w1")
    site.cycle()
    site.hosts["w0"].refuses_workspaces = cause
    site.launch("job", cpu=3.0, replicas=2, workspace=packed(site))
    site.cycle()
    assert len(site.hosts["w0"].shipped) == 1
    refused = [
        site.task("job", index) for index in (0, 1) if site.task("job", index).state is TaskState.PENDING
    ]
    assert len(refused) == 1
    assert f"the worker refused to start it: {cause}" in str(refused[0].attempts[-1].end)
    assert site.cluster.workers[site.task("job").attempts[-1].worker].refusals <= 1
    site.hosts["w0"].refuses_workspaces = ""
    site.run(cycles=4)
    assert started(site, "job", 2)


@pytest.mark.parametrize("kind", [SilenceKind.TIMEOUT, SilenceKind.UNREACHABLE, SilenceKind.PROTOCOL])
def test_an_upload_that_fails_is_a_dispatch_that_fails(tmp_path: Path, kind: SilenceKind) -> None:
    site = Site(tmp_path, "w0")
    site.cycle()
    host = site.hosts["w0"]
    host.meanwhile["prepare"] = lambda: setattr(host, "silence", kind)  # when it has said what it lacks
    site.launch("job", workspace=packed(site))
    site.cycle()
    assert site.task("job").state is TaskState.PENDING
    assert silence_of(WorkerId("w0"), kind).detail in str(site.attempt("job").end)
    assert site.cluster.workers[site.attempt("job").worker].condition is WorkerCondition.SUSPECT
    host.silence = None
    site.run(cycles=4)
    assert started(site, "job")
    assert (len(host.shipped), host.running) == (1, ["job/task-0"])


def test_nobody_sends_what_somebody_else_is_sending(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.cycle()
    host = site.hosts["w0"]
    host.is_being_shipped = True
    workspace = packed(site)
    site.launch("job", workspace=workspace)
    for _ in range(3):
        site.cycle(61.0)
        assert site.attempt("job").state is AttemptState.ASSIGNED
    assert host.shipped == []
    host.is_being_shipped = False
    host.workspaces.add(workspace.hash)
    site.cycle(15.0)
    site.cycle(15.0)
    assert started(site, "job")
    assert host.shipped == []


def test_it_may_take_longer_than_a_dispatch_lasts(site: Site) -> None:
    def slow() -> None:
        site.clock.time += 3 * site.limits.dispatch_lease

    for host in site.hosts.values():
        host.meanwhile["ship"] = slow
    site.launch("job", workspace=packed(site))
    site.cycle()
    assert started(site, "job")
    assert sum(len(host.shipped) for host in site.hosts.values()) == 1


def test_another_process_takes_over_after_a_death(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.cycle()
    site.launch("job", workspace=packed(site))
    site.crash("ship", on="w0")
    assert site.attempt("job").state is AttemptState.ASSIGNED
    site.cycle(site.limits.dispatch_lease + 1)
    site.cycle(15.0)
    assert started(site, "job")
    assert site.hosts["w0"].of("job").starts == 1


def test_what_is_cancelled_meanwhile_never_starts(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.cycle()
    site.launch("job", workspace=packed(site))

    def cancelled() -> None:
        cancel(site.session(), [JobId("job")])

    site.hosts["w0"].meanwhile["ship"] = cancelled
    site.run(cycles=3)
    assert site.state_of("job") is JobState.KILLED
    assert site.hosts["w0"].running == []
    assert [entry.state for entry in site.hosts["w0"].tokens.values()] == [RemoteState.STOPPED]


def test_a_worker_that_always_lacks_it_gets_it_once_in_a_cycle(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.cycle()
    host = site.hosts["w0"]
    site.launch("job", workspace=packed(site))

    def forgets() -> None:
        host.workspaces.clear()
        host.meanwhile["ship"] = forgets

    forgets()
    for sent in (1, 2, 3):
        site.cycle(61.0)
        assert len(host.shipped) == sent
    assert host.running == []


def test_nothing_starts_without_a_workspace_that_is_gone_here(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.cycle()
    workspace = packed(site)
    site.launch("job", workspace=workspace)
    file = site.session().state.workspaces.path / f"{workspace.hash}.tar.gz"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    for _ in range(2):
        site.cycle(15.0)
        assert site.task("job").state is TaskState.PENDING
    assert "can't be read" in str(site.attempt("job").end)
    assert site.cluster.workers[site.attempt("job").worker].condition is WorkerCondition.HEALTHY
    assert site.hosts["w0"].tokens == {}
    file.write_bytes(whole)
    site.run(cycles=3)
    assert started(site, "job")


def test_it_says_how_far_it_is(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.cycle()
    site.launch("job", workspace=packed(site))
    session = site.session()
    onlooker = Onlooker()
    session.progress = onlooker
    shipping = Shipping(session)
    with session.state.workspaces.open(packed(site).hash) as file:
        sizes = [0]
        for piece in shipping.chunks(packed(site), 1 << 20, file):
            assert onlooker.sees("sending") == ("sending code to 1 worker", sum(sizes), 1 << 20, "bytes")
            sizes.append(len(piece))
    assert onlooker.sees("sending")[1] == sum(sizes) > 0


@pytest.mark.parametrize("damaged", [False, True], ids=["gone", "damaged"])
def test_a_job_whose_packed_workspace_is_lost_waits_and_says_so(site: Site, damaged: bool) -> None:
    workspace = packed(site)
    site.launch("lost", workspace=workspace)
    file = site.session().state.workspaces.path / f"{workspace.hash}.tar.gz"
    if damaged:
        file.write_bytes(file.read_bytes()[:-40])
        site.cycle()  # somebody has to try it, to see that
    else:
        file.unlink()
    for _ in range(6):
        site.cycle(30.0)
    attempts = len(site.task("lost").attempts)
    assert site.task("lost").state is TaskState.PENDING
    assert attempts <= int(damaged)
    said = load_view(site.session()).prospect(site.cluster.jobs[JobId("lost")], site.task("lost").id)
    assert said == f"its packed workspace {workspace.hash[:12]} is gone; launch the job again"
    packed(site)  # the same content is packed again, by another launch
    for _ in range(6):
        site.cycle(30.0)
    assert started(site, "lost")
