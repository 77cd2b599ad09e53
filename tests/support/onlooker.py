"""Observes the progress of operations."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from iris_cli.ops.session import GetProgress, ProgressState


class Onlooker:
    """Replaces `Session.progress`."""

    def __init__(self) -> None:
        self._asked: list[GetProgress] = []

    def __call__(self, get_progress: GetProgress) -> AbstractContextManager[None]:
        self._asked.append(get_progress)
        return nullcontext()

    def sees(self, what: str) -> ProgressState:
        """Return the progress of the last operation whose text begins with these words."""
        return [far for far in (each() for each in self._asked) if far[0].startswith(what)][-1]
