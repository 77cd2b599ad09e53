"""Checks of SSH keys and hosts for `iris doctor`."""

import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, structs

from iris_cli.config.schema import HostConfig
from iris_cli.core import Cluster, Connection, Worker, WorkerId, format_cores, format_memory, group_pairs
from iris_cli.core.attributes import PREEMPTIBLE_ATTRIBUTE_KEY, ZONE_ATTRIBUTE_KEY, build_worker_attributes
from iris_cli.core.messages.observations import SILENT, ProbeReport, Silence, SilenceKind
from iris_cli.core.model.worker import MAX_SKEW, WorkerCondition
from iris_cli.errors import ExitCode
from iris_cli.ops.checks.findings import Finding, Level, failure, success, warning
from iris_cli.ops.cycle.answers import NOT_IN_LOG, worker_facts
from iris_cli.ops.outcomes.causes import skew_words, without_worker
from iris_cli.ops.session import Session
from iris_cli.remote.host_keys import HostKeys, PresentedKey
from iris_cli.remote.srun import srun_words, ssh_connection
from iris_cli.remote.ssh.config import Hop, Routes
from iris_cli.remote.ssh.keys import KeyRing
from iris_cli.remote.transport import NoAnswer

SSH_CONFIG = Path("~/.ssh/config")
_NO_CLUSTER = "none"
MIN_DISK = 1 << 30  # bytes; a disk with less free space counts as nearly full
_UNREACHABLE_KINDS = (SilenceKind.UNREACHABLE, SilenceKind.TIMEOUT)
_FIX_OF_REFUSAL = "iris worker probe  # after fixing the host"
_FIXES: Mapping[SilenceKind, str] = {
    SilenceKind.UNREACHABLE: "{reach} true  # is it up?",
    SilenceKind.TIMEOUT: "{reach} uptime  # is it overloaded?",
    SilenceKind.AUTH: "ssh -v {login} true  # which key does it accept?",
    SilenceKind.HOST_KEY: "iris worker probe --accept-key {id}  # if it was re-created",
    SilenceKind.UNKNOWN_HOST: "iris worker probe --accept-key {id}  # if it is new",
    SilenceKind.PROTOCOL: "{reach} 'exec /bin/sh -s' </dev/null  # does its login shell print anything?",
}


def check_keys(connections: Iterable[Connection]) -> list[Finding]:
    """Return findings on the SSH keys on this machine. Hosts with the same problem share a finding."""
    try:
        routes = Routes(SSH_CONFIG.expanduser())
    except NoAnswer as error:
        return [failure("keys", error.detail, error.hint)]
    faults: dict[tuple[str, str], list[str]] = {}
    unique = [each for each in dict.fromkeys(map(ssh_connection, connections)) if each is not None]
    for connection, fault in _key_problems(routes, unique):
        if fault is not None:
            faults.setdefault((fault.detail, fault.hint), []).append(connection.host)
    if not faults:
        return [success("keys", "an SSH key is available for every host")] if unique else []
    findings = []
    for (detail, hint), hosts in faults.items():
        more = f" and {len(hosts) - 1} more" if len(hosts) > 1 else ""
        hosts_text = "" if len(hosts) == len(unique) else f"for {hosts[0]}{more}: "
        findings.append(failure("keys", hosts_text + detail, hint))
    return findings


def _key_problems(
    routes: Routes, connections: Iterable[Connection]
) -> Iterator[tuple[Connection, NoAnswer | None]]:
    """Yield each connection with the key problem on its route, or None. Each set of keys is checked only once."""
    ring = KeyRing()
    checked: dict[object, NoAnswer | None] = {}
    for connection in connections:
        problem: NoAnswer | None = None
        try:
            for hop in routes.resolve(connection):
                keys = (hop.identities, hop.has_own_key, hop.identities_only)
                if keys not in checked:
                    checked[keys] = _check_hop(ring, hop)
                problem = problem or checked[keys]
        except NoAnswer as error:
            problem = error
        yield connection, problem


def _check_hop(ring: KeyRing, hop: Hop) -> NoAnswer | None:
    """Return the problem with the keys for an SSH server, or None."""
    try:
        with ring.keys_for_hop(hop):
            return None
    except NoAnswer as error:
        return error


class _Result(Struct, frozen=True):
    """Result of a probe. `skew`: minimum seconds by which the worker's clock is ahead, or behind if negative."""

    worker: Worker
    report: ProbeReport | Silence
    skew: float = 0.0


def check_hosts(session: Session, cluster: Cluster, reported: Collection[str] = ()) -> Iterator[Finding]:
    """Check all workers of the log and the configuration in parallel. Yield findings about silent workers first.

    Nothing is recorded or created. A key problem in the texts `reported` of earlier findings is not reported again.
    """
    results = sorted(_probe(session, all_workers(session, cluster)), key=lambda each: each.worker.id)
    silent_slices = _silent_slices(session, results)
    for each in results:
        silence = each.report
        if not isinstance(silence, Silence):
            continue
        if silence.step != "key" or not any(silence.detail in text for text in reported):
            host = session.hosts.get(each.worker.id)
            is_whole_slice = host is not None and host.slice in silent_slices
            yield silence_finding(each.worker, silence, host, whole_slice=is_whole_slice)
    answered = [(each, each.report) for each in results if isinstance(each.report, ProbeReport)]
    skews = [each.skew for each, _ in answered]
    is_local_clock_wrong = len(skews) > 1 and (min(skews) > MAX_SKEW or max(skews) < -MAX_SKEW)
    if is_local_clock_wrong:
        yield warning(
            "clock",
            f"this machine's clock {skew_words(-skews[0], 'the clock of every host')}",
            "sudo timedatectl set-ntp true",
        )
    for each, report in answered:
        known = each.worker.id in cluster.workers
        refusal = worker_facts(session, cluster, report).refusal if known else ""
        host = session.hosts.get(each.worker.id)
        skew = 0.0 if is_local_clock_wrong else each.skew
        yield from host_findings(each.worker, host, report, skew, refusal)
    yield from directory_findings([report for _, report in answered])
    with suppress(OSError):  # an unreadable file of keys has a finding of its own
        keys = HostKeys(session.state.known_hosts)
        yield from alias_findings(
            [report for _, report in answered], lambda worker: keys.find_worker_keys(worker, "", ()).keys
        )


def all_workers(session: Session, cluster: Cluster) -> list[Worker]:
    """Return the workers in the log with their present connections, then the workers that are only in cluster.yaml."""
    new = (host for worker, host in session.hosts.items() if worker not in cluster.workers)
    unprobed = (
        Worker(id=host.worker, connection=host.connection, condition=WorkerCondition.UNPROBED) for host in new
    )
    known = (
        structs.replace(worker, connection=session.target(worker).connection)
        for worker in cluster.workers.values()
    )
    return [*known, *unprobed]


def _silent_slices(session: Session, results: Iterable[_Result]) -> set[str]:
    """Return the slices without a reachable VM."""
    reachable: dict[str, bool] = {}
    for each in results:
        host, report = session.hosts.get(each.worker.id), each.report
        if host is not None and host.slice is not None:
            is_unreachable = isinstance(report, Silence) and report.kind in _UNREACHABLE_KINDS
            reachable[host.slice] = reachable.get(host.slice, False) or not is_unreachable
    return {name for name, has_vm in reachable.items() if not has_vm}


def silence_finding(
    worker: Worker, silence: Silence, host: HostConfig | None = None, *, whole_slice: bool = False
) -> Finding:
    """Return the finding for a silent worker. `whole_slice`: True if no VM of its slice answered."""
    fix = silence.hint or _FIXES.get(silence.kind, "").format(
        login=_ssh_arguments(worker.connection), reach=_run_words(worker.connection), id=worker.id
    )
    zone = host.attributes.get(ZONE_ATTRIBUTE_KEY) if host is not None else None
    if host is not None and host.slice is not None and zone is not None:  # a slice in Google Cloud
        if silence.kind is SilenceKind.AUTH:
            login = f"gcloud compute tpus tpu-vm ssh {host.slice} --zone {zone} --worker all --command true"
            fix = f"{login}  # adds your key; or {fix}"
        if whole_slice:
            fix = f"gcloud compute tpus tpu-vm describe {host.slice} --zone {zone}  # does it still exist?"
    if worker.condition is WorkerCondition.LOST and worker.claims and not whole_slice:  # jobs wait for it
        mark = "" if "  # " in fix else "  #"
        fix = f"{fix}{mark} if that host is gone for good: iris worker forget --dead {worker.id}"
    # Omit worker and address, which are in the subject and the fix, so that equal findings can be merged.
    text = f"{silence.step}: {without_worker(silence.detail, worker.id)}"
    text = f"no answer ({text})" if silence.kind in SILENT else text
    return failure(f"worker {worker.id}", text, fix, ExitCode.UNREACHABLE)


def host_findings(
    worker: Worker, host: HostConfig | None, report: ProbeReport, skew: float, refusal: str = ""
) -> list[Finding]:
    """Return the findings about a worker that answered. `refusal`: why the worker accepts no tasks, or ''."""
    findings = [*_identity(worker, report), *_health(worker, report, skew, refusal)]
    if host is not None and (found := differences(host, report)):
        # One finding for all of them, so that equal findings of several workers follow each other and are merged.
        findings.append(
            warning(f"worker {worker.id}", "; ".join(found), "if the host is right, correct cluster.yaml")
        )
    if any(finding.level is not Level.OK for finding in findings):
        return findings
    cores = f"{format_cores(report.cpus)}, {format_memory(report.memory)} of memory"
    chips = f", {report.chips} chips" if report.chips else ""
    return [success(f"worker {worker.id}", f"up, {cores}{chips}")]


def differences(host: HostConfig, report: ProbeReport) -> list[str]:
    """Return the differences between configuration and host in words. iris uses the configured values."""
    metadata = dict(report.metadata)
    probed = build_worker_attributes(dict(metadata)) if metadata else {}
    texts = [
        f"cluster.yaml says {key}={value}, the host says {key}={probed[key]}"
        for key, value in host.attributes.items()
        if key in probed
        and probed[key] != value
        and not (key == PREEMPTIBLE_ATTRIBUTE_KEY and key not in metadata)
    ]
    if host.cpu is not None and report.cpus and host.cpu > report.cpus:
        texts.append(f"cluster.yaml says {format_cores(host.cpu)}, the host has {report.cpus}")
    if host.memory is not None and report.memory and host.memory > report.memory:
        sizes = format_memory(host.memory), format_memory(report.memory)
        texts.append(f"cluster.yaml says {sizes[0]} of memory, the host has {sizes[1]}")
    return texts


def directory_findings(reports: Sequence[ProbeReport]) -> Iterator[Finding]:
    """Yield findings about workers that are the same host or share one iris directory."""
    for incarnation, workers in group_pairs((each.incarnation, each.worker) for each in reports).items():
        if incarnation and len(workers) > 1:  # '' if the host was never probed
            yield failure(
                f"worker {workers[0]}",
                f"same host as {', '.join(workers[1:])}, or shared iris directory",
                "remove one of them from cluster.yaml, or set remote_dir to a local disk",
            )


def alias_findings(
    reports: Sequence[ProbeReport], keys_of: Callable[[WorkerId], Sequence[PresentedKey]]
) -> Iterator[Finding]:
    """Yield findings about workers that are one host under several names: one boot and one host key."""
    pairs = (((each.boot_id, key), each.worker) for each in reports for key in keys_of(each.worker))
    for workers in group_pairs(pairs).values():
        if len(workers) > 1:
            yield warning(
                f"worker {workers[0]}",
                f"same boot and host key as {', '.join(workers[1:])}: probably one host under several names",
                "remove all but one of them from cluster.yaml; give each container a host key of its own",
            )


def _probe(session: Session, workers: Sequence[Worker]) -> Iterator[_Result]:
    # Create the runner before the threads use it. Without a log, the cluster has no id, and no files on hosts.
    runner = session.runner if session.cluster_id else session.make_runner(_NO_CLUSTER)

    def probe_worker(worker: Worker) -> _Result:
        before = session.clock.now()
        report = runner.probe(session.target(worker), make=False)
        after = session.clock.now()
        if isinstance(report, Silence):
            return _Result(worker, report)
        # The worker read its clock between `before` and `after`. Only the difference beyond this span is certain.
        skew = report.clock - min(max(report.clock, before), after)
        return _Result(worker, report, skew)

    for batch in session.fan_out(workers, probe_worker, what="checking"):
        yield from batch


def _identity(worker: Worker, report: ProbeReport) -> Iterator[Finding]:
    subject = f"worker {worker.id}"
    if not worker.incarnation:
        return
    has_rebooted = report.boot_id != worker.boot_id
    if report.incarnation != worker.incarnation:
        reboot = ", and it has rebooted: it may have been re-created" if has_rebooted else ""
        fix = f"iris worker probe --accept-key {worker.id}  # if that is expected"
        yield failure(subject, f"its iris directory was replaced{reboot}", fix)
    elif has_rebooted:
        yield warning(subject, "was rebooted; its tasks are gone", "iris schedule --once  # records it")


def _health(worker: Worker, report: ProbeReport, skew: float, refusal: str) -> Iterator[Finding]:
    subject = f"worker {worker.id}"
    if refusal:
        unwedge = f"iris worker unwedge {worker.id}  # shows the attempts, asks"
        fix = unwedge if NOT_IN_LOG in refusal else _FIX_OF_REFUSAL
        yield failure(subject, f"unusable: {refusal}", fix)
    if abs(skew) > MAX_SKEW:
        yield warning(
            subject,
            f"clock {skew_words(skew)}",
            f"{_run_words(worker.connection)} sudo timedatectl set-ntp true",
        )
    if report.disk_free < MIN_DISK:
        yield warning(
            subject,
            f"only {format_memory(report.disk_free)} of disk free",
            f"iris gc  # removes old output, asks first; to see the rest: {_run_words(worker.connection)} du -xhd2",
        )
    for text in report.warnings:
        if not text.startswith("refused: "):
            yield warning(subject, text)


def _run_words(connection: Connection) -> str:
    """Return the words to put before a command so that it runs on the worker, by the route that iris uses."""
    if not connection.allocation:
        return f"ssh {_ssh_arguments(connection)}"
    srun = shlex.join(srun_words(connection))
    return f"ssh {_ssh_arguments(connection)} {srun}" if connection.login else srun


def _ssh_arguments(connection: Connection) -> str:
    """Return the arguments of `ssh` for the worker, or for the login host of its allocation."""
    connection = ssh_connection(connection) or connection
    jump = ["-J", connection.proxy_jump] if connection.proxy_jump else []
    port = ["-p", str(connection.port)] if connection.port else []
    key = ["-i", connection.key] if connection.key else []
    host = f"{connection.user}@{connection.host}" if connection.user else connection.host
    return shlex.join([*jump, *port, *key, host])
