"""Whoever makes slices, as it really is: what there is of them, what goes wrong with them, and the way to ask.

Its lists tell the truth of one moment, all of it; but an answer may be long under way, and a request may be heard
when nobody waits for it any more.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random

from iris_cli.capacity.provider import ProviderError
from iris_cli.core.ids import WorkerId
from iris_cli.core.messages.cloud import CloudSlice, CloudState, Refusal, Scope
from iris_cli.core.model.slice import ScaleGroup, SliceHost
from iris_cli.core.topology import lookup
from tests.simulation.fleet import Place
from tests.simulation.holdings import Facts
from tests.simulation.ledger import Ledger
from tests.simulation.machines import Machine
from tests.simulation.strands import Process, Scheduler, Strand
from tests.simulation.tasks import Behaviour
from tests.simulation.truth import Truth
from tests.simulation.wires import Network

CALL_TIMEOUT = 30.0
_CHIPS = 4


@dataclass
class Made:
    """A slice that is there, in whatever state. `late`: whoever asked for it had given up long before it was heard."""

    name: str
    group: ScaleGroup
    scope: Scope
    incarnation: str
    late: bool
    state: CloudState = CloudState.CREATING
    detail: str = ""
    quota: bool = False
    hosts: tuple[SliceHost, ...] = ()
    machines: list[Machine] = field(default_factory=list)

    @property
    def vms(self) -> int:
        known = lookup(self.group.template.type)
        assert known is not None
        return known.vms

    @property
    def is_well(self) -> bool:
        """Whether it is all there, and was ever since it was ready."""
        whole = len(self.hosts) == self.vms and all(machine.exists for machine in self.machines)
        return self.state is CloudState.READY and whole

    def listed(self) -> CloudSlice:
        return CloudSlice(
            name=self.name,
            state=self.state,
            group=self.group.name,
            hosts=self.hosts,
            incarnation=self.incarnation,
            detail=self.detail,
            quota=self.quota,
        )


class Cloud:
    """All slices there are. What is `down`, `sold_out` or at its `quota` is so in one place."""

    def __init__(
        self, scheduler: Scheduler, network: Network, truth: Truth, behaviour: Behaviour, ledger: Ledger
    ) -> None:
        self.slices: dict[str, Made] = {}
        self.network = network
        self.ledger = ledger
        self.unreliable = 0.0  # the share of calls that go wrong
        self.troubled = 0.0  # the share of slices that do
        self.slow = False
        self.down: set[Scope] = set()
        self.sold_out: set[Scope] = set()
        self.quota: dict[Scope, int] = {}
        self._scheduler = scheduler
        self._truth = truth
        self.behaviour = behaviour
        self._made = 0

    @property
    def rng(self) -> Random:
        return self._scheduler.draws("cloud")

    def places(self) -> list[Place]:
        """The VMs that have addresses, beside those of the configuration."""
        found = [(name, made) for name, made in self.slices.items() if made.hosts]
        return [
            Place(WorkerId(f"{name}-{index}"), machine.facts, name)
            for name, made in found
            for index, machine in enumerate(made.machines)
        ]

    def heal(self) -> None:
        """What it is asked from now on it does. What sticks goes on to stick."""
        self.unreliable = self.troubled = 0.0
        self.slow = False
        for troubled in (self.down, self.sold_out, self.quota):
            troubled.clear()

    # What it is asked

    def make(self, who: str, name: str, group: ScaleGroup, scope: Scope, *, late: bool) -> None:
        if name in self.slices:
            return
        if scope in self.sold_out:
            raise ProviderError(Refusal.STOCKOUT, "no more machines here")
        if sum(each.scope == scope for each in self.slices.values()) >= self.quota.get(scope, 100):
            raise ProviderError(Refusal.QUOTA, "quota is exhausted")
        self._made += 1
        made = Made(name, group, scope, f"machine {self._made}", late)
        self.slices[name] = made
        self._tell(name, "is being made", "late" if late else "")
        self.ledger.made(who, made, self.slices.values())
        rng = self.rng
        course = self._gets_ready
        if rng.random() < self.troubled:
            course = rng.choice((self._fails, self._sticks, self._is_half_made, self._boots_in_part))
        self._scheduler.after(rng.choice((5.0, 20.0, 60.0)) * rng.uniform(1.0, 2.0), partial(course, made))

    def remove(self, name: str) -> None:
        made = self.slices.get(name)
        if made is None or made.state is CloudState.DELETING:
            return
        self.ledger.removed(made)
        made.state = CloudState.DELETING
        self._tell(name, "is being deleted")
        takes = self.rng.choice((1.0, 10.0, 60.0))
        self._scheduler.after(takes * self.rng.random(), partial(self._end_machines, made))
        self._scheduler.after(takes, partial(self.vanish, made))

    # How it goes on

    def _gets_ready(self, made: Made) -> None:
        if self._is_coming(made):
            for index in range(made.vms):
                machine = self._machine(made, index)
                machine.up_since = self._scheduler.now + self.rng.choice((0.0, 5.0, 40.0))
                made.machines.append(machine)
                self.network.addresses[WorkerId(f"{made.name}-{index}")] = machine
            self._ready_with(made, made.vms)

    def _ready_with(self, made: Made, vms: int) -> None:
        made.hosts = tuple(SliceHost(host=f"{made.name}-w{index}") for index in range(vms))
        made.state = CloudState.READY
        self._tell(made.name, "is ready with", vms)

    def _fails(self, made: Made) -> None:
        if self._is_coming(made):
            made.state, made.quota = CloudState.FAILED, self.rng.random() < 0.5
            made.detail = "no quota for it" if made.quota else "internal error"
            self._tell(made.name, made.detail)

    def _sticks(self, made: Made) -> None:
        self._tell(made.name, "sticks")

    def _is_half_made(self, made: Made) -> None:
        """Its provider says that it is there, and lists fewer VMs than it should have; those that lack may follow."""
        if self._is_coming(made):
            self._gets_ready(made)
            self._ready_with(made, made.vms - 1)
            if made.vms == 1:
                made.state = CloudState.FAILED
            elif self.rng.random() < 0.5:
                self._scheduler.after(self.rng.choice((20.0, 100.0)), partial(self._is_complete, made))

    def _is_complete(self, made: Made) -> None:
        if self.slices.get(made.name) is made and made.state is CloudState.READY:
            self._ready_with(made, made.vms)

    def _boots_in_part(self, made: Made) -> None:
        """One of its VMs never comes up."""
        if self._is_coming(made):
            self._gets_ready(made)
            self._tell(made.name, "boots in part")
            self.rng.choice(made.machines).exists = False

    def _is_coming(self, made: Made) -> bool:
        return self.slices.get(made.name) is made and made.state is CloudState.CREATING

    def _machine(self, made: Made, index: int) -> Machine:
        worker = WorkerId(f"{made.name}-{index}")
        metadata = (
            ("accelerator-type", made.group.template.type),
            ("agent-worker-number", str(index)),
            ("tpu-name", made.name),
            ("preemptible", "true" if made.group.template.preemptible else "false"),
        )
        facts = Facts(cpus=240, metadata=metadata, chips=_CHIPS)
        name = f"{worker}.{made.incarnation.removeprefix('machine ')}"
        if made.group.setup:
            self._truth.raw.add(name)
        return Machine(name, facts, f"key of {name}", self._scheduler, self._truth, self.behaviour)

    # What happens to it

    def ready(self) -> list[Made]:
        return [each for each in self.slices.values() if each.state is CloudState.READY]

    def preempt(self, made: Made) -> None:
        """Its machines are gone; that it says so may take a while."""
        self._end_machines(made)
        self._scheduler.after(
            self.rng.choice((0.0, 5.0, 90.0)), partial(self._turns, made, CloudState.STOPPED)
        )

    def fall_ill(self, made: Made) -> None:
        """Its provider gives it up. What runs there may go on for a while."""
        self.rng.choice(made.machines).delete()
        self._turns(made, CloudState.FAILED)

    def _turns(self, made: Made, state: CloudState) -> None:
        if made.state is CloudState.READY:
            made.state, made.detail = state, "preempted" if state is CloudState.STOPPED else "unhealthy"
            self._tell(made.name, "is", made.detail)

    def vanish(self, made: Made) -> None:
        """Nothing is left of it."""
        if self.slices.get(made.name) is not made:
            return
        self._end_machines(made)
        del self.slices[made.name]
        for index in range(len(made.machines)):
            self.network.addresses.pop(WorkerId(f"{made.name}-{index}"), None)
        self._tell(made.name, "is gone")

    def _end_machines(self, made: Made) -> None:
        for machine in made.machines:
            if machine.exists:
                machine.delete()

    def _tell(self, *words: object) -> None:
        self._truth.story.tell("cloud", words)


class SimProvider:
    """One place of the cloud, as one invocation sees it: it waits in every call, and may be killed there."""

    def __init__(self, cloud: Cloud, scheduler: Scheduler, process: Process, scope: Scope) -> None:
        self.cloud = cloud
        self._scheduler = scheduler
        self._process = process
        self._scope = scope

    def list(self) -> tuple[CloudSlice, ...]:
        self._pause()
        if self._is_silent() or self.cloud.rng.random() < self.cloud.unreliable / 2:
            raise self._no_answer("list")
        found = [each.listed() for each in self.cloud.slices.values() if each.scope == self._scope]
        self._pause()
        self._tell("list", ", ".join(f"{each.name} {each.state}" for each in found) or "nothing")
        self.cloud.ledger.listed(self._process.name)
        return tuple(found)

    def create(self, name: str, group: ScaleGroup) -> None:
        who = self._process.name
        self.cloud.ledger.asks_for(who, name)
        self._call("create", name, partial(self.cloud.make, who, name, group, self._scope))

    def delete(self, name: str) -> None:
        self.cloud.ledger.asks_to_delete(self._process.name, name)
        self._call("delete", name, lambda *, late: self.cloud.remove(name))

    def _call(self, what: str, name: str, act: Callable[..., None]) -> None:
        """A request is heard, or not, or later; and answered, or not."""
        self._pause()
        rng = self.cloud.rng
        if self._is_silent():
            raise self._no_answer(what, name)
        if rng.random() < self.cloud.unreliable:
            kind = rng.choice(("lost", "late", "late", "unanswered", "unanswered"))
            if kind == "late":
                self._scheduler.after(rng.choice((40.0, 100.0, 300.0)), partial(_late, act))
            elif kind == "unanswered":
                with suppress(ProviderError):
                    act(late=False)
            raise self._no_answer(what, name)
        try:
            act(late=False)
        except ProviderError as error:
            self._tell(what, name, error.refusal.value)
            raise
        self._tell(what, name, "taken on")
        self._pause()

    def _is_silent(self) -> bool:
        return self._scope in self.cloud.down or self.cloud.network.offline_since is not None

    def _no_answer(self, *words: str) -> ProviderError:
        """After the time that one waits for it."""
        self._tell(*words, "no answer")
        self._strand().pause(self.cloud.rng.choice((0.1, CALL_TIMEOUT)))
        return ProviderError(Refusal.UNANSWERED, "no answer")

    def _pause(self) -> None:
        slow = self.cloud.slow
        self._strand().pause(self.cloud.rng.choice((5.0, 25.0, 60.0) if slow else (0.05, 0.3, 1.5)))

    def _strand(self) -> Strand:
        strand = self._scheduler.current
        assert strand is not None
        return strand

    def _tell(self, *words: str) -> None:
        self.cloud.ledger.story.tell(self._process.name, (f"[{self._scope}]", *words))


def _late(act: Callable[..., None]) -> None:
    with suppress(ProviderError):
        act(late=True)
