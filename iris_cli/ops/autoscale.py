"""Create slices for pending jobs and delete idle slices.

A pass lists the slices of all providers, records in the log which slices to create or delete, and then calls the
providers without the lock. iris polls a set-up command by launching it again. This starts no second set-up, because
the token is computed from the VM.
"""

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

from msgspec import Struct, field
from msgspec.structs import replace

from iris_cli.capacity.opening import open_provider
from iris_cli.capacity.provider import ProviderError, SliceProvider
from iris_cli.capacity.slurm.commands import ENVIRONMENT, TIMEOUT, CommandOutput, Run
from iris_cli.core import WorkerCondition, WorkerId, clip
from iris_cli.core.autoscaling.scaling import ScalingPlan, boots_too_long
from iris_cli.core.events.events import SliceSetUp
from iris_cli.core.evolve import Draft
from iris_cli.core.lifecycle import slices, workers
from iris_cli.core.messages.cloud import CallOutcome, CloudSlice, Refusal, Scope
from iris_cli.core.messages.observations import FINAL_STATES, AttemptReport, RemoteState, WorkerReport
from iris_cli.core.model.slice import Provider, Slice, SliceState, slice_name, slice_of, with_template
from iris_cli.ops.cycle import observe
from iris_cli.ops.cycle.answers import set_up_token
from iris_cli.ops.session import Session
from iris_cli.ops.views.scale_status import owner_conflict, plan_of, this_owner
from iris_cli.ops.workers.execute import worker_environment
from iris_cli.ops.workers.workers import probe as probe_workers
from iris_cli.remote import host_keys, launch_request, srun, transport, worker_script

_LAST_LINES = 3  # lines of output in an error
_LONGEST = 240  # characters of an error
_MAX_OUTPUT = 64 << 20  # bytes of output of a command on a login host


class Autoscaled(Struct):
    """Result of a pass. If another state directory manages the slices (`conflict`), no slice was changed.

    `deleted` maps slices to reasons.
    """

    plan: ScalingPlan
    conflict: slices.OwnerConflict | None = None
    created: list[str] = field(default_factory=list)
    deleted: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def dry_run(session: Session) -> ScalingPlan:
    """Return the plan of a pass, based on the log only. Calls no provider and writes nothing."""
    return plan_of(session, session.view(), session.clock.now())


def run(session: Session, *, probe: bool = True) -> Autoscaled:
    """Run one pass. With `probe`, also probe the VMs of new slices.

    Raises NotWritableError, or LockedError before anything was changed.
    """
    session.view()
    if not session.cluster_id:
        with session.transaction():
            pass  # creates the log, whose id is part of slice names
    listings, errors = _list_all(session)
    if (found := owner_conflict(session, listings)) is not None:
        return Autoscaled(plan=dry_run(session), conflict=found)
    _add_host_keys(session, [each for listing in listings for each in listing.slices])
    now, limits = session.clock.now(), session.limits
    late = [each.name for each in session.view().slices.values() if boots_too_long(each, now, limits)]
    if late:
        # Poll the set-ups once more before these slices are deleted, because a set-up may have just succeeded.
        _run_set_ups(session, late)
    plan = _decide(session, listings, errors)
    result = Autoscaled(plan=plan, problems=[f"{scope}: {words}" for scope, words in errors.items()])
    _send_requests(session, listings, result)
    if session.cluster.scale_groups:
        host_keys.HostKeys(session.state.known_hosts).forget(lambda owner: _is_deleted_vm(session, owner))
    if probe:
        _probe(session)
    _run_set_ups(session)
    return result


def find_owner_conflict(session: Session) -> tuple[slices.OwnerConflict | None, dict[Scope, str]]:
    """Return why no slice may be changed (None if slices may be changed), and the errors of providers by scope."""
    session.view()
    listings, errors = _list_all(session)
    return owner_conflict(session, listings), errors


def adopt(session: Session, unknown: Sequence[str]) -> None:
    """Let this state directory manage the slices. The next pass deletes the `unknown` slices."""
    with session.transaction() as draft:
        slices.record_new_owner(draft, this_owner(session), session.cluster_id, unknown)


def _list_all(session: Session) -> tuple[list[slices.Listing], dict[Scope, str]]:
    """List the slices of all scopes with slices or scale groups. Return the listings, and the errors by scope."""
    before = dict(session.cluster.slices)
    templates = [group.template for group in session.config.scale_groups]
    templates += [each.template for each in before.values()]
    scopes = dict.fromkeys(Scope.of(each) for each in templates if each.provider is not Provider.MANUAL)

    def list_scope(scope: Scope) -> tuple[Scope, tuple[CloudSlice, ...], str | None]:
        try:
            return scope, _open_provider(session, scope).list(), None
        except Exception as error:  # an error of one provider must not stop the pass
            return scope, (), _error_words(error)

    batches = session.fan_out(list(scopes), list_scope, what="listing slices", noun="place")
    found = sorted((each for batch in batches for each in batch), key=lambda each: each[0])
    listings = [
        slices.Listing(scope=scope, slices=listed, before=before)
        for scope, listed, error in found
        if error is None
    ]
    return listings, {scope: error for scope, _, error in found if error is not None}


def _open_provider(session: Session, scope: Scope) -> SliceProvider:
    if session.make_provider is not None:
        return session.make_provider(scope, session.cluster_id)
    known = {each.name: each for each in session.cluster.slices.values() if Scope.of(each.template) == scope}
    directory, make_runner = session.config.path.absolute().parent, partial(_login_host_runner, session)
    owner, clock = session.cluster_id, session.clock
    return open_provider(scope, owner, directory, known, clock, make_runner, worker_script.holder_script)


def _login_host_runner(session: Session, host: str) -> Run:
    """Return a function that runs Slurm's commands on a login host, with the settings of `ssh` in cluster.yaml."""
    target = transport.Target(
        worker=WorkerId(f"login.{host}"), connection=replace(session.config.ssh, host=host)
    )

    def run(command: Sequence[str]) -> CommandOutput:
        settings = (f"{name}={value}" for name, value in ENVIRONMENT.items())
        script = f"{srun.FIND_SLURM}exec env {shlex.join([*settings, *command])} </dev/null\n"
        try:
            done = session.runner.run_script(target, script.encode(), timeout=TIMEOUT, limit=_MAX_OUTPUT)
        except transport.NoAnswer as silence:
            refusal = Refusal.UNANSWERED if silence.sent else Refusal.DENIED
            raise ProviderError(refusal, f"{command[0]} on {host}: {silence}") from silence
        return CommandOutput(
            done.status, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        )

    return run


def _decide(session: Session, listings: Sequence[slices.Listing], errors: Mapping[Scope, str]) -> ScalingPlan:
    groups = session.config.scale_groups
    connections = {group.name: group.connection for group in groups}
    unlisted = {
        group.name: f"its provider did not answer: {errors[scope]}"
        for group in groups
        if (scope := Scope.of(group.template)) in errors
    }

    def rule(draft: Draft) -> ScalingPlan:
        touched = [
            job
            for listing in listings
            for job in slices.apply_listing(draft, listing, connections, session.limits)
        ]
        observe.settle(session, draft, dict.fromkeys(touched))
        slices.join_complete_slices(draft)
        plan = plan_of(session, draft.cluster, draft.at, unlisted)
        slices.record_scaling_plan(draft, plan, session.limits)
        slices.record_first_owner(draft, this_owner(session))
        return plan

    return session.decide(rule)


def _send_requests(session: Session, listings: Sequence[slices.Listing], result: Autoscaled) -> None:
    """Send the requests to create and delete slices, without the lock, AFTER the requests are committed."""
    listed = {listing.scope: [each.name for each in listing.slices] for listing in listings}
    create, delete = slices.calls_due(session.cluster, listed, session.clock.now(), session.limits)
    if create:
        session.lock_once()  # create no slice if the log is not writable, because no answer could be recorded
    groups = {group.name: group for group in session.config.scale_groups}
    create = [each for each in create if each.group in groups]

    def create_slice(each: Slice) -> CallOutcome:
        group = with_template(groups[each.group], each.template)
        return _call(each, lambda: _open_provider(session, Scope.of(each.template)).create(each.name, group))

    def delete_slice(each: Slice) -> CallOutcome:
        return _call(each, lambda: _open_provider(session, Scope.of(each.template)).delete(each.name))

    result.created = [each.name for each in create]
    result.deleted = {each.name: each.reason for each in delete}
    for batch in session.fan_out(create, create_slice, what="creating", noun="slice"):
        with session.transaction() as draft:
            for outcome in batch:
                slices.record_create_answer(draft, outcome, session.limits)
        result.problems += [f"{each.slice}: {each.error}" for each in batch if each.refusal]
    for batch in session.fan_out(delete, delete_slice, what="deleting", noun="slice"):
        result.problems += [f"{each.slice}: {each.error}" for each in batch if each.refusal]


def _call(each: Slice, request: Callable[[], None]) -> CallOutcome:
    try:
        request()
    except Exception as error:
        refusal = error.refusal if isinstance(error, ProviderError) else Refusal.UNANSWERED
        return CallOutcome(slice=each.name, refusal=refusal, error=_error_words(error))
    return CallOutcome(slice=each.name)


def _error_words(error: Exception) -> str:
    return error.message if isinstance(error, ProviderError) else f"{type(error).__name__}: {error}"


def _probe(session: Session) -> None:
    """Probe the VMs of booting slices, and record the slices that are complete."""
    now, cluster = session.clock.now(), session.cluster
    booting = [each for each in cluster.slices.values() if each.state is SliceState.BOOTING]
    names = [name for each in booting for name in each.workers if name in cluster.workers]
    due = [
        worker.id
        for worker in map(cluster.workers.__getitem__, names)
        if (worker.condition is not WorkerCondition.HEALTHY or worker.unschedulable)
        and not workers.is_backing_off(cluster, worker, now, session.limits)
    ]
    if due:
        probe_workers(session, list(due))
        session.decide(slices.join_complete_slices)


def _add_host_keys(session: Session, listed: Iterable[CloudSlice]) -> None:
    """Store the host keys that providers report for new VMs. A stored key is kept while the VM has the same address."""
    with_keys = [each for each in listed if any(host.key for host in each.hosts)]
    if not with_keys:
        return
    stored_keys, known = host_keys.HostKeys(session.state.known_hosts), session.view().slices
    new = {
        f"{each.name}-{index}": line.key
        for each in with_keys
        if each.name in known
        for index, host in enumerate(each.hosts)
        if known[each.name].hosts != each.hosts or not stored_keys.has(f"{each.name}-{index}")
        for line in host_keys.parse(f"{each.name}-{index} {host.key}")
    }
    if new:
        stored_keys.put(new)


def _is_deleted_vm(session: Session, worker: str) -> bool:
    """Return True if `worker` was a VM of a deleted slice. iris never reuses the name of a slice."""
    if worker in session.cluster.workers:
        return False
    name = slice_of(worker)
    stem, _, number = name.rpartition("-")
    record = session.cluster.scale_groups.get(stem.rpartition("-")[0])
    if record is None or not number.isdecimal() or int(number) > record.requested:
        return False
    ours = name == slice_name(record.name, session.cluster_id, int(number))
    return ours and name not in session.cluster.slices and worker not in session.hosts


def _run_set_ups(session: Session, names: Collection[str] | None = None) -> None:
    """Start or poll the set-ups of healthy VMs, and record complete slices. `names`: slices (default: all slices)."""
    cluster, now = session.cluster, session.clock.now()
    due = [
        (each, vm)
        for each, vm in slices.set_ups_due(cluster)
        if (names is None or each.name in names)
        and not workers.is_backing_off(cluster, cluster.workers[each.workers[vm]], now, session.limits)
    ]
    if not due:
        return
    _ = session.runner  # creates the runner before the threads use it
    for batch in session.fan_out(due, lambda one: _poll_set_up(session, *one), what="setting up", noun="VM"):
        ended = [each for each in batch if each is not None]

        def rule(draft: Draft, ended: list[SliceSetUp] = ended) -> None:
            for each in ended:
                slices.record_set_up(draft, each, session.limits)
            slices.join_complete_slices(draft)

        session.decide(rule)


def _poll_set_up(session: Session, each: Slice, vm: int) -> SliceSetUp | None:
    """Return the end of a VM's set-up; None if the set-up still runs, or if the worker is silent."""
    worker = session.cluster.workers[each.workers[vm]]
    request = launch_request.LaunchRequest(
        token=set_up_token(worker.id, worker.incarnation),
        argv=("sh", "-c", each.setup),
        env=worker_environment(session, worker),
        timeout=session.limits.slice_boot_timeout,
    )
    try:
        seen = session.runner.prepare(
            session.target(worker), [request], boot_id=worker.boot_id, incarnation=worker.incarnation, go=True
        )
    except ValueError as error:
        return SliceSetUp(slice=each.name, vm=vm, error=clip(str(error), _LONGEST))
    for report in seen.attempts if isinstance(seen, WorkerReport) else ():
        if report.token == request.token and report.state in FINAL_STATES:
            problem = _set_up_error(report)
            log_tail = report.log_tail if problem else ""
            return SliceSetUp(slice=each.name, vm=vm, error=problem, log_tail=log_tail)
    return None


def _set_up_error(report: AttemptReport) -> str:
    """Return why a set-up failed, with the last lines of its output; "" if it succeeded."""
    if report.state is RemoteState.EXITED and report.exit_code == 0 and not report.cause:
        return ""
    code = f"exit {report.exit_code}" if report.exit_code is not None else report.state.value.lower()
    what = f"{code}, {report.cause}" if report.cause else code
    lines = [line.strip() for line in report.log_tail.splitlines() if line.strip()]
    return ": ".join([what, clip(" / ".join(lines[-_LAST_LINES:]), _LONGEST)] if lines else [what])
