"""Somebody who polls a task's outbox, in a thread: for tests of what asks, without a cluster behind it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from iris_cli.config.request_reading import read_request
from iris_cli.config.request_text import write_answer
from iris_cli.core.ids import is_request_id
from iris_cli.core.messages.requests import Answer, Request

Decide = Callable[[Request], Answer | None]


class OperatorThread:
    """Answers what `decide` has an answer for, as often as it finds the question; `done` has each id once."""

    def __init__(self, task_dir: Path, decide: Decide) -> None:
        self.task_dir = task_dir
        self.decide = decide
        self.done: dict[str, Request] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        for name in ("outbox", "inbox"):
            (task_dir / name).mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> OperatorThread:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.005):
            self.poll()

    def poll(self) -> None:
        """One poll: answers are in the inbox before the questions go."""
        for path in sorted((self.task_dir / "outbox").iterdir()):
            if not is_request_id(path.name):
                continue
            try:
                request = read_request(path.read_bytes())
            except FileNotFoundError:
                continue  # taken back
            answer = self.decide(request)
            if answer is None:
                continue
            self.done[path.name] = request
            beside = self.task_dir / f"answer-{path.name}"
            beside.write_bytes(write_answer(answer))
            beside.rename(self.task_dir / "inbox" / path.name)
            path.unlink(missing_ok=True)

    @property
    def asked(self) -> list[Any]:
        """The requests that were answered, in order of their ids."""
        return [self.done[name] for name in sorted(self.done)]
