"""Workers in memory that obey the worker protocol, and a site of them with its log on disk.

    site = Site(tmp_path, "w0", "w1")
    site.launch("train", replicas=2), site.cycle()
    site.hosts["w0"].of("train").state = RemoteState.LOST

Each `session()` is an invocation. `Host.meanwhile` is called after an answer is made and before it arrives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from iris_cli.config.schema import ClusterConfig, HostConfig
from iris_cli.core.attributes import AttributeValue
from iris_cli.core.ids import JobId, RequestId, TaskId, Token, WorkerId
from iris_cli.core.invariants import breaches
from iris_cli.core.messages.observations import (
    AttemptReport,
    CacheReport,
    ChipHolder,
    OutboxFile,
    ProbeReport,
    ReapReport,
    Silence,
    SilenceKind,
    UnwedgeReport,
    UsageReport,
    WorkerReport,
)
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.job import JobRequest, JobState
from iris_cli.core.model.limits import Limits
from iris_cli.core.model.task import Attempt, Task
from iris_cli.core.model.worker import Connection
from iris_cli.journal.state_dir import StateDir
from iris_cli.ops.cycle import cycle
from iris_cli.ops.jobs.launch import launch
from iris_cli.ops.session import Session
from iris_cli.remote.task_runner import LaunchRequest, Shipment, TaskRunner
from iris_cli.remote.transport import Target
from tests.support.fake_hosts import FINAL_STATES, Entry, FileCalls, Host, Killed, S, silence_of

__all__ = ["SIZE", "Clock", "Entry", "FakeRunner", "Host", "Killed", "S", "Site"]

T = TypeVar("T")
SIZE = 4096  # bytes of the files of each attempt


@dataclass
class FakeRunner(FileCalls):
    """The calls of the worker protocol, on hosts in memory."""

    hosts: dict[str, Host]

    def probe(
        self, target: Target, *, first_contact: bool = False, make: bool = True
    ) -> ProbeReport | Silence:
        host = self.hosts[target.worker]
        if make:
            host.incarnation = host.incarnation or f"{host.name}-life"
        answer = ProbeReport(
            worker=target.worker,
            boot_id=host.boot_id,
            incarnation=host.incarnation,
            cpus=4,
            memory=8 << 30,
            disk_free=100 << 30,
            tokens=tuple(token for token, entry in host.tokens.items() if entry.state is not S.STOPPED),
            warnings=("refused: network file system",) if host.network_disk else (),
        )
        return self._answer(host, "probe", answer)

    def poll(
        self,
        target: Target,
        tokens: Sequence[Token],
        *,
        renew: bool = True,
        open_requests: Sequence[object] = (),
    ) -> WorkerReport | Silence:
        host = self.hosts[target.worker]
        host.renewals += renew
        return self._answer(host, "poll", self._telling(host, tokens, open_requests))

    def answer(
        self,
        target: Target,
        answers: Sequence[tuple[Token, RequestId, bytes]],
        tokens: Sequence[Token],
        *,
        with_requests: bool = True,
        open_requests: Sequence[object] = (),
    ) -> WorkerReport | Silence:
        host = self.hosts[target.worker]
        host.beforehand.pop("answer", lambda: None)()
        for token, name, text in answers if host.silence is None else ():
            host.tokens[token].inbox[name] = text
            if not host.box_is_stuck:
                host.tokens[token].outbox.pop(name, None)
        report = self._telling(host, tokens, open_requests) if with_requests else host.report(tokens)
        return self._answer(host, "answer", report)

    def _telling(self, host: Host, tokens: Sequence[Token], open_requests: Sequence[object]) -> WorkerReport:
        """Return the first 16 requests of each attempt by name."""
        asked: list[OutboxFile] = []
        asking = []
        for token in tokens:
            outbox = host.tokens[token].outbox if token in host.tokens else {}
            names = sorted(name for name in outbox if (token, name) not in open_requests)
            asking += [token] if names[16:] else []
            for name in names[:16]:
                text = outbox[name]
                data = text if len(text) <= 65536 else None
                asked.append(OutboxFile(token=token, id=RequestId(name), size=len(text), data=data))
        return replace(host.report(tokens), requests=tuple(asked), asking=tuple(asking))

    def prepare(
        self, target: Target, requests: Sequence[LaunchRequest], *, boot_id: str, incarnation: str, go: bool
    ) -> WorkerReport | Silence:
        host = self.hosts[target.worker]
        if host.silence is not None and not host.sent:
            return self._answer(host, "prepare", host.report(()))
        if (boot_id, incarnation) != (host.boot_id, host.incarnation):
            return self._answer(host, "prepare", host.report(()))
        cut, host.cut = host.cut, ""
        lacking = {each.workspace for each in requests if each.workspace} - host.workspaces
        for request in requests:
            if request.workspace not in lacking:
                self._prepare(host, request, cut)
        tokens = [request.token for request in requests]
        if cut:
            return _silence(host, SilenceKind.TIMEOUT, sent=True)
        if go:
            self._go(host, tokens)
        return self._answer(host, "prepare", replace(host.report(tokens), lacking=tuple(sorted(lacking))))

    def ship(
        self, target: Target, workspace: Shipment, tokens: Sequence[Token], *, boot_id: str, incarnation: str
    ) -> WorkerReport | Silence:
        host = self.hosts[target.worker]
        if host.silence is not None:
            return self._answer(host, "ship", host.report(()))
        if (boot_id, incarnation) != (host.boot_id, host.incarnation):
            return self._answer(host, "ship", host.report(()))
        if workspace.hash not in host.workspaces and not host.is_being_shipped:
            host.shipped.append((workspace.hash, sum(map(len, workspace.chunks()))))
            if host.refuses_workspaces:
                for token in tokens:
                    host.tokens[token] = Entry(S.NOSTART, cause=host.refuses_workspaces)
            else:
                host.workspaces.add(workspace.hash)
        lacking = () if workspace.hash in host.workspaces else (workspace.hash,)
        return self._answer(host, "ship", replace(host.report(tokens), lacking=lacking))

    def go(
        self, target: Target, tokens: Sequence[Token], *, boot_id: str, incarnation: str
    ) -> WorkerReport | Silence:
        host = self.hosts[target.worker]
        if (boot_id, incarnation) != (host.boot_id, host.incarnation):
            return self._answer(host, "go", host.report(()))
        if host.silence is None or host.sent:
            self._go(host, tokens)
        return self._answer(host, "go", host.report(tokens))

    def stop(self, target: Target, stops: Sequence[tuple[Token, float]]) -> WorkerReport | Silence:
        host = self.hosts[target.worker]
        if host.silence is None:
            for token, _ in stops:
                entry = host.tokens.setdefault(token, Entry(S.STOPPED))
                if entry.state not in FINAL_STATES:
                    entry.state = S.UNKILLABLE if host.unkillable else S.STOPPED
        return self._answer(host, "stop", host.report([token for token, _ in stops]))

    def unwedge(
        self,
        target: Target,
        *,
        keep: Sequence[Token],
        known: Sequence[Token] = (),
        clear: Sequence[ChipHolder | Token] = (),
        grace: float = 30.0,
    ) -> UnwedgeReport | Silence:
        host = self.hosts[target.worker]
        for each in clear:
            assert (each.token if isinstance(each, ChipHolder) else each) not in keep
            if host.unkillable:
                continue
            if isinstance(each, ChipHolder):
                host.holders = [holder for holder in host.holders if holder != each]
            else:
                host.tokens[each].state = S.STOPPED
        strangers = [
            token
            for token, entry in host.tokens.items()
            if token not in keep
            and entry.state is not S.STOPPED
            and not (token in known and entry.state in FINAL_STATES)
        ]
        answer = UnwedgeReport(
            worker=target.worker,
            boot_id=host.boot_id,
            incarnation=host.incarnation,
            holders=tuple(host.holders),
            attempts=tuple(AttemptReport(token=token, state=host.tokens[token].state) for token in strangers),
        )
        return self._answer(host, "unwedge", answer)

    def reap(self, target: Target, tokens: Sequence[Token]) -> ReapReport | Silence:
        host = self.hosts[target.worker]
        gone = tuple(
            token
            for token in tokens
            if token not in host.busy_files
            and host.report([token]).attempts[0].state in (*FINAL_STATES, S.ABSENT)
        )
        if host.silence is None:
            host.reaped += gone
        report = host.report(())
        answer = ReapReport(
            worker=report.worker,
            boot_id=report.boot_id,
            incarnation=report.incarnation,
            clock=report.clock,
            tokens=gone,
        )
        return self._answer(host, "reap", answer)

    def unused(
        self,
        target: Target,
        *,
        boot_id: str,
        incarnation: str,
        keep: Sequence[str],
        unused_for: float,
        remove: bool = False,
    ) -> CacheReport | Silence:
        host = self.hosts[target.worker]
        there = host.workspaces if (boot_id, incarnation) == (host.boot_id, host.incarnation) else set()
        unused = sorted(there - set(keep))
        host.cache_ages.append(unused_for)
        if remove and host.silence is None:
            host.workspaces -= set(unused)
            unused = []
        answer = CacheReport(
            worker=target.worker,
            boot_id=host.boot_id,
            incarnation=host.incarnation,
            sizes=tuple((f"w/{each}", SIZE) for each in unused),
        )
        return self._answer(host, "caches", answer)

    def usage(self, target: Target, tokens: Sequence[Token]) -> UsageReport | Silence:
        host = self.hosts[target.worker]
        there = [token for token in tokens if token in host.tokens and token not in host.reaped]
        report = host.report(())
        answer = UsageReport(
            worker=report.worker,
            boot_id=report.boot_id,
            incarnation=report.incarnation,
            sizes=tuple((token, SIZE) for token in there),
        )
        return self._answer(host, "usage", answer)

    def _prepare(self, host: Host, request: LaunchRequest, cut: str) -> None:
        entry = host.tokens.setdefault(request.token, Entry(S.PREPARING, half=True))
        if entry.state is not S.PREPARING or not entry.half:
            return
        entry.name = request.env["IRIS_TASK_ID"]
        if cut == "made":
            return
        entry.half = False
        if host.refuses:
            entry.state, entry.cause = S.NOSTART, host.refuses
        elif not request.setup:
            entry.state = S.PREPARED

    def _go(self, host: Host, tokens: Sequence[Token]) -> None:
        for entry in (host.tokens[token] for token in tokens):
            if entry.state is S.PREPARED and host.notes and entry.told_at is None:
                entry.told_at = self.hosts[host.name].now()
            if entry.state is S.PREPARED and not host.never_starts:
                host.start(entry)

    def _answer(self, host: Host, call: str, answer: T) -> T | Silence:
        host.calls.append(call)
        said = answer if host.silence is None else _silence(host, host.silence, sent=host.sent)
        host.meanwhile.pop(call, lambda: None)()
        return said


def _silence(host: Host, kind: SilenceKind, *, sent: bool) -> Silence:
    return silence_of(WorkerId(host.name), kind, sent=sent)


@dataclass
class Clock:
    """Time passes only in `sleep`."""

    time: float = 1_800_000_000.0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


class Site:
    """Hosts, a state directory and a clock. All hosts are in one `rack` by default."""

    def __init__(self, path: Path, *names: str, limits: Limits | None = None) -> None:
        self.clock = Clock()
        self.limits = limits or Limits()
        self.hosts = {name: Host(name, self.clock.now) for name in names}
        self.configured = list(names)
        self._path = path
        self._number = count(1)

    def session(self) -> Session:
        hosts = tuple(
            HostConfig(
                worker=WorkerId(name),
                connection=Connection(host=name),
                attributes={"rack": AttributeValue(self.hosts[name].rack)},
            )
            for name in self.configured
        )
        return Session(
            state=StateDir(self._path / "state", now=self.clock.now, actor="me@laptop"),
            config=ClusterConfig(
                path=self._path / "cluster.yaml", name="site", hosts=hosts, limits=self.limits
            ),
            make_runner=lambda _: cast("TaskRunner", FakeRunner(self.hosts)),
            clock=self.clock,
            command="iris test",
        )

    def launch(self, name: str, **asked: Any) -> None:
        """Submit a job; the next cycle dispatches it."""
        launch(self.session(), JobRequest(name=name, **{"command": ("true",), **asked}))

    def gang(self, name: str, replicas: int, **asked: Any) -> None:
        self.launch(name, replicas=replicas, group_by="rack", cpu=3.0, **asked)

    def cycle(self, seconds: float = 0.0) -> Cluster:
        """Run one cycle as a new invocation, `seconds` from now, then audit the log."""
        self.clock.time += seconds
        session = self.session()
        cycle.run(session)
        assert not session.faults
        assert breaches(session.cluster) == []
        return session.cluster

    def crash(self, during: str, on: str) -> None:
        """Run a cycle whose process is killed when an answer arrives from a host."""

        def die() -> None:
            raise Killed

        self.hosts[on].meanwhile[during] = die
        try:
            self.cycle()
        except Killed:
            return
        raise AssertionError(f"no {during} on {on}")

    @property
    def cluster(self) -> Cluster:
        return self.session().view()

    def state_of(self, job: str) -> JobState:
        return self.cluster.job_state(JobId(job))

    def task(self, job: str, index: int = 0) -> Task:
        return self.cluster.tasks[TaskId(JobId(job), index)]

    def attempt(self, job: str, index: int = 0) -> Attempt:
        return self.task(job, index).attempts[-1]

    def run(self, cycles: int = 8, every: float = 15.0) -> None:
        """Run cycles with healthy hosts, in which set-ups end."""
        for _ in range(cycles):
            self.cycle(every)
            for host in self.hosts.values():
                for entry in host.tokens.values():
                    if entry.state is S.PREPARING and not entry.half:
                        entry.state = S.PREPARED
