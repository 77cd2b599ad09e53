"""Open a provider by its name."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from iris_cli.capacity.provider import ProviderError, SliceProvider
from iris_cli.capacity.slurm.commands import Run
from iris_cli.clock import Clock
from iris_cli.core.messages.cloud import Refusal, Scope
from iris_cli.core.model.slice import Provider, Slice

_LOCAL = "iris_cli.demo.provider"
"""The module of `LocalProvider`. It is imported by name, because `demo/` is a layer above `capacity/`."""
_INSTALL = 'pip install "iris-cli[gcp]"'


def open_provider(
    scope: Scope,
    owner: str,
    directory: Path,
    known: Mapping[str, Slice],
    clock: Clock,
    log_in: Callable[[str], Run],
    holder: Callable[[str], str],
) -> SliceProvider:
    """Open the provider of a scope, such as a project and zone. Raises ProviderError.

    `owner`: id of the cluster that owns the slices. `directory`: state directory, for the hosts of the demo's local
    provider. `known`: the slices of the scope in the log, by name. For Slurm: `log_in` returns a function that runs
    commands on a login host; `holder`: see SlurmProvider.
    """
    if scope.provider is Provider.LOCAL:
        local = import_module(_LOCAL)
        root = directory / (scope.project or "local-slices")
        opened: SliceProvider = local.LocalProvider(root, owner, scope.zone, clock)
        return opened
    if scope.provider is Provider.GCP:
        with _client_of_google():
            from iris_cli.capacity.gcp.provider import GcpProvider
        return GcpProvider(scope.project, scope.zone, owner, known, clock=clock)
    if scope.provider is Provider.SLURM:
        from iris_cli.capacity.slurm.provider import SlurmProvider

        if not scope.project:
            return SlurmProvider(owner, known, holder=holder)
        return SlurmProvider(owner, known, log_in(scope.project), holder)
    raise ProviderError(Refusal.INVALID, f"unknown provider {scope.provider}")


def list_nodes(project: str, zone: str, clock: Clock) -> dict[str, Any]:
    """Return the nodes and queued resources of a Google project (see `nodes_as_json`). Raises ProviderError."""
    with _client_of_google():
        from iris_cli.capacity.gcp.api import nodes_as_json
    return nodes_as_json(project, zone, clock=clock)


@contextmanager
def _client_of_google() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise ProviderError(
            Refusal.DENIED, f"Google's client is missing ({error.name}): {_INSTALL}"
        ) from error
