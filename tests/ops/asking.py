"""A site with a task that runs, and may ask for things."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.fake_runner import Entry, Host, Site

EVAL = {"command": ["python", "eval.py"], "name": "eval"}


def running(tmp_path: Path, *names: str, **asked: Any) -> tuple[Site, Host, Entry]:
    """`train` runs on the first host."""
    site = Site(tmp_path, *(names or ("w0",)), limits=asked.pop("limits", None))
    site.launch("train", **{"cpu": 1.0, "memory": 1 << 30, **asked})
    site.cycle()
    site.cycle()
    host = next(host for host in site.hosts.values() if host.running)
    return site, host, host.of("train")
