"""One run: a storm of the seed's making, and the calm after it, in which everything must come to its end."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import count
from pathlib import Path
from unittest.mock import patch

from iris_cli.core.model.job import Job
from iris_cli.journal.log.record import decode_line
from iris_cli.ops.secret_values import MissingSecretError
from tests.simulation.boxes import Boxes
from tests.simulation.cloud_weather import CloudWeather
from tests.simulation.disk import hold_lock
from tests.simulation.fleet import Place, config_of, draw_fleet
from tests.simulation.ledger import Ledger
from tests.simulation.machines import Machine
from tests.simulation.program import Program, schedule
from tests.simulation.scaling import ScalingProgram, afternoon, evening, few_at_home, open_cloud, with_groups
from tests.simulation.second_tries import RetryingProgram, SecondTries, Voices, soon_quiet
from tests.simulation.site import Site
from tests.simulation.story import Story
from tests.simulation.strands import Scheduler, draws_of
from tests.simulation.tasks import Behaviour
from tests.simulation.truth import Truth
from tests.simulation.weather import Weather
from tests.simulation.wires import Network

START = 1_800_000_000.0
_CALM_CYCLES = 30  # jobs may wait for each other in a row, and arrays run few tasks at a time
_MOST_STEPS = 100_000
_LINES = 4096  # of a log that every invocation reads anew: the same line always says the same


@dataclass(frozen=True, slots=True)
class Run:
    """What a seed came to."""

    seed: int
    story: Story
    steps: int
    truth: Truth
    boxes: Boxes | None = None
    ledger: Ledger | None = None
    tries: SecondTries | None = None

    @property
    def breaches(self) -> list[str]:
        return self.story.breaches

    def report(self) -> str:
        return "\n".join(
            (f"seed {self.seed}", *self.story.lines(), *(f"BREACH: {each}" for each in self.breaches))
        )


def run(
    seed: int,
    faults: Sequence[str] = (),
    *,
    asking: bool = False,
    scaling: bool = False,
    retrying: bool = False,
) -> Run:
    """The same seed is always the same run. `faults` are names of `Weather`'s: then only these occur, and often.

    `asking`: its tasks ask for child jobs and endpoints from inside. `scaling`: slices are made on demand.
    `retrying`: the operator retries jobs and launches ended ones again, and tasks write nothing for a while.
    """
    scheduler = Scheduler(draws_of(seed), START)
    directory = Path(tempfile.mkdtemp(prefix=f"iris-sim-{seed}-", dir=_memory()))
    try:
        with (
            patch("iris_cli.journal.log.writer.hold_lock", partial(hold_lock, scheduler)),
            patch("iris_cli.journal.log.scan.decode_line", lru_cache(_LINES)(decode_line)),
            patch("iris_cli.ops.secret_values._read_value", _secret_value(scheduler)),
            patch("iris_cli.randomness.os.urandom", _unlike_all_before()),
        ):
            if scaling:
                return _run_scaling(seed, scheduler, directory, faults)
            return _run(seed, scheduler, directory, faults, asking=asking, retrying=retrying)
    finally:
        shutil.rmtree(directory)
        gc.collect()  # sessions are in reference cycles, and each holds the files of its snapshot open


def _secret_value(scheduler: Scheduler) -> Callable[[Job, str], str]:
    """Some invocations have what a job needs in their environment, others not."""

    def value(_job: Job, name: str) -> str:
        strand = scheduler.current
        if strand is not None and not strand.process.has_secrets:
            raise MissingSecretError("not set")
        return "sesame"

    return value


def _unlike_all_before() -> Callable[[int], bytes]:
    """What a new log is known by is in the names of its slices, and in the story."""
    numbers = count(1)
    return lambda size: next(numbers).to_bytes(size, "little")


def _memory() -> str | None:
    """A directory in memory, where there is one: nothing here has to survive."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else None


def _run(
    seed: int,
    scheduler: Scheduler,
    directory: Path,
    faults: Sequence[str],
    *,
    asking: bool = False,
    retrying: bool = False,
) -> Run:
    rng = scheduler.draws("fleet")
    story = Story(lambda: scheduler.now)
    places = draw_fleet(rng)
    behaviour = Behaviour(scheduler.draws("tasks"))
    network = Network(scheduler)
    config = config_of(rng, places, directory)
    if retrying:
        config = soon_quiet(config, scheduler.draws("second tries"))
    site = Site(directory / "state", config, network, story, scheduler)
    _set_up(site, places, behaviour)
    tries = _judge_second_tries(site, behaviour) if retrying else None
    if asking:
        network.boxes = Boxes(scheduler, site.truth, scheduler.draws("asking"))
        site.truth.on_start, site.truth.on_commit = network.boxes.begins, network.boxes.committed
    length = rng.choice((150.0, 500.0, 1000.0))
    program = (RetryingProgram if retrying else Program)(site, places, length)
    weather = Weather(site, places, behaviour)
    program.begin()
    weather.begin(length, faults)
    site.conduct.quiet = not (weather.drawn or program.unlucky)
    with patch("iris_cli.core.evolve.replay", site.replay):
        scheduler.run(START + length, lambda: _stops(story, scheduler))
        if not story.breaches:
            _calm(site, program, weather)
        site.kill_all()
    return Run(seed, story, scheduler.steps, site.truth, network.boxes, tries=tries)


def _judge_second_tries(site: Site, behaviour: Behaviour) -> SecondTries:
    voices = Voices(site.scheduler.draws)
    tries = SecondTries(site.truth, site.conduct, voices, site.config.limits.silent_after)
    behaviour.voices = voices
    site.truth.judges.append(tries.judge)
    site.truth.on_end, site.conduct.on_poll = tries.ended, tries.told
    return tries


def _set_up(site: Site, places: Sequence[Place], behaviour: Behaviour) -> None:
    cloned = site.scheduler.draws("fleet").random() < 0.3  # all from one image, with its host key
    for place in places:
        key = "key of the image" if cloned else f"key of {place.worker}"
        machine = Machine(place.worker, place.facts, key, site.scheduler, site.truth, behaviour)
        site.network.addresses[place.worker] = machine


def _run_scaling(seed: int, scheduler: Scheduler, directory: Path, faults: Sequence[str]) -> Run:
    rng = scheduler.draws("fleet")
    story = Story(lambda: scheduler.now)
    places = few_at_home(draw_fleet(rng), rng)
    behaviour = Behaviour(scheduler.draws("tasks"))
    config = with_groups(config_of(rng, places, directory), rng)
    site = Site(directory / "state", config, Network(scheduler), story, scheduler)
    _set_up(site, places, behaviour)
    cloud = open_cloud(site, behaviour)
    length = rng.choice((500.0, 1000.0))
    program, weather = ScalingProgram(site, places, length), CloudWeather(site, places, behaviour, cloud)
    program.begin()
    weather.begin(length, faults)
    with patch("iris_cli.core.evolve.replay", site.replay):
        scheduler.run(START + length, lambda: _stops(story, scheduler))
        if not story.breaches:
            story.tell("*", "all faults are over")
            weather.clear_up()
            afternoon(site, program, cloud)
        if not story.breaches:
            _is_well(site, program)
            evening(site, program, cloud)
        site.kill_all()
    return Run(seed, story, scheduler.steps, site.truth, ledger=cloud.ledger)


def _stops(story: Story, scheduler: Scheduler) -> bool:
    if scheduler.steps > _MOST_STEPS and not story.breaches:
        story.breach("it never comes to rest")
    return bool(story.breaches)


def _calm(site: Site, program: Program, weather: Weather) -> None:
    """Faults end, the operator puts things in order, cron goes on: everything ends, or its end is explained."""
    scheduler, story = site.scheduler, site.story
    story.tell("*", "all faults are over")
    weather.clear_up()
    for _ in range(_CALM_CYCLES):
        site.invoke("order", program.put_in_order)
        site.invoke("cron", schedule)
        scheduler.run(
            scheduler.now + scheduler.draws("calm").choice((60.0, 120.0, 700.0)), lambda: bool(story.breaches)
        )
        if story.breaches or not (program.unexplained() or any(site.truth.cluster.live_attempts())):
            break
    if not story.breaches:
        _is_well(site, program)


def _is_well(site: Site, program: Program) -> None:
    site.nothing_is_lost()
    site.truth.after_healing()
    for job in program.unexplained():
        site.story.breach(f"{job} has not ended and has no reason, long after all faults ended")
    for attempt, _ in site.truth.cluster.live_attempts():
        site.story.breach(f"{attempt} still holds its worker, long after all faults ended")
