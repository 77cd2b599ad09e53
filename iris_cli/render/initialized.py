"""What `iris init` made, and what comes next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from iris_cli.config.schema import ClusterConfig
from iris_cli.render.console import Output


def show(output: Output, config: ClusterConfig, state: Path, messages: Sequence[str]) -> None:
    """The files, and the next commands to type."""
    named = len(config.hosts)
    if named:
        steps = ["iris doctor", "iris launch -- hostname"]
    else:
        steps = [f"edit {config.path}", "iris config validate", "iris doctor"]
    for message in (*config.warnings, *messages):
        output.message(message)
    if output.as_json:
        output.document(
            {
                "config": str(config.path),
                "state": str(state),
                "cluster": config.name,
                "workers": named,
                "next": steps,
            }
        )
        return
    output.line(f"wrote {config.path}")
    output.line(f"made  {state}")
    output.line(f"next: {', then '.join(steps)}")
