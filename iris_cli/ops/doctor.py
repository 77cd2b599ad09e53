"""`iris doctor`: look at everything, and say of each fault how to mend it. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from iris_cli.config.schema import ClusterConfig
from iris_cli.core.cluster import Cluster
from iris_cli.core.connection import Connection
from iris_cli.core.invariants import breaches
from iris_cli.core.units import count, format_duration
from iris_cli.errors import ConfigError, ExitCode, IrisError, NotFoundError
from iris_cli.journal.access import check_writable, network_file_system
from iris_cli.journal.state_dir import StateDir
from iris_cli.ops.findings import Finding, failed_by, failure, fine, warning
from iris_cli.ops.host_checks import all_workers, check_hosts
from iris_cli.ops.log_checks import check_log
from iris_cli.ops.session import Session
from iris_cli.ops.view import CycleAge, cycle_age

SSH_CONFIG = Path("~/.ssh/config")
_MOST_BREACHES = 20  # shown: one mistake has many consequences
_ADD = "add slices or workers, or let `iris init` write a new one"
_CRON = "iris cron install --every 1m"


def examine(
    load: Callable[[], ClusterConfig],
    begin: Callable[[ClusterConfig | None], Session],
    *,
    offline: bool = False,
) -> Iterator[Finding]:
    """Check everything, from the configuration to the hosts; what is broken keeps nothing else from a look.

    `load` reads the configuration, `begin` makes a session with it, or without where it can't be read.
    """
    config, findings = check_config(load)
    yield from findings
    try:
        session = begin(config)
    except IrisError as error:
        yield failed_by("state", error)
        return
    yield from check_state(session.state)
    yield from check_log(session.state)
    try:
        cluster = session.view()
    except IrisError as error:
        cluster = Cluster()
        if not isinstance(error, NotFoundError):
            yield failed_by("log", error)
    yield from check_snapshot(session.state, cluster)
    yield from check_cluster(cluster)
    workers = all_workers(session, cluster)
    yield from check_keys(session.target(worker).connection for worker in workers)
    yield from check_workers(cluster)
    yield from check_notify(session)
    if not offline and workers:
        yield from _ask_hosts(session, cluster)
    cycle = cycle_age(session.state.read_heartbeat(), session.clock.now())
    yield check_cycle(cycle, cluster, _CRON)


def check_config(load: Callable[[], ClusterConfig]) -> tuple[ClusterConfig | None, list[Finding]]:
    """The configuration if it can be read, and what is to be said of it."""
    try:
        config = load()
    except ConfigError as error:
        problems = [failure("config", problem, code=ExitCode.CONFIG) for problem in error.problems]
        return None, problems or [failed_by("config", error)]
    slices = {host.slice for host in config.hosts if host.slice}
    found = f"{config.path}: {count(len(slices), 'slice')}, {count(len(config.hosts), 'worker')}"
    empty = [] if config.hosts or config.scale_groups else [warning("config", "it names no host", _ADD)]
    return config, [
        fine("config", found),
        *empty,
        *(warning("config", text) for text in config.warnings),
    ]


def check_state(state: StateDir) -> Iterator[Finding]:
    """Whether the state directory is there, private, writable and on a local disk."""
    if not state.path.exists():
        yield fine("state", f"{state.path} is not there yet: the first command that writes makes it")
        return
    try:
        check_writable(state.path)
    except IrisError as error:
        yield failed_by("state", error)
    else:
        yield fine("state", f"{state.path} is private and can be written")
    if kind := network_file_system(state.path):
        yield warning(
            "state",
            f"{state.path} is on {kind}, where locks may not hold",
            "name a local directory with --state-dir",
        )


def check_snapshot(state: StateDir, cluster: Cluster) -> Iterator[Finding]:
    """Whether the snapshot is of any use. One that isn't is made anew, so that there is nothing to do."""
    if cluster.past is not None:
        yield fine("snapshot", "in use")
    elif state.has_snapshot:
        yield fine(
            "snapshot", "ignored: it isn't one of this log, made by this program; the log was replayed"
        )


def check_cluster(cluster: Cluster) -> Iterator[Finding]:
    """Whether the state makes sense."""
    found = breaches(cluster)
    for breach in found[:_MOST_BREACHES]:
        yield failure("invariants", breach, "keep a copy of the state directory, and report this")
    if len(found) > _MOST_BREACHES:
        yield failure("invariants", f"and {len(found) - _MOST_BREACHES} more")
    if not found:
        jobs, workers = count(len(cluster.jobs), "job"), count(len(cluster.workers), "worker")
        yield fine("invariants", f"all hold, with {jobs} and {workers}")


def check_keys(connections: Iterable[Connection]) -> Iterator[Finding]:
    """Whether there are SSH keys to offer: to every worker, and to the jump hosts on the way."""
    from iris_cli.remote.ssh_config import Routes
    from iris_cli.remote.ssh_keys import KeyRing
    from iris_cli.remote.transport import NoAnswer

    ring, seen, ways = KeyRing(), set(), 0
    try:
        routes = Routes(SSH_CONFIG.expanduser())
    except NoAnswer as error:
        yield failure("keys", error.detail, error.hint)
        return
    for connection in dict.fromkeys(connections):
        ways += 1
        try:
            for hop in routes.to(connection):
                offer = (hop.identities, hop.explicit, hop.identities_only)
                if offer not in seen:
                    seen.add(offer)
                    with ring.for_hop(hop):
                        pass
        except NoAnswer as error:
            yield failure("keys", f"for {connection.host}: {error.detail}", error.hint)
            return
    if ways:
        yield fine("keys", "there is a key to offer to every host")


def check_workers(cluster: Cluster) -> Iterator[Finding]:
    """What the log says of workers that take nothing new."""
    for worker in cluster.workers.values():
        subject = f"worker {worker.id}"
        if worker.quarantined:
            yield warning(
                subject, f"quarantined: {worker.quarantine_reason}", f"iris worker uncordon {worker.id}"
            )
        if worker.draining:
            reason = f": {worker.drain_reason}" if worker.drain_reason else ""
            yield warning(subject, f"draining{reason}", f"iris worker uncordon {worker.id} ends it")


def check_notify(session: Session) -> Iterator[Finding]:
    """Whether those who are to be told are told."""
    if not session.config.notify.channels:
        return
    from iris_cli.ops.notify.health import FIX, told, troubles

    found = [warning("notify", text.removeprefix("notify: "), FIX) for text in troubles(session)]
    yield from found or [fine("notify", told(session))]


def check_cycle(cycle: CycleAge, cluster: Cluster, cron: str) -> Finding:
    """Whether somebody runs cycles; `cron` is what to type if nobody does."""
    ago = (
        "there was no cycle yet"
        if cycle.age is None
        else f"the last one was {format_duration(cycle.age)} ago"
    )
    waiting = sum(job.end is None for job in cluster.open_jobs())
    if cycle.stale and waiting:
        return warning("cycles", f"{ago}, and {count(waiting, 'job')} would need one", cron)
    return fine("cycles", ago)


def _ask_hosts(session: Session, cluster: Cluster) -> Iterator[Finding]:
    if cluster.seq == 0:
        yield warning(
            "hosts", "not asked, for there is no event log to go by", "iris schedule --once begins one"
        )
        return
    try:
        yield from check_hosts(session, cluster)
    except IrisError as error:
        yield failed_by("hosts", error)
