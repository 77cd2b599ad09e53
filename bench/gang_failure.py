"""Target 12: the number of steps from the failure of a rank in a large gang to the stop of all siblings."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.cluster_files import ClusterFiles, running_gang
from bench.result import Row, Scale
from bench.scripted_sshd import Worker
from bench.ssh_hosts import directory
from iris_cli.cli.context import Context
from iris_cli.core.ids import WorkerId
from iris_cli.ops.cycle import cycle
from iris_cli.remote.transport import Script, ScriptResult, Target

LATENCY = 0.5
"""Duration of each call in seconds: long, so that the CPU time of this machine hardly counts."""


def rows(scale: Scale) -> Iterator[Row]:
    """Measure one poll and one fan-out: each host is called twice, all of them in parallel."""
    hosts = scale.of(64)
    with directory() as place:
        transport = run_cycle(place, hosts)
    stops = transport.stopped()
    assert len(stops) == hosts - 1, "not every sibling was stopped"
    calls = max(number for number, _ in stops.values())
    last = max(moment for _, moment in stops.values()) - transport.begun
    yield Row(target=12, name="calls to a host until its rank is stopped", value=calls, reference=2, limit=1)
    # The stop is sent in the middle of the second call, after 1.5 calls; the rest is this machine's own work.
    yield Row(
        target=12,
        name=f"until {hosts - 1} stops are sent, calls of {LATENCY} s",
        value=last / LATENCY,
        reference=2,
        limit=1,
    )


def run_cycle(place: Path, hosts: int) -> RecordingTransport:
    """Run one cycle over a gang of that many ranks, one of which has exited with 1."""
    cluster = ClusterFiles.make(place, hosts, vms=hosts)
    events, tokens = running_gang(cluster.workers)
    cluster.write(events)
    transport = RecordingTransport(Worker(failed=frozenset({tokens[hosts // 3].encode()})))
    context = Context(config_path=place / "cluster.yaml", state_path=place / "state")
    context.__dict__["transport"] = transport  # instead of real SSH
    cycle.run(context.session("iris schedule"))
    return transport


@dataclass
class RecordingTransport:
    """A transport that answers like a worker, after a delay, and records the calls."""

    worker: Worker
    begun: float = 0.0
    calls: dict[WorkerId, list[tuple[float, bool]]] = field(default_factory=lambda: defaultdict(list))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, target: Target, script: Script) -> ScriptResult:
        """Answer a script (see Transport.run)."""
        with self._lock:
            self.begun = self.begun or time.monotonic()
        time.sleep(LATENCY / 2)
        with self._lock:
            self.calls[target.worker].append((time.monotonic(), b"\nstop " in script.text))
        time.sleep(LATENCY / 2)
        return ScriptResult(stdout=self.worker.answer(script.text), stderr=b"", status=0)

    def close(self) -> None:
        """Do nothing: no connection is open."""

    def stopped(self) -> dict[WorkerId, tuple[int, float]]:
        """Return for each worker that got a stop: the number of that call, and its time."""
        found = {}
        for worker, calls in self.calls.items():
            for number, (moment, is_stop) in enumerate(calls, 1):
                if is_stop:
                    found[worker] = (number, moment)
                    break
        return found
