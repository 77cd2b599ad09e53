"""Every screen says who runs cycles, and none promises a cycle that does not come."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from iris_cli.core.ids import AttemptId, JobId, TaskId, WorkerId
from iris_cli.core.messages.observations import SilenceKind
from iris_cli.core.model.job import JobRequest, JobState
from iris_cli.ops.cycle.cycle import CycleResult
from iris_cli.ops.jobs.change import Cancelled
from iris_cli.ops.loop.foreground import WaitResult
from iris_cli.ops.views.job_status import job_status
from iris_cli.ops.views.status import cluster_status
from iris_cli.ops.views.why import why
from iris_cli.render import jobs
from iris_cli.render.views.why import show_why
from tests.render.pictures import PICTURES
from tests.render.pictures.picture import Picture
from tests.render.scenes import session_of
from tests.render.snapshots import EXPECTED, Screen
from tests.render.stage import Stage, Stages
from tests.support.lab import Lab

FUTURE = re.compile(r"(next|later|every) cycle|tried again")
NOBODY = "no cycles are running (last one 12m ago): iris loop start, or iris cron install"
LOOP = "cycles: background loop (pid 4711), last 3s ago"


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Stages:
    return Stages(tmp_path_factory.mktemp("scenes"))


@pytest.fixture
def busy(stages: Stages) -> Iterator[Stage]:
    """Jobs that run and wait, and a background loop."""
    with stages.stage("busy") as stage:
        yield stage


def promising() -> Iterator[str]:
    """The pictures with a sentence about a cycle to come."""
    for name, picture in PICTURES.items():
        if picture.show is None and FUTURE.search((EXPECTED / "commands" / f"{name}.txt").read_text()):
            yield name


def shown(stages: Stages, picture: Picture) -> str:
    """What its commands print when no cycle has run for 12 minutes."""
    with stages.stage(picture.scene) as stage:
        picture.prepare(stage)
        stage.answers = list(picture.answers)
        stage.nobody_runs_cycles(720.0)
        return "".join(stage.typed(line.removeprefix("iris").lstrip(), 400)[0] for line in picture.lines)


def test_what_promises_a_cycle_promises_none_where_nobody_runs_them(stages: Stages) -> None:
    names = list(promising())
    assert len(names) > 5
    for name in names:
        text = shown(stages, PICTURES[name])
        assert not FUTURE.search(text), (name, text)
        assert "no cycles are running" in text, name


def test_a_screen_says_who_runs_cycles_and_how_old_it_is(busy: Stage) -> None:
    lines = ["status", "status train", "why train", "why cpu-1", "workers", "worker show cpu-1", ""]
    assert [line for line in lines if LOOP not in busy.typed(line)[0].splitlines()] == []
    busy.nobody_runs_cycles(720.0)
    assert [line for line in lines if NOBODY not in busy.typed(line)[0].splitlines()] == []


def test_json_says_who_runs_cycles_and_when_the_next_one_is(busy: Stage) -> None:
    def cycles_of(line: str) -> dict[str, object]:
        cycles = json.loads(busy.typed(f"--json {line}", told=False)[0])["cycles"]
        return {name: cycles[name] for name in ("by", "pid", "last", "next", "interval")}

    lines = ["status", "status train", "why train", "workers", "worker show cpu-1", ""]
    loop = {"by": "loop", "pid": 4711, "last": 3.0, "next": 7.0, "interval": 10.0}
    assert {line: cycles_of(line) for line in lines} == dict.fromkeys(lines, loop)
    busy.nobody_runs_cycles(720.0)
    no_cycles = {"by": None, "pid": None, "last": 720.0, "next": None, "interval": None}
    assert {line: cycles_of(line) for line in lines} == dict.fromkeys(lines, no_cycles)


def test_doctor_says_who_runs_cycles_and_how_to_have_them_run(busy: Stage) -> None:
    assert "ok    cycles: background loop (pid 4711), last 3s ago" in busy.typed("doctor --offline")[0]
    busy.nobody_runs_cycles(720.0)
    assert (
        "warn  cycles: no cycles are running, the last cycle was 12m ago; 4 open jobs must wait\n"
        "      fix: iris loop start, or iris cron install\n"
    ) in busy.typed("doctor --offline")[0]


def test_with_no_job_open_nobody_needs_cycles(stages: Stages) -> None:
    with stages.stage("empty") as stage:
        stage.nobody_runs_cycles(720.0)
        assert "no job is open, last cycle 12m ago" in stage.typed("status")[0].splitlines()
        assert "nobody" not in stage.typed("doctor --offline")[0]


def test_where_the_loop_is_switched_off_nobody_is_told_to_start_it(busy: Stage) -> None:
    with (busy.directory / "cluster.yaml").open("a") as file:
        file.write("loop: off\n")
    busy.nobody_runs_cycles(720.0)
    assert (
        "no cycles are running (last one 12m ago): iris watch --schedule, or iris cron install"
        in busy.typed("status")[0].splitlines()
    )


TROUBLE = (
    "secret WANDB of train is not in the loop's environment; run `iris loop start` in a shell that has it"
)


@pytest.mark.parametrize("line", ["status", "status train", "why train"])
def test_what_the_loop_can_not_do_is_the_first_line(line: str, busy: Stage) -> None:
    busy.loop_lacks(TROUBLE)
    assert busy.typed(line, 200)[0].splitlines()[0] == f"background loop: {TROUBLE}"


@pytest.mark.parametrize(
    ("trouble", "step"),
    [
        (TROUBLE, "iris loop start"),
        (
            "cluster.yaml is invalid (1 problem), nothing is placed: iris config validate",
            "iris config validate",
        ),
        ("secret WANDB of train: /k is readable by others (chmod 600 /k)", "iris loop show"),
    ],
)
def test_the_step_is_the_fix_of_the_trouble(trouble: str, step: str, busy: Stage) -> None:
    busy.loop_lacks(trouble)
    assert json.loads(busy.typed("--json", told=False)[0])["steps"][0]["command"] == step


def test_what_the_loop_can_not_do_is_the_first_thing_to_do(busy: Stage) -> None:
    busy.loop_lacks(TROUBLE)
    said = busy.typed("", 200)[0]
    assert f"iris loop start           background loop: {TROUBLE}" in re.sub(
        " +(?=background)", " " * 11, said
    )
    assert f"warn  cycles: background loop: {TROUBLE}" in busy.typed("doctor --offline", 200)[0]


@pytest.mark.parametrize(
    ("cycle_ago", "prospect"),
    [(38.0, "ready; starts in the next cycle"), (7200.0, "ready; no cycles are running")],
)
def test_why_names_the_worker_for_a_task_that_fits_now(
    cycle_ago: float, prospect: str, tmp_path: Path, screen: Screen
) -> None:
    lab = Lab().worker("w").job("job")
    answer = why(session_of(lab, tmp_path / "state", cycle_ago), "job")
    (wait,) = answer.waits
    assert (wait.prospect, wait.will_go_to) == (prospect, (WorkerId("w"),))
    assert prospect.replace("ready", "ready for w") in screen.text(partial(show_why, why=answer)).splitlines()


def test_quietly_why_says_where_a_task_runs(tmp_path: Path, screen: Screen) -> None:
    lab = Lab().worker("w").job("job").schedule().reports("job/* running")
    answer = why(session_of(lab, tmp_path / "state", 3.0), "job")
    assert screen.quiet(partial(show_why, why=answer)) == "w\n"


def test_a_look_at_the_past_promises_nothing(tmp_path: Path) -> None:
    lab = Lab().worker("w").worker("x").silent("x").job("job").advance("1h")
    status = job_status(session_of(lab, tmp_path / "state"), "job", at="30m")
    assert [task.why for task in status.tasks] == ["ready"]


@pytest.mark.parametrize(
    ("cycle_ago", "then_it_ends"), [(38.0, "; ends in the next cycle"), (7200.0, "; no cycles are running")]
)
@pytest.mark.parametrize(
    ("asked", "then", "prospect"),
    [
        (
            JobRequest(command=("true",), scheduling_timeout=60.0),
            "2m",
            "scheduling timeout exceeded",
        ),
        (
            JobRequest(command=("true",), after=("first", "done")),
            "0s",
            "dependency did not succeed: first (KILLED)",
        ),
    ],
)
def test_why_says_when_the_next_cycle_will_give_up(
    asked: JobRequest, then: str, prospect: str, cycle_ago: float, then_it_ends: str, tmp_path: Path
) -> None:
    lab = Lab().worker("w").job("done").schedule().reports("done/* exited 0")
    lab.job("first").cancel("first").job("job", asked).advance(then)
    (wait,) = why(session_of(lab, tmp_path / "state", cycle_ago), "job").waits
    assert wait.prospect == prospect + then_it_ends


@pytest.mark.parametrize(
    ("cycle_ago", "advance", "then"),
    [
        (38.0, "3m", "polled again in the next cycle"),
        (38.0, "3s", "polled again in 7s"),
        (7200.0, "3m", "no cycles are running"),
        (7200.0, "3s", "no cycles are running"),
    ],
)
def test_why_doubts_a_placement_on_a_silent_worker(
    cycle_ago: float, advance: str, then: str, tmp_path: Path
) -> None:
    lab = Lab().worker("w").job("job").schedule().reports("job/* running").silent("w").advance(advance)
    (place,) = why(session_of(lab, tmp_path / "state", cycle_ago), "job/task-0").places
    assert place.doubt == f"suspect for {advance} (connect: no route to host); {then}"


@pytest.mark.parametrize(
    ("cycle_ago", "then"), [(38.0, "will be probed in the next cycle"), (7200.0, "no cycles are running")]
)
def test_a_worker_that_was_never_probed_says_when_it_will_be(
    cycle_ago: float, then: str, tmp_path: Path
) -> None:
    lab = Lab().worker("w")
    lab.hosts[WorkerId("new")] = lab.hosts[WorkerId("w")]
    lab.configure()
    [row] = [
        each
        for each in cluster_status(session_of(lab, tmp_path / "state", cycle_ago)).workers
        if each.id == "new"
    ]
    assert row.refuses == (f"not probed yet; {then}",)


HINT = "no cycles are running: iris loop start, or iris cron install"


def launched(lab: Lab, result: CycleResult | None, **fields: Any) -> partial[None]:
    """Return what shows the job `job` after its first cycle, `result`."""
    shown = {"unanswered": {}, **fields}
    return partial(jobs.show_launched, cluster=lab.cluster, job_id=JobId("job"), result=result, **shown)


def test_a_launch_on_a_host_that_did_not_answer_names_the_host_and_is_not_placed(screen: Screen) -> None:
    lab = Lab().worker("w").job("job").schedule().not_sent("job/*").silent("w")
    show = launched(
        lab,
        CycleResult(plan=lab.plan()),
        unanswered={WorkerId("w"): "connect: no route to host; no cycles are running"},
        no_cycles=HINT,
    )
    said = "job: no answer from w (connect: no route to host; no cycles are running); details: iris why job"
    assert screen.told(show).splitlines() == [said, HINT]
    shown = partial(show, unanswered={})  # it answers again
    assert screen.told(shown).startswith("job: pending: the only worker is unavailable")


def test_a_launch_does_not_call_a_host_silent_that_rejected_the_key(screen: Screen) -> None:
    lab = Lab().worker("w").job("job").schedule().not_sent("job/*").silent("w", kind=SilenceKind.AUTH)
    show = launched(
        lab,
        CycleResult(plan=lab.plan()),
        unanswered={WorkerId("w"): "authentication: key rejected"},
    )
    said = "job: can't start on w (authentication: key rejected); details: iris why job\n"
    assert screen.told(show) == said


def test_a_launch_that_its_host_refused_says_why_and_is_not_placed(screen: Screen) -> None:
    lab = Lab().slice("a").job("job", tpu="v4-16").schedule().reports("job/task-1 nostart disk")
    lab.reports("job/task-0 stopped")
    show = launched(lab, CycleResult())
    said = "job: pending: failed to start on a-1: the worker refused to start it: disk\n"
    assert screen.told(show) == said
    assert json.loads(screen.json(show))["placed"] == {}


@pytest.mark.parametrize(("no_cycles", "then"), [("", "retried in every cycle: iris workers"), (HINT, HINT)])
def test_a_cancellation_that_is_not_confirmed_promises_only_cycles_that_come(
    no_cycles: str, then: str, screen: Screen
) -> None:
    lab = Lab().worker("w").job("job").schedule().reports("job/* running").cancel("job")
    result = Cancelled(cancelled=[JobId("job")], stopping=[AttemptId(TaskId(JobId("job"), 0), 0)])
    show = partial(jobs.show_cancelled, cluster=lab.cluster, result=result, waited=True, no_cycles=no_cycles)
    assert screen.told(show).endswith(f"; {then}\n")


@pytest.mark.parametrize(("no_cycles", "then"), [("", "starts in a later cycle"), (HINT, HINT)])
def test_a_job_that_is_being_set_up_promises_only_cycles_that_come(
    no_cycles: str, then: str, screen: Screen
) -> None:
    lab = Lab().worker("w").job("job", setup="pip install .").schedule()
    show = launched(lab, CycleResult(), no_cycles=no_cycles)
    assert screen.told(show) == f"job: being set up on w; {then}\n"


@pytest.mark.parametrize(
    ("no_cycles", "words"),
    [("", "submitted, not placed yet; details: iris why job"), (HINT, f"submitted; {HINT}")],
)
def test_a_job_that_was_only_submitted_is_promised_no_start(
    no_cycles: str, words: str, screen: Screen
) -> None:
    """The next cycle may find no room for it."""
    lab = Lab().worker("w").job("job")
    show = launched(lab, None, no_cycles=no_cycles)
    assert screen.told(show) == f"job: {words}\n"


@pytest.mark.parametrize(("no_cycles", "then"), [("", ""), (HINT, f"{HINT}\n")])
def test_a_job_that_runs_although_its_first_cycle_failed_is_not_called_unplaced(
    no_cycles: str, then: str, screen: Screen
) -> None:
    """Such as on a disk that fills up just before the time of the cycle is recorded."""
    lab = Lab().worker("w").job("job").schedule().reports("job/* running")
    show = launched(lab, None, no_cycles=no_cycles)
    assert screen.told(show) == f"job: RUNNING on w\n{then}"


@pytest.mark.parametrize(("cycle_ago", "then"), [(38.0, ""), (7200.0, "; no cycles are running")])
@pytest.mark.parametrize(
    ("make", "fits"),
    [
        (lambda lab: lab.silent("w").advance("3s"), "fits when w (suspect) is healthy again"),
        (
            lambda lab: lab.job("a").schedule().reports("a/* nostart disk").cancel("a"),
            "fits in 10s, after the cool-down of w",
        ),
    ],
)
def test_a_change_that_only_a_cycle_can_see_is_promised_only_where_cycles_come(
    make: Callable[[Lab], Lab], fits: str, cycle_ago: float, then: str, tmp_path: Path
) -> None:
    lab = make(Lab().worker("w")).job("job")
    (wait,) = why(session_of(lab, tmp_path / "state", cycle_ago), "job").waits
    assert wait.explanation is not None
    assert str(wait.explanation.change) == f"worker w {fits}{then}"


@pytest.mark.parametrize(("no_cycles", "then"), [("", "job continues"), (HINT, HINT)])
def test_a_wait_whose_time_is_over_promises_only_cycles_that_come(
    no_cycles: str, then: str, screen: Screen
) -> None:
    lab = Lab().worker("w").job("job").schedule()
    result = WaitResult({JobId("job"): JobState.PENDING})
    show = partial(jobs.show_waited, cluster=lab.cluster, waited=result, no_cycles=no_cycles)
    assert screen.told(show).splitlines()[0] == f"the wait timed out; {then}"
