"""A cluster in memory for tests of the core. Each step is checked.

    lab = Lab().slice("a", "v4-16").job("train", tpu="v4-16").schedule().reports("train/* running")

Time stands still until `advance`. After each step the invariants must hold, and the events, written and read back,
must give the same cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from iris_cli.core.constraints import AttributeValue, RawValue, build_worker_attributes
from iris_cli.core.events.events import (
    ClusterCreated,
    Event,
    Transaction,
    WorkerDrained,
    WorkerForgotten,
    WorkerTainted,
    WorkerUncordoned,
    WorkerUpdated,
)
from iris_cli.core.evolve import Draft, replay
from iris_cli.core.ids import AttemptId, JobId, TaskId, Token, WorkerId, is_attempt_name
from iris_cli.core.invariants import breaches
from iris_cli.core.lifecycle import (
    attempts,
    failure_detection,
    gangs,
    identity,
    jobs,
    placement,
    reaping,
    workers,
)
from iris_cli.core.lifecycle.resubmission import resubmission_request
from iris_cli.core.lifecycle.submit import submit
from iris_cli.core.messages.observations import AttemptReport, RemoteState, Silence, SilenceKind, WorkerReport
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.job import Job, JobRequest, JobState, ReplaceLost
from iris_cli.core.model.limits import Limits
from iris_cli.core.model.slice import slice_attributes
from iris_cli.core.model.task import Attempt, Task
from iris_cli.core.model.worker import Connection, Worker
from iris_cli.core.scheduling import Plan, plan
from iris_cli.core.topology import lookup
from iris_cli.core.units import parse_duration
from iris_cli.journal.log.record import decode_event, encode_event
from tests.support.cloud import Cloud
from tests.support.fake_hosts import silence_of
from tests.support.reports import parse_report

START = 1_800_000_000.0
GIB = 1 << 30


@dataclass
class Host:
    """The actual state of a host; the state in the log may be older."""

    facts: WorkerUpdated
    boots: int = 1

    def reboot(self) -> None:
        self.boots += 1
        self.facts = replace(self.facts, boot_id=f"boot-{self.boots}")

    def wipe(self) -> None:
        """Remove its iris directory: the next probe writes a new incarnation."""
        self.boots += 1
        self.facts = replace(self.facts, incarnation=f"{self.facts.worker}-life-{self.boots}")


class Lab:
    """Takes commands and observations, records events. Methods that change something return the lab."""

    def __init__(self, limits: Limits | None = None, *, first_token: int = 1) -> None:
        self.limits = limits or Limits()
        self.now = START
        self.cluster = Cluster()
        self.log: list[Transaction] = []
        self.hosts: dict[WorkerId, Host] = {}
        self.last: tuple[Event, ...] = ()
        self.policies: dict[WorkerId, ReplaceLost] = {}
        self.cloud = Cloud()
        self._gone: set[WorkerId] = set()
        self._last_token = first_token - 1
        with self.transaction() as draft:
            draft.record(ClusterCreated(name="lab"))

    @contextmanager
    def transaction(self) -> Iterator[Draft]:
        """Decide on a draft; commit and check the recorded events, and keep them in `last`."""
        draft = Draft(self.cluster, self.now)
        yield draft
        self.last = tuple(draft.events)
        if not draft.events:
            assert draft.cluster == self.cluster
            return
        seq = self.cluster.seq + 1
        transaction = Transaction(seq=seq, at=self.now, actor="lab", events=self.last)
        after = replay([_through_the_log(transaction)], start=self.cluster)
        draft.cluster.seq, draft.cluster.at = seq, self.now
        assert after == draft.cluster, "the log tells another story than the draft"
        self.log.append(transaction)
        self.cluster = after
        assert breaches(after) == []

    def replayed(self) -> Cluster:
        """Return the cluster computed from the whole log."""
        return replay(map(_through_the_log, self.log))

    # Fleet

    def slice(self, name: str, tpu: str = "v4-16", workers: int | None = None, **declared: RawValue) -> Lab:
        """Register and probe the VMs of one slice: `name-0`, `name-1`, ..."""
        known = lookup(tpu)
        assert known is not None
        for index in range(known.vms if workers is None else workers):
            self.vm(f"{name}-{index}", name, index, tpu, **declared)
        return self

    def vm(self, worker: str, slice_name: str, index: int, tpu: str = "v4-16", **declared: RawValue) -> Lab:
        """Register and probe one VM of a slice."""
        known = lookup(tpu)
        assert known is not None
        metadata = {
            "accelerator-type": tpu,
            "agent-worker-number": index,
            "instance-id": slice_name,
            "zone": "us-central2-b",
        }
        return self._add(worker, metadata, declared, cpu=240.0, memory=400 * GIB, chips=known.chips_per_vm)

    def worker(
        self, name: str, cpu: float = 16, memory: int = 64 * GIB, gpus: int = 0, **declared: RawValue
    ) -> Lab:
        """Register and probe one host."""
        device = {"device-type": "gpu", "device-variant": "A100"} if gpus else {}
        return self._add(name, device, declared, cpu=float(cpu), memory=memory, gpus=gpus)

    def _add(
        self,
        name: str,
        metadata: Mapping[str, object],
        declared: Mapping[str, RawValue],
        *,
        cpu: float,
        memory: int,
        chips: int = 0,
        gpus: int = 0,
    ) -> Lab:
        worker = WorkerId(name)
        attributes = {key.replace("_", "-"): AttributeValue(value) for key, value in declared.items()}
        facts = WorkerUpdated(
            worker=worker,
            connection=Connection(host=name),
            attributes=dict(build_worker_attributes(metadata, attributes)),
            cpu=cpu,
            memory=memory,
            chips=chips,
            gpus=gpus,
            boot_id="boot-1",
            incarnation=f"{name}-life-1",
        )
        self.hosts[worker] = Host(facts)
        return self.configure().probe(name)

    def configure(self, *gone: str, back: str = "") -> Lab:
        """Follow the configuration: all hosts of the lab except those in `gone`, also of earlier calls."""
        self._gone.update(map(WorkerId, gone))
        self._gone.discard(WorkerId(back))
        hosts = {worker: host.facts.connection for worker, host in self.hosts.items()}
        with self.transaction() as draft:
            workers.reconcile(draft, {worker: hosts[worker] for worker in hosts if worker not in self._gone})
        return self

    def probe(self, name: str, *, trusted: bool = False) -> Lab:
        """Probe a host; after a reboot, poll it."""
        with self.transaction() as draft:
            touched = _touched(draft, WorkerId(name))
            identity.apply_probe(draft, self.hosts[WorkerId(name)].facts, self.limits, trusted=trusted)
            self.settle(draft, touched)
        worker, facts = self.the_worker(name), self.hosts[WorkerId(name)].facts
        if worker.incarnation == facts.incarnation and worker.boot_id != facts.boot_id:
            self.answers(self.answer_of(name))
        return self

    def drain(self, name: str, reason: str = "") -> Lab:
        return self.records(WorkerDrained(worker=WorkerId(name), reason=reason))

    def uncordon(self, name: str) -> Lab:
        return self.records(WorkerUncordoned(worker=WorkerId(name)))

    def taint(self, name: str, taint: str, *, removed: bool = False) -> Lab:
        return self.records(WorkerTainted(worker=WorkerId(name), taint=taint, removed=removed))

    def forget_dead(self, name: str) -> Lab:
        with self.transaction() as draft:
            held = list(draft.cluster.workers[WorkerId(name)].claims)
            identity.presume_gone(draft, held, f"host {name} was declared dead by the operator")
            draft.record(WorkerForgotten(worker=WorkerId(name), dead=True))
            self.settle(draft, [attempt_id.task.job for attempt_id in held])
        return self

    def records(self, *events: Event) -> Lab:
        """Record events that need no decision."""
        with self.transaction() as draft:
            draft.record(*events)
        return self

    # Jobs

    def job(self, name: str | None = None, request: JobRequest | None = None, **asked: Any) -> Lab:
        """Submit a job. `asked` are fields of JobRequest."""
        request = replace(request or JobRequest(command=("true",)), name=name, **asked)
        with self.transaction() as draft:
            fleet = [worker.attributes for worker in draft.cluster.workers.values()]
            submit(draft, request, [*fleet, *map(slice_attributes, self.cloud.groups.values())])
        return self

    def cancel(self, job: str, reason: str = "") -> Lab:
        with self.transaction() as draft:
            jobs.cancel(draft, JobId(job), reason)
        return self

    def again(self, job: str, **said: Any) -> Lab:
        """Submit an ended job again. `said` are fields of JobRequest."""
        with self.transaction() as draft:
            found, said_fields = draft.cluster.jobs[JobId(job)], JobRequest(again=job, **said)
            fleet = [worker.attributes for worker in draft.cluster.workers.values()]
            submit(draft, resubmission_request(draft.cluster, found, said_fields), fleet)
        return self

    def retry(self, job: str, index: int | None = None) -> Lab:
        with self.transaction() as draft:
            jobs.retry(draft, JobId(job), index)
        return self

    def change(self, job: str, **changes: Any) -> Lab:
        with self.transaction() as draft:
            jobs.change(draft, JobId(job), **changes)
        return self

    def schedule(self) -> Lab:
        """Run a cycle without calls: verdicts, takeovers, placements."""
        with self.transaction() as draft:
            attempts.take_over(draft, self.limits)
            self.settle(draft, list(draft.cluster.jobs))
            placement.record_plan(draft, self.plan(draft.cluster), self._new_token)
        return self

    def plan(self, cluster: Cluster | None = None) -> Plan:
        return plan(cluster or self.cluster, self.now, limits=self.limits)

    def _new_token(self) -> Token:
        self._last_token += 1
        return Token(f"{self._last_token:032x}")

    # Answers of workers

    def reports(self, *lines: str, unheard: Iterable[str] = ()) -> Lab:
        """Process one poll. Each line is `TASKS STATE [...]`: `train/* running`, `train/task-1 exited 1 5s-ago`."""
        said: dict[WorkerId, list[AttemptReport]] = {}
        for line in lines:
            names, _, words = line.partition(" ")
            for attempt_id in self.attempts_named(names):
                attempt = self.cluster.attempt(attempt_id)
                said.setdefault(attempt.worker, []).append(parse_report(attempt.token, words))
        answers = [self.answer_of(worker, *each) for worker, each in said.items()]
        return self.answers(*answers, unheard=unheard)

    def answer_of(self, worker: str, *said: AttemptReport) -> WorkerReport:
        """Return the answer of a host. After a reboot it is about all its attempts, LOST by default."""
        facts = self.hosts[WorkerId(worker)].facts
        known = self.cluster.workers.get(WorkerId(worker))
        if known is not None and known.boot_id != facts.boot_id:
            told = {report.token for report in said}
            live = {each.token for _, each in self.cluster.live_attempts_on(known.id)} - told
            said = (*said, *(AttemptReport(token=token, state=RemoteState.LOST) for token in sorted(live)))
        boot, life = facts.boot_id, facts.incarnation
        return WorkerReport(worker=facts.worker, boot_id=boot, incarnation=life, attempts=said)

    def answers(self, *seen: WorkerReport | Silence, unheard: Iterable[str] = ()) -> Lab:
        """Process a batch of a poll; the answers of `unheard` have not arrived yet."""
        with self.transaction() as draft:
            touched = [job for each in seen for job in _touched(draft, each.worker)]
            for each in seen:
                self._weigh(draft, each)
            touched += failure_detection.count_silences(draft, seen, self.policies, self.limits)
            touched += failure_detection.end_leases(draft, self.limits)
            self.settle(draft, touched, unheard)
        return self

    def silent(self, *names: str, kind: SilenceKind = SilenceKind.UNREACHABLE) -> Lab:
        return self.answers(*(self.silence_of(name, kind) for name in names))

    def silence_of(self, worker: str, kind: SilenceKind = SilenceKind.UNREACHABLE) -> Silence:
        return silence_of(WorkerId(worker), kind)

    def not_sent(self, names: str) -> Lab:
        """Record that the workers of these tasks are unreachable."""
        with self.transaction() as draft:
            for attempt_id in self.attempts_named(names):
                attempts.record_not_sent(draft, attempt_id, "connect: no route to host")
            self.settle(draft, [attempt_id.task.job for attempt_id in self.attempts_named(names)])
        return self

    def unanswered(self, names: str, kind: SilenceKind = SilenceKind.TIMEOUT) -> Lab:
        """Record that the launch of these tasks was sent and not answered."""
        launched = self.attempts_named(names)
        with self.transaction() as draft:
            for worker in dict.fromkeys(self.cluster.attempt(each).worker for each in launched):
                workers.record_silence(draft, self.silence_of(worker, kind), self.limits, launching=True)
            attempts.release_dispatch(draft, launched)
            self.settle(draft, [attempt_id.task.job for attempt_id in launched])
        return self

    def due(self, worker: str, *, pause: float = reaping.PAUSE) -> list[str]:
        """Return the attempts whose files are due for removal from a worker."""
        due = reaping.attempts_due(self.cluster, self.the_worker(worker), self.now, self.limits, pause=pause)
        return list(map(str, due))

    def reap(self, worker: str, *left: str) -> Lab:
        """Let a worker remove the files that are due, except those of some attempts."""
        asked = reaping.attempts_due(self.cluster, self.the_worker(worker), self.now, self.limits)
        with self.transaction() as draft:
            gone = [attempt_id for attempt_id in asked if str(attempt_id) not in left]
            reaping.record_reaped(draft, WorkerId(worker), asked, gone)
        return self

    def _weigh(self, draft: Draft, seen: WorkerReport | Silence) -> None:
        if seen.worker not in draft.cluster.workers:
            return
        if isinstance(seen, Silence):
            workers.record_silence(draft, seen, self.limits)
        elif identity.check_identity(draft, seen, self.limits):
            identity.apply_ghost_reports(draft, seen.worker, seen.attempts)
            live = draft.cluster.live_attempts_on(seen.worker)
            by_token = {each.token: attempt_id for attempt_id, each in live}
            for report in seen.attempts:
                if report.token in by_token:
                    attempts.apply_report(draft, by_token[report.token], report, self.limits)

    def settle(self, draft: Draft, touched: Iterable[JobId], unheard: Iterable[str] = ()) -> None:
        for job in dict.fromkeys(touched):
            if draft.cluster.jobs[job].is_gang:
                gangs.decide_round(draft, job, self.limits, frozenset(map(WorkerId, unheard)))
            jobs.end_if_decided(draft, job)

    # Time and observation

    def advance(self, duration: str | float) -> Lab:
        """Set the clock forward (or back, by a negative number of seconds)."""
        self.now += duration if isinstance(duration, (int, float)) else parse_duration(duration)
        return self

    def attempts_named(self, names: str) -> list[AttemptId]:
        """`train/*`, `train/task-1` or `train/task-1/attempt-0`; without a number the last attempt."""
        head, slash, number = names.rpartition("/attempt-") if is_attempt_name(names) else (names, "", "")
        if names.endswith("/*"):
            tasks = self.cluster.tasks_of(JobId(names.removesuffix("/*")))
        else:
            job, _, index = head.rpartition("/task-")
            tasks = [self.cluster.tasks[TaskId(JobId(job), int(index))]]
        placed = [task for task in tasks if task.attempts]
        return [AttemptId(task.id, int(number)) if slash else task.current_id for task in placed]

    def the_job(self, name: str) -> Job:
        return self.cluster.jobs[JobId(name)]

    def state_of(self, name: str) -> JobState:
        return self.cluster.job_state(JobId(name))

    def task(self, name: str, index: int = 0) -> Task:
        return self.cluster.tasks[TaskId(JobId(name), index)]

    def attempt(self, name: str, index: int = 0, number: int = -1) -> Attempt:
        return self.task(name, index).attempts[number]

    def the_worker(self, name: str) -> Worker:
        return self.cluster.workers[WorkerId(name)]


def _touched(draft: Draft, worker: WorkerId) -> list[JobId]:
    if worker not in draft.cluster.workers:
        return []
    return [attempt_id.task.job for attempt_id, _ in draft.cluster.live_attempts_on(worker)]


def _through_the_log(transaction: Transaction) -> Transaction:
    """Return the events as they are read back from the written log."""
    events = [decode_event(encode_event(event)) for event in transaction.events]
    return replace(transaction, events=tuple(event for event in events if event is not None))
