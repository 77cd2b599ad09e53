"""The way to the workers: calls that are lost, late, cut off, answered twice, or never; at the seam of TaskRunner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from iris_cli.core.ids import RequestId, Token, WorkerId
from iris_cli.core.messages.observations import (
    ChipHolder,
    ProbeReport,
    ReapReport,
    Silence,
    SilenceKind,
    UnwedgeReport,
    WorkerReport,
)
from iris_cli.core.messages.observations import RemoteState as S
from iris_cli.remote.launch_request import LaunchRequest
from iris_cli.remote.stack_calls import Program, Programs
from iris_cli.remote.transport import Target
from tests.simulation.conduct import Conduct
from tests.simulation.disk import Medium
from tests.simulation.machines import Machine
from tests.simulation.strands import Process, Scheduler
from tests.simulation.tasks import SET_UP
from tests.simulation.truth import Truth

if TYPE_CHECKING:
    from tests.simulation.boxes import Boxes

T = TypeVar("T")
K = SilenceKind
_REPORTS = (WorkerReport, ProbeReport, ReapReport, UnwedgeReport)
_NOTHING_LEFT = (S.EXITED, S.CANCELLED, S.NOSTART, S.STOPPED, S.LOST, S.ABSENT)

IDLE = Program(pid=7, state="S", how="spy", command="train", dump="Thread 7 (idle)\n    wait (train.py:4)\n")
"""The only process of any task."""

CONNECT_TIMEOUT = 10.0
CALL_TIMEOUT = 5.0


@dataclass
class Network:
    """Where the addresses lead, and how well."""

    scheduler: Scheduler
    addresses: dict[WorkerId, Machine] = field(default_factory=dict)
    known_keys: dict[WorkerId, str] = field(default_factory=dict)  # the operator's known_hosts
    cut_off: set[WorkerId] = field(default_factory=set)
    offline_since: float | None = None  # the operator's own link
    refusing: set[WorkerId] = field(default_factory=set)  # the key of the operator
    unreliable: float = 0.0  # the share of calls that go wrong
    slow: set[WorkerId] = field(default_factory=set)
    boxes: Boxes | None = None  # of tasks that ask for things from inside

    def cut_off_for(self) -> float:
        return 0.0 if self.offline_since is None else self.scheduler.now - self.offline_since

    def reaches(self, worker: WorkerId, machine: Machine) -> bool:
        """Whether what is under way to this machine arrives now."""
        away = self.offline_since is not None or worker in self.cut_off
        return not away and machine.answers and self.addresses.get(worker) is machine


class SimRunner:
    """Stands where the task runner of one invocation does."""

    def __init__(
        self, network: Network, process: Process, truth: Truth, medium: Medium, conduct: Conduct
    ) -> None:
        self._network = network
        self._process = process
        self._truth = truth
        self._conduct = conduct
        self._medium = medium
        self._scheduler = network.scheduler

    def probe(
        self, target: Target, *, first_contact: bool = False, make: bool = True
    ) -> ProbeReport | Silence:
        worker = target.worker
        return self._call(worker, "probe", lambda machine: machine.probe(worker), first_contact=first_contact)

    def poll(
        self,
        target: Target,
        tokens: Sequence[Token],
        *,
        renew: bool = True,
        open_requests: Sequence[object] = (),
    ) -> WorkerReport | Silence:
        worker = target.worker
        if renew:
            self._conduct.renews(self._process.name, worker)

        def act(machine: Machine) -> WorkerReport:
            if renew:
                machine.renew(worker, tokens)
            return self._told(machine.poll(worker, tokens), open_requests)

        return self._call(worker, "poll", act)

    def answer(
        self,
        target: Target,
        answers: Sequence[tuple[Token, RequestId, bytes]],
        tokens: Sequence[Token],
        *,
        with_requests: bool = True,
        open_requests: Sequence[object] = (),
    ) -> WorkerReport | Silence:
        worker, boxes = target.worker, self._network.boxes
        assert boxes is not None, "nobody has asked for anything"

        def act(machine: Machine) -> WorkerReport:
            for token, request, text in answers:
                boxes.answer(token, request, text)
            report = machine.poll(worker, tokens)
            return self._told(report, open_requests) if with_requests else self._left(report)

        return self._call(worker, "answer", act)

    def _told(self, report: WorkerReport, open_requests: Sequence[object]) -> WorkerReport:
        return report if self._network.boxes is None else self._network.boxes.tell(report, open_requests)

    def _left(self, report: WorkerReport) -> WorkerReport:
        return report if self._network.boxes is None else self._network.boxes.left(report)

    def prepare(
        self, target: Target, requests: Sequence[LaunchRequest], *, boot_id: str, incarnation: str, go: bool
    ) -> WorkerReport | Silence:
        worker = target.worker
        tokens = [request.token for request in requests]
        durable = self._medium.durable()
        self._conduct.launches(self._process.name, tokens)
        for request in requests:
            if SET_UP in request.argv:
                self._truth.set_ups.setdefault(request.token, "")
        for token in tokens:
            self._truth.sent(self._process.name, token, durable)

        def act(machine: Machine) -> WorkerReport:
            if not machine.expects(worker, boot_id, incarnation):
                return machine.poll(worker, ())
            cut = self._network.unreliable > 0 and self._scheduler.draws(f"cuts {worker}").random() < 0.1
            for request in requests:
                machine.prepare(worker, request, cut=cut and request is requests[-1])
            for token in tokens if go and not cut else ():
                machine.go(worker, token)
            return self._left(machine.poll(worker, tokens))

        return self._call(worker, "prepare go" if go else "prepare", act)

    def go(
        self, target: Target, tokens: Sequence[Token], *, boot_id: str, incarnation: str
    ) -> WorkerReport | Silence:
        worker = target.worker
        self._conduct.launches(self._process.name, tokens)

        def act(machine: Machine) -> WorkerReport:
            if not machine.expects(worker, boot_id, incarnation):
                return machine.poll(worker, ())
            for token in tokens:
                machine.go(worker, token)
            return self._left(machine.poll(worker, tokens))

        return self._call(worker, "go", act)

    def stop(self, target: Target, stops: Sequence[tuple[Token, float]]) -> WorkerReport | Silence:
        worker = target.worker
        for token, grace in stops:
            self._conduct.stops(self._process.name, worker, token, grace)

        def act(machine: Machine) -> WorkerReport:
            for token, grace in stops:
                machine.stop(worker, token, grace)
            return self._left(machine.poll(worker, [token for token, _ in stops]))

        return self._call(worker, "stop", act)

    def unwedge(
        self,
        target: Target,
        *,
        keep: Sequence[Token],
        known: Sequence[Token] = (),
        clear: Sequence[ChipHolder | Token] = (),
        grace: float = 30.0,
    ) -> UnwedgeReport | Silence:
        worker = target.worker
        return self._call(worker, "unwedge", lambda machine: machine.unwedge(worker, keep, known, clear))

    def reap(self, target: Target, tokens: Sequence[Token]) -> ReapReport | Silence:
        worker = target.worker

        def act(machine: Machine) -> ReapReport:
            report = machine.poll(worker, tokens)
            self._truth.output_removed(tokens)
            return ReapReport(
                worker=worker,
                boot_id=report.boot_id,
                incarnation=report.incarnation,
                clock=report.clock,
                uptime=report.uptime,
                tokens=tuple(each.token for each in report.attempts if each.state in _NOTHING_LEFT),
            )

        return self._call(worker, "reap", act)

    @property
    def stacks(self) -> Self:
        return self

    def read(
        self, target: Target, tokens: Sequence[Token], *, consent: str = "", seconds: float = 30.0
    ) -> tuple[Programs, ...] | Silence:
        def act(machine: Machine) -> tuple[Programs, ...]:
            states = {each.token: each.state for each in machine.poll(target.worker, tokens).attempts}
            return tuple(
                Programs(token=each, state=states[each], count=1, programs=(IDLE,)) for each in tokens
            )

        return self._call(target.worker, "stacks", act)

    # One call

    def _call(
        self, worker: WorkerId, name: str, act: Callable[[Machine], T], *, first_contact: bool = False
    ) -> T | Silence:
        who = self._process.name
        self._conduct.calls(who, name, worker)
        answer = self._carried_out(worker, name, act, first_contact=first_contact)
        identity = (answer.boot_id, answer.incarnation) if isinstance(answer, _REPORTS) else None
        self._conduct.answers(who, name, worker, identity)
        if name == "poll" and isinstance(answer, WorkerReport):
            self._conduct.on_poll(who, answer)
        return answer

    def _carried_out(
        self, worker: WorkerId, name: str, act: Callable[[Machine], T], *, first_contact: bool
    ) -> T | Silence:
        strand = self._scheduler.current
        assert strand is not None
        rng, network = self._scheduler.draws(f"{name} {worker}"), self._network
        strand.pause(rng.choice((0.02, 0.1, 0.3)))
        machine = network.addresses.get(worker)
        trouble = self._at_the_door(worker, machine, first_contact=first_contact)
        if trouble is not None or machine is None:
            trouble = trouble or K.UNREACHABLE
            if trouble is K.UNREACHABLE:
                strand.pause(rng.choice((0.01, CONNECT_TIMEOUT)))
            return self._silence(worker, name, trouble, sent=False)
        call = _Call(self, worker, machine, act)
        call.begin(rng)
        return call.wait(name)

    def _at_the_door(
        self, worker: WorkerId, machine: Machine | None, *, first_contact: bool
    ) -> SilenceKind | None:
        network = self._network
        if machine is None or not network.reaches(worker, machine):
            return K.UNREACHABLE
        known = network.known_keys.get(worker)
        if known is None and not first_contact:
            return K.UNKNOWN_HOST
        if known is None:
            network.known_keys[worker] = machine.key
        elif known != machine.key:
            return K.HOST_KEY
        return K.AUTH if worker in network.refusing else None

    def _silence(self, worker: WorkerId, name: str, kind: SilenceKind, *, sent: bool) -> Silence:
        self._truth.story.tell(self._process.name, (name, worker, "-", kind.value))
        return Silence(worker=worker, kind=kind, step="connect", detail=kind.value, sent=sent)


class _Call(Generic[T]):
    """A call that has left. What happens to it on the way doesn't depend on whether its caller lives on."""

    def __init__(
        self, runner: SimRunner, worker: WorkerId, machine: Machine, act: Callable[[Machine], T]
    ) -> None:
        self.runner = runner
        self.worker = worker
        self.machine = machine
        self.act = act
        self.answer: T | None = None
        self.garbled = False
        self.undone = False
        self.arrived = False
        self.waiting = False
        self.back = 0.0
        strand = runner._scheduler.current
        assert strand is not None
        self.caller = strand

    def begin(self, rng: Random) -> None:
        """Draw its fate: when it arrives, how often, and what of the answer comes back."""
        network, scheduler = self.runner._network, self.runner._scheduler
        slow = self.worker in network.slow
        delay = rng.choice((3.0, 4.9, 8.0)) if slow else rng.choice((0.01, 0.05, 0.2))
        self.back = rng.choice((0.01, 0.05, 0.2))
        if rng.random() < network.unreliable:
            kind = rng.choice((0, 1, 1, 1, 2, 3, 4))
            if kind == 0:
                return  # lost on the way
            if kind == 1:
                delay = rng.choice((6.0, 20.0, 70.0, 200.0))  # after its caller gave up
            elif kind == 2:
                self.back = -1.0  # the answer is lost
            elif kind == 3:
                self.garbled = True  # the answer, or the request, is cut off
                self.undone = rng.random() < 0.5
            else:
                again = delay + rng.choice((0.1, 5.0, 60.0, 150.0))
                scheduler.after(again, lambda: self._arrive(anew=True))
        scheduler.after(delay, self._arrive)

    def _arrive(self, *, anew: bool = False) -> None:
        if not self.runner._network.reaches(self.worker, self.machine):
            return
        answer = self.act(self.machine) if not self.undone else None
        if not anew and self.back >= 0.0:
            self.answer = answer
            self.runner._scheduler.after(self.back, self._come_back)

    def _come_back(self) -> None:
        if self.runner._network.reaches(self.worker, self.machine) and self.waiting:
            self.arrived = True
            self.caller.wake()

    def wait(self, name: str) -> T | Silence:
        self.waiting = True
        self.caller.pause(CALL_TIMEOUT)
        self.waiting = False
        if not self.arrived:
            return self.runner._silence(self.worker, name, K.TIMEOUT, sent=True)
        if self.garbled or self.answer is None:
            return self.runner._silence(self.worker, name, K.PROTOCOL, sent=True)
        self.runner._truth.story.tell(self.runner._process.name, (name, self.worker, "-", _said(self.answer)))
        return self.answer


def _said(answer: object) -> str:
    if isinstance(answer, WorkerReport):
        return " ".join(report.state.value for report in answer.attempts) or answer.boot_id
    return "answered"
