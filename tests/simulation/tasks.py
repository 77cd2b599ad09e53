"""What the users' programs come to: how long a set-up takes, when a task ends and with which code."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Protocol

from iris_cli.core.ids import Token
from iris_cli.core.messages.observations import RemoteState
from iris_cli.remote.launch_request import LaunchRequest
from tests.simulation.holdings import Entry


@dataclass(frozen=True, slots=True)
class Fate:
    """It ends after so many seconds."""

    after: float
    code: int = 0
    cause: str = ""


SET_UP = "set this host up"
"""The command that makes new VMs ready for use, where they need that."""

_BAD_ENDS = ((1, ""), (2, ""), (137, "oom"), (139, "signal"), (143, ""))


class Voices(Protocol):
    """When tasks write."""

    def last_output(self, token: Token, began: float, now: float) -> float: ...


class Behaviour:
    """Draws fates. `calm`: from now on everything ends well, and soon."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.calm = False
        self.voices: Voices | None = None  # None: the workers don't tell when tasks write
        self.failing = rng.choice((0.0, 0.1, 0.3, 0.6))  # the share of tasks that end badly

    def setup_time(self) -> float:
        return 5.0 if self.calm else self._rng.choice((1.0, 20.0, 90.0))

    def setup_succeeds(self) -> bool:
        return self.calm or self._rng.random() < 0.85

    def fate(self, request: LaunchRequest) -> Fate:
        if SET_UP in request.argv:
            return Fate(self.setup_time(), 0 if self.setup_succeeds() else 1)
        rng = self._rng
        after = (
            rng.uniform(5.0, 60.0) if self.calm else rng.choice((0.01, 100.0, 400.0, 1500.0)) * rng.random()
        )
        if 0 < request.timeout < after:
            return Fate(request.timeout, 143, "timeout")
        if not self.calm and rng.random() < self.failing:
            code, cause = rng.choice(_BAD_ENDS)
            return Fate(after, code, cause)
        return Fate(after)

    def last_output(self, entry: Entry, token: Token, state: RemoteState, now: float) -> float | None:
        """The time of the last output of an attempt that runs, where workers tell it."""
        runs = entry.began is not None and state in (RemoteState.RUNNING, RemoteState.ORPHANED)
        return self.voices.last_output(token, entry.began or 0.0, now) if self.voices and runs else None
