"""What goes wrong in a run, when, and for how long."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from functools import partial

from iris_cli.core.ids import WorkerId
from iris_cli.core.messages.observations import RemoteState
from tests.simulation.fleet import Place
from tests.simulation.holdings import FOREIGN, Entry
from tests.simulation.machines import Machine
from tests.simulation.site import Site
from tests.simulation.tasks import Behaviour, Fate

FAULTS = (
    "partition",
    "partition",
    "partition",
    "partition_of_a_group",
    "partition_of_a_group",
    "offline",
    "offline",
    "unreliable",
    "unreliable",
    "slow",
    "reboot",
    "reboot",
    "recreate",
    "swap_addresses",
    "swap_addresses",
    "unreliable",
    "wipe",
    "kill_a_wrapper",
    "kill_a_wrapper",
    "worker_disk_full",
    "worker_disk_full",
    "chips_busy",
    "chips_busy",
    "starts_hang",
    "slow_starts",
    "unkillable",
    "unkillable",
    "refuse_key",
    "sleep",
    "wrong_clock",
    "state_disk",
    "power_cut",
    "kill_an_invocation",
    "foreign_attempt",
)
"""The methods below; what stands here twice happens twice as often."""

_DURATIONS = (15.0, 70.0, 200.0, 900.0)


class Weather:
    """Draws the faults of a run. Each begins at some moment, and most of them end by themselves."""

    faults: Sequence[str] = FAULTS

    def __init__(self, site: Site, places: list[Place], behaviour: Behaviour) -> None:
        self.site = site
        self.places = places
        self.network = site.network
        self._behaviour = behaviour
        self._scheduler = site.scheduler
        self._rng = site.scheduler.draws("weather")
        self._recreated = 0
        self.drawn = 0  # faults
        self._over = False

    def begin(self, length: float, only: Sequence[str] = ()) -> None:
        """Draw as many faults as it may be; with `only`, many of these alone."""
        faults = only or self.faults
        rng = self._rng
        self.drawn = 12 if only else rng.choice((0, 4, 8, 12, 16))
        for number in range(self.drawn):
            fault, moment = getattr(self, rng.choice(faults)), length * rng.random()
            self._scheduler.after(moment, self._occurs(partial(self._strike_by, number, fault)))

    def _strike_by(self, number: int, fault: Callable[[], object]) -> None:
        """Let a fault occur; what it draws changes nothing of the other ones."""
        self._rng = self._scheduler.draws(f"fault {number}")
        fault()

    def _occurs(self, fault: Callable[[], object]) -> Callable[[], None]:
        def act() -> None:
            if not self._over:
                fault()

        return act

    def clear_up(self) -> None:
        """All faults are off, and what runs will end well."""
        self._over = True
        network = self.network
        network.offline_since, network.unreliable = None, 0.0
        for troubled in (network.cut_off, network.refusing, network.slow):
            troubled.clear()
        self.site.medium.trouble = 0
        self._behaviour.calm = True
        self._put_addresses_back()
        for machine in self._machines():
            machine.tidy_up()
            for home in machine.homes.values():
                home.entries.pop(FOREIGN, None)
            machine.up_since = min(machine.up_since, self._scheduler.now)
            for token in machine.processes:
                machine.meets(token, Fate(self._rng.uniform(1.0, 60.0)))

    # Choosing

    def standing(self) -> list[Place]:
        """All places that there are now."""
        return self.places

    def _place(self) -> Place:
        return self._one_of(self.standing())

    def _one_of(self, places: list[Place]) -> Place:
        """Any, but rather one where something starts, or else runs."""
        there = {place.worker: self.network.addresses[place.worker] for place in places}
        busy = [place for place in places if there[place.worker].processes]
        starting = [place for place in places if there[place.worker].is_starting]
        chance = self._rng.random()
        preferred = starting if starting and chance < 0.3 else busy if busy and chance < 0.7 else places
        return self._rng.choice(preferred)

    def _machine(self) -> Machine:
        return self.network.addresses[self._place().worker]

    def _machines(self) -> list[Machine]:
        return list(self.network.addresses.values())

    def _tell(self, *words: object) -> None:
        self.site.story.tell("*", words)

    def _for_a_while(self, end: Callable[[], object]) -> None:
        self._scheduler.after(self._rng.choice(_DURATIONS) * self._rng.random(), self._occurs(end))

    # The network

    def partition(self) -> None:
        worker = self._place().worker
        self._cut_off({worker})

    def partition_of_a_group(self) -> None:
        group = self._place().group
        self._cut_off({place.worker for place in self.standing() if place.group == group})

    def _cut_off(self, workers: set[WorkerId]) -> None:
        self._tell("cut off:", *sorted(workers))
        self.network.cut_off |= workers
        self._for_a_while(lambda: self._rejoin(workers))

    def _rejoin(self, workers: set[WorkerId]) -> None:
        self._tell("back:", *sorted(workers))
        self.network.cut_off -= workers

    def offline(self) -> None:
        self._tell("the operator is offline")
        self.network.offline_since = self._scheduler.now
        self._for_a_while(lambda: setattr(self.network, "offline_since", None))

    def unreliable(self) -> None:
        self.network.unreliable = self._rng.choice((0.1, 0.3, 0.6))
        self._tell("calls go wrong:", self.network.unreliable)
        self._for_a_while(lambda: setattr(self.network, "unreliable", 0.0))

    def slow(self) -> None:
        worker = self._place().worker
        self._tell("slow:", worker)
        self.network.slow.add(worker)
        self._for_a_while(lambda: self.network.slow.discard(worker))

    def refuse_key(self) -> None:
        worker = self._place().worker
        self._tell("refuses our key:", worker)
        self.network.refusing.add(worker)
        self._for_a_while(lambda: self.network.refusing.discard(worker))

    def swap_addresses(self) -> None:
        first = self._one_of(self.places).worker
        second = self._rng.choice([place.worker for place in self.places if place.worker != first])
        addresses = self.network.addresses
        self._tell("addresses change places:", first, second)
        addresses[first], addresses[second] = addresses[second], addresses[first]
        self._for_a_while(self._put_addresses_back)

    def _put_addresses_back(self) -> None:
        """Every worker id leads to the machine that was made for it."""
        addresses = self.network.addresses
        for machine in list(addresses.values()):
            addresses[WorkerId(machine.name.partition(".")[0])] = machine

    # Machines

    def reboot(self) -> None:
        machine = self._machine()
        takes = self._rng.choice((0.0, 5.0, 60.0))
        self._tell("reboot:", machine.name, takes)
        self._shock(machine)
        machine.reboot(takes)

    def recreate(self) -> None:
        """The VM is preempted, and another one gets its name and its address."""
        worker = self._one_of(self.places).worker
        old = self.network.addresses[worker]
        if not old.name.startswith(worker):
            return  # its address is another's now
        self._recreated += 1
        key = old.key if self._rng.random() < 0.4 else f"{old.key}'"
        new = Machine(
            f"{worker}.{self._recreated}", old.facts, key, self._scheduler, self.site.truth, self._behaviour
        )
        new.up_since = self._scheduler.now + self._rng.choice((1.0, 60.0, 300.0))
        self._tell("re-created:", worker, "as", new.name, "with key", key)
        self._shock(old)
        old.delete()
        self.network.addresses[worker] = new

    def _shock(self, machine: Machine) -> None:
        """When a host goes, the peers of its gangs fail soon."""
        for token in list(machine.processes):
            life = self.site.truth.lives.get(token)
            if life is None or not life.gang:
                continue
            for token_of_peer, peer in self.site.truth.lives.items():
                other = peer.where
                if other in (None, machine) or peer.id.task.job != life.id.task.job:
                    continue
                if self._rng.random() < 0.7:
                    other.meets(token_of_peer, Fate(self._rng.choice((0.0, 5.0, 50.0)), code=1))

    def wipe(self) -> None:
        place = self._place()
        self._tell("its iris directory is removed:", place.worker)
        self.network.addresses[place.worker].wipe(place.worker)

    def kill_a_wrapper(self) -> None:
        machine = self._machine()
        if machine.processes:
            token = self._rng.choice(list(machine.processes))
            all_of_it = self._rng.random() < 0.4
            self._tell("killed:", machine.name, "all of it" if all_of_it else "a wrapper")
            machine.kill_wrapper(token, all_of_it=all_of_it)

    def worker_disk_full(self) -> None:
        self._broken("disk_full")

    def chips_busy(self) -> None:
        self._broken("chips_busy")

    def starts_hang(self) -> None:
        self._broken("starts_hang")

    def slow_starts(self) -> None:
        self._broken("starts_take_long")

    def unkillable(self) -> None:
        self._broken("unkillable")

    def _broken(self, what: str) -> None:
        machine = self._machine()
        self._tell(f"{what}:", machine.name)
        setattr(machine, what, True)
        self._for_a_while(lambda: setattr(machine, what, False))

    def foreign_attempt(self) -> None:
        """As after a restored backup: the worker knows of an attempt that the log never saw."""
        worker = self._place().worker
        machine = self.network.addresses[worker]
        self._tell("a foreign attempt:", worker)
        machine.home(worker).entries[FOREIGN] = Entry(
            RemoteState.EXITED, boot_id=machine.boot_id, exit_code=0
        )
        self._for_a_while(lambda: machine.home(worker).entries.pop(FOREIGN, None))

    # The operator's machine

    def sleep(self) -> None:
        seconds = self._rng.choice((30.0, 100.0, 700.0))
        self._tell("the laptop sleeps for", seconds)
        self._scheduler.suspend(seconds)

    def wrong_clock(self) -> None:
        ahead = self._rng.choice((-4000.0, -100.0, -5.0, 30.0, 300.0, 4000.0))
        self._tell("the operator's clock is ahead by", ahead)
        self.site.clock.set_ahead(ahead)

    def state_disk(self) -> None:
        self.site.medium.trouble = self._rng.choice((errno.ENOSPC, errno.EIO))
        self._tell("the state disk fails:", errno.errorcode[self.site.medium.trouble])
        self._for_a_while(lambda: setattr(self.site.medium, "trouble", 0))

    def power_cut(self) -> None:
        self.site.kill_all()
        self._tell("power cut; bytes lost:", self.site.medium.power_cut())
        self.site.nothing_is_lost()

    def kill_an_invocation(self) -> None:
        running = [process for process in self.site.processes if process.running]
        if running:
            process = self._rng.choice(running)
            self._tell("kill -9", process.name)
            process.kill()
