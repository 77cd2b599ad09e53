"""Rules broken one at a time, to see that the simulation notices. Each mutation takes one rule out of the tool."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from iris_cli.core.events.events import AttemptStopped, AttemptStopRequested, TaskAssigned, TaskRequeued
from iris_cli.core.evolve import Draft
from iris_cli.core.ids import AttemptId, JobId, Token
from iris_cli.core.lifecycle import attempts, failure_detection, gangs, identity, jobs, placement, workers
from iris_cli.core.messages.observations import AttemptReport, RemoteState, Silence, WorkerReport
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.limits import Limits
from iris_cli.core.model.task import Attempt, AttemptState, EndReason, TaskState
from iris_cli.core.model.worker import Worker
from iris_cli.journal.snapshot import writing
from iris_cli.ops.cycle import launches, observe
from tests.simulation import machines, wires
from tests.simulation.planting import (
    Mutation,
    ghosts_may_stay,
    late_since_assignment,
    launches_in_limbo,
    long_work_on_hosts_soon_given_up,
    no_signs_of_life,
)

S = RemoteState


def _heard_as(heard: RemoteState, taken_for: RemoteState) -> AbstractContextManager[Any]:
    """One word of the workers is taken for another one."""
    reported = attempts.apply_report

    def mistaken(draft: Draft, attempt_id: AttemptId, report: AttemptReport, limits: Limits) -> None:
        if report.state is heard:
            code = 0 if taken_for is S.EXITED else report.exit_code
            report = replace(report, state=taken_for, exit_code=code)
        reported(draft, attempt_id, report, limits)

    return patch.object(attempts, "apply_report", mistaken)


def _only_running_siblings() -> AbstractContextManager[Any]:
    def stop_live_attempts(draft: Draft, job: JobId, reason: EndReason, trigger: Any = None) -> None:
        for attempt_id, attempt in draft.cluster.live_attempts_of(job):
            assigned = attempt.state is AttemptState.ASSIGNED and reason is EndReason.SIBLING
            if attempt.state is not AttemptState.STOPPING and not assigned:
                jobs.stop(draft, attempt_id, reason, trigger)

    return patch.object(jobs, "stop_live_attempts", stop_live_attempts)


def _release_on_silence() -> AbstractContextManager[Any]:
    silent = workers.record_silence

    def released(draft: Draft, silence: Silence, limits: Limits) -> None:
        silent(draft, silence, limits)
        identity.end_attempts_on(draft, silence.worker, "it does not answer")

    return patch.object(workers, "record_silence", released)


def _nothing_was_sent() -> AbstractContextManager[Any]:
    def said(self: wires.SimRunner, worker: Any, name: str, kind: Any, *, sent: bool) -> Silence:
        return Silence(worker=worker, kind=kind, step=name, detail=kind.value, sent=False)

    return patch.object(wires.SimRunner, "_silence", said)


def _charge_twice() -> AbstractContextManager[Any]:
    settle = attempts._requeue_or_end

    def twice(draft: Draft, task_id: Any, end: Any) -> None:
        settle(draft, task_id, end)
        last = draft.events[-1]
        if isinstance(last, TaskRequeued) and last.task == task_id:
            draft.record(last)

    return patch.object(attempts, "_requeue_or_end", twice)


@contextmanager
def _leftover_alone() -> Iterator[None]:
    """A rank that could not be dispatched is placed once more by itself, beside its siblings."""
    settle, carry_out = gangs.decide_round, placement.record_plan

    def lenient(draft: Draft, job_id: JobId, limits: Limits, unheard: Any = ()) -> None:
        job = draft.cluster.jobs[job_id]
        in_flight = job.end is None and job.rounds > job.settled_rounds
        members = gangs._members(draft, job_id) if in_flight else []
        if any(task.state is TaskState.PENDING and attempt.end for task, attempt in members):
            return
        settle(draft, job_id, limits, unheard)

    def and_leftovers(draft: Draft, plan: Any, new_token: Callable[[], Token]) -> list[AttemptId]:
        assigned = carry_out(draft, plan, new_token)
        for job in draft.cluster.jobs.values():
            for task in draft.cluster.tasks_of(job.id) if job.is_gang and not job.end else ():
                if job.rounds > job.settled_rounds and task.state is TaskState.PENDING and task.attempts:
                    attempt = AttemptId(task.id, len(task.attempts))
                    worker = task.attempts[-1].worker
                    draft.record(
                        TaskAssigned(task=task.id, attempt=attempt.number, worker=worker, token=new_token())
                    )
                    assigned.append(attempt)
        return assigned

    with patch.object(gangs, "decide_round", lenient), patch.object(placement, "record_plan", and_leftovers):
        yield


def _start_again() -> AbstractContextManager[Any]:
    go = machines.Machine.go

    def heedless(self: machines.Machine, worker: Any, token: Token) -> None:
        entry = self.home(worker).entries.get(token)
        if entry is not None and entry.state is S.RUNNING:
            entry.state = S.PREPARED
        go(self, worker, token)

    return patch.object(machines.Machine, "go", heedless)


def _launch_over_a_tombstone() -> AbstractContextManager[Any]:
    prepare = machines.Machine.prepare

    def heedless(self: machines.Machine, worker: Any, request: Any, *, cut: bool = False) -> None:
        entry = self.home(worker).entries.get(request.token)
        if entry is not None and entry.state is S.STOPPED:
            del self.home(worker).entries[request.token]
        prepare(self, worker, request, cut=cut)

    return patch.object(machines.Machine, "prepare", heedless)


def _no_fsync() -> AbstractContextManager[Any]:
    return patch("tests.simulation.disk.Medium.synced", lambda self, fd: None)


def _no_repair() -> AbstractContextManager[Any]:
    """What a killed writer left at the end of the log stays there, and the next line is glued to it."""
    return patch("iris_cli.journal.state_dir.repair", lambda *_: [])


def _no_lock() -> AbstractContextManager[Any]:
    return patch("tests.simulation.disk._locked", lambda fd: True)


def _anybody_is_trusted() -> AbstractContextManager[Any]:
    return patch.object(identity, "_doubt_reason", lambda worker, boot_id: "")


def _boots_are_all_the_same() -> AbstractContextManager[Any]:
    return patch.object(identity, "_apply_reboot", lambda draft, worker, boot_id: None)


@contextmanager
def _take_over_unsaid() -> Iterator[None]:
    """Whoever finds a launch whose dispatcher may have died sends it, and says so nowhere."""
    must_prepare = launches.Launches._must_prepare

    def eager(self: launches.Launches, attempt: Attempt) -> bool:
        lacking = self.readiness.states.get(attempt.token) is S.ABSENT
        return must_prepare(self, attempt) or (lacking and self._has_expired(attempt))

    def has_expired(self: launches.Launches, attempt: Attempt) -> bool:
        return False

    with (
        patch.object(attempts, "take_over", lambda draft, limits: None),
        patch.object(launches.Launches, "_must_prepare", eager),
        patch.object(
            launches.Launches, "_prepare_call", _expired_too(launches.Launches._prepare_call, has_expired)
        ),
    ):
        yield


def _expired_too(prepare: Any, has_expired: Any) -> Any:
    def send(self: launches.Launches, *args: Any, **named: Any) -> Any:
        with patch.object(launches.Launches, "_has_expired", has_expired):
            return prepare(self, *args, **named)

    return send


def _ready_at_once() -> AbstractContextManager[Any]:
    return patch.object(launches, "all_ranks_ready", lambda cluster, job, states: True)


@contextmanager
def _any_answer_counts() -> Iterator[None]:
    """An answer counts, however old it is and whatever machine gave it, and also of what it says nothing of."""
    rebooted = identity._apply_reboot

    def all_told(draft: Draft, worker: Worker, report: WorkerReport) -> None:
        said = {each.token for each in report.attempts}
        live = [each.token for _, each in draft.cluster.live_attempts_on(worker.id) if each.token not in said]
        lost = tuple(AttemptReport(token=token, state=S.LOST) for token in live)
        rebooted(draft, worker, replace(report, attempts=(*report.attempts, *lost)))

    with (
        patch.object(observe, "_identity", lambda cluster, worker: None),
        patch.object(identity, "_apply_reboot", all_told),
    ):
        yield


@contextmanager
def _absent_for_good() -> Iterator[None]:
    """ABSENT is taken for "will never start", though it was said before the launch arrived."""
    with (
        _heard_as(S.ABSENT, S.STOPPED),
        patch.object(observe, "call_context", _all_acknowledged(observe.call_context)),
    ):
        yield


def _all_acknowledged(call_context: Any) -> Any:
    def of(cluster: Cluster, worker: Any, **also: Any) -> observe.CallContext:
        known: observe.CallContext = call_context(cluster, worker, **also)
        return replace(known, acknowledged=frozenset(known.attempts))

    return of


def _lease_ends_at_once() -> AbstractContextManager[Any]:
    def is_over(job: Any, attempt: Attempt, worker: Any, limits: Limits) -> bool:
        return job.lease > 0 and attempt.started_at is not None and worker.unwell is not None

    return patch.object(failure_detection, "_is_lease_expired", is_over)


def _round_without_end() -> AbstractContextManager[Any]:
    """A task that was stopped goes on to its next attempt without waiting for the proof."""
    return patch.object(jobs, "stop", _stopped_by_the_word)


def _stopped_by_the_word(draft: Draft, attempt: AttemptId, reason: EndReason, trigger: Any = None) -> None:
    draft.record(
        AttemptStopRequested(task=attempt.task, attempt=attempt.number, reason=reason, trigger=trigger),
        AttemptStopped(task=attempt.task, attempt=attempt.number),
    )


def _reboots_undo_successes() -> AbstractContextManager[Any]:
    def outlasted(draft: Draft, attempt_id: AttemptId, _report: AttemptReport, error: str) -> None:
        attempts.end_with_worker(draft, attempt_id, error)

    return patch.object(attempts, "apply_earlier_boot", outlasted)


def _any_code_outlasts_a_reboot() -> AbstractContextManager[Any]:
    return patch.object(attempts, "_NOT_BY_SHUTDOWN", frozenset(EndReason))


MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        "free-on-kill-sent",
        "STOPPING counts as STOPPED",
        lambda: _heard_as(S.STOPPING, S.STOPPED),
        ("reboot", "kill_a_wrapper"),
    ),
    Mutation(
        "free-the-unkillable",
        "UNKILLABLE counts as STOPPED",
        lambda: _heard_as(S.UNKILLABLE, S.STOPPED),
        ("unkillable", "unkillable", "unkillable", "reboot"),
    ),
    Mutation(
        "orphans-are-lost",
        "ORPHANED counts as LOST",
        lambda: _heard_as(S.ORPHANED, S.LOST),
        ("kill_a_wrapper",),
    ),
    Mutation("lost-is-success", "LOST counts as exit code 0", lambda: _heard_as(S.LOST, S.EXITED)),
    Mutation(
        "ignore-the-launch-token",
        "`go` starts a running attempt a second time",
        _start_again,
        ("unreliable", "slow"),
    ),
    Mutation(
        "launch-over-a-tombstone",
        "a late launch starts a fenced attempt",
        _launch_over_a_tombstone,
        ("unreliable", "slow", "reboot"),
    ),
    Mutation("leftover-rank-alone", "a rank that was not dispatched is placed alone", _leftover_alone),
    Mutation("skip-assigned-siblings", "only RUNNING siblings are stopped", _only_running_siblings),
    Mutation(
        "release-on-silence",
        "a worker that does not answer counts as gone",
        _release_on_silence,
        ("partition", "unreliable"),
    ),
    Mutation(
        "no-answer-is-not-started",
        "a launch without an answer counts as not sent",
        _nothing_was_sent,
        ("unreliable", "slow"),
    ),
    Mutation("charge-twice", "one failure is charged twice", _charge_twice),
    Mutation("dispatch-before-fsync", "iris acts before the line of the log is synced", _no_fsync),
    Mutation(
        "keep-a-torn-record",
        "the next line is appended to a torn one and lost with it",
        _no_repair,
        ("power_cut", "kill_an_invocation"),
    ),
    Mutation("two-writers", "the state directory is not locked", _no_lock),
    Mutation(
        "trust-anybody",
        "a re-created host counts as the old one",
        _anybody_is_trusted,
        ("swap_addresses",),
    ),
    Mutation("free-on-decision", "a stop order releases resources at once", _round_without_end),
    Mutation(
        "take-over-unsaid",
        "a launch is taken over without a record in the log",
        _take_over_unsaid,
        ("unreliable", "kill_an_invocation"),
    ),
    Mutation(
        "launches-in-limbo", "a launch without an answer is not recorded as given up", launches_in_limbo
    ),
    Mutation("go-before-all-are-prepared", "a rank starts as soon as it is set up", _ready_at_once),
    Mutation(
        "ghosts-may-stay",
        "attempts that were presumed gone are not stopped first",
        ghosts_may_stay,
        ("partition", "partition", "slow"),
        long_work_on_hosts_soon_given_up,
    ),
    Mutation(
        "accept-stale-reports",
        "an answer counts even if the worker changed since",
        _any_answer_counts,
        ("reboot", "reboot", "slow", "unreliable"),
    ),
    Mutation(
        "absent-is-never",
        'ABSENT counts as "will never start"',
        _absent_for_good,
        ("unreliable", "slow"),
    ),
    Mutation(
        "lease-without-margin",
        "a lease counts as expired at the first silence",
        _lease_ends_at_once,
        ("partition", "partition_of_a_group"),
    ),
    Mutation("overlook-reboots", "a new boot id is ignored", _boots_are_all_the_same, ("reboot",)),
    Mutation(
        "children-outlive-their-parents",
        "the end of a job does not end its child jobs",
        lambda: patch.object(Cluster, "children_of", lambda self, job: []),
    ),
    Mutation(
        "reboots-undo-successes",
        "an exit code 0 before a reboot counts as lost",
        _reboots_undo_successes,
        ("reboot", "partition"),
    ),
    Mutation(
        "believe-a-shutdown",
        "an exit code from before a reboot is always the program's own",
        _any_code_outlasts_a_reboot,
        ("reboot",),
    ),
    Mutation(
        "late-since-its-assignment",
        "the time that a start hangs is counted from its assignment",
        late_since_assignment,
        ("slow_starts", "slow_starts", "partition"),
    ),
    Mutation(
        "snapshots-forget",
        "a snapshot omits the attempts whose files are still on the workers",
        lambda: patch.object(writing, "_outputs", lambda cluster: {}),
    ),
    Mutation(
        "no-signs-of-life",
        "a wrapper gives no sign of life before its command begins",
        no_signs_of_life,
        ("slow_starts",),
    ),
)
