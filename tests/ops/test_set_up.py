"""The set-up of new VMs: launched by a token of its own, asked after by launching it again."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from iris_cli.core.ids import Token, WorkerId
from iris_cli.core.messages.observations import AttemptReport, RemoteState, Silence, WorkerReport
from iris_cli.core.model.job import JobRequest
from iris_cli.core.model.worker import WorkerCondition
from iris_cli.ops import autoscale
from iris_cli.ops.cycle import cycle
from iris_cli.ops.cycle.answers import set_up_token
from iris_cli.ops.jobs import launch
from iris_cli.ops.views.scale_status import scaling_rows
from iris_cli.ops.views.why import why
from iris_cli.ops.workers import workers
from iris_cli.remote.launch_request import LaunchRequest
from iris_cli.remote.transport import Target
from tests.ops.test_autoscale import Site
from tests.ops.world import Hosts, silence


@dataclass
class Launching(Hosts):
    """Hosts that launch what they are told to; `says` is how that goes, by worker, None for no answer."""

    says: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    launched: list[tuple[str, LaunchRequest]] = field(default_factory=list)

    def prepare(
        self, target: Target, requests: list[LaunchRequest], *, boot_id: str, incarnation: str, go: bool
    ) -> WorkerReport | Silence:
        [request] = requests
        assert go
        self.launched.append((target.worker, request))
        said = self.says.get(target.worker, {"state": RemoteState.RUNNING})
        if said is None:
            return silence(target.worker)
        reports = (AttemptReport(token=request.token, **said),)
        return WorkerReport(worker=target.worker, boot_id=boot_id, incarnation=incarnation, attempts=reports)


DONE = {"state": RemoteState.EXITED, "exit_code": 0}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """With one slice whose two VMs have just answered their first probe."""
    made = Site(tmp_path / "state")
    made.hosts = Launching()
    made.group = replace(made.group, setup="./prepare")
    made.launch("train")
    made.autoscale()
    made.boots(made.only())
    made.autoscale()
    return made


def hosts(site: Site) -> Launching:
    assert isinstance(site.hosts, Launching)
    return site.hosts


def vm(site: Site, number: int) -> str:
    return f"{site.only()}-{number}"


def test_it_is_launched_on_each_vm_by_the_same_token_until_it_has_ended(site: Site) -> None:
    hosts(site).says[vm(site, 0)] = DONE
    site.autoscale()
    hosts(site).says[vm(site, 1)] = DONE
    site.autoscale()
    assert list(site.states.values()) == ["ready"]
    first, second = vm(site, 0), vm(site, 1)
    assert sorted(worker for worker, _ in hosts(site).launched) == [first] * 2 + [second] * 3
    tokens = {(worker, request.token) for worker, request in hosts(site).launched}
    assert tokens == {(each, set_up_token(WorkerId(each), f"{each}-life-1")) for each in (first, second)}
    asked = hosts(site).launched[0][1]
    assert (asked.argv, asked.env["WHERE"], asked.exclusive) == (("sh", "-c", "./prepare"), "west", False)


def test_a_slice_is_asked_how_its_set_up_went_before_it_is_given_up_for_taking_too_long(site: Site) -> None:
    """Passes may be minutes apart: it ended in time, and nobody has looked since."""
    hosts(site).says |= {vm(site, 0): DONE, vm(site, 1): DONE}
    site.clock.sleep(site.session().limits.slice_boot_timeout + 1)
    done = site.autoscale()
    assert list(site.states.values()) == ["ready"]
    assert done.deleted == {}


def test_one_whose_set_up_still_runs_then_is_given_up(site: Site) -> None:
    hosts(site).says |= {vm(site, 0): DONE}
    site.clock.sleep(site.session().limits.slice_boot_timeout + 1)
    [reason] = site.autoscale().deleted.values()
    assert reason == f"its VMs were not ready after 15m ({vm(site, 1)}: set-up has not ended)"


def test_the_command_is_that_which_the_slice_was_asked_for_with(site: Site) -> None:
    site.group = replace(site.group, setup="./other")
    site.autoscale()
    assert {request.argv[2] for _, request in hosts(site).launched} == {"./prepare"}


def test_a_vm_that_does_not_answer_is_asked_again_and_holds_up_nobody(site: Site) -> None:
    hosts(site).says |= {vm(site, 0): None, vm(site, 1): DONE}
    site.autoscale()
    session = site.session_now()
    assert session.cluster.slices[site.only()].set_up == (1,)
    [group] = scaling_rows(session.cluster, autoscale.dry_run(session), site.clock.now()).groups
    assert [row.reason for row in group.slices] == ["1 of 2 VMs set up"]
    hosts(site).says[vm(site, 0)] = DONE
    site.autoscale()
    assert list(site.states.values()) == ["ready"]


@pytest.mark.parametrize("done", ["forget", "uncordon"])
def test_a_vm_takes_nothing_before_its_slice_is_complete_whatever_the_operator_does(
    site: Site, done: str
) -> None:
    if done == "forget":
        workers.forget(site.session(), vm(site, 0))
    else:
        workers.uncordon(site.session(), [vm(site, 0)])
    cycle.run(site.session(), schedule=False)
    site.autoscale()
    launch.launch(site.session(), JobRequest(name="load", command=("true",), cpu=1))
    assert site.session_now().cluster.workers[WorkerId(vm(site, 0))].condition is WorkerCondition.HEALTHY
    assert site.place() == []
    [wait] = why(site.session(), "load").waits
    assert wait.explanation is not None
    assert f"({vm(site, 0)}: its slice is not complete yet" in str(wait.explanation.reasons[0])
    found = f"worker {vm(site, 0)} fits when all VMs of its slice are healthy and set up"
    assert str(wait.explanation.change) == found
    hosts(site).says |= {vm(site, 0): DONE, vm(site, 1): DONE}
    site.autoscale()
    assert site.place() == [vm(site, 0), vm(site, 1), vm(site, 0)]


def test_a_vm_that_the_operator_drained_stays_so_when_its_slice_is_complete(site: Site) -> None:
    workers.drain(site.session(), [vm(site, 1)], reason="a fan is loud")
    hosts(site).says |= {vm(site, 0): DONE, vm(site, 1): DONE}
    site.autoscale()
    assert list(site.states.values()) == ["ready"]
    assert [each.drain_reason for each in site.session_now().cluster.workers.values()] == [
        "",
        "a fan is loud",
    ]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({**DONE, "exit_code": 3, "log_tail": "a\nb\n\nc\nd\n"}, "exit 3: b / c / d"),
        ({**DONE, "exit_code": 137, "cause": "oom"}, "exit 137, oom"),
        ({**DONE, "cause": "timeout"}, "exit 0, timeout"),
        ({"state": RemoteState.NOSTART, "cause": "disk"}, "nostart, disk"),
        ({"state": RemoteState.LOST}, "lost"),
        ({**DONE, "exit_code": 1, "log_tail": "x" * 5000}, "exit 1: xxx"),
    ],
)
def test_where_it_fails_the_slice_goes_and_its_group_backs_off(
    site: Site, said: dict[str, Any], words: str
) -> None:
    name, worker = site.only(), vm(site, 1)
    hosts(site).says[worker] = said
    site.autoscale()
    made = site.session_now().cluster
    assert made.slices[name].state.value == "deleting"
    assert made.slices[name].reason.startswith(f"set-up failed on {worker}: {words}")
    assert len(made.slices[name].reason) < 400
    assert made.scale_groups["west"].error.startswith(f"{name}: set-up failed")
    hosts(site).launched.clear()
    site.autoscale()
    assert hosts(site).launched == []


def test_what_it_runs_there_is_no_attempt_that_the_log_never_saw(site: Site) -> None:
    """A restored log would not know a task's token; this one follows from the VM."""
    worker = vm(site, 0)
    seen = hosts(site).probes[worker]
    for tokens, refusal in (
        ((set_up_token(seen.worker, seen.incarnation),), ""),
        ((Token("f" * 32),), "1 attempt not in the log"),
    ):
        hosts(site).probes[worker] = replace(seen, tokens=tokens)
        [probed] = workers.probe(site.session(), [worker])
        assert probed.worker.reason.startswith(refusal)
        assert bool(probed.worker.unschedulable) is bool(refusal)
