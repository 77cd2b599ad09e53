"""Anything may be seen in any order, twice or never; the books stay sound, and after healing every job ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iris_cli.core.evolve import replay
from iris_cli.core.ids import JobId, WorkerId
from iris_cli.core.messages.observations import SilenceKind
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.job import JobState, ReplaceLost
from iris_cli.core.model.task import AttemptState, EndReason
from iris_cli.core.model.worker import WorkerCondition
from tests.support.lab import Lab
from tests.support.reports import parse_report

JOBS: dict[str, dict[str, Any]] = {
    "gang": {"tpu": "v4-16", "max_retries_failure": 1, "replace_lost": ReplaceLost.ALWAYS},
    "pair": {"tpu": "v4-16", "slices": 2, "max_retries_preemption": 2},
    "rack": {"replicas": 2, "group_by": "rack", "setup": "make"},
    "sweep": {"replicas": 4, "cpu": 8.0, "max_retries_failure": 1, "max_task_failures": 1, "lease": 60.0},
    "one": {"max_retries_preemption": 1},
    "one/child": {},
}
WORKERS = ("a-0", "a-1", "b-0", "b-1", "w0", "w1", "w2")
SAID = (
    *("absent", "preparing", "prepared", "launching 1s-ago", "launching 1h-ago", "running", "running 5m-ago"),
    *("exited 0", "exited 1", "exited 0 2m-ago", "exited 1 2m-ago", "exited 137", "signal", "timeout", "oom"),
    *("nostart disk", "nostart setup", "orphaned", "lost", "cancelled", "stopping", "stopped", "unkillable"),
)
Step = Callable[[Lab], object]

workers = st.sampled_from(WORKERS)
jobs = st.sampled_from(tuple(JOBS))
numbers = st.integers(min_value=0, max_value=1 << 20)


def new_lab() -> Lab:
    lab = Lab().slice("a").slice("b")
    for name in ("w0", "w1", "w2"):
        lab.worker(name, cpu=12, rack="r")
    return lab


def launch(name: str) -> Step:
    def step(lab: Lab) -> None:
        parent = name.rpartition("/")[0]
        unwanted = parent and (parent not in lab.cluster.jobs or lab.state_of(parent).terminal)
        if name not in lab.cluster.jobs and not unwanted:
            lab.job(name, **JOBS[name])

    return step


def cancel(name: str) -> Step:
    return lambda lab: lab.cancel(name) if name in lab.cluster.jobs else None


def retry(name: str, index: int | None, said: str) -> Step:
    """A retry is ordered, of a job that was just placed or of an older one; then its attempts are heard of."""

    def step(lab: Lab) -> None:
        launch(name)(lab)
        if name not in lab.cluster.jobs:
            return
        lab.schedule().reports(*(f"{each} running" for each, _ in lab.cluster.live_attempts_of(JobId(name))))
        lab.retry(name, index)
        lab.reports(*(f"{each} {said}" for each, _ in lab.cluster.live_attempts_of(JobId(name))))

    return step


def hear(number: int, words: list[str]) -> Step:
    """Some attempts, live or long over, are reported in one poll; what their workers say need not make sense."""

    def step(lab: Lab) -> None:
        attempts = [attempt for _, attempt in lab.cluster.live_attempts()]
        if number % 4 == 0:
            attempts = [attempt for task in lab.cluster.tasks.values() for attempt in task.attempts]
        chosen = [attempts[(number + 7 * place) % len(attempts)] for place in range(len(words)) if attempts]
        lab.answers(
            *(
                lab.answer_of(attempt.worker, parse_report(attempt.token, said))
                for attempt, said in zip(chosen, words, strict=False)
                if attempt.worker in lab.cluster.workers
            ),
            unheard=[WORKERS[number % len(WORKERS)]] if number % 3 == 0 else [],
        )

    return step


def hear_all(said: str) -> Step:
    """All live attempts are in the same state."""
    return lambda lab: lab.reports(*(f"{name} {said}" for name, _ in lab.cluster.live_attempts()))


def hear_ghosts(said: str) -> Step:
    """What was taken for dead is heard of again."""

    def step(lab: Lab) -> None:
        ghosts = [each for there in lab.cluster.ghosts.values() for each in there]
        lab.reports(*(f"{ghost.attempt} {said}" for ghost in ghosts))

    return step


def cut_off(names: list[str], kind: SilenceKind, wait: float) -> Step:
    """Three polls in which some are silent and the others answer."""

    def step(lab: Lab) -> None:
        for _ in range(3):
            lab.answers(
                *(
                    lab.silence_of(name, kind) if name in names else lab.answer_of(name)
                    for name in WORKERS
                    if name in lab.cluster.workers
                )
            )
            lab.advance(wait)

    return step


def policy(name: str, word: ReplaceLost) -> Step:
    return lambda lab: lab.policies.update({WorkerId(name): word})


def not_sent(number: int) -> Step:
    def step(lab: Lab) -> None:
        live = [attempt_id for attempt_id, _ in lab.cluster.live_attempts()]
        if live:
            lab.not_sent(str(live[number % len(live)]))

    return step


def on_worker(name: str, what: str) -> Step:
    def step(lab: Lab) -> None:
        worker = WorkerId(name)
        host = lab.hosts[worker]
        if worker not in lab.cluster.workers:
            return
        if what == "reboot":
            host.reboot()
        elif what == "wipe":
            host.wipe()
        elif what == "recreate":
            host.reboot()
            host.wipe()
        elif what == "probe":
            lab.probe(name)
        elif what == "accept":
            lab.probe(name, trusted=True)
        elif what == "drain":
            lab.drain(name)
        elif what == "uncordon":
            lab.uncordon(name)
        elif what == "forget":
            lab.forget_dead(name).configure()
        if worker in lab.cluster.workers:
            lab.answers(lab.answer_of(name))

    return step


THINGS = ("reboot", "wipe", "recreate", "probe", "accept", "drain", "uncordon", "forget", "answer")
hearing = st.builds(hear, numbers, st.lists(st.sampled_from(SAID), min_size=1, max_size=4))
waits = st.sampled_from([-40.0, 1.0, 15.0, 61.0, 700.0, 4000.0])
steps = st.one_of(
    *[st.builds(launch, jobs)] * 2,
    *[st.just(Lab.schedule)] * 3,
    *[hearing] * 5,
    st.builds(hear_all, st.sampled_from(("prepared", "running", "stopped"))),
    st.builds(not_sent, numbers),
    st.builds(on_worker, workers, st.sampled_from(THINGS)),
    st.builds(lambda name, kind: lambda lab: quiet(lab, name, kind), workers, st.sampled_from(SilenceKind)),
    st.builds(lambda seconds: lambda lab: lab.advance(seconds), waits),
    st.builds(cancel, jobs),
    *[st.builds(retry, jobs, st.sampled_from((None, None, 0, 1)), st.sampled_from(SAID))] * 2,
    *[
        st.builds(
            cut_off,
            st.lists(workers, min_size=1, max_size=3),
            st.sampled_from((SilenceKind.TIMEOUT, SilenceKind.UNREACHABLE, *SilenceKind)),
            st.sampled_from([320.0, 30.0, -700.0, 1e6]),
        )
    ]
    * 3,
    st.builds(hear_ghosts, st.sampled_from(SAID)),
    st.builds(policy, workers, st.sampled_from(ReplaceLost)),
)


def quiet(lab: Lab, name: str, kind: SilenceKind) -> None:
    if name in lab.cluster.workers:
        lab.silent(name, kind=kind)


def nothing_came_back(before: Cluster, after: Cluster) -> None:
    """What was over is over, as it was; attempts are only added; jobs know how they ended."""
    for task in before.tasks.values():
        now = after.tasks[task.id]
        if task.state.terminal:
            assert (now.state, now.end) == (task.state, task.end)
        for then, attempt in zip(task.attempts, now.attempts, strict=False):
            assert attempt == then or then.state is not AttemptState.ENDED
        assert len(now.attempts) >= len(task.attempts)
    for job in before.jobs.values():
        if job.end is not None:
            assert after.jobs[job.id].end == job.end
            assert after.job_state(job.id) is before.job_state(job.id)
    for job in after.jobs.values():
        assert after.job_state(job.id).terminal == (job.end is not None)


def retries_are_uncharged(after: Cluster) -> None:
    """No task and no gang is charged for an attempt that was stopped to be retried as asked."""
    for job in after.jobs.values():
        ended = [
            (attempt.round, attempt.stop is not None and attempt.stop.reason is EndReason.RETRIED)
            for task in after.tasks_of(job.id)
            for attempt in task.attempts
            if attempt.end is not None
        ]
        assert job.failed_rounds + job.preempted_rounds <= len(
            {number for number, _ in ended} - {number for number, asked in ended if asked}
        )
        charged = sum(task.failures + task.preemptions for task in after.tasks_of(job.id))
        assert charged <= sum(not asked for _, asked in ended)


def heal(lab: Lab, *, reboot: bool = False) -> None:
    """Every host is back, after a reboot or as it was, and from now on does what it is asked."""
    lab.advance(4000).configure()
    for name in WORKERS:
        if reboot:
            lab.hosts[WorkerId(name)].reboot()
        lab.probe(name, trusted=True).uncordon(name)
    for _ in range(12):
        lab.schedule()
        for ghosts in lab.cluster.ghosts.copy().values():
            lab.reports(*(f"{ghost.attempt} stopped" for ghost in ghosts))
        live = dict(lab.cluster.live_attempts())
        stopping = [name for name, attempt in live.items() if attempt.state is AttemptState.STOPPING]
        lab.reports(*(f"{name} stopped" for name in stopping))
        lab.reports(*(f"{name} prepared" for name in live if name not in stopping))
        lab.reports(*(f"{name} running" for name in live if name not in stopping))
        lab.reports(*(f"{name} exited 0" for name in live if name not in stopping))
        lab.advance(11 * 60)


@given(st.lists(steps, min_size=30, max_size=80), st.booleans())
def check(walk: list[Step], reboot: bool) -> None:
    lab = new_lab()
    for step in walk:
        before = lab.cluster
        step(lab)
        nothing_came_back(before, lab.cluster)
        retries_are_uncharged(lab.cluster)
    assert lab.replayed() == lab.cluster
    assert replay(lab.log[len(walk) :], start=replay(lab.log[: len(walk)])) == lab.cluster
    heal(lab, reboot=reboot)
    assert {job: lab.state_of(job) for job in lab.cluster.jobs if not lab.state_of(job).terminal} == {}
    assert list(lab.cluster.live_attempts()) == []
    assert lab.cluster.ghosts == {}
    assert all(worker.condition is WorkerCondition.HEALTHY for worker in lab.cluster.workers.values())


@pytest.mark.parametrize("examples", [15, pytest.param(200, marks=pytest.mark.soak)])
def test_any_sequence_of_observations_breaks_no_invariant_and_every_job_ends(examples: int) -> None:
    settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))(check)()


def test_a_walk_without_any_trouble_succeeds() -> None:
    lab = new_lab()
    for name in JOBS:
        launch(name)(lab)
    heal(lab)
    assert {lab.state_of(job) for job in JOBS} <= {JobState.SUCCEEDED, JobState.KILLED}
    assert lab.state_of("pair") is JobState.SUCCEEDED
