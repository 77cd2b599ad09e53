"""The client beside a state directory: what `iris` would do, from a program."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from iris_cli.client import Constraint, ConstraintOp, IrisClient, JobState, LogLine, WaitTimeoutError
from iris_cli.client.state_directory import StateDirectory
from iris_cli.core.ids import JobId
from iris_cli.core.model.job import Priority
from iris_cli.core.model.task import TaskState
from iris_cli.errors import ConfigError, NotFoundError, UnreachableError, UsageError
from iris_cli.ops.session import Session
from tests.ops.world import World
from tests.support.lab import Lab

Ask = Callable[[IrisClient], object]


def client_of(world: World) -> IrisClient:
    return IrisClient.with_backend(StateDirectory(lambda _: world.session()))


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Two tasks of `train` run."""
    lab = Lab().worker("w", cpu=8).job("train", replicas=2).schedule().reports("train/* running")
    return World(lab, tmp_path / "state")


def test_a_submitted_job_is_in_the_log_with_all_that_was_said(world: World) -> None:
    job = client_of(world).submit(
        ["python", "train.py", "a b"],
        name="next",
        cpu=2,
        memory="2GiB",
        timeout="90s",
        grace=5,
        env={"LR": "1e-3"},
        labels={"team": "vision"},
        priority="high",
        constraints=["region=us-west4", Constraint.of("pool", ConstraintOp.EXISTS)],
        prefer=["zone=us-a"],
        after=["train"],
        force=True,
        schedule=False,
    )
    assert (job.id, str(job), repr(job)) == ("next", "next", "<Job next>")
    found = world.session().view().jobs[JobId("next")]
    assert found.command == ("python", "train.py", "a b")
    assert (found.resources.cpu, found.resources.memory) == (2, 2 << 30)
    assert (found.timeout, found.grace, found.env, found.labels) == (
        90,
        5,
        {"LR": "1e-3"},
        {"team": "vision"},
    )
    assert (found.priority, found.after) == (Priority.HIGH, ("train",))
    assert [(each.key, each.required) for each in found.constraints] == [
        ("region", True),
        ("pool", True),
        ("zone", False),
    ]


def test_one_text_is_split_into_words_and_no_more(world: World) -> None:
    job = client_of(world).submit("echo 'a b' $HOME", schedule=False)
    assert world.session().view().jobs[job.id].command == ("echo", "a b", "$HOME")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"command": "echo 'a"}, "split into words"),
        ({"command": []}, "no command"),
        ({"command": ["a", 3]}, "command"),
        ({"memory": "much"}, "memory"),
        ({"timeout": "soon"}, "timeout"),
        ({"priority": "urgent"}, "priority"),
        ({"constraints": "region=us"}, "list"),
        ({"constraints": ["region=="]}, "constraint"),
        ({"env": {"A": 1}}, "text"),
        ({"labels": ["a"]}, "labels"),
        ({"after": "train"}, "list"),
        ({"request_id": "a"}, "inside a task"),
        ({"name": "train"}, "already"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_nothing_is_submitted(
    said: dict[str, object], words: str, world: World
) -> None:
    with pytest.raises(UsageError, match=words):
        client_of(world).submit(**{"command": ["true"], "schedule": False, **said})  # type: ignore[arg-type]  # that is the point
    assert list(world.session().view().jobs) == ["train"]


def test_a_field_that_does_not_exist_is_a_type_error(world: World) -> None:
    with pytest.raises(TypeError, match="colour"):
        client_of(world).submit("true", colour="red")  # type: ignore[call-arg]  # that is the point


def test_status_tells_of_the_job_and_each_task(world: World) -> None:
    world.lab.reports("train/task-1 exited 3")
    client = client_of(world)
    world.write()
    status = client.job("train").status()
    assert (status.id, status.state) == ("train", JobState.FAILED)
    assert [(task.id, task.attempt, task.worker, task.exit_code) for task in status.tasks] == [
        ("train/task-0", 0, "w", None),
        ("train/task-1", 0, "w", 3),
    ]
    assert client.task_status("train/task-1").state is TaskState.FAILED
    assert client.task_status("train/task-1").why != ""
    assert (status.display, [task.display for task in status.tasks]) == (
        "FAILED",
        ["STOPPING", "FAILED exit 3"],
    )
    assert client.list_tasks(client.job("train")) == list(status.tasks)


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.status("trian"),
        lambda client: client.wait("trian"),
        lambda client: client.cancel("trian"),
        lambda client: client.list_tasks("trian"),
        lambda client: client.task_status("train/task-7"),
        lambda client: client.task_logs("trian/task-0"),
        lambda client: client.task_logs("train/task-0", attempt=3),
        lambda client: client.wait("train", stream_logs_from=9),
    ],
)
def test_what_is_not_there_is_said_to_be_missing(ask: Ask, world: World) -> None:
    with pytest.raises(NotFoundError) as missing:
        ask(client_of(world))
    assert missing.value.hint


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.job("a b"),
        lambda client: client.task_status("train"),
        lambda client: client.task_logs("train/task-0", streams=["log"]),
        lambda client: client.task_logs("train/task-0", tail=-1),
        lambda client: client.wait("train", stream_logs_from=[]),
        lambda client: client.wait("train", stream_logs_from="eval/task-0"),
        lambda client: client.register_endpoint("http", 80),
        lambda client: client.remove_endpoint("http"),
    ],
)
def test_what_makes_no_sense_is_refused(ask: Ask, world: World) -> None:
    with pytest.raises(UsageError) as refused:
        ask(client_of(world))
    assert refused.value.hint or "streams" in refused.value.message or "task" in refused.value.message


def test_waiting_streams_the_chosen_tasks_and_returns_the_end(world: World) -> None:
    story: list[Callable[[], object]] = [
        lambda: world.says("train/task-0", "one\ntwo"),
        lambda: world.says("train/task-1", "other\n", "err"),
        lambda: world.lab.reports("train/* exited 0"),
    ]
    steps = iter(story)

    def go_on() -> None:
        next(steps, lambda: None)()
        world.write()

    world.clock.then = go_on
    lines: list[LogLine] = []
    with world.scheduler():
        job = client_of(world).job("train")
        assert job.wait(stream_logs_from=0, on_line=lines.append) is JobState.SUCCEEDED
    assert [(line.task, line.attempt, line.stream, line.text) for line in lines] == [
        ("train/task-0", 0, "out", "one"),
        ("train/task-0", 0, "out", "two"),
    ]


def test_lines_go_to_standard_output_as_harmless_text(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.says("train/task-0", "a\x1b]0;owned\x07\tb\n")
    world.lab.reports("train/* exited 0")
    with world.scheduler():
        client_of(world).job("train").wait(stream_logs_from="all")
    assert capsys.readouterr().out == "[0] a�]0;owned� b\n"


@pytest.mark.parametrize("follow", [None, "all"])
def test_the_time_to_wait_is_over_and_the_job_goes_on(follow: str | None, world: World) -> None:
    began = world.clock.time
    with world.scheduler(), pytest.raises(TimeoutError) as late:
        client_of(world).job("train").wait(timeout=7.5, stream_logs_from=follow)
    assert world.clock.time - began == pytest.approx(7.5)
    assert isinstance(late.value, WaitTimeoutError)
    assert world.lab.cluster.job_state(JobId("train")) is JobState.RUNNING


def test_waiting_for_several_jobs_returns_their_states_in_order(tmp_path: Path) -> None:
    lab = Lab().worker("w", cpu=8).job("good").job("bad").schedule()
    world = World(lab.reports("good/* exited 0").reports("bad/* exited 3"), tmp_path / "state")
    client = client_of(world)
    bad, good = JobState.FAILED, JobState.SUCCEEDED
    with world.scheduler():
        assert client.wait_all(["bad", client.job("good"), "bad"]) == [bad, good, bad]
    assert client.wait_all([]) == []


def test_a_wait_for_several_jobs_that_times_out_names_the_open_ones(world: World) -> None:
    with world.scheduler(), pytest.raises(WaitTimeoutError, match=r"not ended after 7\.5 s: train"):
        client_of(world).wait_all(["train"], timeout=7.5)
    with pytest.raises(NotFoundError):
        client_of(world).wait_all(["train", "nowhere"])


def test_logs_of_a_job_are_those_of_its_tasks(world: World) -> None:
    world.says("train/task-0", "one\ntwo\n")
    world.says("train/task-1", "three\n")
    found = client_of(world).job("train").logs(tail=1)
    assert [(line.task, line.text) for line in found] == [("train/task-0", "two"), ("train/task-1", "three")]


def test_logs_of_a_task_are_its_lines(world: World) -> None:
    world.says("train/task-0", "one\ntwo\n")
    world.says("train/task-0", "trouble\n", "err")
    client = client_of(world)
    assert [line.text for line in client.task_logs("train/task-0")] == ["one", "two", "trouble"]
    assert [line.text for line in client.task_logs("train/task-0", tail=1, streams="out")] == ["two"]
    assert client.task_logs("train/task-1") == []


def test_logs_that_cannot_be_fetched_are_not_empty_ones(world: World) -> None:
    world.hosts.silent.add("w")
    with pytest.raises(UnreachableError, match="no route"):
        client_of(world).task_logs("train/task-0")


def test_retrying_twice_stops_once(world: World) -> None:
    job = client_of(world).job("train")
    world.hosts.silent.add("w")
    assert (job.retry(1), job.retry(1), job.retry(), job.retry()) == (1, 0, 1, 0)
    job.cancel()
    with pytest.raises(UsageError, match="train has ended"):
        job.retry()


def test_cancelling_twice_does_it_once(world: World) -> None:
    job = client_of(world).job("train")
    assert job.cancel("enough") is True
    assert job.status().state is JobState.KILLED
    assert job.cancel() is False


def test_threads_share_a_client(world: World) -> None:
    def session() -> Session:
        found = opened()
        found.lock_timeout = 120.0
        return found

    world.write()
    world.write = lambda: None  # type: ignore[method-assign]  # from here on only the client writes
    opened = world.session
    client = IrisClient.with_backend(StateDirectory(lambda _: session()))
    ids: list[str] = []
    failures: list[BaseException] = []

    def submit() -> None:
        try:
            ids.append(client.submit("true", schedule=False).id)
            client.status("train")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=submit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(ids) == [f"true-{number}" for number in range(1, 9)]


@pytest.mark.parametrize("timeout", [-1.0, math.nan])
def test_a_time_that_nobody_can_wait_is_refused(timeout: float) -> None:
    """The library for locks takes what is less than nothing for ever."""
    with pytest.raises(UsageError, match="not a number of seconds"):
        IrisClient(lock_timeout=timeout)


def test_each_call_reads_a_configuration_that_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"

    def configure(*workers: str) -> None:
        listed = "".join(f"  - {{id: {name}, host: {name}.invalid}}\n" for name in workers)
        path.write_text(f"cluster: {{name: lab}}\nworkers:\n{listed}")

    configure("w")
    with IrisClient(config=path) as client:
        with pytest.raises(UsageError, match="no command"):
            client.submit([])
        configure("w", "x y")
        with pytest.raises(ConfigError):
            client.job("train").status()
        path.write_text("cluster: {name: lab}\ndefaults: {cpu: 7}\nworkers: [{id: w, host: w.invalid}]\n")
        client.submit(["true"], name="train", schedule=False)
    log = (tmp_path / "state" / "events.jsonl").read_text()
    assert '"resources":{"cpu":7.0}' in log
