"""Targets 4, 5, 6, 8, 14 and 15: whole commands, from the interpreter's start to its end."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from bench.cluster_files import ClusterFiles, finished, running
from bench.long_log import time_of, write_past
from bench.result import Row, Scale
from bench.ssh_hosts import directory, scripted_sshd, trust_server
from bench.stopwatch import cpu_of_command, medians
from iris_cli.clock import iso_time
from iris_cli.core.events.events import JobSubmitted
from iris_cli.core.ids import JobId
from iris_cli.core.model.job import Job
from iris_cli.core.resources import Device, Resources

MOST_MEMORY = 350e6
MOST_MEMORY_OF_STATUS = 60e6
_EVENTS_OF_A_JOB = 7
_PENDING = Job(
    id=JobId("waits"), command=("train",), resources=Resources(device=Device("tpu", "v5litepod-256"))
)
_QUERIES = (["why", _PENDING.id], ["workers"], ["history"], ["--help"])
_EXIT_REPORT = """
import atexit, pathlib, sys

def report():
    status = pathlib.Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    peak = next((line.split()[1] for line in lines if line.startswith("VmHWM:")), "0")
    pathlib.Path(__file__).with_name("exit_report").write_text(f"{int('paramiko' in sys.modules)} {peak}")

atexit.register(report)
"""
"""Records a process's own peak memory at its end. The system's figure for a child includes the parent's memory."""


def status_rows(scale: Scale) -> Iterator[Row]:
    """Target 4: a short log, 256 workers, a pending job. In units of an empty Python program's CPU time."""
    with directory() as place:
        cluster = ClusterFiles.make(place, scale.of(256))
        lines = scale.of(1000)
        jobs = max(1, lines // _EVENTS_OF_A_JOB)  # one event too many would put two on each line
        cluster.write(list(finished(cluster.workers, jobs)), lines=lines)
        cluster.write([JobSubmitted(job=_PENDING)])
        size = f"{lines} lines, {len(cluster.hosts)} workers"
        for words, limit in ((["status"], 10), *((words, 12) for words in _QUERIES)):
            yield _against_bare(4, cluster, words, size, scale, limit)
        yield _paramiko_row(4, cluster, ["status"])
        moved = ClusterFiles(place.with_name(f"{place.name}-moved"), cluster.hosts)
        shutil.move(place, moved.directory)
        try:
            yield _against_bare(4, moved, ["status"], f"{size}, moved, with another HOME", scale, 10)
        finally:
            shutil.move(moved.directory, place)


def history_rows(scale: Scale) -> Iterator[Row]:
    """Target 5: ended jobs, up to a million lines of them. The first command writes the snapshot."""
    with directory() as place:
        short, middle, long = (
            _with_past(place / str(lines), scale, scale.of(lines)) for lines in (1000, 100_000, 1_000_000)
        )
        clusters = {"short": short, "middle": middle, "long": long}
        found = _cpu_in_turns(
            short, {name: (cluster, ["status"]) for name, cluster in clusters.items()}, scale
        )
        name = f"status, {scale.of(1_000_000)} lines, s CPU"
        yield Row(target=5, name=name, value=found["long"], reference=found["bare"], limit=10)
        for lines, which in ((scale.of(100_000), "middle"), (scale.of(1_000_000), "long")):
            name = f"status, {lines} lines against {scale.of(1000)}, s CPU"
            yield Row(target=5, name=name, value=found[which], reference=found["short"], limit=1.2)
        memory = 1024 * _run_with_report(long, ["status"])[1]
        name = f"status, {scale.of(1_000_000)} lines, bytes"
        yield Row(target=5, name=name, value=memory, reference=MOST_MEMORY_OF_STATUS, limit=1)


def _with_past(place: Path, scale: Scale, lines: int, *, look: bool = True) -> ClusterFiles:
    place.mkdir(exist_ok=True)
    cluster = ClusterFiles.make(place, scale.of(256))
    cluster.write(list(running(cluster.workers, 20, of_a_job=4)))
    write_past(place / "state", cluster.workers, lines)
    if look:
        cpu_of_command(cluster.iris("status"), cluster.environment)
    return cluster


def idle_rows(scale: Scale) -> Iterator[Row]:
    """Target 8: cron's command with nothing to do. The only server counts its connections."""
    with directory() as place, scripted_sshd(place) as server:
        cluster = ClusterFiles.make(place, scale.of(100), ssh_config=server.config)
        trust_server(cluster.known_hosts, cluster.workers, server)
        size = f"{len(cluster.hosts)} idle workers"
        yield _against_bare(8, cluster, ["schedule", "--once"], size, scale, 10)
        yield Row(target=8, name="SSH connections of it", value=server.connections(), reference=1, limit=0)
        yield _paramiko_row(8, cluster, ["schedule", "--once"])


def submit_rows(scale: Scale) -> Iterator[Row]:
    """Target 15: very many tasks in one command, each time into an empty log."""
    with directory() as place:
        cluster = ClusterFiles.make(place, scale.of(256))
        state = place / "state"
        files = {path: path.read_bytes() for path in (state / "events.jsonl", state / "HEAD")}
        tasks = scale.of(10_000)
        command = cluster.iris("launch", "--replicas", str(tasks), "--no-schedule", "--", "train")

        def submit() -> float:
            for path, content in files.items():
                path.write_bytes(content)
            return cpu_of_command(command, cluster.environment)

        found = medians({"submit": submit, "bare": partial(_bare, cluster)}, scale.repeat)
        name = f"launch --replicas {tasks} --no-schedule, s CPU"
        yield Row(target=15, name=name, value=found["submit"], reference=found["bare"], limit=10)


def memory_rows(scale: Scale) -> Iterator[Row]:
    """Target 14: read-only commands, and one that polls every worker over SSH."""
    with directory() as place, scripted_sshd(place) as server:
        cluster = ClusterFiles.make(place, scale.of(10_000), ssh_config=server.config)
        trust_server(cluster.known_hosts, cluster.workers, server)
        tasks = scale.of(100_000)
        cluster.write(list(running(cluster.workers, tasks, of_a_job=scale.of(1000))))
        for words in (["status"], ["workers"], ["history"], ["schedule", "--once"]):
            value = 1024 * _run_with_report(cluster, words)[1]
            name = f"{' '.join(words)}, {len(cluster.hosts)} workers, {tasks} tasks, bytes"
            yield Row(target=14, name=name, value=value, reference=MOST_MEMORY, limit=1)


def large_rows(scale: Scale) -> Iterator[Row]:
    """Target 5b: very many pending tasks, and very many running ones, with the snapshot of the first command."""
    with directory() as place:
        (place / "pending").mkdir()
        (place / "running").mkdir()
        pending = ClusterFiles.make(place / "pending", scale.of(256))
        jobs, replicas = scale.of(80), scale.of(1000)
        pending.write([JobSubmitted(job=_wide(number, replicas)) for number in range(jobs)])
        large = ClusterFiles.make(place / "running", scale.of(10_000))
        tasks = scale.of(100_000)
        large.write(list(running(large.workers, tasks, of_a_job=scale.of(1000))))
        memory = 1024 * _run_with_report(large, ["status"])[1]
        cpu_of_command(pending.iris("status"), pending.environment)
        commands = {
            "pending": (pending, ["status"]),
            "status": (large, ["status"]),
            "workers": (large, ["workers"]),
        }
        found = _cpu_in_turns(pending, commands, scale)
        name = f"status, {jobs * replicas} pending tasks, s CPU"
        yield Row(target=5, name=name, value=found["pending"], reference=found["bare"], limit=15)
        where = f"{len(large.hosts)} workers, {tasks} running tasks"
        yield Row(target=5, name=f"status, {where}, s CPU", value=found["status"], reference=0.6, limit=1)
        yield Row(target=5, name=f"workers, {where}, s CPU", value=found["workers"], reference=1.5, limit=1)
        yield Row(target=5, name=f"first look, {where}, bytes", value=memory, reference=350e6, limit=1)


def _wide(number: int, replicas: int) -> Job:
    return Job(id=JobId(f"waits-{number}"), command=("train",), replicas=replicas)


def past_rows(scale: Scale) -> Iterator[Row]:
    """Target 6: the first command on a long log without a snapshot, and queries about its past."""
    with directory() as place:
        lines = scale.of(1_000_000)
        cluster = _with_past(place, scale, lines, look=False)
        first = cpu_of_command(cluster.iris("status"), cluster.environment)
        for snapshot in (*place.glob("state/snapshot.json"), *place.glob("state/archive/snapshot-*.json")):
            snapshot.unlink()
        memory = 1024 * _run_with_report(cluster, ["status"])[1]
        job = f"old-{lines // 2 // _EVENTS_OF_A_JOB}"
        month_ago = iso_time(time_of(lines - lines // 12))
        commands = {"job": (cluster, ["history", job]), "newest": (cluster, ["history"])}
        found = _cpu_in_turns(cluster, {**commands, "at": (cluster, ["status", "--at", month_ago])}, scale)
        yield Row(target=6, name=f"first look, {lines} lines, s CPU", value=first, reference=8, limit=1)
        yield Row(target=6, name=f"first look, {lines} lines, bytes", value=memory, reference=200e6, limit=1)
        for what, name in (("job", "history JOB"), ("newest", "history")):
            name = f"{name}, {lines} lines, s CPU"
            yield Row(target=6, name=name, value=found[what], reference=found["bare"], limit=20)
        name = f"status --at a month ago, {lines} lines, s CPU"
        yield Row(target=6, name=name, value=found["at"], reference=1.5, limit=1)


def _cpu_in_turns(
    first: ClusterFiles, commands: Mapping[str, tuple[ClusterFiles, Sequence[str]]], scale: Scale
) -> dict[str, float]:
    """Return the CPU seconds of these commands, and of an empty Python program, `bare`."""
    acts = {
        name: partial(cpu_of_command, cluster.iris(*words), cluster.environment)
        for name, (cluster, words) in commands.items()
    }
    return medians({"bare": partial(_bare, first), **acts}, scale.repeat)


def _bare(cluster: ClusterFiles) -> float:
    return cpu_of_command([sys.executable, "-c", "pass"], cluster.environment)


def _against_bare(
    target: int, cluster: ClusterFiles, words: Sequence[str], size: str, scale: Scale, limit: float
) -> Row:
    """Measure a command in units of an empty Python program's CPU time."""
    found = _cpu_in_turns(cluster, {"iris": (cluster, words)}, scale)
    name = f"{' '.join(words)}, {size}, s CPU"
    return Row(target=target, name=name, value=found["iris"], reference=found["bare"], limit=limit)


def _paramiko_row(target: int, cluster: ClusterFiles, words: Sequence[str]) -> Row:
    loaded = _run_with_report(cluster, words)[0]
    return Row(
        target=target, name=f"{' '.join(words)} loads the SSH library", value=loaded, reference=1, limit=0
    )


def _run_with_report(cluster: ClusterFiles, words: Sequence[str]) -> tuple[int, int]:
    """Run a command; return whether it loaded the SSH library, and its peak memory in KiB (Linux only)."""
    (cluster.directory / "sitecustomize.py").write_text(_EXIT_REPORT)
    env = cluster.environment
    env["PYTHONPATH"] = f"{cluster.directory}:{env.get('PYTHONPATH', '')}"
    cpu_of_command(cluster.iris(*words), env)
    loaded, peak = (cluster.directory / "exit_report").read_text().split()
    return int(loaded), int(peak)
