"""Runs in which slices come and go: scale groups, jobs that want them, and an operator who lets iris scale."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from msgspec.structs import replace

from iris_cli.config.schema import ClusterConfig
from iris_cli.core.attributes import region_of_zone
from iris_cli.core.constraints import preemptible_constraint, region_constraint
from iris_cli.core.ids import JobId, WorkerId
from iris_cli.core.model.job import Job
from iris_cli.core.model.slice import Provider, ScaleGroup, SliceTemplate
from iris_cli.core.model.worker import REMOVED, Connection
from iris_cli.ops import autoscale
from iris_cli.ops.cycle import cycle
from iris_cli.ops.jobs.change import cancel
from iris_cli.ops.session import Session
from iris_cli.ops.workers import workers
from tests.simulation.cloud import Cloud, SimProvider
from tests.simulation.fleet import Place
from tests.simulation.ledger import SLACK, Ledger
from tests.simulation.program import JOBS, Program, schedule
from tests.simulation.site import Site
from tests.simulation.tasks import SET_UP, Behaviour

_WANTED: dict[str, dict[str, Any]] = {  # what each job asks for that decides which groups could serve it
    "gang": {"tpu": "v4-16"},
    "gang2": {"tpu": "v4-16"},
    "pair": {"tpu": "v4-16", "slices": 2},
    "west": {"tpu": "v4-16", "region": "us-west4"},
    "central": {"tpu": "v4-16", "region": "us-central2"},
    "spot": {"tpu": "v4-16", "preemptible": True},
    "single": {"tpu": "v4-8"},
    "nowhere": {"tpu": "v4-16", "region": "mars-north1"},
}
TROUBLED = (0.0, 0.2, 0.5)
"""The shares of new slices that stick, fail, or lack something, of which a run draws one."""

_TWICE = {"max_retries_preemption": 5, "max_retries_failure": 1}
SCALING_JOBS: tuple[dict[str, Any], ...] = (
    *(job for job in JOBS if job["name"] in ("gang", "gang2", "pair", "sweep", "one")),
    {"name": "west", "tpu": "v4-16", "constraints": (region_constraint(["us-west4"]),), **_TWICE},
    {
        "name": "central",
        "tpu": "v4-16",
        "constraints": (region_constraint(["us-central2"]),),
        "setup": "make",
    },
    {"name": "spot", "tpu": "v4-16", "constraints": (preemptible_constraint(),), **_TWICE},
    {"name": "single", "tpu": "v4-8", **_TWICE},
    {"name": "nowhere", "tpu": "v4-16", "constraints": (region_constraint(["mars-north1"]),), "force": True},
)


def draw_groups(rng: Random) -> tuple[ScaleGroup, ...]:
    """One to three, in two regions; not all of them make the same."""
    zones = ["us-west4-a", "us-central2-b", "us-west4-b"]
    return tuple(
        ScaleGroup(
            name=f"g{number}",
            template=SliceTemplate(
                provider=Provider.LOCAL,
                type=rng.choice(("v4-16", "v4-16", "v4-8")) if number else "v4-16",
                zone=rng.choice(zones),
                preemptible=rng.random() < 0.4,
            ),
            min_slices=rng.choice((0, 0, 1)),
            max_slices=rng.choice((1, 2, 2, 3)),
            priority=rng.choice((0, 10)),
            idle_timeout=rng.choice((60.0, 200.0)),
            setup=rng.choice(("", "", SET_UP)),
            connection=Connection(host=""),
        )
        for number in range(rng.choice((1, 2, 2, 3)))
    )


def with_groups(config: ClusterConfig, rng: Random) -> ClusterConfig:
    limits = replace(
        config.limits,
        slice_request_timeout=rng.choice((60.0, 300.0)),
        slice_create_timeout=rng.choice((200.0, 400.0)),
        slice_boot_timeout=rng.choice((400.0, 600.0)),
        scale_backoff_first=rng.choice((5.0, 30.0)),
        scale_backoff_max=rng.choice((60.0, 300.0)),
        slices_per_minute=rng.choice((1, 10)),
    )
    return replace(config, limits=limits, scale_groups=draw_groups(rng))


def few_at_home(places: list[Place], rng: Random) -> list[Place]:
    """Of the slices of the configuration one or none is left: what else is wanted has to be made."""
    others = [place for place in places if place.group == "w"]
    kept = rng.choice(("", "", "a")) if len(others) > 1 else "a"
    return [place for place in places if place.group in (kept, "w")]


def open_cloud(site: Site, behaviour: Behaviour) -> Cloud:
    """The cloud that the invocations of a site ask for slices."""
    scheduler, truth = site.scheduler, site.truth
    ledger = Ledger(scheduler, truth, site.config.scale_groups, site.config.limits, site.medium.durable)
    cloud = Cloud(scheduler, site.network, truth, behaviour, ledger)
    cloud.troubled = scheduler.draws("cloud").choice(TROUBLED)
    ledger.watch(cloud.slices.values)
    site.truth.on_commit = ledger.committed
    site.providers = partial(SimProvider, cloud, scheduler)
    return cloud


def schedule_and_scale(session: Session) -> None:
    """`iris schedule --once --autoscale`."""
    autoscale.run(session, probe=False)
    cycle.run(session)


class ScalingProgram(Program):
    """Mostly `schedule --autoscale` by cron, and whatever else the operator does."""

    jobs = SCALING_JOBS

    def pass_of_cron(self, session: Session) -> None:
        (schedule_and_scale if self._operator.random() < 0.85 else schedule)(session)

    def workers(self) -> list[WorkerId]:
        """Also those of slices, whether or not they are still there."""
        return sorted({*super().workers(), *self.site.truth.cluster.workers})

    def begin(self) -> None:
        super().begin()
        for _ in range(self._rng.randint(0, 4)):
            self._at_any_time(1.0, "autoscale", autoscale.run)
        if self._rng.random() < 0.3:
            self._at_any_time(1.0, "cancel", self.cancel_one)

    def put_in_order(self, session: Session) -> None:
        """As ever; but what drains because its slice comes or goes is nothing to be put in order."""
        self.accept_all(session)
        for worker in self._untrusted(session):
            self._clean_up_elsewhere(session, worker)
        known = session.view()
        hers = {name for each in known.slices.values() for name in each.workers if each.joined_at is None}
        mine: list[str] = [
            each.id for each in known.workers.values() if each.id not in hers and each.drain_reason != REMOVED
        ]
        workers.uncordon(session, mine)

    def could_run(self, job: Job) -> bool:
        """Which jobs slices could be made for is the matter of `unserved`."""
        return False

    def goes_home(self, session: Session) -> None:
        """What waits in vain is cancelled."""
        waiting: list[str] = [job.id for job in session.view().jobs.values() if job.end is None]
        if waiting:
            cancel(session, waiting)

    def unserved(self) -> list[JobId]:
        """Gangs for which there could be a slice, and that have never got one."""
        return [
            job.id
            for job in self.site.truth.cluster.jobs.values()
            if job.end is None and self._could_run(job)
        ]

    def open_questions(self) -> bool:
        """Whether anything runs, or ought to, or waits and nobody says why."""
        return any(self.site.truth.cluster.live_attempts()) or bool(self.unserved() or self.unexplained())

    def _could_run(self, job: Job) -> bool:
        wanted = _WANTED.get(job.id)
        groups = self.site.config.scale_groups
        return wanted is not None and not job.after and any(_serves(group, **wanted) for group in groups)

    def unmet(self) -> list[str]:
        """What waits for a slice that nobody makes, and why."""
        plan = autoscale.dry_run(self.site.view())
        return [f"{each.entry.key}: {each.reason}" for each in plan.routing.unmet]


def _serves(
    group: ScaleGroup, tpu: str, slices: int = 1, region: str = "", *, preemptible: bool | None = None
) -> bool:
    template = group.template
    return (
        template.type == tpu
        and group.max_slices >= slices
        and (not region or region_of_zone(template.zone) == region)
        and preemptible in (None, template.preemptible)
    )


def afternoon(site: Site, program: ScalingProgram, cloud: Cloud) -> None:
    """All faults are over: what can be served is, the rest is explained; then the day ends, and little is left."""
    cloud.heal()
    cloud.ledger.audit()
    _passes(site, program, 45, lambda: not program.open_questions())
    for job in program.unserved() if not site.story.breaches else ():
        site.story.breach(f"{job} could have a slice, but never got one; unmet: {program.unmet()}")


def evening(site: Site, program: ScalingProgram, cloud: Cloud) -> None:
    site.invoke("home", program.goes_home)
    limits = site.config.limits
    idle = max(group.idle_timeout for group in site.config.scale_groups)
    made = (
        limits.slice_create_timeout + limits.slice_boot_timeout + limits.scale_backoff_max
    )  # one that never boots
    until = site.scheduler.now + 2 * max(idle, made) + 2 * SLACK
    _passes(site, program, 45, lambda: site.scheduler.now > until or cloud.ledger.is_settled())
    if not site.story.breaches:
        cloud.ledger.at_the_end_of_the_day()


def _passes(site: Site, program: ScalingProgram, most: int, enough: Callable[[], bool]) -> None:
    scheduler, story = site.scheduler, site.story
    for _ in range(most):
        site.invoke("order", program.put_in_order)
        site.invoke("cron", schedule_and_scale)
        scheduler.run(
            scheduler.now + scheduler.draws("calm").choice((60.0, 120.0)), lambda: bool(story.breaches)
        )
        if story.breaches or enough():
            break
