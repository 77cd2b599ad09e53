"""What a mutation is, and those of them that are about starts that hang."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from iris_cli.ops import readiness
from tests.simulation import machines


@dataclass(frozen=True, slots=True)
class Mutation:
    """`breaks` says in words what is left out; `plant` leaves it out for as long as it is held.

    `faults`: what goes wrong in the runs that are to show it, where ordinary weather would rarely do so.
    """

    name: str
    breaks: str
    plant: Callable[[], AbstractContextManager[Any]]
    faults: tuple[str, ...] = ()


def late_since_assignment() -> AbstractContextManager[Any]:
    is_late = readiness._is_late
    return patch.object(
        readiness, "_is_late", lambda draft, attempt, _, limits: is_late(draft, attempt, None, limits)
    )


def no_signs_of_life() -> AbstractContextManager[Any]:
    return patch.object(machines.Machine, "_sign", lambda self, entry: None)
