"""Create slices for pending jobs and delete idle ones: list, record, decide, commit, request, commit.

Requests are sent to providers without the lock, and only after they are recorded in the log. The set-up command of a
new VM has a token computed from the VM: polling it launches it again, but it runs only once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec import Struct, field

from iris_cli.capacity.opening import open_provider
from iris_cli.capacity.provider import ProviderError, SliceProvider
from iris_cli.core import WorkerCondition, clip
from iris_cli.core.autoscaling.scaling import ScalingPlan, boots_too_long
from iris_cli.core.events.events import SliceSetUp
from iris_cli.core.evolve import Draft
from iris_cli.core.lifecycle import slices, workers
from iris_cli.core.lifecycle.slices import OwnerConflict
from iris_cli.core.messages.cloud import CallOutcome, CloudSlice, Refusal, Scope
from iris_cli.core.messages.observations import FINAL_STATES, AttemptReport, RemoteState, WorkerReport
from iris_cli.core.model.slice import Provider, Slice, SliceState, as_made, slice_name, slice_of
from iris_cli.ops.cycle import observe
from iris_cli.ops.cycle.answers import token_of
from iris_cli.ops.session import Session
from iris_cli.ops.slurm_login import on_login_host
from iris_cli.ops.views.scale_status import here, objection, plan_of
from iris_cli.ops.workers.execute import worker_environment
from iris_cli.ops.workers.workers import probe as probe_workers
from iris_cli.remote.host_keys import HostKeys, parse
from iris_cli.remote.launch_request import LaunchRequest
from iris_cli.remote.srun.holder import holder_script

_LAST_LINES = 3
_LONGEST = 240


class Autoscaled(Struct):
    """Result of a pass. If there is an `objection`, no slice was changed. `deleted` maps slices to reasons."""

    plan: ScalingPlan
    objection: OwnerConflict | None = None
    created: list[str] = field(default_factory=list)
    deleted: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def dry_run(session: Session) -> ScalingPlan:
    """Return the plan of a pass, based on the log only. Calls no provider and writes nothing."""
    return plan_of(session, session.view(), session.clock.now())


def run(session: Session, *, probe: bool = True) -> Autoscaled:
    """Run one pass. `probe`: probe VMs of new slices, too. Raises LockedError at the start, or NotWritableError."""
    session.view()
    if not session.cluster_id:
        with session.transaction():
            pass  # creates the log, whose id is part of slice names
    listings, silent = _list_all(session)
    if (found := objection(session, listings)) is not None:
        return Autoscaled(plan=dry_run(session), objection=found)
    learn_keys(session, [each for listing in listings for each in listing.slices])
    _ask_the_last_time(session)
    plan = _decide(session, listings, silent)
    result = Autoscaled(plan=plan, problems=[f"{scope}: {words}" for scope, words in silent.items()])
    _ask(session, listings, result)
    forget_keys(session)
    if probe:
        _probe(session)
    carry_on_set_ups(session)
    return result


def what_speaks_against(session: Session) -> tuple[OwnerConflict | None, dict[Scope, str]]:
    """List the slices of all providers. Return the objection to changing slices, and the errors of silent scopes."""
    session.view()
    listings, silent = _list_all(session)
    return objection(session, listings), silent


def adopt(session: Session, unheard_of: Sequence[str]) -> None:
    """Let this state directory manage the slices. The next pass deletes the slices in `unheard_of`."""
    with session.transaction() as draft:
        slices.record_new_owner(draft, here(session), session.cluster_id, unheard_of)


# Listings


def _list_all(session: Session) -> tuple[list[slices.Listing], dict[Scope, str]]:
    """Return the listings of all scopes with slices or scale groups, and the errors of silent scopes."""
    before = dict(session.cluster.slices)
    templates = [group.template for group in session.config.scale_groups]
    templates += [each.template for each in before.values()]
    scopes = dict.fromkeys(Scope.of(each) for each in templates if each.provider is not Provider.MANUAL)

    def one(scope: Scope) -> tuple[Scope, tuple[CloudSlice, ...] | str]:
        try:
            return scope, _provider(session, scope).list()
        except ProviderError as error:
            return scope, error.message
        except Exception as error:  # of one provider: the others, and the cycle, continue
            return scope, f"{type(error).__name__}: {error}"

    found = [
        each
        for batch in session.fan_out(list(scopes), one, what="listing slices", noun="place")
        for each in batch
    ]
    heard = [(scope, said) for scope, said in found if not isinstance(said, str)]
    listings = [slices.Listing(scope=scope, slices=said, before=before) for scope, said in sorted(heard)]
    return listings, {scope: said for scope, said in sorted(found, key=str) if isinstance(said, str)}


def _provider(session: Session, scope: Scope) -> SliceProvider:
    if session.make_provider is not None:
        return session.make_provider(scope, session.cluster_id)
    known = {each.name: each for each in session.cluster.slices.values() if Scope.of(each.template) == scope}
    directory = session.config.path.absolute().parent
    return open_provider(
        scope,
        session.cluster_id,
        directory,
        known,
        session.clock,
        lambda host: on_login_host(session, host),
        holder_script,
    )


# Decisions


def _ask_the_last_time(session: Session) -> None:
    """Poll the set-ups of slices with an expired boot timeout a last time: they may have just succeeded."""
    now = session.clock.now()
    last = [each.name for each in session.view().slices.values() if boots_too_long(each, now, session.limits)]
    if last:
        carry_on_set_ups(session, last)


def _decide(session: Session, listings: Sequence[slices.Listing], silent: Mapping[Scope, str]) -> ScalingPlan:
    groups = session.config.scale_groups
    connections = {group.name: group.connection for group in groups}
    unheard = {
        group.name: f"its provider did not answer: {silent[scope]}"
        for group in groups
        if (scope := Scope.of(group.template)) in silent
    }

    def rule(draft: Draft) -> ScalingPlan:
        for listing in listings:
            touched = slices.apply_listing(draft, listing, connections, session.limits)
            observe.settle(session, draft, dict.fromkeys(touched))
        slices.join_complete_slices(draft)
        plan = plan_of(session, draft.cluster, draft.at, unheard)
        slices.record_scaling_plan(draft, plan, session.limits)
        slices.record_first_owner(draft, here(session))
        return plan

    return session.decide(rule)


def _ask(session: Session, listings: Sequence[slices.Listing], result: Autoscaled) -> None:
    """Send the requests to create and delete slices, without the lock, AFTER these are committed."""
    listed = {each.scope: [one.name for one in each.slices] for each in listings}
    create, delete = slices.calls_due(session.cluster, listed, session.clock.now(), session.limits)
    if create:
        session.take_turn()  # before creating: the decision may be from an earlier pass
    groups = {group.name: group for group in session.config.scale_groups}

    def make(each: Slice) -> CallOutcome:
        group = as_made(groups[each.group], each.template)
        return _outcome(each, lambda: _provider(session, Scope.of(each.template)).create(each.name, group))

    def remove(each: Slice) -> CallOutcome:
        return _outcome(each, lambda: _provider(session, Scope.of(each.template)).delete(each.name))

    result.created = [each.name for each in create if each.group in groups]
    result.deleted = {each.name: each.reason for each in delete}
    for batch in session.fan_out(
        [each for each in create if each.group in groups], make, what="making", noun="slice"
    ):
        with session.transaction() as draft:
            for outcome in batch:
                slices.record_create_answer(draft, outcome, session.limits)
        result.problems += [f"{each.slice}: {each.error}" for each in batch if each.refusal]
    for batch in session.fan_out(delete, remove, what="deleting", noun="slice"):
        result.problems += [f"{each.slice}: {each.error}" for each in batch if each.refusal]


def _outcome(each: Slice, call: Callable[[], None]) -> CallOutcome:
    try:
        call()
    except ProviderError as error:
        return CallOutcome(slice=each.name, refusal=error.refusal, error=error.message)
    except Exception as error:
        return CallOutcome(
            slice=each.name, refusal=Refusal.UNANSWERED, error=f"{type(error).__name__}: {error}"
        )
    return CallOutcome(slice=each.name)


# New VMs


def _probe(session: Session) -> None:
    """Probe the VMs of booting slices, and record the slices that are complete."""
    now, cluster = session.clock.now(), session.cluster
    booting = [each for each in cluster.slices.values() if each.state is SliceState.BOOTING]
    known = [
        cluster.workers[worker] for each in booting for worker in each.workers if worker in cluster.workers
    ]
    names = [
        worker.id
        for worker in known
        if (worker.condition is not WorkerCondition.HEALTHY or worker.unschedulable)
        and not workers.is_backing_off(cluster, worker, now, session.limits)
    ]
    if names:
        probe_workers(session, list(names))
        session.decide(slices.join_complete_slices)


# Host keys of new VMs


def learn_keys(session: Session, listed: Iterable[CloudSlice]) -> None:
    """Record the host keys that providers report for new VMs. A known key is kept while the VM has the same address."""
    told = [each for each in listed if any(host.key for host in each.hosts)]
    if not told:
        return

    own, known = HostKeys(session.state.known_hosts), session.view().slices
    new = {
        f"{each.name}-{index}": line.key
        for each in told
        if each.name in known
        for index, host in enumerate(each.hosts)
        if known[each.name].hosts != each.hosts or not own.has(f"{each.name}-{index}")
        for line in parse(f"{each.name}-{index} {host.key}")
    }
    if new:
        own.put_all(new)


def forget_keys(session: Session) -> None:
    """Delete the host keys of deleted slices, whose names are never reused."""
    if not session.cluster.scale_groups:
        return

    HostKeys(session.state.known_hosts).forget(lambda owner: _is_over(session, owner))


def _is_over(session: Session, worker: str) -> bool:
    """Return True if this is the name of a VM of a deleted slice, and no attempt is left there to be stopped."""
    if worker in session.cluster.workers:
        return False
    name = slice_of(worker)
    stem, _, number = name.rpartition("-")
    record = session.cluster.scale_groups.get(stem.rpartition("-")[0])
    if record is None or not number.isdecimal() or int(number) > record.requested:
        return False
    ours = name == slice_name(record.name, session.cluster_id, int(number))
    return ours and name not in session.cluster.slices and worker not in session.hosts


# Set-up command of new VMs


def carry_on_set_ups(session: Session, of: Collection[str] | None = None) -> None:
    """Start or poll the set-ups of healthy VMs, and record complete slices. `of`: names of slices; None: all."""
    cluster, now = session.cluster, session.clock.now()
    due = [
        (each, vm)
        for each, vm in slices.set_ups_due(cluster)
        if (of is None or each.name in of)
        and not workers.is_backing_off(cluster, cluster.workers[each.workers[vm]], now, session.limits)
    ]
    if not due:
        return
    _ = session.runner  # created once, before any thread uses it
    for batch in session.fan_out(due, lambda one: _launched(session, *one), what="setting up", noun="VM"):
        ended = [each for each in batch if each is not None]

        def rule(draft: Draft, ended: list[SliceSetUp] = ended) -> None:
            for each in ended:
                slices.record_set_up(draft, each, session.limits)
            slices.join_complete_slices(draft)

        session.decide(rule)


def _launched(session: Session, each: Slice, vm: int) -> SliceSetUp | None:
    """Return the end of a VM's set-up; None if it still runs, or if the worker is silent."""
    worker = session.cluster.workers[each.workers[vm]]
    request = LaunchRequest(
        token=token_of(worker.id, worker.incarnation),
        argv=("sh", "-c", each.setup),
        env=worker_environment(session, worker),
        timeout=session.limits.slice_boot_timeout,
    )
    try:
        seen = session.runner.prepare(
            session.target(worker), [request], boot_id=worker.boot_id, incarnation=worker.incarnation, go=True
        )
    except ValueError as unfit:
        return SliceSetUp(slice=each.name, vm=vm, error=clip(str(unfit), _LONGEST))
    reports = seen.attempts if isinstance(seen, WorkerReport) else ()
    over = next(
        (report for report in reports if report.token == request.token and report.state in FINAL_STATES), None
    )
    if over is None:
        return None
    error = _set_up_error(over)
    return SliceSetUp(slice=each.name, vm=vm, error=error, log_tail=over.log_tail if error else "")


def _set_up_error(report: AttemptReport) -> str:
    """Return why a set-up failed, with the last lines of its output; "" if it succeeded."""
    if report.state is RemoteState.EXITED and report.exit_code == 0 and not report.cause:
        return ""
    code = f"exit {report.exit_code}" if report.exit_code is not None else report.state.value.lower()
    what = f"{code}, {report.cause}" if report.cause else code
    lines = [line.strip() for line in report.log_tail.splitlines() if line.strip()]
    return ": ".join([what, clip(" / ".join(lines[-_LAST_LINES:]), _LONGEST)] if lines else [what])
