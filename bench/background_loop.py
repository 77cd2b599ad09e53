"""Target 8: the cost of the background loop while nothing changes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from bench.cluster_files import ClusterFiles, finished
from bench.result import Row, Scale
from bench.ssh_hosts import directory
from bench.stopwatch import cpu_of_command
from iris_cli.journal.files.runners import LOOP
from iris_cli.journal.state_dir import StateDir
from iris_cli.ops.loop.start import running_loop

_MOST = 0.005
"""Share of one core."""
_SETTLED = 25.0  # seconds until the pauses of the loop have reached their maximum
_MEASURED = 60.0
_AT_MOST = 60.0  # seconds until the first cycle


def rows(scale: Scale) -> Iterator[Row]:
    """Measure while a job waits for a worker that does not exist; no worker needs polling."""
    with directory() as place:
        cluster = ClusterFiles.make(place, scale.of(100))
        cluster.write(list(finished(cluster.workers, scale.of(100))))
        waits = ("launch", "--no-schedule", "--force", "--cpu", "100000", "--", "true")
        cpu_of_command(cluster.iris(*waits), cluster.environment)
        try:
            value = _measured(cluster, place, scale)
        finally:
            cpu_of_command(cluster.iris("loop", "stop"), cluster.environment)
        name = f"background loop, {len(cluster.hosts)} idle workers, s CPU a second wall"
        yield Row(target=8, name=name, value=value, reference=_MOST, limit=1)


def _measured(cluster: ClusterFiles, place: Path, scale: Scale) -> float:
    cpu_of_command(cluster.iris("loop", "start"), cluster.environment)
    state = StateDir(place / "state", now=time.time, actor=f"bench@{os.uname().nodename}")
    until = time.monotonic() + _AT_MOST
    while LOOP not in (state.read_heartbeat() or {}).get("runners", {}) and time.monotonic() < until:
        time.sleep(0.1)
    time.sleep(_SETTLED / scale.shrink)
    loop = running_loop(state)
    assert loop is not None
    before, began = _cpu(loop.pid), time.monotonic()
    time.sleep(_MEASURED / scale.shrink)
    return (_cpu(loop.pid) - before) / (time.monotonic() - began)


def _cpu(pid: int) -> float:
    """Return the CPU seconds of a process so far; 0.0 if unknown."""
    try:
        fields = Path("/proc", str(pid), "stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
