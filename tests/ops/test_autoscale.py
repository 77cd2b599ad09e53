"""A pass of the autoscaler over a real log, with a provider in memory; killed anywhere, it is gone on with."""

from __future__ import annotations

import contextlib
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from iris_cli.config.schema import ClusterConfig
from iris_cli.core.ids import WorkerId
from iris_cli.core.invariants import breaches
from iris_cli.core.messages.cloud import CloudSlice, CloudState, Refusal
from iris_cli.core.messages.observations import ProbeReport
from iris_cli.core.model.job import JobRequest
from iris_cli.core.model.slice import Provider, SliceTemplate, slice_attributes
from iris_cli.core.model.task import TaskState
from iris_cli.core.model.worker import Connection
from iris_cli.errors import LockedError
from iris_cli.journal.state_dir import StateDir
from iris_cli.ops import autoscale
from iris_cli.ops.cycle import cycle
from iris_cli.ops.jobs import launch
from iris_cli.ops.session import Session
from iris_cli.remote.task_runner import TaskRunner
from tests.ops.world import Clock, Hosts
from tests.support.memory_provider import Books, MemoryProvider
from tests.support.scale import scale_group

_WIRE = b"\0\0\0\x0bssh-ed25519\0\0\0 "
KEY, OTHER_KEY = ("ssh-ed25519 " + b64encode(_WIRE + bytes([byte]) * 32).decode() for byte in (1, 2))
LOCAL = SliceTemplate(provider=Provider.LOCAL, type="v4-16", zone="us-west4-a")


class Killed(BaseException):
    """As a process is."""


class Site:
    """A cluster whose scale group `west` is made by a provider in memory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = Clock()
        self.hosts = Hosts()
        self.books = Books()
        self.group = replace(scale_group("west", "v4-16", env={"WHERE": "west"}), template=LOCAL)

    def session(self) -> Session:
        group = replace(self.group, connection=Connection(host="", user="me"))
        return Session(
            state=StateDir(self.directory, now=self.clock.now, actor="me@laptop"),
            config=ClusterConfig(path=self.directory / "cluster.yaml", name="lab", scale_groups=(group,)),
            make_runner=lambda _: cast("TaskRunner", self.hosts),
            clock=self.clock,
            command="iris autoscale",
            lock_timeout=0.0,
            make_provider=lambda _, owner: MemoryProvider(self.books, owner),
        )

    def session_now(self) -> Session:
        session = self.session()
        session.view()
        return session

    def launch(self, name: str, **asked: object) -> None:
        request = JobRequest(name=name, command=("true",), tpu="v4-16", **asked)  # type: ignore[arg-type]  # fields of a request
        launch.launch(self.session(), request)

    def autoscale(self) -> autoscale.Autoscaled:
        done = autoscale.run(session := self.session())
        assert breaches(session.view()) == []
        return done

    @property
    def states(self) -> dict[str, str]:
        return {name: each.state.value for name, each in self.session().view().slices.items()}

    def boots(self, name: str) -> None:
        """Its VMs answer probes from now on."""
        for index in range(2):
            worker = WorkerId(f"{name}-{index}")
            self.hosts.probes[worker] = ProbeReport(
                worker=worker,
                boot_id="boot-1",
                incarnation=f"{worker}-life-1",
                cpus=240,
                memory=400 << 30,
                disk_free=100 << 30,
                clock=self.clock.now(),
            )

    def place(self) -> list[str]:
        """A cycle's decisions alone: the workers that got something."""
        session = self.session()
        with session.transaction() as draft:
            made, _ = cycle.assign(session, draft)
        return [each.worker for each in made.assignments]

    def only(self) -> str:
        [name] = self.states
        return name


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "state")


def test_a_slice_is_made_for_what_waits_probed_and_used(site: Site) -> None:
    site.launch("train")
    assert len(site.autoscale().created) == 1
    name = site.only()
    assert site.states == {name: "creating"}
    assert name.startswith("west-")
    site.autoscale()
    assert site.states == {name: "booting"}
    site.boots(name)
    site.clock.sleep(60)
    site.autoscale()
    assert site.states == {name: "ready"}
    assert site.place() == [f"{name}-0", f"{name}-1"]


def test_workers_of_a_new_slice_have_the_attributes_and_the_environment_of_their_group(site: Site) -> None:
    site.launch("train")
    site.autoscale()
    name = site.only()
    site.boots(name)
    site.autoscale()
    session = site.session()
    worker = session.view().workers[WorkerId(f"{name}-1")]
    found = {
        key: worker.attributes[key].value for key in ("scale-group", "tpu-name", "tpu-worker-id", "region")
    }
    assert found == {"scale-group": "west", "tpu-name": name, "tpu-worker-id": 1, "region": "us-west4"}
    host = session.hosts[worker.id]
    assert (host.env, host.connection.host, host.connection.user) == ({"WHERE": "west"}, f"{name}-w1", "me")


def test_a_template_that_is_changed_moves_no_slice_that_is_there(site: Site) -> None:
    """The group is in another region now, its slice is where it was: who wants the new region is not placed there."""
    site.launch("train")
    site.autoscale()
    name = site.only()
    site.boots(name)
    site.autoscale()
    there = replace(LOCAL, zone="us-central2-b", preemptible=True)
    site.group = replace(site.group, template=there)
    site.group = replace(site.group, attributes=slice_attributes(site.group))
    attributes = site.session_now().hosts[WorkerId(f"{name}-0")].attributes
    found = {key: attributes[key].value for key in ("region", "zone", "preemptible", "device-variant")}
    assert found == {
        "region": "us-west4",
        "zone": "us-west4-a",
        "preemptible": "false",
        "device-variant": "v4-16",
    }


def test_a_dry_run_asks_nobody_and_writes_nothing(site: Site) -> None:
    site.launch("train")
    before = site.session().view().seq
    plan = autoscale.dry_run(site.session())
    assert [order.group.name for order in plan.create] == ["west"]
    assert (site.books.calls, site.session().view().seq) == ([], before)


def test_an_idle_pass_writes_nothing(site: Site) -> None:
    site.autoscale()
    before = site.session().view().seq
    site.autoscale()
    assert site.session().view().seq == before


def test_a_provider_that_does_not_answer_is_named_and_nothing_is_decided_there(site: Site) -> None:
    site.launch("train")
    site.books.refusals = [Refusal.UNANSWERED]
    done = site.autoscale()
    assert done.problems == ["local us-west4-a: no list"]
    assert site.states == {}
    assert "its provider did not answer" in str(done.plan.routing.unmet[0].reason)


def test_a_quota_error_is_told_and_backs_off(site: Site) -> None:
    site.launch("train")
    site.books.refusals = [None, Refusal.QUOTA]
    done = site.autoscale()
    assert (done.problems, site.states) == ([f"{done.created[0]}: no {done.created[0]}"], {})
    assert "is backing off" in str(site.autoscale().plan.routing.unmet[0].reason)


def test_what_an_earlier_pass_decided_is_asked_for_only_if_the_answer_can_be_written_down(site: Site) -> None:
    site.launch("train")
    site.books.refusals = [None, Refusal.UNANSWERED]
    site.autoscale()
    site.clock.sleep(121)
    with site.session().state.locked("iris log salvage", 0), pytest.raises(LockedError):
        autoscale.run(site.session())
    assert [call.split()[0] for call in site.books.calls] == ["list", "create", "list"]


def test_a_provider_that_can_not_be_opened_is_named(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU", "http://tpu.example.org")
    site.group = replace(site.group, template=replace(LOCAL, provider=Provider.GCP, project="p"))
    site.launch("train")
    done = autoscale.run(replace(site.session(), make_provider=None))
    assert len(done.problems) == 1
    assert done.problems[0].startswith(
        "gcp p us-west4-a: CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU: only an endpoint on this machine"
    )


@pytest.mark.parametrize("heard", [False, True])
@pytest.mark.parametrize("call", ["list", "create", "delete"])
def test_killed_in_any_call_no_slice_leaks_and_none_is_made_twice(site: Site, call: str, heard: bool) -> None:
    """`heard`: the provider had done it when we were killed. Then the job is over, and all is given back."""
    killed: list[str] = []

    class Deadly(MemoryProvider):
        def _next(self, asked: str) -> Refusal | None:
            if not killed and asked.startswith(call):
                killed.append(call)
                if heard and call != "list":
                    getattr(MemoryProvider(self.books, self.owner), call)(*asked.split()[1:], *self._group)
                raise Killed
            return super()._next(asked)

        @property
        def _group(self) -> tuple[Any, ...]:
            return (site.group,) if call == "create" else ()

    def provider(owner: str) -> MemoryProvider:
        return Deadly(site.books, owner)

    site.launch("train")
    _pass(site, provider)
    for _ in range(3):
        _pass(site, provider)
        site.clock.sleep(30)
    assert (len(site.books.slices), site.books.made) == (1, 1)
    assert list(site.books.slices) == list(site.states)
    _cancel(site)
    name = site.only()
    site.boots(name)
    for _ in range(6):
        site.clock.sleep(660)
        _pass(site, provider)
    assert killed == [call]
    assert (site.books.slices, site.states) == ({}, {})


def _pass(site: Site, provider: Callable[[str], MemoryProvider]) -> None:
    session = replace(site.session(), make_provider=lambda _, owner: provider(owner))
    with contextlib.suppress(Killed):
        autoscale.run(session)
    assert breaches(site.session().view()) == []


def _cancel(site: Site) -> None:
    from iris_cli.core.ids import JobId
    from iris_cli.core.lifecycle import jobs

    with site.session().transaction() as draft:
        jobs.cancel(draft, JobId("train"), "")


def test_a_request_that_lost_its_machine_is_no_proof_that_its_work_ended(site: Site) -> None:
    site.launch("train")
    site.autoscale()
    first = site.only()
    site.boots(first)
    site.autoscale()
    site.place()
    owner, there = site.books.slices[first]
    site.books.slices[first] = (
        owner,
        replace(there, state=CloudState.FAILED, hosts=(), incarnation="", detail="SUSPENDING"),
    )
    site.autoscale()
    cluster = site.session_now().cluster
    assert cluster.slices[first].reason == "SUSPENDING"
    assert {task.state for task in cluster.tasks.values()} == {TaskState.ASSIGNED}


def test_a_slice_of_which_vms_lack_is_used_when_they_have_come_and_given_up_if_they_dont(site: Site) -> None:
    site.launch("train")
    site.autoscale()
    name = site.only()
    owner, whole = site.books.slices[name]
    site.books.slices[name] = owner, replace(whole, hosts=whole.hosts[:1])
    site.boots(name)
    site.autoscale()
    assert site.states == {name: "creating"}
    site.books.slices[name] = owner, whole
    site.autoscale()
    assert site.states == {name: "ready"}
    site.launch("another")
    site.place()
    [second] = site.autoscale().created
    owner, whole = site.books.slices[second]
    site.books.slices[second] = owner, replace(whole, hosts=whole.hosts[:1])
    site.clock.sleep(1800)
    assert list(site.autoscale().deleted) == [second]


def known_hosts(site: Site) -> list[str]:
    path = site.session().state.known_hosts
    return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []


def test_host_keys_of_slices_are_on_record_until_they_are_gone(site: Site) -> None:
    """Also where the invocation that saw them go was killed; nobody else's lines are touched."""
    site.books.key = KEY
    site.launch("train")
    site.autoscale()
    first = site.only()
    site.boots(first)
    site.autoscale()
    assert known_hosts(site) == [f"{first}-0", f"{first}-1"]
    own = site.session().state.known_hosts
    others = [
        f"west-0000-1-0 {KEY}",
        f"{first[:-1]}99-0 {KEY}",
        f"bastion {KEY}",
        "# a note",
        f"{first} {KEY}",
    ]
    own.write_text(own.read_text() + "".join(f"{line}\n" for line in others))
    site.books.turn(first, CloudState.STOPPED, "preempted")
    site.autoscale()
    site.autoscale()
    kept = [line.split()[0] for line in others]
    assert [each for each in known_hosts(site) if each not in kept] == [
        f"{site.only()}-0",
        f"{site.only()}-1",
    ]
    own.write_text(own.read_text() + f"{first}-1 {KEY}\n")
    site.autoscale()
    assert f"{first}-1" not in known_hosts(site)
    assert [each for each in known_hosts(site) if each in kept] == kept


def test_a_key_that_the_operator_accepted_stays_while_the_address_does(site: Site) -> None:
    site.books.key = KEY
    site.launch("train")
    site.autoscale()
    site.autoscale()
    own = site.session().state.known_hosts
    own.write_text(own.read_text().replace(KEY, OTHER_KEY))
    site.autoscale()
    assert OTHER_KEY in own.read_text()
    name = site.only()
    owner, there = site.books.slices[name]
    moved = tuple(replace(host, host=f"{host.host}-moved") for host in there.hosts)
    site.books.slices[name] = owner, replace(there, hosts=moved)
    site.autoscale()
    assert OTHER_KEY not in own.read_text()
    own.write_text("")
    site.autoscale()
    assert known_hosts(site) == [f"{site.only()}-0", f"{site.only()}-1"]


def test_an_internal_error_of_a_provider_is_reported_and_the_pass_continues(site: Site) -> None:
    class Broken(MemoryProvider):
        def list(self) -> tuple[CloudSlice, ...]:
            raise TypeError("a page is no page")

    session = replace(site.session(), make_provider=lambda _, owner: Broken(site.books, owner))
    assert autoscale.run(session).problems == ["local us-west4-a: TypeError: a page is no page"]
