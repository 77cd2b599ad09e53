"""Tasks that ask for things from inside: what lies in their outboxes, what they were answered, and what is true of it.

Asked for at any moment of their lives, also the last one; who was answered was answered the truth, and always the same.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from msgspec.structs import replace

from iris_cli.core.events.events import (
    AttemptEnded,
    EndpointRegistered,
    EndpointRemoved,
    Event,
    JobAdopted,
    JobSubmitted,
)
from iris_cli.core.ids import AttemptId, JobId, RequestId, Token, WorkerId, depth_of
from iris_cli.core.messages.observations import FINAL_STATES, OutboxFile, WorkerReport
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.task import EndReason
from tests.simulation.machines import Machine
from tests.simulation.strands import Scheduler
from tests.simulation.truth import Truth

Key = tuple[AttemptId, RequestId]

_DEEPEST = 2
_MOST = 3  # told in one poll: few, so that there is often more
_OWN_ENDS = frozenset(
    {EndReason.OK, EndReason.USER_ERROR, EndReason.SIGNAL, EndReason.OOM, EndReason.TIMEOUT}
)


@dataclass
class Box:
    """The directory of one attempt on one machine."""

    attempt: AttemptId
    machine: Machine
    worker: WorkerId
    boots: int
    outbox: dict[RequestId, bytes] = field(default_factory=dict)

    def is_there(self, token: Token) -> bool:
        return token in self.machine.home(self.worker).entries


@dataclass
class Boxes:
    """All of them, and what was asked for. `rng` is its own: without it a run is what it was."""

    scheduler: Scheduler
    truth: Truth
    rng: Random
    boxes: dict[Token, Box] = field(default_factory=dict)
    asked: dict[Key, dict[str, Any]] = field(default_factory=dict)
    answered: dict[Key, dict[str, Any]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    # What tasks do

    def begins(self, machine: Machine, token: Token) -> None:
        """The command of an attempt has started: it may ask for this and that while it lives."""
        life = self.truth.lives.get(token)
        process = machine.processes.get(token)
        if life is None or process is None or depth_of(life.id.task.job) > _DEEPEST:
            return
        self.boxes[token] = Box(life.id, machine, process.worker, machine.boots)
        for number in range(self.rng.choice((0, 1, 3, 9))):
            request = RequestId(f"{number:02}")
            document = self._draw(life.id, number)
            moment = self.rng.choice((0.001, 5.0, 60.0)) * self.rng.random()
            self.scheduler.after(moment, partial(self._ask, token, request, document))

    def _draw(self, attempt: AttemptId, number: int) -> dict[str, Any]:
        job = attempt.task.job
        child = {"command": ["true"], "cpu": 0.25, "max_retries_preemption": 5}
        kid = f"{job}/kid-{attempt.task.index}"
        return self.rng.choice(
            (
                {"op": "submit", "job": {**child, "name": f"kid-{attempt.task.index}"}},
                {"op": "submit", "job": {**child, "env": {"NUMBER": str(number)}}},
                {"op": "submit", "job": {**child, "env": {"NUMBER": str(number)}}},
                {"op": "register_endpoint", "name": "http", "port": 8000 + number},
                {"op": "remove_endpoint", "name": "http"},
                {"op": "cancel", "job": kid},
                {"op": "wait", "job": kid},
                {"op": "status"},
                {"op": "cancel", "job": "sweep"},  # somebody else's, mostly
                {"op": "submit", "job": {"command": []}},
            )
        )

    def _ask(self, token: Token, request: RequestId, document: dict[str, Any]) -> None:
        box = self.boxes[token]
        if token in box.machine.processes and box.is_there(token) and box.machine.boots == box.boots:
            self.asked[box.attempt, request] = document
            box.outbox[request] = json.dumps({"v": 1, **document}).encode()

    # What workers say, and are told

    def tell(self, report: WorkerReport, open_requests: Sequence[object]) -> WorkerReport:
        """The report of a poll, with what the attempts in it ask for."""
        requests, asking = [], []
        for token in (each.token for each in report.attempts):
            open_ones = sorted(each for each in self._open(token) if (token, each) not in open_requests)
            asking += [token] if open_ones[_MOST:] else []
            for request in open_ones[:_MOST]:
                data = self.boxes[token].outbox[request]
                requests.append(OutboxFile(token=token, id=request, size=len(data), data=data))
        return replace(report, requests=tuple(requests), asking=tuple(asking))

    def left(self, report: WorkerReport) -> WorkerReport:
        """Any other report: it says which of those that have ended left requests."""
        asking = [
            each.token for each in report.attempts if each.state in FINAL_STATES and self._open(each.token)
        ]
        return replace(report, asking=tuple(asking))

    def _open(self, token: Token) -> dict[RequestId, bytes]:
        box = self.boxes.get(token)
        return box.outbox if box is not None and box.is_there(token) else {}

    def answer(self, token: Token, request: RequestId, text: bytes) -> None:
        box = self.boxes.get(token)
        if box is None or not box.is_there(token):
            return
        answer = json.loads(text)
        self._judge((box.attempt, request), answer)
        if self.rng.random() > 0.05:  # else whoever answers is killed before it goes
            box.outbox.pop(request, None)

    def _judge(self, key: Key, answer: dict[str, Any]) -> None:
        document = self.asked[key]
        self.counts[document["op"]] = self.counts.get(document["op"], 0) + 1
        if document["op"] != "submit" or not answer["ok"]:
            return
        if self.answered.setdefault(key, answer) != answer:
            self._breach(f"{key[0]} asked {key[1]}, and was answered {self.answered[key]} and then {answer}")
        child = self.truth.cluster.jobs.get(JobId(answer["result"]["job"]))
        origins = (
            [(each.attempt, each.request) for each in (child.origin, child.adopted) if each] if child else []
        )
        if child is None or (answer["result"]["created"] and key not in origins):
            self._breach(f"{key[0]} was told of {answer['result']}, but the log has no such job of it")

    # What the log says

    def committed(self, events: Sequence[Event], after: Cluster) -> None:
        for event in events:
            if isinstance(event, (JobSubmitted, JobAdopted)) and event.origin is not None:
                self._was_asked((event.origin.attempt, event.origin.request), "submit")
            elif isinstance(event, EndpointRegistered):
                self._was_asked((event.attempt_id, event.request), "register_endpoint")
            elif isinstance(event, EndpointRemoved):
                self._was_asked((event.attempt_id, event.request), "remove_endpoint")
            elif isinstance(event, AttemptEnded):
                self._has_ended(event, after)

    def _was_asked(self, key: Key, op: str) -> None:
        if self.asked.get(key, {}).get("op") != op:
            self._breach(f"the log has a {op} of {key[0]} by its request {key[1]}, which it never made")

    def _has_ended(self, event: AttemptEnded, after: Cluster) -> None:
        """What ended by itself, and wasn't being stopped, has every child that it asked for."""
        attempt = after.attempt(event.attempt_id)
        token = self.truth.by_attempt[event.attempt_id]
        box, life = self.boxes.get(token), self.truth.lives[token]
        undisturbed = box is not None and box.is_there(token) and box.machine.boots == box.boots
        if (
            not undisturbed
            or attempt.stop is not None
            or event.end.reason not in _OWN_ENDS
            or life.misfortune
        ):
            return
        children = after.children_of(event.task.job)
        known = {
            (each.attempt, each.request) for job in children for each in (job.origin, job.adopted) if each
        }
        for key, document in self.asked.items():
            fit = document["op"] == "submit" and document["job"]["command"] and "name" not in document["job"]
            if key[0] == event.attempt_id and fit and key not in known:
                self._breach(f"{key[0]} has ended, but its request {key[1]} for a child job is forgotten")

    def _breach(self, words: str) -> None:
        self.truth.story.breach(words)
