"""Clusters to look at, and sessions that look at them: real logs in real state directories."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iris_cli.config.schema import ClusterConfig
from iris_cli.core.constraints import Constraint, ConstraintOp
from iris_cli.core.events.events import WorkerSkewChanged
from iris_cli.core.ids import JobId, WorkerId
from iris_cli.core.messages.observations import AttemptReport, RemoteState
from iris_cli.core.model.job import JobRequest, Priority
from iris_cli.journal.log.file_store import FileStore
from iris_cli.journal.state_dir import StateDir
from iris_cli.ops.session import Session
from tests.core.known_causes.multi_host import SEEN
from tests.support.fake_runner import Clock
from tests.support.inside import Inside
from tests.support.lab import GIB, Lab

if TYPE_CHECKING:
    from iris_cli.remote.task_runner import TaskRunner

CRASH = """step 4200 loss 2.31
Traceback (most recent call last):
  File "train.py", line 88, in <module>
    main()
ValueError: loss is nan
"""
KILLED = "step 4199 loss 2.32\nstep 4200 loss 2.31\n"
PEER_DIED = """step 4200 loss 2.30
F0929 17:42:48.594200 client.h:77] Terminating process because the JAX distributed service detected fatal errors.
"""
CHIP_FAILED = "INTERNAL: observed errors are: [Hardware]\n"
DISK_FULL = """step 4200 loss 2.31
saving checkpoint 4200
OSError: [Errno 28] No space left on device
"""


class Scene(Lab):
    """A lab whose jobs run a program named after them."""

    def job(self, name: str | None = None, request: JobRequest | None = None, **asked: Any) -> Lab:
        if request is None:
            asked.setdefault("command", ("python3", f"{name}.py"))
        return super().job(name, request, **asked)


def played_once(scene: Callable[[], Lab]) -> Callable[[], Lab]:
    """Return a scene of which each caller gets a copy: to play it again takes longer."""
    played = cache(scene)

    @wraps(scene)
    def copied() -> Lab:
        lab = played()
        shared = {id(each): each for each in lab.log}  # transactions never change
        return deepcopy(lab, {**shared, id(lab.cluster): lab.cluster.copy()})

    return copied


def no_runner(_cluster_id: str) -> TaskRunner:
    raise AssertionError("a reading command asked a worker")


def session_of(lab: Lab, directory: Path, cycle_ago: float | None = 38.0) -> Session:
    """A session on the lab's log, as written to a state directory.

    Cron ran the last cycle `cycle_ago` seconds ago: with more than 3 minutes nobody believes in the next one.
    """
    directory.mkdir(mode=0o700)
    store = FileStore(directory)
    for transaction in lab.log:
        actor = "me@laptop iris schedule"
        store.append(transaction.seq - 1, transaction.events, at=transaction.at, actor=actor)
    state = StateDir(directory, now=lambda: lab.now, actor="me@laptop")
    if cycle_ago is not None:
        at = {"at": lab.now - cycle_ago}
        state.write_heartbeat(at, "cron", {**at, "interval": 60.0})
    config = ClusterConfig(path=directory / "cluster.yaml", limits=lab.limits)
    return Session(state=state, config=config, make_runner=no_runner, clock=Clock(lab.now))


def empty() -> Lab:
    return Scene()


@played_once
def busy() -> Lab:
    """A gang runs, a CPU job is half done, another gang and a picky job wait, one host is ill."""
    lab = Scene().slice("v5a", "v5litepod-16").slice("v5b", "v5litepod-16")
    lab.worker("cpu-0").worker("cpu-1").worker("gpu-0", cpu=32, gpus=8)
    lab.job("train", tpu="v5litepod-16", command=("python3", "train.py"), labels={"team": "vision"})
    lab.job("prep", replicas=3, cpu=2.0, memory=4 * GIB).schedule()
    lab.reports("train/* running", "prep/task-0 running", "prep/task-1 running").advance("20m")
    lab.reports("prep/task-0 exited 0").silent("v5b-2").drain("cpu-1", "new disk").advance("5m")
    lab.job("eval", tpu="v5litepod-16", slices=2, command=("python3", "eval.py"))
    lab.job("big", cpu=8.0, constraints=(Constraint.of("pool", ConstraintOp.EQ, "large"),))
    for minutes in (1, 1, 2):
        lab.silent("v5b-2").schedule().advance(f"{minutes}m")
    return lab


def one_host() -> Lab:
    return Scene().worker("w0")


def failed_gang() -> Lab:
    """Rank 2 crashed, its siblings are stopped, rank 3 not yet."""
    lab = Scene().slice("v5a", "v5litepod-16")
    lab.job("train", tpu="v5litepod-16", command=("python3", "train.py", "--lr", "1e-3")).schedule()
    lab.reports("train/* running").advance("2h50m")
    token = lab.attempt("train", 2).token
    crash = AttemptReport(
        token=token,
        state=RemoteState.EXITED,
        exit_code=137,
        cause="signal",
        started_ago=10200.0,
        log_tail=KILLED,
    )
    lab.answers(lab.answer_of("v5a-2", crash)).advance("30s")
    return lab.reports("train/task-0 stopped", "train/task-1 stopped").advance("42m")


def diagnosed_gang() -> Lab:
    """Rank 0 says only that another one died: rank 2, whose disk is full. Rank 1 and 3 were where all were."""
    return _gang_of_two_failures((134, PEER_DIED), (1, DISK_FULL))


def loopback_gang() -> Lab:
    """Rank 0 could not reach a peer. Rank 2 says why: its own name is a loopback address."""
    return _gang_of_two_failures((1, SEEN["gloo-peers"][0]), (1, SEEN["jax-gloo-loopback"][0]))


def _gang_of_two_failures(first: tuple[int, str], cause: tuple[int, str]) -> Lab:
    """Rank 0 failed first, then rank 2; both with an exit code and a last line."""
    lab = Scene().slice("v5a", "v5litepod-16")
    lab.job("train", tpu="v5litepod-16", command=("python3", "train.py")).schedule()
    lab.reports("train/* running").advance("2h50m")
    lab.answers(lab.answer_of("v5a-0", _exit(lab, 0, *first))).advance("5s")
    lab.answers(
        lab.answer_of("v5a-1", _exit(lab, 1, 143, "rank 1: step 4200 loss 2.31\n")),
        lab.answer_of("v5a-2", _exit(lab, 2, *cause)),
        lab.answer_of("v5a-3", _exit(lab, 3, 143, "rank 3: step 4200 loss 2.29\n")),
    )
    return lab.advance("10m")


def _exit(lab: Lab, rank: int, exit_code: int, log_tail: str, job: str = "train") -> AttemptReport:
    token = lab.attempt(job, rank).token
    return AttemptReport(token=token, state=RemoteState.EXITED, exit_code=exit_code, log_tail=log_tail)


def retried_gang() -> Lab:
    """One round failed and was charged; the second round runs."""
    lab = Scene().slice("v5a", "v5litepod-16")
    lab.job("train", tpu="v5litepod-16", max_retries_failure=2).schedule()
    lab.reports("train/* running").advance("10m").reports("train/task-1 exited 1")
    lab.reports(*(f"train/task-{rank} stopped" for rank in (0, 2, 3))).advance("1m").schedule()
    return lab.reports("train/* running").advance("5m")


@played_once
def many_tasks() -> Lab:
    """500 tasks on 40 hosts: some run, some ended well, two failed, most wait."""
    lab = Scene()
    for number in range(40):
        lab.worker(f"cpu-{number}", cpu=4.0)
    lab.job("sweep", replicas=500, max_task_failures=5).schedule()
    lab.reports("sweep/* running").advance("7m")
    lab.reports(*(f"sweep/task-{index} exited 0" for index in range(30)))
    lab.reports("sweep/task-77 exited 1", "sweep/task-90 signal 139")
    return lab.advance("3m").schedule().reports("sweep/* running").advance("1m")


def about_to_start() -> Lab:
    """Nothing is placed yet: a gang and GPU tasks fit, one job is too late, one waits for another."""
    lab = Scene().slice("v5a", "v5litepod-16").worker("gpu-0", cpu=8, gpus=4)
    lab.job("train", tpu="v5litepod-16").job("infer", gpu="A100:2", replicas=3)
    lab.job("simulate", cpu=500.0, scheduling_timeout=60.0).job("report", after=("train",))
    lab.job("sweep", replicas=40, constraints=(Constraint.of("zone", ConstraintOp.EXISTS),))
    return lab.advance("5m")


def lost_host() -> Lab:
    """A preemptible host is silent: its task runs elsewhere by now, and perhaps there. One clock is wrong."""
    lab = Scene().worker("spot-0", preemptible=True).job("train", cpu=12.0).schedule()
    lab.worker("cpu-0").worker("cpu-1").job("bench", cpu=12.0, command=("./bench.sh",)).schedule()
    lab.reports("train/* running", "bench/* running").reports("bench/* orphaned")
    lab.records(WorkerSkewChanged(worker=WorkerId("cpu-0"), skew=-95.0))
    for _ in range(3):
        lab.advance("6m")
        lab.answers(lab.silence_of("spot-0"), lab.answer_of("cpu-0"), lab.answer_of("cpu-1"))
    return lab.schedule().reports("train/* running").advance("3m")


def family() -> Lab:
    """A sweep has two endpoints and a child job, which has one of its own that waits for a pool that is missing."""
    pool = (Constraint.of("pool", ConstraintOp.EQ, "large"), Constraint.of("rack", ConstraintOp.EXISTS))
    lab = Scene().worker("cpu-0", pool="large", rack="7").worker("cpu-1", pool="large", rack="8")
    lab.job("sweep", constraints=pool, replicas=2, env={"SEED": "1"}).schedule().reports("sweep/* running")
    inside = Inside(lab, "sweep/task-0")
    inside.register("http", 8080, path="/metrics")
    inside.register("debug", 4444)
    inside.submit(name="fold", constraints=(Constraint.of("rack", ConstraintOp.EQ, "7"),))
    lab.schedule().reports("sweep/fold/* running").advance("10m")
    picky = (Constraint.of("zone", ConstraintOp.EQ, "us-central2-b"),)
    Inside(lab, "sweep/fold/task-0").submit(name="eval", constraints=picky)
    return lab.advance("2m")


def ways_to_fail() -> Lab:
    """A child and so its parent, a set-up, a time limit; one found no place, one waited in vain, one goes again."""
    lab = Scene().worker("cpu-0", cpu=8).job("tune", command=("python3", "tune.py"))
    lab.job("jax-env", setup="pip install jx").job("bench", timeout=7200.0)
    lab.job("resnet", max_retries_failure=2).schedule()
    lab.reports("tune/* running", "bench/* running", "resnet/* running")
    no_package = "ERROR: No matching distribution found for jx\n"
    lab.answers(lab.answer_of("cpu-0", _ended(lab, "jax-env", 1, no_package, RemoteState.NOSTART, "setup")))
    lab.job("plots", after=(JobId("jax-env"),))
    lab.job("merge", cpu=96.0, scheduling_timeout=3600.0, force=True)
    Inside(lab, "tune/task-0").submit(name="trial")
    lab.schedule().reports("tune/trial/* running").advance("90m")
    lab.answers(lab.answer_of("cpu-0", _ended(lab, "tune/trial", 1, DISK_FULL)))
    lab.answers(lab.answer_of("cpu-0", _ended(lab, "tune", 2, "trial 7 failed, giving up\n")))
    lab.answers(lab.answer_of("cpu-0", _ended(lab, "resnet", 1, DISK_FULL)))
    return lab.schedule().reports("resnet/* running").advance("30m").reports("bench/* timeout").advance("5m")


@played_once
def displays() -> Lab:
    """A gang failed an hour ago; one runs, one stops before its retry. Nothing of the other jobs runs: one waits for a
    retry, one lost its host, one is half done, two were never started.
    """
    lab = Scene().slice("v5a", "v5litepod-16").slice("v5b", "v5litepod-16").worker("cpu-0").worker("cpu-1")
    lab.job("diverged", tpu="v5litepod-16").schedule().reports("diverged/* running").advance("10m")
    lab.reports("diverged/task-2 exited 1")
    lab.reports(*(f"diverged/task-{rank} stopped" for rank in (0, 1, 3))).advance("1h")
    lab.job("low", cpu=500.0, priority=Priority.LOW, force=True)
    lab.job("high", cpu=500.0, priority=Priority.HIGH, force=True)
    lab.job("flaky", cpu=8.0, max_retries_failure=3).job("spot", cpu=8.0, max_retries_failure=3)
    lab.job("sweep", array="0-19%3", cpu=2.0).schedule()
    lab.job("eval", tpu="v5litepod-16", max_retries_failure=2).schedule()
    lab.job("train", tpu="v5litepod-16").schedule()
    for job in ("flaky", "spot", "sweep", "eval", "train"):
        lab.reports(f"{job}/* running")
    lab.advance("20m").reports("flaky/* exited 1", "spot/* lost", "eval/task-3 exited 9")
    return lab.reports("sweep/* exited 0", "eval/task-0 stopped").advance("2m")


@played_once
def tried_again() -> Lab:
    """A gang failed with a Python error, failed again, and runs for the third time. 3 of 20 tasks of an array failed; a
    chip failed twice on the same host, and the job that it failed runs there.
    """
    lab = Scene().slice("v5a", "v5litepod-16").worker("cpu-0").worker("cpu-1")
    lab.job("train", tpu="v5litepod-16", command=("python3", "train.py")).schedule()
    for name in ("train", "train-2"):
        lab.reports(f"{name}/* running").advance("20m")
        lab.answers(lab.answer_of("v5a-2", _exit(lab, 2, 1, CRASH, name)))
        lab.reports(*(f"{name}/task-{rank} stopped" for rank in (0, 1, 3))).advance("5m").again(
            name
        ).schedule()
    lab.job("sweep", array="0-19").job("chip", max_retries_failure=1).schedule()
    lab.reports("train-3/* running", "sweep/* running", "chip/* running").advance("1m")
    lab.reports(*(f"sweep/task-{index} exited {int(index in (3, 4, 17))}" for index in range(20)))
    lab.answers(lab.answer_of(lab.attempt("chip").worker, _ended(lab, "chip", 1, CHIP_FAILED)))
    return lab.schedule().reports("chip/* running").advance("1m")


def _ended(
    lab: Lab, job: str, code: int, said: str, state: RemoteState = RemoteState.EXITED, cause: str = ""
) -> AttemptReport:
    token = lab.attempt(job).token
    return AttemptReport(token=token, state=state, exit_code=code, cause=cause, log_tail=said)


EVIL = (
    "\x1b[31mred\x1b[0m \x1b]8;;http://evil\x07link \x9b2J \u202eltr [bold]x[/bold] [link=http://evil]y[/link] 日本 "
    "e\u0301 a\u200db"
)
"""Colours, a link and a clear screen, text that runs the other way, markup, wide and combining characters."""


def two_regions() -> Lab:
    """A free slice in each of two regions."""
    return (
        Scene()
        .slice("west", "v5litepod-16", region="us-west4")
        .slice("east", "v5litepod-16", region="us-east1")
    )


def hostile() -> Lab:
    """Everything that users and hosts may write freely wants more; names are as long as they may be."""
    longest = "a-job-whose-name-is-as-long-as-names-may-be-and-not-a-bit-longer"[:63]
    lab = Scene().slice("v5a", "v5litepod-16").worker("cpu-0", pool=EVIL).worker("cpu-1", rack="7")
    lab.job("gang", tpu="v5litepod-16", command=("python3", EVIL), labels={"note": EVIL, "x" * 40: "y" * 300})
    lab.job(longest, command=("sh", "-c", f"{EVIL} {'z' * 300}"), env={"A": EVIL}).schedule()
    lab.reports("gang/* running", f"{longest}/* running").advance("20m")
    token, worker = lab.attempt(longest).token, lab.attempt(longest).worker
    crash = AttemptReport(
        token=token, state=RemoteState.EXITED, exit_code=1, log_tail=f"{EVIL}\nKilled {'w' * 300}\n"
    )
    lab.answers(lab.answer_of(worker, crash)).drain("cpu-1", f"{EVIL} {'v' * 300}")
    lab.job("picky", constraints=(Constraint.of("pool", ConstraintOp.EQ, f"{EVIL} {'u' * 300}"),))
    lab.job("dropped").cancel("dropped", EVIL)
    return lab.advance("5m")


SCENES: dict[str, Callable[[], Lab]] = {
    "empty": empty,
    "about_to_start": about_to_start,
    "busy": busy,
    "one_host": one_host,
    "failed_gang": failed_gang,
    "diagnosed_gang": diagnosed_gang,
    "loopback_gang": loopback_gang,
    "retried_gang": retried_gang,
    "many_tasks": many_tasks,
    "lost_host": lost_host,
    "family": family,
    "ways_to_fail": ways_to_fail,
    "displays": displays,
    "tried_again": tried_again,
    "two_regions": two_regions,
    "hostile": hostile,
}
