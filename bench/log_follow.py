"""Target 13: streaming the output of 64 ranks, each with 1,000 new lines per second."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.cluster_files import ClusterFiles, running_gang
from bench.result import Row, Scale
from bench.ssh_hosts import directory, scripted_sshd, trust_server

LINES_A_SECOND = 1000
SHARE = 0.1
"""Share of one core."""


def rows(scale: Scale) -> Iterator[Row]:
    """Measure one host per rank, with lines that all differ (as with timestamps) and with identical lines."""
    ranks = scale.of(64)
    seconds = (3.0, 45.0) if scale.shrink == 1 else (0.5, 1.0)
    for kind in ((), ("--alike",)):
        with (
            directory() as place,
            scripted_sshd(place, writing=["--lines", str(LINES_A_SECOND), *kind]) as server,
        ):
            cluster = ClusterFiles.make(place, ranks, vms=ranks, ssh_config=server.config)
            trust_server(cluster.known_hosts, cluster.workers, server)
            cluster.write(running_gang(cluster.workers)[0])
            (start, before), (end, after) = (follow(cluster, place / "out", each) for each in seconds)
            words = "alike, folded" if kind else "all different"
            name = f"logs --follow, {ranks} ranks x {LINES_A_SECOND} lines/s {words}, cores"
            yield Row(target=13, name=name, value=(after - before) / (end - start), reference=SHARE, limit=1)
            made = server.connections() / len(seconds)
            yield Row(target=13, name=f"SSH connections of it, {words}", value=made, reference=ranks, limit=1)


def follow(cluster: ClusterFiles, out: Path, seconds: float) -> tuple[float, float]:
    """Stream for that many seconds once all ranks are heard. Return wall and CPU seconds from start to end."""
    begun = time.monotonic()
    with out.open("wb") as file:
        process = subprocess.Popen(
            cluster.iris("logs", "gang", "--follow"),
            env=cluster.environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.PIPE,
        )
    try:
        while process.poll() is None and len(checked_ranks(out.read_bytes())) < len(cluster.workers):
            time.sleep(0.05)
        time.sleep(seconds)
    finally:
        process.kill()  # so nothing is left half printed
        assert process.stderr is not None
        output = process.stderr.read()
        _, ended, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(ended)
    if process.returncode != -signal.SIGKILL:
        raise RuntimeError(f"following ended with {process.returncode}: {output.decode()[-2000:]}")
    checked_ranks(out.read_bytes())
    return time.monotonic() - begun, usage.ru_utime + usage.ru_stime


def checked_ranks(output: bytes) -> set[int]:
    """Return the ranks with lines, none duplicated or missing. Raises RuntimeError."""
    last: dict[int, int] = {}
    ranks: set[int] = set()
    for line in output.split(b"\n")[:-1]:
        prefix, _, text = line.partition(b" ")
        if "…".encode() in prefix:
            last.clear()  # the prefix names only some of the ranks
            continue
        number = int(text[5:13])
        for rank in ranks_of(prefix.decode()):
            if last.setdefault(rank, number - 1) != number - 1:
                raise RuntimeError(f"after line {last[rank]} of rank {rank} came {number}")
            last[rank] = number
        ranks.update(last)
    return ranks


def ranks_of(prefix: str) -> Sequence[int]:
    """Parse `[3]` or `[0-3,7]`."""
    found: list[int] = []
    for part in prefix.strip("[]").split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found
