"""What `iris init` made, and what comes next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from iris_cli.config.schema import ClusterConfig
from iris_cli.core.units import count
from iris_cli.ops.setup.cluster_import.offers import Offer
from iris_cli.render.console import Output


class InitDocument(Struct, frozen=True, kw_only=True):
    """The result of `iris init`. `imports` and `next` are commands to type."""

    config: Path
    state: Path
    cluster: str
    workers: int
    imports: Sequence[str]
    next: Sequence[str]


def show(
    output: Output, config: ClusterConfig, state: Path, messages: Sequence[str], offers: Sequence[Offer] = ()
) -> None:
    """The files, what could be imported into them, and the next commands to type."""
    named = len(config.hosts)
    if named:
        steps = ["iris doctor", "iris launch -- hostname"]
    elif offers:
        steps = [offers[0].command, "iris doctor"]
    else:
        steps = [f"edit {config.path}", "iris config validate", "iris doctor"]
    for message in (*config.warnings, *messages):
        output.message(message)
    if output.as_json:
        output.document(
            InitDocument(
                config=config.path,
                state=state,
                cluster=config.name,
                workers=named,
                imports=[each.command for each in offers],
                next=steps,
            )
        )
        return
    output.done(f"wrote {config.path}")
    output.done(f"made  {state}")
    for each in offers:
        output.done(f"there is {_what(each)}: {each.command}")
    output.done(f"next: {', then '.join(steps)}")


def _what(offer: Offer) -> str:
    if offer.slices:
        return f"a list of {count(offer.slices, 'TPU slice')}"
    return f"an SSH configuration with {count(offer.hosts, 'host')}" if offer.hosts else "gcloud"
