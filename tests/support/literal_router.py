"""Routing implemented literally: slow, without indexes, and independent of the real one."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from iris_cli.core.attributes import AttributeValue
from iris_cli.core.autoscaling import DemandEntry, GroupState
from iris_cli.core.constraints import normalize_constraints
from iris_cli.core.model.slice import slice_attributes
from iris_cli.core.resources import Device

Vm = dict[str, float]


class LiteralRouter:
    """`launch`: number of slices by group. `home`: names of the groups of each entry."""

    def __init__(self, groups: Sequence[GroupState]) -> None:
        self.groups = sorted(groups, key=lambda each: (each.group.priority, each.group.name))
        self.slices: dict[str, list[list[Vm]]] = {each.group.name: [] for each in groups}
        self.home: dict[str, list[str]] = {}

    def run(self, entries: Sequence[DemandEntry]) -> LiteralRouter:
        for entry in entries:
            self.home[str(entry.key)] = [] if entry.invalid_reason else self._route(entry)
        return self

    @property
    def launch(self) -> dict[str, int]:
        return {name: len(slices) for name, slices in self.slices.items() if slices}

    def _route(self, entry: DemandEntry) -> list[str]:
        serving = [group for group in self.groups if self._serves(group, entry)]
        in_order = sorted(serving, key=lambda each: (each.group.priority, -self._liked(each, entry)))
        if entry.shape is not None and entry.shape.groups > 1:
            return self._route_several(entry, in_order)
        for group in serving:
            if self._take(group, entry):
                return [group.group.name]
        for group in in_order:
            before = list(self.slices[group.group.name])
            for _ in range(self._may_make(group)):
                self.slices[group.group.name].append(self._new_slice(group))
                if self._take(group, entry):
                    return [group.group.name]
            self.slices[group.group.name] = before
        return []

    def _route_several(self, entry: DemandEntry, in_order: list[GroupState]) -> list[str]:
        """Route to one group, otherwise to those of a zone, otherwise of a region; if possible without new slices."""
        sets = [[group] for group in in_order]
        for parts in (
            (("zone", "region"), ("region",), ()) if entry.spread else (("zone", "region"), ("region",))
        ):
            places: dict[tuple[str, ...], list[GroupState]] = {}
            for group in in_order:
                has = slice_attributes(group.group)
                variant = "" if entry.resources.device_type == "cpu" else group.group.template.type
                place = (variant, *(str(has[part]) for part in parts))
                places.setdefault(place, []).append(group)
            sets += places.values()
        for making in (False, True):
            for some in sets:
                taken = self._take_several(some, entry, making=making)
                if taken:
                    return taken
        return []

    def _take_several(self, groups: list[GroupState], entry: DemandEntry, *, making: bool) -> list[str]:
        """Take slices one by one: first open ones in the order of the groups, then new ones."""
        before = {name: [[dict(vm) for vm in vms] for vms in slices] for name, slices in self.slices.items()}
        one, taken = replace(entry, slices=1), dict[str, None]()
        missing = entry.slices
        for new in (False, True) if making else (False,):
            for group in groups:
                while missing and (not new or self._may_make(group)):
                    if new:
                        self.slices[group.group.name].append(self._new_slice(group))
                    if not self._take(group, one):
                        break
                    taken[group.group.name] = None
                    missing -= 1
        if missing:
            self.slices = before
            return []
        return sorted(taken)

    def _serves(self, group: GroupState, entry: DemandEntry) -> bool:
        has = {**slice_attributes(group.group), "tpu-name": AttributeValue("no name that anybody knows")}
        device = entry.resources.device or Device("cpu")
        if device.kind == "gpu" or (
            device.kind == "tpu" and device.variant not in ("auto", group.group.template.type)
        ):
            return False
        if entry.one_vm and group.vm_count not in (None, 1):
            return False
        intent = normalize_constraints(entry.constraints)
        if intent.required_regions is not None and str(has["region"]) not in intent.required_regions:
            return False
        if intent.preemptible is not None and (str(has["preemptible"]) == "true") != intent.preemptible:
            return False
        plain = [each for each in entry.constraints if each.required and each.key != "tpu-worker-id"]
        if not all(each.matches(has) for each in plain):
            return False
        taints = [key.removeprefix("taint:") for key in has if key.startswith("taint:")]
        return all(taint in entry.tolerations for taint in taints)

    def _liked(self, group: GroupState, entry: DemandEntry) -> int:
        has = {**slice_attributes(group.group), "tpu-name": AttributeValue("x")}
        return sum(each.matches(has) for each in entry.constraints if not each.required)

    def _may_make(self, group: GroupState) -> int:
        if group.backing_off:
            return 0
        return max(0, group.group.max_slices - group.slices - len(self.slices[group.group.name]))

    def _new_slice(self, group: GroupState) -> list[Vm]:
        size = group.vm_size
        vms = group.vm_count
        assert vms is not None
        return [
            {"number": number, "cpu": size.cpu_millis, "memory": size.memory, "chips": 1}
            for number in range(vms)
        ]

    def _take(self, group: GroupState, entry: DemandEntry) -> bool:
        fitting = [[vm for vm in vms if self._fits(vm, entry)] for vms in self.slices[group.group.name]]
        if entry.shape is None:
            found = [vm for vms in fitting for vm in vms][:1]
            enough = len(found) == 1
        elif entry.shape.whole:
            whole = [
                vms
                for vms, all_of_them in zip(fitting, self.slices[group.group.name], strict=True)
                if len(vms) == len(all_of_them) == entry.shape.size
            ][: entry.slices]
            found = [vm for vms in whole for vm in vms]
            enough = len(whole) == entry.slices
        else:
            some = [vms[: entry.shape.size] for vms in fitting if len(vms) >= entry.shape.size][
                : entry.slices
            ]
            found = [vm for vms in some for vm in vms]
            enough = len(some) == entry.slices
        if enough:
            for vm in found:
                vm["cpu"] -= entry.resources.cpu_millis
                vm["memory"] -= entry.resources.memory
                vm["chips"] -= entry.resources.device_type == "tpu"
        return enough

    def _fits(self, vm: Vm, entry: DemandEntry) -> bool:
        numbered = [each for each in entry.constraints if each.required and each.key == "tpu-worker-id"]
        here = {"tpu-worker-id": AttributeValue(int(vm["number"]))}
        return (
            all(each.matches(here) for each in numbered)
            and vm["cpu"] >= entry.resources.cpu_millis
            and vm["memory"] >= entry.resources.memory
            and (entry.resources.device_type != "tpu" or vm["chips"] == 1)
        )
