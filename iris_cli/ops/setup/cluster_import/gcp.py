"""The list of nodes from the API itself."""

from __future__ import annotations

import json
import shlex

from iris_cli.capacity.opening import list_nodes as ask
from iris_cli.capacity.provider import ProviderError
from iris_cli.clock import Clock
from iris_cli.core.messages.cloud import Refusal
from iris_cli.errors import UnreachableError, UsageError


def list_nodes(project: str, zone: str, clock: Clock) -> str:
    """The JSON of all nodes, as `projects.locations.nodes.list` answers it. Raises UsageError, UnreachableError."""
    try:
        return json.dumps(ask(project, zone, clock))
    except ProviderError as error:
        named = f" --project {shlex.quote(project)}" if project else ""
        kind = UnreachableError if error.refusal is Refusal.UNANSWERED else UsageError
        raise kind(
            error.message,
            hint=f"or: gcloud compute tpus tpu-vm list --zone {shlex.quote(zone or '-')}{named} --format json"
            " | iris cluster import --from -",
        ) from error
