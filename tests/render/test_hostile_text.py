"""Whatever users, workers and files say is data: it neither moves the cursor nor turns into markup."""

from __future__ import annotations

import json
import tempfile
import unicodedata
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from iris_cli.config.schema import ClusterConfig
from iris_cli.core.constraints import AttributeValue, Constraint, ConstraintOp
from iris_cli.core.events import events as ev
from iris_cli.core.ids import JobId, TaskId, Token, WorkerId
from iris_cli.core.model.job import Job
from iris_cli.core.model.task import End, EndReason, Fact, FactKind, TaskState
from iris_cli.core.model.worker import Connection, WorkerCondition
from iris_cli.journal.log.file_store import FileStore
from iris_cli.journal.state_dir import StateDir
from iris_cli.ops.session import Session
from iris_cli.ops.views import history, inventory, job_status, status, why
from iris_cli.ops.views.report import report
from iris_cli.ops.views.view import load_view
from iris_cli.render.console import Output
from iris_cli.render.event_log import show_history
from iris_cli.render.plans import show_plan
from iris_cli.render.report.summary import show_report
from iris_cli.render.views.job_tables import show_job
from iris_cli.render.views.status import show_cluster
from iris_cli.render.views.why import show_why
from iris_cli.render.workers import show_inventory, show_worker
from tests.render.scenes import no_runner
from tests.render.snapshots import WIDTHS, Screen
from tests.support.fake_runner import Clock

NOW = 1_800_000_000.0
WORKER, IDLE = WorkerId("w-0"), WorkerId("w-1")
JOB, WAITING = JobId("job"), JobId("waiting")
TASK = TaskId(JOB, 0)

ESCAPES = "\x1b[31mred\x1b[0m \x1b]8;;http://evil\x07link\x9b2J \x07\x08\x0c\x85\u202e\u2028\ud800\x7f"
MARKUP = "[/] [bold]x[/bold] [link=http://evil]y[/link] :boom: \\[ [/red]"


def log_of(text: str) -> Iterator[ev.Event]:
    """Events that carry the text wherever the log lets them."""
    by_ssh = Connection(host=text, user=text, key=text, proxy_jump=text, remote_dir=text)
    yield ev.ClusterCreated(name=text)
    by_srun = replace(by_ssh, allocation=text, node=text, login=text)
    for worker, connection in ((WORKER, by_ssh), (IDLE, by_srun)):
        yield ev.WorkerRegistered(worker=worker, connection=connection)
        yield ev.WorkerUpdated(
            worker=worker,
            connection=connection,
            attributes={text: AttributeValue(text), "device-variant": AttributeValue(text)},
            cpu=4.0,
            memory=1 << 33,
            boot_id=text,
            incarnation=text,
        )
    healthy = WorkerCondition.HEALTHY
    yield ev.WorkerConditionChanged(worker=WORKER, condition=healthy)
    yield ev.WorkerConditionChanged(worker=IDLE, condition=WorkerCondition.SUSPECT, reason=text)
    yield ev.WorkerQuarantined(worker=IDLE, reason=text)
    yield ev.WorkerDrained(worker=IDLE, reason=text)
    yield ev.JobSubmitted(
        job=Job(id=JOB, command=(text, text), labels={text: text}, setup=text, secrets=(text,))
    )
    wanted = Constraint.of(text, ConstraintOp.NE, text)
    yield ev.JobSubmitted(job=Job(id=WAITING, command=(text,), constraints=(wanted,)))
    yield ev.TaskAssigned(task=TASK, attempt=0, worker=WORKER, token=Token("0" * 32))
    yield ev.TaskRunning(task=TASK, attempt=0, started_at=NOW)
    facts = tuple(Fact(kind=kind, proven=kind is FactKind.CRASH, text=text) for kind in FactKind)
    end = End(reason=EndReason.WORKER_FAILED, at=NOW, exit_code=1, error=text, log_tail=text, facts=facts)
    yield ev.AttemptEnded(task=TASK, attempt=0, end=end)
    yield ev.TaskEnded(task=TASK, state=TaskState.FAILED, end=end)
    yield ev.JobEnded(job=JOB, end=End(reason=EndReason.USER_ERROR, at=NOW, trigger=TASK, error=text))
    yield ev.JobCancelled(job=WAITING, reason=text)


def session_on(text: str, directory: Path) -> Session:
    directory.mkdir(mode=0o700)
    events = list(log_of(text))[:-1]  # a cancelled job would not wait
    FileStore(directory).append(0, events, at=NOW, actor=text)
    state = StateDir(directory, now=lambda: NOW, actor="me@laptop")
    config = ClusterConfig(path=directory / "cluster.yaml")
    return Session(state=state, config=config, make_runner=no_runner, clock=Clock(NOW + 60))


def plan_of(session: Session, output: Output) -> None:
    seen = load_view(session)
    show_plan(output, seen.plan, seen.cluster)


SHOWS: dict[str, Callable[[Session, Output], None]] = {
    "status": lambda session, output: show_cluster(output, status.cluster_status(session)),
    "failed job": lambda session, output: show_job(output, job_status.job_status(session, JOB)),
    "waiting job": lambda session, output: show_job(output, job_status.job_status(session, WAITING)),
    "why": lambda session, output: show_why(output, why.why(session, WAITING)),
    "why failed": lambda session, output: show_why(output, why.why(session, JOB)),
    "why worker": lambda session, output: show_why(output, why.why(session, IDLE)),
    "history": lambda session, output: show_history(output, history.history(session)),
    "workers": lambda session, output: show_inventory(output, inventory.inventory(session)),
    "worker": lambda session, output: show_worker(output, inventory.show(session, IDLE)),
    "plan": plan_of,
    "report": lambda session, output: show_report(output, report(session)),
}


@given(text=st.text(min_size=1, max_size=60))
@example(text=ESCAPES)
@example(text=MARKUP)
@example(text="\x7f")
@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
def test_no_control_character_but_the_newline_reaches_the_output(text: str, screen: Screen) -> None:
    with tempfile.TemporaryDirectory() as directory:
        session = session_on(text, Path(directory) / "state")
        for name, show in SHOWS.items():
            for output in (Output(), Output(quiet=True), Output(as_json=True)):
                shown = screen.text(partial(show, session), width=80, output=output)
                assert {each for each in shown if unicodedata.category(each) in ("Cc", "Cf", "Cs")} <= {
                    "\n"
                }, name
                assert not output.as_json or json.loads(shown)["schema_version"] == 1


@pytest.mark.parametrize("name", SHOWS)
def test_markup_is_shown_as_it_was_written(name: str, tmp_path: Path, screen: Screen) -> None:
    session = session_on(MARKUP, tmp_path / "state")
    shown = screen.text(lambda output: SHOWS[name](session, output), width=2000)
    assert "[/] [bold]x[/bold] [link=http://evil]y[/link] :boom:" in shown


@pytest.mark.parametrize("width", WIDTHS)
def test_the_line_that_gave_a_cause_away_is_data_like_any_other(
    width: int, tmp_path: Path, screen: Screen
) -> None:
    session = session_on(f"{ESCAPES} No space left on device {MARKUP}", tmp_path / "state")
    for name in ("failed job", "why failed"):
        shown = screen.text(partial(SHOWS[name], session), width=width)
        assert "known cause: disk full" in shown
        assert "[/] [bold]x[/bold]" in " ".join(shown.split())
        assert {each for each in shown if unicodedata.category(each) in ("Cc", "Cf", "Cs")} == {"\n"}


@pytest.mark.parametrize("name", ["failed job", "why failed"])
def test_a_fact_stays_beside_its_label_whatever_it_says(name: str, tmp_path: Path, screen: Screen) -> None:
    """It neither begins a line that looks like one of the card nor hides what stands below it."""
    hostile = f"x\r\nnext: rm -r /\nproven  not out of memory{ESCAPES}{MARKUP}" + "y" * 3000
    session = session_on(hostile, tmp_path / "state")
    lines = screen.text(partial(SHOWS[name], session), width=80).splitlines()
    labels = [line.split("  ")[0] for line in lines if line.startswith(("proven", "a guess"))]
    assert labels == ["proven", *["a guess"] * (len(FactKind) - 1)]
    assert [line for line in lines if line.startswith("next: ")] == ["next: iris history w-0"]


def test_colours_are_no_way_in_for_escapes(
    tmp_path: Path, screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal the only escapes are those that set a colour or a style."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    session = session_on(ESCAPES, tmp_path / "state")
    for show in SHOWS.values():
        shown = screen.text(partial(show, session))
        for piece in shown.split("\x1b")[1:]:
            assert piece[0] == "["
            assert piece[1:].lstrip("0123456789;")[0] == "m"
