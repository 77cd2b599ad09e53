"""Host entries for the VMs of slices created on demand, in the form of those in `cluster.yaml`."""

from __future__ import annotations

from collections.abc import Mapping

from iris_cli.config.schema import ClusterConfig, HostConfig
from iris_cli.core import AttributeValue, Device, WorkerId, attributes
from iris_cli.core.model.slice import ScaleGroup, Slice, SliceState, as_made, slice_attributes

_EXISTING = (SliceState.BOOTING, SliceState.READY)


def slice_hosts(slices: Mapping[str, Slice], config: ClusterConfig) -> dict[WorkerId, HostConfig]:
    """Return a host entry for each VM of existing slices, except slices of groups that are not in cluster.yaml."""
    groups = {group.name: group for group in config.scale_groups}
    return {
        host.worker: host
        for each in slices.values()
        if each.state in _EXISTING and each.group in groups
        for host in _hosts(each, groups[each.group], config)
    }


def _hosts(each: Slice, group: ScaleGroup, config: ClusterConfig) -> list[HostConfig]:
    from iris_cli.core.lifecycle.slices import connections_of

    group = as_made(group, each.template)
    shared = slice_attributes(group)
    return [
        HostConfig(
            worker=worker,
            connection=connection,
            attributes={
                **shared,
                attributes.TPU_NAME_ATTRIBUTE_KEY: AttributeValue(each.name),
                attributes.TPU_WORKER_ID_ATTRIBUTE_KEY: AttributeValue(index),
                attributes.TPU_VM_COUNT_ATTRIBUTE_KEY: AttributeValue(len(each.hosts)),
            },
            device=Device("tpu", group.template.type),
            env=group.env,
            slice=each.name,
            replace_lost=config.replace_lost,
        )
        for index, (worker, connection) in enumerate(connections_of(each, group.connection).items())
    ]
