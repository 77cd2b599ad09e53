"""Which slices are given back, and which are never: whatever the operator changes meanwhile."""

from __future__ import annotations

from msgspec.structs import replace

from iris_cli.core.constraints import region_constraint
from iris_cli.core.events.events import WorkerUncordoned
from iris_cli.core.ids import WorkerId
from iris_cli.core.lifecycle import workers
from iris_cli.core.messages.cloud import Refusal
from iris_cli.core.messages.observations import Silence, SilenceKind
from iris_cli.core.model.worker import IS_VM
from tests.support.autoscaling_script import autoscale, probe_all, scale_group
from tests.support.lab import Lab


def lab(**options: str) -> Lab:
    """One group of slices of two VMs."""
    made = Lab()
    made.cloud.groups["west"] = scale_group("west", {"type": "v4-16", **options})
    return made


def reconfigured(made: Lab, **options: str) -> Lab:
    made.cloud.groups["west"] = scale_group("west", {"type": "v4-16", **options})
    return made


def boot(made: Lab) -> Lab:
    """All slices that were asked for are there."""
    for _ in range(2):
        autoscale(made)
        for name in list(made.cluster.slices):
            if made.cluster.slices[name].state.value == "booting":
                probe_all(made, name)
    autoscale(made)
    return made


def states(made: Lab) -> list[str]:
    return [each.state.value for each in made.cluster.slices.values()]


def test_slices_are_not_kept_for_a_gang_that_can_never_have_all_of_its_own() -> None:
    made = boot(lab(max="2", idle="10m").job("a", tpu="v4-16").job("b", tpu="v4-16"))
    assert states(made) == ["ready", "ready"]
    made.cancel("a").cancel("b").job("large", tpu="v4-16", slices=3)
    assert "scale group west is at its limit of 2 slices" in str(autoscale(made).routing.unmet[0].reason)
    autoscale(made.advance("10m"))
    assert states(made) == ["deleting", "deleting"]


def test_slices_are_kept_for_a_gang_that_waits_for_the_one_that_another_has() -> None:
    made = boot(lab(max="3", idle="10m").job("a", tpu="v4-16").job("b", tpu="v4-16").job("c", tpu="v4-16"))
    made.schedule().reports("c/* running").cancel("a").cancel("b").reports("a/* cancelled ; b/* cancelled")
    made.job("large", tpu="v4-16", slices=3)
    for _ in range(3):
        autoscale(made.advance("10m"))
    assert states(made) == ["ready", "ready", "ready"]


def test_slices_are_kept_for_a_gang_whose_last_one_has_to_wait_for_quota() -> None:
    made = boot(lab(max="2", idle="10m").job("a", tpu="v4-16"))
    made.cancel("a").job("large", tpu="v4-16", slices=2)
    made.cloud.refusals["west"] = Refusal.QUOTA
    for _ in range(4):
        autoscale(made.advance("10m"))
    assert states(made) == ["ready"]


def test_a_slice_that_has_lost_a_vm_is_replaced_although_its_group_is_to_have_it() -> None:
    made = boot(lab(min="1", max="1", idle="10m"))
    [name] = made.cluster.slices
    for _ in range(4):
        made.advance("5m")
        with made.transaction() as draft:
            gone = Silence(
                worker=WorkerId(f"{name}-1"), kind=SilenceKind.UNREACHABLE, step="connect", detail="no route"
            )
            workers.record_silence(draft, gone, made.limits)
    assert made.the_worker(f"{name}-1").condition.value == "lost"
    autoscale(made)
    assert f"{name}-1 is lost" in made.cluster.slices[name].reason
    boot(made)
    assert states(made) == ["ready"]
    assert name not in made.cluster.slices


def test_a_slice_is_given_back_although_an_attempt_of_a_forgotten_vm_may_still_run() -> None:
    """The VM may never answer again. The end of the slice proves the end of the attempt."""
    made = boot(lab(max="1", idle="10m").job("a", tpu="v4-16"))
    [name] = made.cluster.slices
    made.schedule().reports("a/* running").forget_dead(f"{name}-0").cancel("a").reports("a/task-1 stopped")
    assert list(made.cluster.ghosts) == [f"{name}-0"]
    autoscale(made.advance("9m"))
    assert states(made) == ["ready"]
    autoscale(made.advance("1m"))
    assert states(made) == ["deleting"]
    autoscale(made)
    assert (states(made), made.cluster.ghosts) == ([], {})


def test_a_slice_made_by_an_older_template_does_not_count_among_those_a_group_always_has() -> None:
    """It would hold the group's only place for ever, and what the group is for now would never be made."""
    made = boot(lab(min="1", max="1", idle="10m", zone="us-west4-a"))
    [old] = made.cluster.slices
    reconfigured(made, min="1", max="1", idle="10m", zone="us-east5-b")
    made.job("b", tpu="v4-16", constraints=(region_constraint(["us-east5"]),))
    autoscale(made)
    assert states(made) == ["ready"]
    autoscale(made.advance("10m"))
    assert "idle for 10m" in made.cluster.slices[old].reason
    boot(made)
    made.schedule().reports("b/* running")
    assert (states(made), made.state_of("b").value, old in made.cluster.slices) == (
        ["ready"],
        "RUNNING",
        False,
    )


def test_fewer_slices_than_there_are_may_be_wanted_later() -> None:
    """What runs goes on; what nobody was told of yet is not asked for any more; the rest goes when it is idle."""
    made = boot(lab(max="2", idle="10m").job("a", tpu="v4-16")).schedule().reports("a/* running")
    made.job("b", tpu="v4-16")
    made.cloud.refusals["west"] = Refusal.UNANSWERED
    autoscale(made)
    assert states(made) == ["ready", "requested"]
    reconfigured(made, max="1")
    autoscale(made)
    autoscale(made)
    assert states(made) == ["ready"]
    reconfigured(made, max="0")
    made.cloud.refusals.clear()
    autoscale(made.advance("1h"))
    assert (states(made), made.state_of("a").value, made.cloud.made) == (["ready"], "RUNNING", 1)
    made.reports("a/* exited 0").cancel("b")
    autoscale(made.advance("10m"))
    assert states(made) == ["deleting"]


def test_what_a_group_was_to_have_is_not_made_once_it_is_gone_from_the_configuration() -> None:
    made = lab().job("a", tpu="v4-16")
    made.cloud.slow = True
    autoscale(made)
    assert states(made) == ["creating"]
    group = made.cloud.groups.pop("west")
    made.cloud.groups["renamed"] = replace(group, name="renamed")
    autoscale(made)
    autoscale(made)
    assert {name: each.group for name, each in made.cluster.slices.items()} == {"renamed-c0ff-1": "renamed"}


def test_while_a_provider_is_silent_the_next_group_serves_what_its_request_was_for() -> None:
    """Nothing is decided where nobody answers; but what waits does not wait for that for ever."""
    made = lab(priority="1").job("a", tpu="v4-16")
    made.cloud.refusals["west"] = Refusal.UNANSWERED
    autoscale(made)
    autoscale(made.advance("5m"), silent=True)
    assert states(made) == ["requested"]
    assert [str(each.entry.key) for each in autoscale(made, silent=True).routing.unmet] == ["a"]


def test_a_slice_is_kept_for_nobody_who_could_run_anywhere() -> None:
    made = Lab().job("load", cpu=1)
    made.cloud.groups["west"] = scale_group("west", {})
    assert [order.wanted_by for order in autoscale(made).create] == [()]
    made.job("train", tpu="v5litepod-16")
    assert [order.wanted_by for order in autoscale(made).create] == []
    made.job("more", tpu="v5litepod-16")
    assert [order.wanted_by for order in autoscale(made).create] == [("more",)]


def test_a_vm_that_the_configuration_lists_too_gets_tasks_under_one_name_only() -> None:
    made = boot(lab(max="1").job("a", tpu="v4-16")).schedule().reports("a/* running")
    vm = "west-c0ff-1-w1"  # the host of the second VM
    made.worker(vm).job("small", cpu=1).schedule()
    assert made.the_worker(vm).drain_reason == IS_VM
    assert not made.the_worker("west-c0ff-1-1").draining
    made.records(WorkerUncordoned(worker=WorkerId(vm))).configure().schedule()
    assert made.the_worker(vm).draining
    assert made.attempt("small").worker != vm
    made.cloud.delete("west-c0ff-1")
    autoscale(made)
    autoscale(made)
    for gone in ("west-c0ff-1-0", "west-c0ff-1-1"):
        del made.hosts[WorkerId(gone)]
    assert not made.configure().the_worker(vm).draining
