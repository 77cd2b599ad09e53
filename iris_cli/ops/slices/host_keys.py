"""The host keys of VMs that were made on demand: on record as long as their slices are there."""

from __future__ import annotations

from collections.abc import Iterable

from iris_cli.core.messages.cloud import CloudSlice
from iris_cli.core.model.slice import slice_name, slice_of
from iris_cli.ops.session import Session


def learn(session: Session, listed: Iterable[CloudSlice]) -> None:
    """What providers say of the keys of new VMs, so that nobody else can stand in for them from the first call on.

    A key that is on record stays until the VM has another address: the operator may know better.
    """
    told = [each for each in listed if any(host.key for host in each.hosts)]
    if not told:
        return
    from iris_cli.remote.host_keys import HostKeys, parse

    own, known = HostKeys(session.state.known_hosts), session.view().slices
    new = {
        f"{each.name}-{index}": line.key
        for each in told
        if each.name in known
        for index, host in enumerate(each.hosts)
        if known[each.name].hosts != each.hosts or not own.has(f"{each.name}-{index}")
        for line in parse(f"{each.name}-{index} {host.key}")
    }
    if new:
        own.put_all(new)


def forget(session: Session) -> None:
    """Drop the keys of slices that are gone, whoever saw them go: their names are never used again."""
    if not session.cluster.scale_groups:
        return
    from iris_cli.remote.host_keys import HostKeys

    HostKeys(session.state.known_hosts).forget(lambda owner: _is_over(session, owner))


def _is_over(session: Session, worker: str) -> bool:
    """Whether this is the name of a VM of a slice that there was, and is no more."""
    name = slice_of(worker)
    stem, _, number = name.rpartition("-")
    record = session.cluster.scale_groups.get(stem.rpartition("-")[0])
    if record is None or not number.isdecimal() or int(number) > record.requested:
        return False
    ours = name == slice_name(record.name, session.cluster_id, int(number))
    return ours and name not in session.cluster.slices and worker not in session.hosts
