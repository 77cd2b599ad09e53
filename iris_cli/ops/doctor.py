"""Checks for `iris doctor`. Each finding has a command that fixes it. The checks change nothing."""

import shlex
from collections.abc import Callable, Iterator

from iris_cli.config.schema import ClusterConfig
from iris_cli.core import Cluster, count, pattern
from iris_cli.core.invariants import breaches
from iris_cli.core.model.worker import IS_VM, OCCUPIED, REMOVED, is_drained_by_iris
from iris_cli.errors import ConfigError, ExitCode, IrisError, NotFoundError
from iris_cli.journal import access
from iris_cli.journal.state_dir import StateDir
from iris_cli.ops.checks import host_checks, log_checks
from iris_cli.ops.checks.findings import Finding, failure, failure_of, success, warning
from iris_cli.ops.loop.cron_checks import Schedule, check_cycles
from iris_cli.ops.session import Session
from iris_cli.ops.views import scale_status, view
from iris_cli.ops.views.cycles import cycles_of, work_left

_POSITION = pattern(r"([^\n]+?):([0-9]+): ")
_FIXES_OF_DRAINS = {  # of drains by iris, which `iris worker uncordon` does not end
    REMOVED: "iris status  # shows its tasks; when they have ended, iris forgets the worker",
    OCCUPIED: "iris workers  # shows the removed worker; when its tasks have ended, iris ends the drain",
    IS_VM: "iris autoscale --dry-run  # manages this VM already: remove the host from cluster.yaml",
}
_MAX_BREACHES = 20  # maximum number shown, because one error often violates many invariants
_IMPORT = "iris cluster import HOST...  # or what gcloud lists: iris cluster import --help"


def examine(
    load: Callable[[], ClusterConfig],
    begin: Callable[[ClusterConfig | None], Session],
    find_schedule: Callable[[], Schedule] = Schedule,
    *,
    this_command: tuple[str, ...] = ("iris",),
    offline: bool = False,
) -> Iterator[Finding]:
    """Yield findings on configuration, keys, hosts, log and cron. A failed check does not prevent the next check.

    `load` reads the configuration. `begin` creates a session with the configuration, or with None if it is invalid.
    `find_schedule` finds the installed schedule. `this_command` is the command line of this program.
    """
    config, findings = check_config(load)
    yield from findings
    try:
        session = begin(config)
    except IrisError as error:
        if error.message not in [each.text for each in findings]:
            yield failure_of("state", error)
        return
    cluster, log_error = Cluster(), None
    try:
        cluster = session.view()
    except IrisError as error:
        log_error = None if isinstance(error, NotFoundError) else error  # a new cluster has no log
    yield from _check_hosts(session, cluster, offline=offline)
    yield from check_state(session.state)
    yield from log_checks.check_log(session.state, progress=session.progress)
    if log_error is not None:
        yield failure_of("log", log_error)
    yield from check_snapshot(session.state, cluster)
    yield from check_cluster(cluster)
    yield from check_slice_owner(session, cluster)
    cycles_needed = bool(work_left(cluster, session.config, session.state))
    cycles = cycles_of(session.state, session.clock.now(), session.config.loop, needed=cycles_needed)
    yield from check_notify(session, has_next_cycle=cycles.has_next_cycle)
    yield from check_cycles(cycles, cluster, find_schedule(), this_command)


def _check_hosts(session: Session, cluster: Cluster, *, offline: bool) -> Iterator[Finding]:
    """Yield findings on keys, then on hosts, then on drained and quarantined workers. `offline`: don't call hosts."""
    workers = host_checks.all_workers(session, cluster)
    keys = host_checks.check_keys(session.target(worker).connection for worker in workers)
    yield from keys
    if workers and not offline:
        try:
            yield from host_checks.check_hosts(session, cluster, reported={each.text for each in keys})
        except IrisError as error:
            yield failure_of("hosts", error)
    yield from check_workers(cluster)


def check_config(load: Callable[[], ClusterConfig]) -> tuple[ClusterConfig | None, list[Finding]]:
    """Return the configuration (None if it is invalid) and findings about it."""
    try:
        config = load()
    except ConfigError as error:
        problems = [
            failure("config", each, _editor_command(each), code=ExitCode.CONFIG) for each in error.problems
        ]
        return None, problems or [failure_of("config", error)]
    slices = {host.slice for host in config.hosts if host.slice}
    found = f"{config.path}: {count(len(slices), 'slice')}, {count(len(config.hosts), 'worker')}"
    empty = not config.hosts and not config.scale_groups
    return config, [
        success("config", found),
        *(warning("config", text, _IMPORT if empty else _editor_command(text)) for text in config.warnings),
    ]


def _editor_command(problem: str) -> str:
    """Return the command that opens the file at the line of a problem; '' if the problem names no line."""
    position = _POSITION.match(problem)
    return f"${{EDITOR:-vi}} +{position[2]} {shlex.quote(position[1])}" if position is not None else ""


def check_state(state: StateDir) -> Iterator[Finding]:
    """Yield findings on the state directory, which must be private, writable and on a local disk."""
    if not state.path.exists():
        text = f"{state.path} does not exist yet: the first command that writes creates it"
        yield success("state", text, hidden_if_ok=True)
        return
    try:
        access.check_writable(state.path)
        access.check_disk(state.path)
    except IrisError as error:
        yield failure_of("state", error)
    else:
        yield success("state", f"{state.path}: private, writable", hidden_if_ok=True)
    if kind := access.network_file_system(state.path):
        text = f"{state.path} is on {kind}, where locks are unreliable"
        yield warning("state", text, "iris --state-dir DIR ...  # name a local directory")


def check_snapshot(state: StateDir, cluster: Cluster) -> Iterator[Finding]:
    """Yield a finding on the snapshot, if one exists. iris replaces an unusable snapshot automatically."""
    if cluster.past is not None:
        yield success("snapshot", "in use", hidden_if_ok=True)
    elif state.has_snapshot:
        text = "ignored: written for another log or version; the log was replayed"
        yield success("snapshot", text, hidden_if_ok=True)


def check_cluster(cluster: Cluster) -> Iterator[Finding]:
    """Yield a finding for each violated invariant of the state, or a success."""
    found = breaches(cluster)
    for breach in found[:_MAX_BREACHES]:
        yield failure("invariants", breach, "copy the state directory and report this")
    if len(found) > _MAX_BREACHES:
        yield failure("invariants", f"and {len(found) - _MAX_BREACHES} more")
    if not found:
        jobs, workers = count(len(cluster.jobs), "job"), count(len(cluster.workers), "worker")
        yield success("invariants", f"valid, {jobs} and {workers}", hidden_if_ok=True)


def check_slice_owner(session: Session, cluster: Cluster) -> Iterator[Finding]:
    """Yield a finding if another state directory manages the slices. No provider is called."""
    if cluster.slice_owner is None or not (session.config.scale_groups or cluster.slices):
        return
    if (found := scale_status.owner_conflict(session)) is not None:
        fix = "iris autoscale --adopt  # only if the other directory is no longer in use"
        yield warning("slices", str(found), fix)


def check_workers(cluster: Cluster) -> Iterator[Finding]:
    for worker in cluster.workers.values():
        subject = f"worker {worker.id}"
        fix = f"iris worker uncordon {worker.id}"
        if worker.quarantined:
            yield warning(subject, f"quarantined: {worker.quarantine_reason}", fix)
        if worker.draining:
            reason = f" ({worker.drain_reason})" if worker.drain_reason else ""
            if is_drained_by_iris(worker):
                fix = _FIXES_OF_DRAINS.get(worker.drain_reason, _FIXES_OF_DRAINS[REMOVED])
            else:
                fix += "  # ends the drain"
            yield warning(subject, f"draining{reason}", fix)


def check_notify(session: Session, *, has_next_cycle: bool) -> Iterator[Finding]:
    if not session.config.notify.channels:
        return
    found = [
        warning("notify", text.removeprefix("notify: "), "correct notify in cluster.yaml")
        for text in view.channel_problems(session, has_next_cycle=has_next_cycle)
    ]
    yield from found or [success("notify", view.last_notice(session))]
