"""One seed is one story of an autoscaler: jobs come and go, the provider loses calls, slices are preempted or stick,
invocations are killed in any call and run into each other. Everything is drawn from the seed.
"""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, cast

from iris_cli.capacity.provider import ProviderError
from iris_cli.config.schema import ClusterConfig
from iris_cli.core.cloud import CloudSlice, CloudState, Refusal, Scope
from iris_cli.core.cluster import Cluster
from iris_cli.core.connection import Connection
from iris_cli.core.ids import JobId
from iris_cli.core.invariants import breaches
from iris_cli.core.job import JobRequest
from iris_cli.core.lifecycle import attempts, jobs
from iris_cli.core.observations import AttemptReport, ProbeReport, RemoteState, Silence, SilenceKind
from iris_cli.core.scale_group import Provider, ScaleGroup, SliceTemplate
from iris_cli.core.slice import SliceHost
from iris_cli.errors import UnschedulableError
from iris_cli.journal.state_dir import StateDir
from iris_cli.ops import autoscale, cycle, launch, observe
from iris_cli.ops.session import Session
from iris_cli.remote.task_runner import TaskRunner
from iris_cli.remote.transport import Target
from tests.ops.world import Clock
from tests.support.scale import scale_group

VMS = 2


class Killed(BaseException):
    """As an invocation is."""


class Inline:
    """A fan-out that does one thing after the other."""

    def __init__(self) -> None:
        self._done: deque[Any] = deque()

    def submit(self, act: Callable[[], Any]) -> None:
        self._done.append(act())

    def take(self, patience: float | None = None) -> list[Any]:
        found = list(self._done)
        self._done.clear()
        return found

    def close(self) -> None:
        self._done.clear()


@dataclass
class There:
    """A slice as it really is. `wait`: how many looks until what is under way shows."""

    each: CloudSlice
    scope: Scope
    wait: int = 0


class Sky:
    """The provider's own books. `late` are requests that were heard, and take effect only after a while."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.slices: dict[str, There] = {}
        self.late: list[tuple[int, Callable[[], None]]] = []
        self.made: dict[str, int] = {}  # by name, but for what was heard too late to be anybody's fault
        self.machines = 0
        self.healed = False
        self.nested: Callable[[], None] | None = None  # somebody else's pass in the middle of ours

    def rarely(self, one_in: int) -> bool:
        return not self.healed and self.random.randrange(one_in) == 0

    def trouble(self, act: Callable[[], None]) -> None:
        """A call comes in: it is refused, lost before or after it was heard, or its caller is killed."""
        if self.rarely(12):
            raise ProviderError(self.random.choice([Refusal.QUOTA, Refusal.STOCKOUT]), "nothing left")
        if self.rarely(10):
            raise Killed
        if self.rarely(10):
            raise ProviderError(Refusal.UNANSWERED, "lost")
        if self.rarely(8):
            self.late.append((self.random.randrange(1, 6), act))
            raise ProviderError(Refusal.UNANSWERED, "it will be heard")
        act()
        if self.rarely(10):
            raise ProviderError(Refusal.UNANSWERED, "heard, and no answer")
        if self.rarely(10):
            raise Killed

    def passes(self) -> None:
        """Time goes by: what was late is heard, what is slow gets ready, some slices die or stick."""
        due = [act for wait, act in self.late if wait <= 1 or self.healed]
        self.late = [(wait - 1, act) for wait, act in self.late if wait > 1 and not self.healed]
        before = dict(self.made)
        for act in due:
            act()
        self.made = before
        for name, there in list(self.slices.items()):
            there.wait -= 1
            if there.each.state is CloudState.DELETING and (there.wait <= 0 or self.healed):
                del self.slices[name]
            elif there.each.state is CloudState.CREATING and (there.wait <= 0 or self.healed):
                bad = self.rarely(8)
                self.turn(name, CloudState.FAILED if bad else CloudState.READY)
            elif there.each.state is CloudState.READY and self.rarely(20):
                self.turn(name, self.random.choice([CloudState.STOPPED, CloudState.FAILED]))

    def turn(self, name: str, state: CloudState) -> None:
        there = self.slices[name]
        hosts = tuple(SliceHost(host=f"{name}-w{index}") for index in range(VMS))
        there.each = replace(
            there.each, state=state, hosts=hosts if state is CloudState.READY else there.each.hosts
        )

    def make(self, name: str, group: str, scope: Scope) -> None:
        if name in self.slices:
            return
        self.made[name] = self.made.get(name, 0) + 1
        self.machines += 1
        machine = f"machine {self.machines}"
        made = CloudSlice(name=name, group=group, state=CloudState.CREATING, incarnation=machine)
        self.slices[name] = There(made, scope, wait=self.random.choice([0, 1, 3, 100]))

    def remove(self, name: str) -> None:
        if name in self.slices and self.slices[name].each.state is not CloudState.DELETING:
            self.turn(name, CloudState.DELETING)
            self.slices[name].wait = self.random.randrange(3)

    def names(self) -> list[str]:
        return sorted(self.slices)


class SkyProvider:
    """One place of the sky."""

    def __init__(self, sky: Sky, scope: Scope) -> None:
        self._sky = sky
        self._scope = scope

    def list(self) -> tuple[CloudSlice, ...]:
        if self._sky.rarely(15):
            raise ProviderError(Refusal.UNANSWERED, "no list")
        found = tuple(there.each for there in self._sky.slices.values() if there.scope == self._scope)
        nested, self._sky.nested = self._sky.nested, None
        if nested is not None:
            nested()
        return found

    def create(self, name: str, group: ScaleGroup) -> None:
        self._sky.trouble(lambda: self._sky.make(name, group.name, self._scope))

    def delete(self, name: str) -> None:
        self._sky.trouble(lambda: self._sky.remove(name))


class Hosts:
    """VMs answer probes while their slice is there, most of the time."""

    def __init__(self, sky: Sky, clock: Clock) -> None:
        self._sky = sky
        self._clock = clock

    def probe(self, target: Target, *, first_contact: bool = False) -> ProbeReport | Silence:
        there = self._sky.slices.get(target.worker.rpartition("-")[0])
        if there is None or there.each.state is not CloudState.READY or self._sky.rarely(10):
            return Silence(
                worker=target.worker, kind=SilenceKind.UNREACHABLE, step="connect", detail="no route"
            )
        machine = f"{target.worker} of {there.each.incarnation}"
        return ProbeReport(
            worker=target.worker,
            boot_id=machine,
            incarnation=machine,
            cpus=240,
            memory=400 << 30,
            disk_free=100 << 30,
            clock=self._clock.now(),
        )

    def stop(self, target: Target, stops: object) -> Silence:
        """What is to be stopped ends in `Story`, or with its machine."""
        return Silence(worker=target.worker, kind=SilenceKind.UNREACHABLE, step="connect", detail="no route")

    def poll(self, target: Target, *tokens: object, **options: object) -> Silence:
        return self.stop(target, (tokens, options))


class Story:
    """One seed, from an empty cluster to the day when nothing is left of it."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.random = Random(seed)
        self.directory = directory
        self.clock = Clock()
        self.sky = Sky(self.random)
        self.launched = 0
        zones = ("us-west4-a", "us-central2-b", "us-west4-a")
        self.groups = tuple(
            replace(
                scale_group(f"g{number}", "v4-16", priority=number % 2, max_slices=2, min_slices=number // 2),
                template=SliceTemplate(provider=Provider.LOCAL, type="v4-16", zone=zone),
                connection=Connection(host=""),
            )
            for number, zone in enumerate(zones)
        )
        self.configured = self.groups

    def session(self) -> Session:
        return Session(
            state=StateDir(self.directory, now=self.clock.now, actor="me@laptop"),
            config=ClusterConfig(path=self.directory / "cluster.yaml", name="lab", scale_groups=self.groups),
            make_runner=lambda _: cast("TaskRunner", Hosts(self.sky, self.clock)),
            clock=self.clock,
            make_fan_out=lambda _: Inline(),
            make_provider=lambda scope, _: SkyProvider(self.sky, scope),
        )

    def tell(self, steps: int) -> None:
        """So many steps with trouble, then a sky without clouds, then the end of all jobs."""
        for _ in range(steps):
            self.random.choice(
                [
                    *(self.launch, self.work, self.work, self.end_some, self.autoscale),
                    *(self.both, self.both, self.reconfigure),
                ]
            )()
            self.autoscale()
            self.nap(self.random.choice([1.0, 20.0, 60.0, 400.0]))
        self.sky.healed, self.groups = True, self.configured
        self.settle()
        assert self.sky.names() == sorted(self.cluster().slices)
        self.launch_none_and_end_all()
        self.settle()
        least = sorted(name for name, each in self.cluster().slices.items() if each.group == "g2")
        assert self.sky.names() == least, "money is wasted"
        assert len(least) == 1
        assert max(self.sky.made.values(), default=1) == 1, "a slice was made twice"

    def settle(self) -> None:
        """Passes until nothing changes any more, over all back-offs and idle times."""
        for _ in range(12):
            self.autoscale()
            self.work()
            self.nap(1000.0)
            self.autoscale()

    def nap(self, seconds: float) -> None:
        self.clock.time += seconds
        self.sky.passes()

    def autoscale(self) -> None:
        before = self.counts()
        with contextlib.suppress(Killed):
            autoscale.run(self.session())
        self.check()
        for group in self.groups:
            assert self.counts()[group.name] <= max(group.max_slices, before[group.name])

    def both(self) -> None:
        """Two invocations at once: one runs between the list and the decision of the other."""

        def other() -> None:
            with contextlib.suppress(Killed):
                autoscale.run(self.session())

        self.sky.nested = self.random.choice([other, self.work, self.end_some, self.launch])
        self.autoscale()
        self.sky.nested = None

    def reconfigure(self) -> None:
        """The operator allows more slices or fewer, moves a group to another zone, or takes it away for a while."""
        changed = []
        for group in self.configured:
            zone = self.random.choice([group.template.zone] * 3 + ["europe-west4-b"])
            most = self.random.choice([0, 1, 2, 2, 3])
            template = replace(group.template, zone=zone)
            changed.append(
                replace(group, template=template, max_slices=most, min_slices=min(most, group.min_slices))
            )
        self.groups = tuple(group for group in changed if self.random.randrange(4))

    def counts(self) -> Counter[str]:
        """The slices of each group that we asked for."""
        return Counter(each.group for each in self.cluster().slices.values() if each.requested_at)

    def launch(self) -> None:
        self.launched += 1
        slices = self.random.choice([1, 1, 2])
        asked = {"tpu": "v4-16", "slices": slices, "name": f"j{self.launched}"}
        with contextlib.suppress(UnschedulableError):  # where no group is left that could
            launch.launch(self.session(), JobRequest(command=("true",), **asked))  # type: ignore[arg-type]  # fields of a request

    def work(self) -> None:
        """A cycle's decisions; what it places runs at once."""
        session = self.session()
        with session.transaction() as draft:
            cycle.assign(session, draft)
            for attempt_id, attempt in list(draft.cluster.live_attempts()):
                report = AttemptReport(token=attempt.token, state=RemoteState.RUNNING)
                attempts.reported(draft, attempt_id, report, session.limits)
        self.check()

    def end_some(self) -> None:
        self._end(lambda: self.random.random() < 0.5)

    def launch_none_and_end_all(self) -> None:
        session = self.session()
        with session.transaction() as draft:
            for job in draft.cluster.open_jobs():
                jobs.cancel(draft, job.id, "the day is over")
        self._end(lambda: True)

    def _end(self, chosen: Callable[[], bool]) -> None:
        session = self.session()
        with session.transaction() as draft:
            ends = {job.id: chosen() for job in draft.cluster.open_jobs()}
            touched: dict[JobId, None] = {}
            for attempt_id, attempt in list(draft.cluster.live_attempts()):
                if ends.get(attempt_id.task.job):
                    report = AttemptReport(token=attempt.token, state=RemoteState.EXITED, exit_code=0)
                    attempts.reported(draft, attempt_id, report, session.limits)
                    touched[attempt_id.task.job] = None
            observe.settle(session, draft, touched)
        self.check()

    def cluster(self) -> Cluster:
        return self.session().view()

    def check(self) -> None:
        """What must hold at every moment."""
        cluster = self.cluster()
        assert breaches(cluster) == []
        for task in cluster.tasks.values():
            for attempt in task.attempts:
                home = cluster.slices.get(attempt.worker.rpartition("-")[0])
                idle = home is None or home.reason.startswith("idle")
                assert not (attempt.live and idle), f"{task.id} runs on a slice that was given back"
        for name, each in cluster.slices.items():
            for worker in each.workers:
                claims = cluster.workers[worker].claims if worker in cluster.workers else {}
                assert not claims or each.joined_at is not None, f"{name} runs something before it has joined"
