"""From the name of a provider to the provider."""

from __future__ import annotations

from pathlib import Path

from iris_cli.capacity.provider import ProviderError, SliceProvider
from iris_cli.core.cloud import Refusal, Scope
from iris_cli.core.scale_group import Provider


def open_provider(scope: Scope, owner: str, directory: Path) -> SliceProvider:
    """The provider of one place. `directory` is where local ones keep their hosts. Raises ProviderError."""
    if scope.provider is Provider.LOCAL:
        from iris_cli.capacity.local import LocalProvider

        return LocalProvider(directory / (scope.project or "local-slices"), owner, scope.zone)
    raise ProviderError(Refusal.INVALID, f"there is no provider {scope.provider} in this program yet")
