"""Jobs that tasks submit from inside, on real SSH servers: by the Python client and by the iris of tasks."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iris_cli.client import IrisClient, JobState
from iris_cli.core.ids import JobId
from tests.support.desk import Desk
from tests.support.local_transport import only_tools
from tests.support.site import Site

pytestmark = pytest.mark.ssh

ROOT = Path(__file__).parents[2]
SMALL = ("--cpu", "0.01")
PREFACE = """
import os, sys, time
from pathlib import Path
from iris_cli.client import IrisClient, get_job_info
info, client = get_job_info(), IrisClient()
small = {"cpu": 0.01}
def until(path):
    while not Path(path).exists():
        time.sleep(0.05)
"""


@pytest.fixture
def desk(slice_of_two: Site, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return at_work(slice_of_two, monkeypatch)


@pytest.fixture
def small_desk(slice_of_one: Site, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """One host, for tests in which the host of a child makes no difference."""
    return at_work(slice_of_one, monkeypatch)


def at_work(site: Site, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setenv("HOME", str(site.directory))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    desk = Desk(site)
    desk.cycle()
    return desk


def launch(desk: Desk, name: str, program: str, *words: object, **asked: Any) -> None:
    """Submit a job that runs a Python program which has the client at hand."""
    path = desk.site.directory / f"{name}.py"
    path.write_text(PREFACE + program)
    env = {"PYTHONPATH": f"{ROOT}:{os.pathsep.join(path for path in sys.path if path)}", "WORDS": "inherited"}
    desk.launch(name, sys.executable, str(path), *map(str, words), env=env, **asked)


def output(desk: Desk, job: str, attempt: int = -1) -> str:
    """What the first task of a job has written to standard output."""
    worker = desk.attempts(job)[attempt].worker
    host = desk.site.hosts[int(worker.rpartition("-")[2])]
    (path,) = host.home.glob(f".iris/*/{worker}/a/{desk.attempts(job)[attempt].token}/out")
    return path.read_text()


def outputs(desk: Desk, job: str, tasks: int) -> list[str]:
    """The same of so many tasks."""
    found = [desk.attempts(job, index)[-1] for index in range(tasks)]
    homes = {host.home for host in desk.site.hosts}
    return [
        next(path.read_text() for home in homes for path in home.glob(f".iris/*/*/a/{each.token}/out"))
        for each in found
    ]


def ended(desk: Desk, job: str) -> Callable[[], bool]:
    return lambda: JobId(job) in desk.cluster.jobs and desk.state(job).terminal


LEAF = 'echo "leaf of $IRIS_JOB_ID has $WORDS"'
MIDDLE = f"""
leaf=$(iris launch --name leaf {" ".join(SMALL)} -- sh -c '{LEAF}') || exit
echo "started $leaf"
iris wait "$leaf" || exit
iris logs "$leaf" --stream out
"""
PARENT = """
middle = client.submit(["sh", "-c", sys.argv[1]], name="middle", **small)
print("submitted", middle.id)
state = middle.wait(stream_logs_from=0, on_line=lambda line: print("it said:", line.text, flush=True))
print(state, [task.exit_code for task in middle.tasks()])
"""


@pytest.mark.soak
def test_three_levels_one_by_the_client_and_one_by_the_iris_of_tasks(small_desk: Desk) -> None:
    launch(small_desk, "train", PARENT, MIDDLE)
    small_desk.until(ended(small_desk, "train"))
    assert output(small_desk, "train").splitlines() == [
        "submitted train/middle",
        "it said: started train/middle/leaf",
        "it said: train/middle/leaf: SUCCEEDED",
        "it said: leaf of train/middle/leaf has inherited",
        "SUCCEEDED [0]",
    ]
    assert {job: small_desk.state(job) for job in small_desk.cluster.jobs} == dict.fromkeys(
        ("train", "train/middle", "train/middle/leaf"), JobState.SUCCEEDED
    )
    assert origins(small_desk) == ["train/task-0/attempt-0", "train/middle/task-0/attempt-0"]


def origins(desk: Desk) -> list[str]:
    """The attempts that submitted jobs."""
    return [str(job.origin.attempt) for job in desk.cluster.jobs.values() if job.origin is not None]


TRIED_AGAIN = """
found = [client.submit(["true"], name=name, request_id=name, **small).id for name in ("one", "two")]
found.append(client.submit(["sleep", "0"], **small).id)
print(*found, flush=True)
if info.attempt == 0:
    os.kill(os.getpid(), 9)
print(*[client.job(name).wait() for name in found])
"""


def test_a_parent_that_is_killed_and_tried_again_gets_the_same_children(small_desk: Desk) -> None:
    launch(small_desk, "again", TRIED_AGAIN, max_retries_failure=1)
    small_desk.until(ended(small_desk, "again"))
    assert small_desk.state("again") is JobState.SUCCEEDED
    first, second = output(small_desk, "again", 0).splitlines(), output(small_desk, "again", 1).splitlines()
    assert second[0] == first[0] == "again/one again/two again/sleep-1"
    assert second[1] == "SUCCEEDED SUCCEEDED SUCCEEDED"
    submitted = [event["job"]["id"] for event in small_desk.site.events() if event["type"] == "JobSubmitted"]
    assert submitted == ["again", "again/one", "again/two", "again/sleep-1"]


CHAIN = """
child = client.submit([sys.executable, *sys.argv[:2]], name="b", **small) if info.job_id.count("/") < 2 else None
Path(sys.argv[1], info.job_id.replace("/", "-")).write_text(str(os.getpid()))
print(child and child.wait(), flush=True)
until("/nowhere" if child is None else "/")
"""


def test_what_is_killed_in_the_middle_takes_its_descendants_with_it(desk: Desk) -> None:
    pids = desk.site.directory / "pids"
    pids.mkdir()
    launch(desk, "a", CHAIN, pids, grace=1.0)
    desk.until(lambda: sum(bool(file.read_text()) for file in pids.iterdir()) == 3)
    assert origins(desk) == ["a/task-0/attempt-0", "a/b/task-0/attempt-0"]
    os.kill(int((pids / "a-b").read_text()), signal.SIGKILL)
    desk.until(lambda: all(ended(desk, job)() for job in ("a", "a/b", "a/b/b")))
    assert [desk.state(job) for job in ("a", "a/b", "a/b/b")] == [
        JobState.SUCCEEDED,
        JobState.FAILED,
        JobState.KILLED,
    ]
    assert output(desk, "a") == "FAILED\n"
    desk.until(lambda: not any(worker.claims for worker in desk.cluster.workers.values()))
    leaf = Path(f"/proc/{(pids / 'a-b-b').read_text()}/stat")
    assert not leaf.exists() or leaf.read_text().rpartition(")")[2].split()[0] in "ZX"


LISTEN = """
client.register_endpoint(f"http-{info.task_index}", 8000 + info.task_index, {"path": "/"})
print("told", flush=True)
until(f"{sys.argv[1]}-{info.task_index}")
print(sorted(each.task for each in client.endpoints()), flush=True)
"""


def test_endpoints_belong_to_their_tasks_and_go_with_them(desk: Desk) -> None:
    gate = desk.site.directory / "gate"
    launch(desk, "serve", LISTEN, gate, replicas=2)
    desk.until(lambda: len(desk.cluster.endpoints_of(JobId("serve"))) == 2)
    with IrisClient(config=desk.site.directory / "cluster.yaml") as client:
        found = client.job("serve").endpoints()
        assert [(each.name, each.task, each.port) for each in found] == [
            ("http-0", "serve/task-0", 8000),
            ("http-1", "serve/task-1", 8001),
        ]
        assert "http-1" in desk.site.iris("status", "serve").out
        gate.with_name("gate-0").touch()
        desk.until(lambda: desk.cluster.tasks[desk.cluster.jobs[JobId("serve")].task_ids[0]].state.terminal)
        assert [each.name for each in client.endpoints("serve")] == ["http-1"]
        gate.with_name("gate-1").touch()
        desk.until(ended(desk, "serve"))
        assert client.endpoints("serve") == []


UNHEARD = """
from iris_cli.client import UnansweredError
from iris_cli.client.outbox import Outbox
hasty = IrisClient.with_backend(Outbox(info.task_dir, 0.2))
try:
    hasty.submit(["true"], name="child", request_id="child-1", **small)
except UnansweredError as late:
    print(late.message, flush=True)
    Path(sys.argv[1]).touch()
print(client.submit(["true"], name="child", request_id="child-1", **small).id, flush=True)
"""


def test_nobody_polls_for_a_while_and_nothing_is_lost(small_desk: Desk) -> None:
    gave_up = small_desk.site.directory / "gave-up"
    launch(small_desk, "patient", UNHEARD, gave_up)
    small_desk.cycle()
    small_desk.site.until(gave_up.exists, cycles=False)
    assert list(small_desk.cluster.jobs) == ["patient"]
    small_desk.until(ended(small_desk, "patient"))
    assert output(small_desk, "patient").splitlines() == [
        "no answer for 0.2s: no cycles are running",
        "patient/child",
    ]
    assert list(small_desk.cluster.jobs) == ["patient", "patient/child"]


BRINGS = """
code = Path("code")
code.mkdir()
(code / "run.sh").write_text("cat data made; echo $IRIS_EACH_LINE; echo more >>data")
(code / "data").write_text("made inside\\n")
asked = {"workdir": "code", "setup": "echo set up >made", "each_line": ["first", "second"], **small}
child = client.submit(["sh", "run.sh"], name="child", **asked)
print(child.id, child.wait(), flush=True)
"""


def test_a_task_brings_a_directory_and_lines_along_for_its_child(small_desk: Desk) -> None:
    launch(small_desk, "train", BRINGS)
    small_desk.until(ended(small_desk, "train"))
    assert output(small_desk, "train") == "train/child SUCCEEDED\n"
    assert outputs(small_desk, "train/child", 2) == [
        "made inside\nset up\nfirst\n",
        "made inside\nset up\nsecond\n",
    ]


BRINGS_FROM_A_SHELL = f"""
! command -v python3 >/dev/null || exit 9
printf 'first\\nsecond\\n' >lines
set -- --setup 'echo set up >made' --each-line lines {" ".join(SMALL)} -- sh -c 'cat made; echo "$IRIS_EACH_LINE"'
iris launch --name child "$@" && iris launch --name again --wait "$@" || exit
iris wait train/child
"""


def test_a_shell_brings_a_set_up_and_lines_along_for_its_children(small_desk: Desk) -> None:
    tools = only_tools("dash", small_desk.site.directory / "tools", ["cat"])
    (tools / f"python3.{sys.version_info.minor}").symlink_to(Path(sys.executable).resolve())
    small_desk.launch("train", "sh", "-c", BRINGS_FROM_A_SHELL, env={"PATH": str(tools)})
    small_desk.until(ended(small_desk, "train"))
    assert small_desk.state("train") is JobState.SUCCEEDED, small_desk.site.iris("logs", "train").out
    for child in ("train/child", "train/again"):
        assert outputs(small_desk, child, 2) == ["set up\nfirst\n", "set up\nsecond\n"]
    shown = small_desk.site.iris("logs", "train/child", "--tail", "all").out.splitlines()
    assert shown == ["[0-1] set up", "[0] first", "[1] second"]
