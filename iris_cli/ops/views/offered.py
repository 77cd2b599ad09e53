"""Workers that exist or could be created. A job that fits no worker is rejected."""

from collections.abc import Mapping

from iris_cli.core import Amounts, Cluster, Worker, slice_attributes
from iris_cli.core.attributes import WORKER_ID_ATTRIBUTE_KEY, AttributeValue
from iris_cli.core.lifecycle.feasibility import Offer
from iris_cli.ops.session import Session


def offers(session: Session, cluster: Cluster) -> list[Offer]:
    """Return an Offer for every worker that exists or could be created.

    Attributes in cluster.yaml override recorded attributes, because the next probe will record them. One Offer stands
    for all workers that a scale group could create.
    """
    probed = [worker for worker in cluster.workers.values() if worker.incarnation]
    names = {worker.id for worker in probed}
    unprobed = [
        {**host.attributes, WORKER_ID_ATTRIBUTE_KEY: AttributeValue(worker_id)}
        for worker_id, host in session.hosts.items()
        if worker_id not in names
    ]
    groups = [(slice_attributes(group), group.max_slices) for group in session.config.scale_groups]
    return [
        *(
            Offer(_attributes(session, each), None if each.unschedulable else Amounts.idle(each))
            for each in probed
        ),
        *(Offer(attributes, None) for attributes in unprobed),
        *(Offer(attributes, None, max_slices) for attributes, max_slices in groups if max_slices),
    ]


def _attributes(session: Session, worker: Worker) -> Mapping[str, AttributeValue]:
    recorded, host = worker.all_attributes, session.hosts.get(worker.id)
    if host is None or all(recorded.get(key) == value for key, value in host.attributes.items()):
        return recorded
    return {**recorded, **host.attributes}
