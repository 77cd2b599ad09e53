"""What the operator does: jobs, cron, watch, and commands at any moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import islice
from random import Random
from typing import Any

from iris_cli.core.constraints import preemptible_constraint
from iris_cli.core.ids import JobId, WorkerId
from iris_cli.core.model.job import Job, JobRequest, Priority, ReplaceLost
from iris_cli.core.model.worker import Worker, WorkerCondition
from iris_cli.ops.cycle import cycle
from iris_cli.ops.cycle.compaction import compact
from iris_cli.ops.jobs.change import cancel
from iris_cli.ops.jobs.launch import launch
from iris_cli.ops.loop.foreground import watch
from iris_cli.ops.session import Session
from iris_cli.ops.views.why import why
from iris_cli.ops.workers import unwedge, workers
from tests.simulation.fleet import Place, is_as_probed, serves
from tests.simulation.machines import Machine
from tests.simulation.site import Site
from tests.simulation.strands import Luck

TAINT = "flaky"
_SOON = 1000.0  # seconds after which a quarantine ends by itself while a run is still watched

JOBS: tuple[dict[str, Any], ...] = (
    {"name": "gang", "tpu": "v4-16", "max_retries_failure": 1},
    {"name": "gang2", "tpu": "v4-16", "max_retries_preemption": 3, "setup": "make"},
    {"name": "pair", "tpu": "v4-16", "slices": 2, "max_retries_failure": 2, "force": True},
    {"name": "rack", "replicas": 2, "group_by": "rack", "setup": "make", "cpu": 2.0},
    {"name": "sweep", "replicas": 4, "cpu": 2.0, "max_retries_failure": 1, "max_task_failures": 1},
    {"name": "leased", "cpu": 1.0, "lease": 200.0, "grace": 10.0, "replace_lost": ReplaceLost.ALWAYS},
    {"name": "one", "cpu": 3.0, "max_retries_preemption": 5, "max_retries_failure": 3},
    {"name": "brief", "cpu": 1.0, "timeout": 60.0, "grace": 5.0, "max_retries_failure": 1},
    {"name": "setup", "cpu": 1.0, "setup": "make", "max_retries_failure": 2},
    {
        "name": "gpus",
        "gpu": "A100",
        "cpu": 0.5,
        "replicas": 3,
        "max_retries_failure": 1,
        "max_task_failures": 2,
    },
    {"name": "wide", "gpu": "A100:2", "cpu": 0.5, "max_retries_preemption": 3, "force": True},
    {"name": "now", "cpu": 3.0, "scheduling_timeout": 100.0, "max_retries_preemption": 2},
    {"name": "secret", "cpu": 1.0, "secrets": ("SIM_SECRET",)},
    {"name": "array", "array": "0-5%2", "cpu": 1.0},
    {"name": "strict", "array": "0-3", "keep_going": False, "cpu": 1.0, "max_task_failures": 1},
    {"name": "throttled", "array": "0-3%1", "cpu": 1.0, "scheduling_timeout": 90.0},
    {"name": "high", "cpu": 2.5, "priority": Priority.HIGH, "max_retries_failure": 1},
    {"name": "normal", "cpu": 2.5, "replicas": 3, "max_task_failures": 1},
    {"name": "low", "cpu": 2.5, "priority": Priority.LOW, "max_retries_preemption": 1},
    {"name": "fragile", "cpu": 1.0, "replicas": 2, "max_retries_preemption": 0, "max_task_failures": 1},
    {"name": "brittle", "tpu": "v4-16", "max_retries_preemption": 1},
    {"name": "timed", "tpu": "v4-16", "timeout": 90.0, "grace": 5.0, "max_retries_failure": 2},
    {"name": "held", "tpu": "v4-16", "lease": 100.0, "grace": 20.0, "max_retries_preemption": 2},
    {"name": "kept", "cpu": 1.0, "replace_lost": ReplaceLost.NEVER},
    {"name": "moved", "cpu": 1.0, "replicas": 2, "replace_lost": ReplaceLost.ALWAYS},
    {"name": "spot", "cpu": 1.0, "constraints": (preemptible_constraint(),), "force": True},
    {"name": "tolerant", "cpu": 2.0, "tolerate": (TAINT,)},
)
CHILDREN = ("sweep", "one", "rack", "gpus", "array", "kept")
"""Jobs that start others, if they run."""
RUSH = ("high", "normal", "low", "array")
"""Jobs that compete for the same hosts, submitted together in some runs."""
_RUSHED = 0.25


def schedule(session: Session) -> None:
    cycle.run(session)


def follow(session: Session, interval: float, steps: int) -> None:
    """Watch for so many steps, until somebody presses Ctrl-C."""
    with closing(watch(session, interval=interval, schedule=True)) as shown:
        for _ in islice(shown, steps):
            pass


class Program:
    """Draws what the operator does in the `length` seconds of a run, and sees to it that it happens."""

    jobs: Sequence[dict[str, Any]] = JOBS

    def pass_of_cron(self, session: Session) -> None:
        schedule(session)

    def __init__(self, site: Site, places: Sequence[Place], length: float) -> None:
        self.site = site
        self._places = places
        self._rng = site.scheduler.draws("program")
        self._operator = site.scheduler.draws("operator")  # what is chosen while a command runs
        self._end = site.scheduler.now + length
        self._lifts = self._rng.random() < 0.5
        self.unlucky = self._rng.choice((0.0, 1.0, 1.0))  # whether invocations are killed and stopped

    def begin(self) -> None:
        rng = self._rng
        self.cron()
        chosen = rng.sample(self.jobs, rng.randint(3, 8))
        if rng.random() < _RUSHED:
            chosen += [job for job in self.jobs if job["name"] in RUSH and job not in chosen]
        for job in chosen:
            self._at_any_time(rng.choice((0.02, 0.4)), "launch", self._launch(job))
            if job["name"] in CHILDREN:
                child = {"name": f"{job['name']}/child", "cpu": 0.5, "max_retries_preemption": 5}
                self._at_any_time(0.8, "launch", self._launch(child))
        if rng.random() < 0.6:
            interval, steps = rng.choice((5.0, 15.0, 40.0)), rng.randint(1, 12)
            self._at_any_time(0.8, "watch", lambda session: follow(session, interval, steps))
        for _ in range(rng.randint(0, 5)):
            command, act = rng.choice(self._commands())
            self._at_any_time(1.0, command, act)

    def cron(self) -> None:
        """`schedule --once` every minute or so; each may find the former still at work."""
        self._invoke("cron", self.pass_of_cron, patience=0.0)
        due = self.site.scheduler.now + self._rng.choice((20.0, 60.0, 60.0, 150.0))
        if due < self._end:
            self.site.scheduler.at(due, self.cron)

    def _at_any_time(self, share: float, command: str, act: Callable[[Session], object]) -> None:
        moment = self.site.scheduler.now + (self._end - self.site.scheduler.now) * share * self._rng.random()
        self.site.scheduler.at(moment, lambda: self._invoke(command, act))

    def _invoke(self, command: str, act: Callable[[Session], object], *, patience: float = 10.0) -> None:
        process = self.site.invoke(command, act, luck=self._luck(self._rng), patience=patience)
        process.has_secrets = self._rng.random() < 0.7

    def _luck(self, rng: Random) -> Luck:
        return Luck(
            dies_at=rng.randint(1, 60) if rng.random() < 0.2 * self.unlucky else 0,
            stalls_at=rng.randint(1, 40) if rng.random() < 0.15 * self.unlucky else 0,
            stalls_for=rng.choice((10.0, 30.0, 70.0, 200.0)),
        )

    def _launch(self, job: dict[str, Any]) -> Callable[[Session], object]:
        def act(session: Session) -> None:
            after = tuple(session.view().jobs) if self._operator.random() < 0.15 else ()
            launch(session, JobRequest(command=("true",), after=after[-1:], **job))

        return act

    def _commands(self) -> list[tuple[str, Callable[[Session], object]]]:
        rng = self._rng
        worker = rng.choice(self.workers())
        return [
            ("cancel", self.cancel_one),
            ("cancel", self.cancel_one),
            ("drain", lambda session: workers.drain(session, [worker])),
            ("uncordon", lambda session: workers.uncordon(session, [worker])),
            ("probe", lambda session: workers.probe(session, [])),
            ("forget", lambda session: workers.forget(session, worker)),
            ("forget dead", lambda session: self.declare_dead(session, worker)),
            ("accept", self.accept_all),
            ("unwedge", self.unwedge_one),
            ("unwedge", self.unwedge_one),
            ("taint", lambda session: workers.taint(session, worker, TAINT)),
            ("compact", lambda session: compact(session.state, "log compact", 10.0)),
            ("schedule", schedule),
        ]

    def workers(self) -> list[WorkerId]:
        """Those whom a command may be about."""
        return [host.worker for host in self.site.config.hosts]

    def unwedge_one(self, session: Session) -> None:
        """Clear a host of what is in the way there, one where something is if there is any."""
        addresses = self.site.network.addresses
        wedged = [worker for worker, machine in addresses.items() if machine.is_wedged(worker)]
        name = self._operator.choice(wedged or list(addresses))
        unwedge.clear(session, unwedge.find_obstacles(session, name), grace=5.0)

    def cancel_one(self, session: Session) -> None:
        names = [job.id for job in session.view().jobs.values() if job.end is None]
        if names:
            cancel(session, [self._operator.choice(names)])

    def declare_dead(self, session: Session, name: WorkerId) -> None:
        """The operator takes a host that doesn't answer for gone. That may be wrong, or its name lead elsewhere."""
        worker = session.view().workers.get(name)
        if worker is None:
            return
        if worker.condition is not WorkerCondition.HEALTHY:
            workers.forget(session, name, dead=True)

    def accept_all(self, session: Session) -> None:
        """Of the hosts that may be other machines now, accept those that the cloud says were re-created."""
        for worker in self._untrusted(session):
            if self._moved_to(worker) is None:
                machine = self.site.network.addresses.get(worker.id)
                if machine is not None:
                    self.site.network.known_keys[worker.id] = machine.key
                stranger = workers.probe_unrecorded(session, worker.id)
                session.clock.sleep(self._operator.choice((1.0, 5.0, 60.0)))  # the operator reads, and thinks
                workers.accept(session, stranger)

    def _untrusted(self, session: Session) -> list[Worker]:
        known = session.view().workers.values()
        return [worker for worker in known if worker.condition is WorkerCondition.UNTRUSTED]

    def _moved_to(self, worker: Worker) -> Machine | None:
        """The machine of the log, if it still exists elsewhere, so that nobody may say that it is gone."""
        for place, machine in self.site.network.addresses.items():
            if place != worker.id and worker.boot_id.startswith(f"{machine.name}-boot-") and machine.exists:
                return machine
        return None

    # After the storm

    def put_in_order(self, session: Session) -> None:
        """What an operator does at last: accept, bring back."""
        self.accept_all(session)
        for worker in self._untrusted(session):
            self._clean_up_elsewhere(session, worker)
        known = session.view().workers
        workers.uncordon(session, [each.id for each in known.values() if each.draining or self._helps])
        for worker in known.values():
            if TAINT in worker.taints:
                workers.taint(session, worker.id, TAINT, remove=True)

    def _clean_up_elsewhere(self, session: Session, worker: Worker) -> None:
        """What was started where an address led for a while is ended there by hand; nobody else knows the way."""
        machine = self._moved_to(worker)
        if machine is not None:
            machine.abandon(worker.id)
            workers.forget(session, worker.id, dead=True)

    @property
    def _helps(self) -> bool:
        """Whether the operator lifts every quarantine and cool-down, or waits until they end by themselves."""
        return self._lifts or self.site.config.limits.quarantine_retry > _SOON

    def unexplained(self) -> list[JobId]:
        """Jobs that go on without a reason that keeps them: what waits must wait for something."""
        cluster = self.site.truth.cluster
        still_open = [job.id for job in cluster.jobs.values() if job.end is None]
        return [
            job
            for job in still_open
            if cluster.live_attempts_of(job)
            or self.could_run(cluster.jobs[job])
            or not self._waits_for_good(job)
        ]

    def could_run(self, job: Job) -> bool:
        """Whether the machines that there are could run a job, now that nothing is wrong with them."""
        cluster = self.site.truth.cluster
        if any(cluster.jobs[each].end is None for each in job.after if each in cluster.jobs):
            return False
        # A host that was forgotten, and registered while its address led elsewhere, is another one in the log.
        as_they_are = all(is_as_probed(place, cluster.workers.get(place.worker)) for place in self._places)
        return as_they_are and serves(self._places, job)

    def _waits_for_good(self, job: JobId) -> bool:
        answer = why(self.site.view(), job)
        return bool(answer.waits) and all(wait.explanation is not None for wait in answer.waits)
