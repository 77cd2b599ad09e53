"""What there is to run on: what jobs are accepted by."""

from __future__ import annotations

from collections.abc import Mapping

from iris_cli.core.attributes import AttributeValue
from iris_cli.core.cluster import Cluster
from iris_cli.core.scale_group import slice_attributes
from iris_cli.ops.session import Session


def fleet(session: Session, cluster: Cluster) -> list[Mapping[str, AttributeValue]]:
    """The attributes of every worker there is or could be.

    As registered, or as declared where it was never probed; of scale groups as their slices will have them.
    """
    known = [worker.attributes for worker in cluster.workers.values() if worker.incarnation]
    known += [
        host.attributes
        for worker_id, host in session.hosts.items()
        if worker_id not in cluster.workers or not cluster.workers[worker_id].incarnation
    ]
    return [*known, *(slice_attributes(group) for group in session.config.scale_groups if group.max_slices)]
