"""What people see, letter for letter. A change here is a change of the product: read the diff."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from iris_cli.core.ids import JobId
from iris_cli.ops import history, inventory, job_status, status, why
from iris_cli.ops.next_steps import of_cluster, to_workers
from iris_cli.ops.report import report
from iris_cli.ops.session import Session
from iris_cli.ops.view import look
from iris_cli.render import next_steps
from iris_cli.render.console import Output
from iris_cli.render.history import show_history
from iris_cli.render.plans import show_plan
from iris_cli.render.report.summary import show_report
from iris_cli.render.status import show_cluster, show_job
from iris_cli.render.why import show_why
from iris_cli.render.workers import show_inventory, show_worker
from tests.render.scenes import SCENES, session_of
from tests.render.snapshots import Screen, check

View = Callable[[Session, Output], None]


def cluster(session: Session, output: Output) -> None:
    show_cluster(output, status.cluster_status(session))


def alone(session: Session, output: Output) -> None:
    found, file = status.cluster_status(session), Path("cluster.yaml")
    next_steps.show(output, of_cluster(found, () if found.workers else tuple(to_workers(file, 4, file, {}))))


def job(name: str, session: Session, output: Output) -> None:
    show_job(output, job_status.job_status(session, name))


def reason(name: str, session: Session, output: Output) -> None:
    show_why(output, why.why(session, name))


def events(name: str, session: Session, output: Output) -> None:
    show_history(output, history.history(session, name, limit=25))


def workers(session: Session, output: Output) -> None:
    show_inventory(output, inventory.inventory(session))


def worker(name: str, session: Session, output: Output) -> None:
    show_worker(output, inventory.show(session, name))


def figures(session: Session, output: Output) -> None:
    show_report(output, report(session))


def plan(name: str, session: Session, output: Output) -> None:
    seen = look(session)
    show_plan(output, seen.plan, seen.cluster, JobId(name) if name else None)


VIEWS: dict[str, tuple[str, View]] = {
    **{f"status-{scene}": (scene, cluster) for scene in SCENES if scene != "hostile"},
    "job-running": ("busy", partial(job, "train")),
    "job-half-done": ("busy", partial(job, "prep")),
    "job-waiting": ("busy", partial(job, "eval")),
    "job-failed": ("failed_gang", partial(job, "train")),
    "job-diagnosed": ("diagnosed_gang", partial(job, "train")),
    "job-retried": ("retried_gang", partial(job, "train")),
    "job-many-tasks": ("many_tasks", partial(job, "sweep")),
    "why-waiting-gang": ("busy", partial(reason, "eval")),
    "why-too-large": ("busy", partial(reason, "big")),
    "why-running": ("busy", partial(reason, "train")),
    "why-half-done": ("busy", partial(reason, "prep")),
    "why-failed": ("failed_gang", partial(reason, "train")),
    "why-diagnosed": ("diagnosed_gang", partial(reason, "train")),
    "why-sibling": ("failed_gang", partial(reason, "train/task-0")),
    "why-ill-worker": ("busy", partial(reason, "v5b-2")),
    "why-many": ("many_tasks", partial(reason, "sweep")),
    "history-all": ("failed_gang", partial(events, "")),
    "history-task": ("retried_gang", partial(events, "train/task-1")),
    "job-lost-host": ("lost_host", partial(job, "bench")),
    "job-lost": ("lost_host", partial(job, "train")),
    "why-lost-host": ("lost_host", partial(reason, "spot-0")),
    "workers-lost-host": ("lost_host", workers),
    "history-lost-host": ("lost_host", partial(events, "spot-0")),
    "job-parent": ("family", partial(job, "sweep")),
    "job-child": ("family", partial(job, "sweep/fold/eval")),
    "why-child": ("family", partial(reason, "sweep/fold/eval")),
    "job-child-failed": ("ways_to_fail", partial(job, "tune")),
    "job-set-up-failed": ("ways_to_fail", partial(job, "env")),
    "job-time-limit": ("ways_to_fail", partial(job, "slow")),
    "job-goes-again": ("ways_to_fail", partial(job, "again")),
    "job-in-vain": ("ways_to_fail", partial(job, "after")),
    "why-never-placed": ("ways_to_fail", partial(reason, "huge")),
    "history-parent": ("family", partial(events, "sweep")),
    **{
        f"report-{scene}": (scene, figures)
        for scene in ("empty", "busy", "failed_gang", "lost_host", "family")
    },
    **{f"alone-{scene}": (scene, alone) for scene in ("empty", "busy", "diagnosed_gang", "lost_host")},
    "plan-all": ("about_to_start", partial(plan, "")),
    "plan-of-a-job": ("about_to_start", partial(plan, "infer")),
    "plan-nothing": ("empty", partial(plan, "")),
    "workers-empty": ("empty", workers),
    "workers-busy": ("busy", workers),
    "worker-busy": ("busy", partial(worker, "v5a-0")),
    "worker-draining": ("busy", partial(worker, "cpu-1")),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_person_sees_this(name: str, tmp_path: Path, screen: Screen) -> None:
    scene, view = VIEWS[name]
    session = session_of(SCENES[scene](), tmp_path / "state")
    check(f"{name}.txt", screen.at_all_widths(partial(view, session)))


@pytest.mark.parametrize("name", [name for name in VIEWS if "many" not in name])
def test_a_program_reads_this(name: str, tmp_path: Path, screen: Screen) -> None:
    scene, view = VIEWS[name]
    session = session_of(SCENES[scene](), tmp_path / "state")
    check(f"{name}.json", screen.json(partial(view, session)))
