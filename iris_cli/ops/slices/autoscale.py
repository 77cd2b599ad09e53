"""Make slices for what waits, and give back those that are idle: list, follow the list, decide, commit, ask, commit.

Nobody is asked for anything under the lock, nor before it is in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field

from iris_cli.capacity.opening import open_provider
from iris_cli.capacity.provider import ProviderError, SliceProvider
from iris_cli.core.autoscaling.scaling import ScalingPlan, boots_too_long
from iris_cli.core.evolve import Draft
from iris_cli.core.lifecycle import keeping, slices, workers
from iris_cli.core.lifecycle.keeping import Objection
from iris_cli.core.messages.cloud import CallOutcome, CloudSlice, Refusal, Scope
from iris_cli.core.model.slice import Provider, Slice, SliceState, as_made
from iris_cli.core.model.worker import WorkerCondition
from iris_cli.ops.cycle import observe
from iris_cli.ops.session import Session
from iris_cli.ops.slices import host_keys, set_up
from iris_cli.ops.views.scale_status import here, objection, plan_of
from iris_cli.ops.workers.workers import probe as probe_workers


class Autoscaled(Struct):
    """What a pass decided and what became of it. `problems` are those of providers, in words.

    With an `objection` nothing was done: the plan is what would be, elsewhere.
    `created` and `deleted` were asked for now, for the first time or again; the latter with the reason why.
    """

    plan: ScalingPlan
    objection: Objection | None = None
    created: list[str] = field(default_factory=list)
    deleted: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def dry_run(session: Session) -> ScalingPlan:
    """What a pass would decide now, from the log alone. Asks no provider and writes nothing."""
    return plan_of(session, session.view(), session.clock.now())


def run(session: Session, *, probe: bool = True) -> Autoscaled:
    """One pass. `probe`: also probe the VMs of new slices, which a cycle does as well.

    Raises LockedError before anything is done, or NotWritableError.
    """
    session.view()
    if not session.cluster_id:
        with session.transaction():
            pass  # a new cluster gets its log, whose id is part of the names of slices
    listings, silent = _list_all(session)
    if (found := objection(session, listings)) is not None:
        return Autoscaled(plan=dry_run(session), objection=found)
    host_keys.learn(session, [each for listing in listings for each in listing.slices])
    _ask_the_last_time(session)
    plan = _decide(session, listings, silent)
    result = Autoscaled(plan=plan, problems=[f"{scope}: {words}" for scope, words in silent.items()])
    _ask(session, listings, result)
    host_keys.forget(session)
    if probe:
        _probe(session)
    set_up.carry_on(session)
    return result


def what_speaks_against(session: Session) -> tuple[Objection | None, dict[Scope, str]]:
    """The same by asking all providers; those that did not say anything, and why."""
    session.view()
    listings, silent = _list_all(session)
    return objection(session, listings), silent


def adopt(session: Session, unheard_of: Sequence[str]) -> None:
    """From now on slices are managed from here; those that the log has never asked for go with the next pass."""
    with session.transaction() as draft:
        keeping.adopt(draft, here(session), session.cluster_id, unheard_of)


# Lists


def _list_all(session: Session) -> tuple[list[slices.Listing], dict[Scope, str]]:
    """What there is in every place that matters, and why some did not say."""
    before = dict(session.cluster.slices)
    templates = [group.template for group in session.config.scale_groups]
    templates += [each.template for each in before.values()]
    scopes = dict.fromkeys(Scope.of(each) for each in templates if each.provider is not Provider.MANUAL)

    def one(scope: Scope) -> tuple[Scope, tuple[CloudSlice, ...] | str]:
        try:
            return scope, _provider(session, scope).list()
        except ProviderError as error:
            return scope, error.message
        except Exception as error:  # of one provider: the others, and the cycle, go on
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
    return open_provider(
        scope, session.cluster_id, session.config.path.absolute().parent, known, session.clock
    )


# Decisions


def _ask_the_last_time(session: Session) -> None:
    """How the set-ups went of slices that are about to be given up: they may have ended since the pass before."""
    now = session.clock.now()
    last = [each.name for each in session.view().slices.values() if boots_too_long(each, now, session.limits)]
    if last:
        set_up.carry_on(session, last)


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
            touched = slices.observed(draft, listing, connections, session.limits)
            observe.settle(session, draft, dict.fromkeys(touched))
        slices.joined(draft)
        plan = plan_of(session, draft.cluster, draft.at, unheard)
        slices.intend(draft, plan, session.limits)
        keeping.claim(draft, here(session))
        return plan

    return session.decide(rule)


def _ask(session: Session, listings: Sequence[slices.Listing], result: Autoscaled) -> None:
    """Ask for what is to be made and for what is to go. AFTER the intent is on the disk, and without the lock."""
    listed = {each.scope: [one.name for one in each.slices] for each in listings}
    create, delete = slices.calls_due(session.cluster, listed, session.clock.now(), session.limits)
    if create:
        session.take_turn()  # BEFORE: an earlier pass may have decided it, and this one written nothing
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
                slices.create_answered(draft, outcome, session.limits)
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
    """Probe the VMs of slices that boot, and let those join that are complete."""
    now, cluster = session.clock.now(), session.cluster
    booting = [each for each in cluster.slices.values() if each.state is SliceState.BOOTING]
    known = [
        cluster.workers[worker] for each in booting for worker in each.workers if worker in cluster.workers
    ]
    names = [
        worker.id
        for worker in known
        if (worker.condition is not WorkerCondition.HEALTHY or worker.unschedulable)
        and not workers.left_alone(cluster, worker, now, session.limits)
    ]
    if names:
        probe_workers(session, list(names))
        session.decide(slices.joined)
