"""The commands of transcripts about scale groups."""

from __future__ import annotations

from collections.abc import Mapping

from iris_cli.core.attributes import AttributeValue
from iris_cli.core.autoscaling.scaling import ScalingPlan, plan_scaling
from iris_cli.core.constraints import build_worker_attributes
from iris_cli.core.events.events import SliceSetUp, WorkerUpdated
from iris_cli.core.ids import WorkerId
from iris_cli.core.lifecycle import identity, slices
from iris_cli.core.lifecycle.slices import owner_conflict
from iris_cli.core.messages.cloud import CloudState, Refusal, Scope
from iris_cli.core.model.slice import Provider, ScaleGroup, SliceOwner, SliceTemplate, slice_attributes
from iris_cli.core.topology import canonical_type, lookup
from iris_cli.core.units import parse_duration
from tests.support.lab import GIB, Host, Lab

OWNER = "c0ffee"
HERE = SliceOwner(place="1:2", where="laptop:/lab/state")


def scale_group(name: str, options: Mapping[str, str]) -> ScaleGroup:
    """`type=v5e-16 zone=us-west4-a preemptible=true min=0 max=4 priority=10 idle=10m provider=local setup=x pool=a`."""
    rest = dict(options)
    template = SliceTemplate(
        provider=Provider(rest.pop("provider", "local")),
        type=canonical_type(rest.pop("type", "v5litepod-16")),
        zone=rest.pop("zone", "us-west4-a"),
        preemptible=rest.pop("preemptible", "false") == "true",
    )
    return ScaleGroup(
        name=name,
        template=template,
        min_slices=int(rest.pop("min", "0")),
        max_slices=int(rest.pop("max", "4")),
        priority=int(rest.pop("priority", "0")),
        idle_timeout=parse_duration(rest.pop("idle", "10m")),
        setup=rest.pop("setup", ""),
        attributes={key: AttributeValue(value) for key, value in rest.items()},
    )


def autoscale(lab: Lab, *, silent: bool = False) -> ScalingPlan:
    """Run one pass: list, follow the list, plan, record, call, record the results. `silent`: no list is answered."""
    cloud, groups = lab.cloud, list(lab.cloud.groups.values())
    before = dict(lab.cluster.slices)
    templates = [group.template for group in groups] + [each.template for each in before.values()]
    scopes = [] if silent else list(dict.fromkeys(map(Scope.of, templates)))
    connections = {group.name: group.connection for group in groups}
    listings = [slices.Listing(scope=scope, slices=cloud.listed(scope), before=before) for scope in scopes]
    with lab.transaction() as draft:
        touched = [
            job for each in listings for job in slices.apply_listing(draft, each, connections, lab.limits)
        ]
        lab.settle(draft, touched)
        slices.join_complete_slices(draft)
        errors = {group.name: "its provider does not answer" for group in groups} if silent else {}
        plan = plan_scaling(draft.cluster, groups, draft.at, lab.limits, owner=OWNER, silent=errors)
        slices.record_scaling_plan(draft, plan, lab.limits)
    listed = {each.scope: [one.name for one in each.slices] for each in listings}
    create, delete = slices.calls_due(lab.cluster, listed, lab.now, lab.limits)
    answers = [cloud.create(each) for each in create]
    for each in delete:
        cloud.delete(each.name)
    with lab.transaction() as draft:
        for answer in answers:
            slices.record_create_answer(draft, answer, lab.limits)
    return plan


def probe_all(lab: Lab, name: str) -> None:
    """Let all VMs of a slice, or one worker, pass their probe."""
    known = lab.cluster.slices.get(name)
    workers = known.workers if known is not None else (WorkerId(name),)
    for worker in workers:
        lab.hosts.setdefault(worker, Host(_facts(lab, worker)))
        with lab.transaction() as draft:
            identity.apply_probe(draft, lab.hosts[worker].facts, lab.limits)


def set_up(lab: Lab, name: str, error: str = "") -> None:
    """Let the set-up of all VMs of a slice, or of one worker, end."""
    due = slices.set_ups_due(lab.cluster)
    with lab.transaction() as draft:
        for each, vm in due:
            if name in (each.name, each.workers[vm]):
                slices.record_set_up(draft, SliceSetUp(slice=each.name, vm=vm, error=error), lab.limits)
        slices.join_complete_slices(draft)


def _facts(lab: Lab, worker: WorkerId) -> WorkerUpdated:
    slice_name, _, number = worker.rpartition("-")
    made = lab.cluster.slices[slice_name]
    group = lab.cloud.groups[made.group]
    known = lookup(group.template.type)
    assert known is not None
    metadata = {
        "accelerator-type": group.template.type,
        "agent-worker-number": number,
        "instance-id": slice_name,
        "zone": group.template.zone,
    }
    return WorkerUpdated(
        worker=worker,
        connection=lab.the_worker(worker).connection,
        attributes=dict(build_worker_attributes(metadata, slice_attributes(group))),
        cpu=112.0,
        memory=192 * GIB,
        chips=known.chips_per_vm,
        boot_id="boot-1",
        incarnation=f"{worker}-life-1",
    )


class AutoscalingVerbs:
    """A mix-in of `Script`."""

    lab: Lab

    def do_scale_group(self, name: str, *words: str) -> None:
        self.lab.cloud.groups[name] = scale_group(name, dict(word.split("=", 1) for word in words))

    def do_autoscale(self, *words: str) -> list[str]:
        listed = self.lab.cloud.slices.values()
        if (found := owner_conflict(self.lab.cluster, HERE, OWNER, listed)) is not None:
            return [f"refused: {found}"]
        plan = autoscale(self.lab, silent="--silent" in words)
        made = [f"to make by hand: {count} of {name}" for name, count in plan.by_hand.items()]
        later = [f"later: {count} of {name}" for name, count in plan.later.items()]
        return [*made, *later, *(f"unmet {each.entry.key}: {each.reason}" for each in plan.routing.unmet)]

    def do_cloud(self, *words: str) -> list[str]:
        """`cloud refuses GROUP quota|nothing`, `cloud slow`, `cloud appears NAME GROUP`, `cloud NAME STATE`."""
        cloud = self.lab.cloud
        match words:
            case ("slow",):
                cloud.slow = True
            case ("refuses", group, "nothing"):
                cloud.refusals.pop(group)
            case ("refuses", group, kind):
                cloud.refusals[group] = Refusal(kind)
            case ("appears", name, group):
                cloud.appear(name, group)
            case (name, "gone"):
                cloud.delete(name)
            case (name, state, *detail):
                cloud.turn(name, CloudState(state), " ".join(detail))
        return [f"{each.name} {each.state}" for each in cloud.slices.values()]

    def do_boot(self, name: str) -> None:
        probe_all(self.lab, name)

    def do_set_up(self, name: str, *error: str) -> None:
        """`set-up SLICE|WORKER [WHAT WENT WRONG]`."""
        set_up(self.lab, name, " ".join(error))

    def do_slices(self) -> list[str]:
        return [f"{each.name} {each.state}" for each in self.lab.cluster.slices.values()]
