"""What a mutation is, and those of them that are about starts that hang, and about ghosts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from random import Random
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from iris_cli.core.lifecycle import attempts
from iris_cli.core.model.job import ReplaceLost
from iris_cli.core.model.limits import Limits
from iris_cli.ops.cycle import launches, observe
from iris_cli.remote.launch_request import LaunchRequest
from tests.simulation import fleet, machines
from tests.simulation.tasks import Behaviour, Fate


@dataclass(frozen=True, slots=True)
class Mutation:
    """`breaks` says in words what is left out; `plant` leaves it out for as long as it is held.

    `faults`: what goes wrong in the runs that are to show it, where ordinary weather would rarely do so; `amid` is what
    else is otherwise in them.
    """

    name: str
    breaks: str
    plant: Callable[[], AbstractContextManager[Any]]
    faults: tuple[str, ...] = ()
    amid: Callable[[], AbstractContextManager[Any]] = nullcontext


def late_since_assignment() -> AbstractContextManager[Any]:
    is_late = launches._is_late
    return patch.object(
        launches, "_is_late", lambda draft, attempt, _, limits: is_late(draft, attempt, None, limits)
    )


def launches_in_limbo() -> AbstractContextManager[Any]:
    return patch.object(attempts, "release_dispatch", lambda draft, launched: None)


def no_signs_of_life() -> AbstractContextManager[Any]:
    return patch.object(machines.Machine, "_sign", lambda self, entry: None)


@contextmanager
def long_work_on_hosts_soon_given_up() -> Iterator[None]:
    limits, fate = fleet._limits, Behaviour.fate

    def impatient(rng: Random) -> Limits:
        return replace(limits(rng), worker_lost_after=60.0)

    def lasting(self: Behaviour, request: LaunchRequest) -> Fate:
        drawn = fate(self, request)
        return (
            drawn
            if self.calm
            else dataclasses.replace(drawn, after=max(drawn.after, self._rng.uniform(300.0, 900.0)))
        )

    with (
        patch.object(fleet, "_limits", impatient),
        patch.object(fleet, "ReplaceLost", (ReplaceLost.ALWAYS,)),
        patch.object(Behaviour, "fate", lasting),
    ):
        yield


@contextmanager
def ghosts_may_stay() -> Iterator[None]:
    with (
        patch.object(observe, "_ghost_stops", lambda cluster, worker: ()),
        patch.object(
            import_module("iris_cli.core.scheduling.plan"), "_unconfirmed_stops", lambda cluster: []
        ),
    ):
        yield
