"""Routing written down word for word: slow, without indexes, and with nothing in common with the real one."""

from __future__ import annotations

from collections.abc import Sequence

from iris_cli.core.attributes import AttributeValue
from iris_cli.core.autoscaling import DemandEntry, GroupState
from iris_cli.core.constraints import normalize_constraints
from iris_cli.core.resources import Device
from iris_cli.core.scale_group import slice_attributes

Vm = dict[str, float]


class LiteralRouter:
    """`launch` counts slices by group, `home` says which group each entry goes to, None for none."""

    def __init__(self, groups: Sequence[GroupState]) -> None:
        self.groups = sorted(groups, key=lambda each: (each.group.priority, each.group.name))
        self.slices: dict[str, list[list[Vm]]] = {each.group.name: [] for each in groups}
        self.home: dict[str, str | None] = {}

    def run(self, entries: Sequence[DemandEntry]) -> LiteralRouter:
        for entry in entries:
            self.home[str(entry.key)] = None if entry.invalid_reason else self._route(entry)
        return self

    @property
    def launch(self) -> dict[str, int]:
        return {name: len(slices) for name, slices in self.slices.items() if slices}

    def _route(self, entry: DemandEntry) -> str | None:
        serving = [group for group in self.groups if self._serves(group, entry)]
        for group in serving:
            if self._take(group, entry):
                return group.group.name
        for group in sorted(serving, key=lambda each: (each.group.priority, -self._liked(each, entry))):
            before = list(self.slices[group.group.name])
            for _ in range(self._may_make(group)):
                self.slices[group.group.name].append(self._new_slice(group))
                if self._take(group, entry):
                    return group.group.name
            self.slices[group.group.name] = before
        return None

    def _serves(self, group: GroupState, entry: DemandEntry) -> bool:
        has = {**slice_attributes(group.group), "tpu-name": AttributeValue("no name that anybody knows")}
        device = entry.resources.device or Device("cpu")
        if device.kind == "gpu" or (
            device.kind == "tpu" and device.variant not in ("auto", group.group.template.type)
        ):
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
