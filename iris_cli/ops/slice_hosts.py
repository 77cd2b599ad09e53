"""Host configurations of the VMs of slices created on demand, like the hosts in `cluster.yaml`."""

from __future__ import annotations

from collections.abc import Mapping

from iris_cli.config.schema import ClusterConfig, HostConfig
from iris_cli.core import AttributeValue, WorkerId, attributes
from iris_cli.core.model.slice import ScaleGroup, Slice, SliceState, slice_attributes, with_template

_EXISTING = (SliceState.BOOTING, SliceState.READY)


def slice_hosts(slices: Mapping[str, Slice], config: ClusterConfig) -> dict[WorkerId, HostConfig]:
    """Return a HostConfig for each VM of the existing slices whose scale group is in cluster.yaml."""
    groups = {group.name: group for group in config.scale_groups}
    return {
        host.worker: host
        for each in slices.values()
        if each.state in _EXISTING and each.group in groups
        for host in _hosts(each, groups[each.group], config)
    }


def _hosts(each: Slice, group: ScaleGroup, config: ClusterConfig) -> list[HostConfig]:
    from iris_cli.core.lifecycle.slices import connections_of

    group = with_template(group, each.template)
    shared = slice_attributes(group)
    return [
        HostConfig(
            worker=worker,
            connection=connection,
            attributes={**shared, **_vm_attributes(each, index)},
            cpu=each.hosts[index].cpus or None,
            memory=each.hosts[index].memory or None,
            device=group.template.device,
            env=group.env,
            slice=each.name,
            replace_lost=config.replace_lost,
        )
        for index, (worker, connection) in enumerate(connections_of(each, group.connection).items())
    ]


def _vm_attributes(each: Slice, index: int) -> dict[str, AttributeValue]:
    gpus = ",".join(map(str, each.hosts[index].gpus))
    found: dict[str, str | int] = {
        attributes.TPU_NAME_ATTRIBUTE_KEY: each.name,
        attributes.TPU_WORKER_ID_ATTRIBUTE_KEY: index,
        attributes.TPU_VM_COUNT_ATTRIBUTE_KEY: len(each.hosts),
        attributes.ALLOCATION_ATTRIBUTE_KEY: each.allocation,
        attributes.GPU_INDEXES_ATTRIBUTE_KEY: gpus,
    }
    return {key: AttributeValue(value) for key, value in found.items() if value != ""}
