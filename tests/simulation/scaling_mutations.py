"""Rules of the autoscaler broken one at a time, as in `mutations.py`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import count
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from iris_cli.capacity.provider import ProviderError
from iris_cli.core.autoscaling import groups, scaling
from iris_cli.core.evolve import Draft
from iris_cli.core.ids import Token
from iris_cli.core.lifecycle import slices
from iris_cli.core.messages.cloud import CloudState, Scope
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.slice import Slice, SliceState
from iris_cli.ops import autoscale
from tests.simulation import scaling as worlds
from tests.simulation.cloud import SimProvider
from tests.simulation.planting import Mutation
from tests.simulation.source_changes import change


def some_always() -> AbstractContextManager[Any]:
    """Every group has a slice at least, at all times."""
    drawn = worlds.draw_groups
    return patch.object(
        worlds, "draw_groups", lambda rng: tuple(replace(each, min_slices=1) for each in drawn(rng))
    )


def most_go_wrong() -> AbstractContextManager[Any]:
    return patch.object(worlds, "TROUBLED", (0.7,))


def deletions_get_lost() -> AbstractContextManager[Any]:
    """Most requests to delete a slice are lost until all faults are over."""
    delete = SimProvider.delete

    def often_lost(self: SimProvider, name: str) -> None:
        self.cloud.unreliable = 0.0 if self.cloud.behaviour.calm else 0.7
        delete(self, name)
        self.cloud.unreliable = 0.0

    return patch.object(SimProvider, "delete", often_lost)


def _names_are_used_again() -> AbstractContextManager[Any]:
    """Named by how many there are."""
    orders = scaling._orders

    def counted(cluster: Cluster, *rest: Any) -> Any:
        there = dict.fromkeys(cluster.scale_groups, 0)
        for each in cluster.slices.values():
            there[each.group] = there.get(each.group, 0) + 1
        records = {
            name: replace(record, requested=there[name]) for name, record in cluster.scale_groups.items()
        }
        return orders(replace(cluster, scale_groups=records), *rest)

    return patch.object(scaling, "_orders", counted)


def _the_going_do_not_count() -> AbstractContextManager[Any]:
    states = groups.group_states

    def without(cluster: Cluster, *rest: Any) -> Any:
        staying = {
            name: each for name, each in cluster.slices.items() if each.state is not SliceState.DELETING
        }
        return states(replace(cluster, slices=staying), *rest)

    return patch.object(scaling, "group_states", without)


def _old_lists_count() -> AbstractContextManager[Any]:
    """What a list doesn't show is gone, whatever became of it since the list was asked for."""
    observed = slices.apply_listing

    def heedless(draft: Draft, listing: slices.Listing, *rest: Any) -> Any:
        return observed(draft, replace(listing, before=dict(draft.cluster.slices)), *rest)

    return patch.object(slices, "apply_listing", heedless)


def _silence_is_an_empty_list() -> AbstractContextManager[Any]:
    provider = autoscale._open_provider

    class Deaf:
        def __init__(self, real: Any) -> None:
            self.create, self.delete, self._list = real.create, real.delete, real.list

        def list(self) -> Any:
            try:
                return self._list()
            except ProviderError:
                return ()

    return patch.object(autoscale, "_open_provider", lambda *args: Deaf(provider(*args)))


def _busy_slices_are_idle() -> AbstractContextManager[Any]:
    def since(_cluster: Cluster, each: Any, _needed: Any = frozenset()) -> Any:
        return each.joined_at

    return patch.object(scaling, "idle_since", since)


def _unknown_slices_stay() -> AbstractContextManager[Any]:
    observed = slices.apply_listing

    def only_known(draft: Draft, listing: slices.Listing, *rest: Any) -> Any:
        known = tuple(each for each in listing.slices if each.name in draft.cluster.slices)
        return observed(draft, replace(listing, slices=known), *rest)

    return patch.object(slices, "apply_listing", only_known)


def _not_stuck() -> AbstractContextManager[Any]:
    return patch.object(scaling, "stuck_slices", lambda *_: ())


def _seen_as(state: CloudState, taken_for: CloudState) -> AbstractContextManager[Any]:
    seen_ = slices._apply_listed

    def mistaken(draft: Draft, known: Any, seen: Any, *rest: Any) -> Any:
        return seen_(draft, known, replace(seen, state=taken_for) if seen.state is state else seen, *rest)

    return patch.object(slices, "_apply_listed", mistaken)


def _below_the_least() -> AbstractContextManager[Any]:
    idle = scaling.idle_slices

    def of_none(cluster: Cluster, groups: Any, *rest: Any) -> Any:
        return idle(cluster, [replace(group, min_slices=0) for group in groups], *rest)

    return patch.object(scaling, "idle_slices", of_none)


@contextmanager
def _asked_to_go_once() -> Iterator[None]:
    """A deletion whose answer was lost, or whose invocation was killed, is not asked for again."""
    ask, calls_due = autoscale._send_requests, slices.calls_due

    def once(session: Any, listings: Any, result: Any) -> None:
        fresh = {removal.slice for removal in result.plan.delete}
        fresh |= {
            each.name for each in session.cluster.slices.values() if each.deleting_at == session.cluster.at
        }

        def due(*args: Any) -> Any:
            create, delete = calls_due(*args)
            return create, [each for each in delete if each.name in fresh]

        with patch.object(slices, "calls_due", due):
            ask(session, listings, result)

    with patch.object(autoscale, "_send_requests", once):
        yield


def _one_by_one() -> AbstractContextManager[Any]:
    """VMs are workers as soon as each of them answers."""
    return patch.object(slices, "hold_until_complete", lambda draft, worker: None)


def _the_dead_live_on() -> AbstractContextManager[Any]:
    """That the machines of a slice are gone ends nothing that ran there."""
    return patch.object(slices, "_end_attempts", lambda draft, known, reason: [])


def _asked_before_it_is_written() -> AbstractContextManager[Any]:
    """What is to be made is asked for first, and written down afterwards."""
    decide = autoscale._decide

    def hasty(session: Any, listings: Any, silent: Any) -> Any:
        plan = autoscale.dry_run(session)
        for order in plan.create:
            provider = autoscale._open_provider(session, Scope.of(order.group.template))
            autoscale._call(order, partial(provider.create, order.slice, order.group))  # type: ignore[arg-type]  # it has a name
        return decide(session, listings, silent)

    return patch.object(autoscale, "_decide", hasty)


def _no_clock_is_ever_wrong() -> AbstractContextManager[Any]:
    return patch.object(scaling, "_has_passed", lambda since, wait, now: now - since >= wait)


@contextmanager
def _set_up_anew() -> Iterator[None]:
    """By another token each time that somebody asks how it goes."""
    numbers = count()
    with patch.object(autoscale, "set_up_token", lambda *_: Token(f"{next(numbers):032x}")):
        yield


SCALING_MUTATIONS: tuple[Mutation, ...] = (
    Mutation("slice-names-again", "names of deleted slices are reused", _names_are_used_again),
    Mutation(
        "the-going-do-not-count", "a slice that is being deleted does not count", _the_going_do_not_count
    ),
    Mutation(
        "old-lists-count",
        "a slice that is missing in a list is gone, even if it was requested after the list",
        _old_lists_count,
        ("cloud_slow",),
    ),
    Mutation(
        "silence-is-an-empty-list",
        "a provider that does not answer has no slices",
        _silence_is_an_empty_list,
        ("cloud_down", "cloud_unreliable"),
    ),
    Mutation("busy-slices-are-idle", "a slice counts as idle since it joined", _busy_slices_are_idle),
    Mutation(
        "unknown-slices-stay",
        "a listed slice that is not in the log is kept",
        _unknown_slices_stay,
        ("cloud_unreliable", "cloud_unreliable", "sold_out", "no_quota"),
    ),
    Mutation("slices-may-stick", "a slice that takes too long is not given up", _not_stuck),
    Mutation(
        "failed-slices-stay",
        "a failed slice counts as one that is being created",
        lambda: _seen_as(CloudState.FAILED, CloudState.CREATING),
        ("fall_ill",),
    ),
    Mutation(
        "preempted-slices-stay",
        "a preempted slice counts as ready",
        lambda: _seen_as(CloudState.STOPPED, CloudState.READY),
        ("preempt", "preempt_all"),
    ),
    Mutation("below-the-least", "`min_slices` keeps no slice", _below_the_least, amid=some_always),
    Mutation(
        "asked-to-go-once",
        "a deletion is requested only once, even if the call was lost",
        _asked_to_go_once,
        ("preempt", "fall_ill"),
        deletions_get_lost,
    ),
    Mutation(
        "join-one-by-one",
        "the VMs of a slice become workers one by one",
        _one_by_one,
        ("unreliable", "unreliable", "slow", "partition"),
    ),
    Mutation(
        "half-made-is-whole",
        "a slice with missing VMs counts as complete",
        change(slices.__name__, "len(entry.hosts) >= (known.template.vms or 1)", "entry.hosts"),
        amid=most_go_wrong,
    ),
    Mutation(
        "the-dead-live-on",
        "attempts on a deleted slice do not end",
        _the_dead_live_on,
        ("preempt", "vanish"),
    ),
    Mutation(
        "asked-before-it-is-written",
        "a slice is requested before it is in the log",
        _asked_before_it_is_written,
    ),
    Mutation(
        "used-before-it-is-set-up",
        "a VM is a worker before its set-up has ended",
        lambda: patch.object(Slice, "vms_to_set_up", ()),
    ),
    Mutation("set-up-anew", "each pass starts the set-up of a VM again", _set_up_anew),
    Mutation(
        "waits-from-the-future",
        "a wait that began in the future, because of a wrong clock, lasts until then",
        _no_clock_is_ever_wrong,
        ("wrong_clock",),
    ),
)
