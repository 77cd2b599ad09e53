"""Tasks that ask for things from inside, over real SSH: three generations, and an operator who is killed anywhere."""

from __future__ import annotations

import json
import os
import shlex
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from iris_cli.core.ids import JobId
from iris_cli.core.model.job import JobState
from iris_cli.core.model.task import EndReason
from tests.faults.hall import LEASE
from tests.support.desk import Desk
from tests.support.invocations import Invocations
from tests.support.ledger import Ledger
from tests.support.site import Site
from tests.support.waiting import until
from tests.support.worker_host import is_alive

pytestmark = pytest.mark.ssh


every_step = pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.soak)])


class House(Desk):
    """Two hosts, and tasks that write down that they run."""

    def __init__(self, site: Site, directory: Path, invocations: Invocations) -> None:
        super().__init__(site)
        self.ledger = Ledger(directory)
        self.invocations = invocations

    def script(self, *lines: str, wait: bool = True) -> str:
        """A task that enters itself, does what it is told, and waits for the gate."""
        begin = f'echo "$IRIS_JOB_ID $$" >>{shlex.quote(str(self.ledger.directory))}/runs'
        return "\n".join([begin, *lines, self.ledger.at("gate") if wait else ""])

    @property
    def runs(self) -> list[tuple[str, int]]:
        path = self.ledger.directory / "runs"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(line.split()[0], int(line.split()[1])) for line in lines]

    def pid(self, job: str) -> int:
        return next(pid for name, pid in self.runs if name == job)

    def box(self, job: str, name: str) -> Path:
        """The outbox or the inbox of the first task of a job."""
        token = self.attempt(job).token
        return (
            next(each for host in self.site.hosts for each in host.home.glob(f".iris/*/*/a/{token}")) / name
        )

    def put(self, asker: str, request: str, op: str, **fields: Any) -> None:
        """As the programs of a task do it."""
        outbox = self.box(asker, "outbox")
        (outbox / f".{request}").write_text(json.dumps({"v": 1, "op": op, **fields}))
        (outbox / f".{request}").rename(outbox / request)

    def told(self, job: str, request: str) -> Any:
        answer = json.loads((self.box(job, "inbox") / request).read_text())
        return answer["result"] if answer["ok"] else answer["error"]["message"]

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.site.events() if event["type"] == kind]

    def dies_at(self, step: int) -> bool:
        code = self.invocations.start("schedule", "--once", die_at=step).wait()
        assert code in (-signal.SIGKILL, 0)
        return code != 0


def asks(request: str, op: str, **fields: Any) -> str:
    """A line of a task: it writes a request, whole as soon as it has its name."""
    text = shlex.quote(json.dumps({"v": 1, "op": op, **fields}))
    draft = f'"$IRIS_TASK_DIR/outbox/.{request}"'
    return f'printf %s {text} >{draft} && mv {draft} "$IRIS_TASK_DIR/outbox/{request}"'


@pytest.fixture
def house(pair: Site, tmp_path: Path) -> Iterator[House]:
    invocations = Invocations(pair)
    house = House(pair, tmp_path / "ledger", invocations)
    try:
        house.until(lambda: all(worker.incarnation for worker in house.cluster.workers.values()))
        with house.ledger.closed("gate"):
            yield house
        house.until(lambda: not list(house.cluster.live_attempts()))
        assert not [pid for _, pid in house.runs if is_alive(pid)]
    finally:
        invocations.close()


def child(name: str, script: str, **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "command": ["sh", "-c", script],
        "cpu": 0.01,
        "memory": "64MiB",
        "grace": 1,
        **fields,
    }


def test_three_generations_of_which_the_middle_one_is_killed(house: House) -> None:
    c = house.script('[ "$FROM_A$FROM_B" = 12 ]')
    b = house.script(asks("1", "submit", job=child("c", c, env={"FROM_B": "2"})))
    a = house.script(
        asks("1", "submit", job=child("b", b)),
        asks("2", "wait", job="a/b"),
        asks("3", "register_endpoint", name="http", port=8080),
    )
    house.launch("a", "sh", "-c", a, env={"FROM_A": "1"})
    jobs = ("a", "a/b", "a/b/c")
    house.until(lambda: all(JobId(job) in house.cluster.jobs for job in jobs))
    house.until(lambda: [house.state(job) for job in jobs] == [JobState.RUNNING] * 3)
    until(lambda: len(house.runs) == 3)
    assert dict(house.cluster.jobs[JobId("a/b/c")].env) == {"FROM_A": "1", "FROM_B": "2"}
    assert house.told("a", "1") == {"job": "a/b", "created": True}
    assert not (house.box("a", "inbox") / "2").exists()

    os.kill(house.pid("a/b"), signal.SIGKILL)
    house.until(lambda: (house.box("a", "inbox") / "2").exists())
    assert house.told("a", "2")["job"]["state"] == "FAILED"
    assert (house.state("a"), house.state("a/b/c")) == (JobState.RUNNING, JobState.KILLED)
    house.until(lambda: not is_alive(house.pid("a/b/c")))
    shown = house.site.iris("status", "a", "--json").json()
    assert [each["name"] for each in shown["endpoints"]] == ["http"]
    end = house.cluster.jobs[JobId("a/b/c")].end
    assert end is not None
    assert (end.reason, end.error) == (EndReason.CANCELLED, "its parent a/b ended")

    house.put("a", "4", "submit", job=child("d", house.script()))
    house.until(lambda: JobId("a/d") in house.cluster.jobs and house.state("a/d") is JobState.RUNNING)
    house.cancel("a")
    house.until(lambda: not list(house.cluster.live_attempts()))
    assert house.state("a/d") is JobState.KILLED
    assert not house.cluster.endpoints


def test_a_parent_that_goes_again_finds_its_children(house: House) -> None:
    again = asks("$IRIS_ATTEMPT", "submit", job=child("b", house.script())).replace("'$", "$")
    house.launch("a", "sh", "-c", house.script(again), max_retries_failure=1)
    house.until(lambda: JobId("a/b") in house.cluster.jobs and house.state("a/b") is JobState.RUNNING)
    until(lambda: len(house.runs) == 2)
    os.kill(house.pid("a"), signal.SIGKILL)
    house.until(lambda: len(house.attempts("a")) == 2)
    house.until(lambda: (house.box("a", "inbox") / "1").exists())
    assert house.told("a", "1") == {"job": "a/b", "created": False}
    assert [job for job, _ in house.runs] == ["a", "a/b", "a"]


@every_step
def test_killed_at_any_step_each_request_counts_once_and_is_answered(house: House, stride: int) -> None:
    house.launch("p", "sh", "-c", house.script())
    house.until(lambda: house.state("p") is JobState.RUNNING)
    steps, killed = range(1, 17, stride), 0
    for step in steps:
        house.put("p", f"{step:02}.a", "submit", job=child(f"c{step}", house.script(wait=False)))
        house.put("p", f"{step:02}.b", "register_endpoint", name=f"e{step}", port=step)
        killed += house.dies_at(step)
    assert killed
    house.clock.ahead += LEASE
    inbox = house.box("p", "inbox")
    house.until(lambda: all((inbox / f"{step:02}.{letter}").exists() for step in steps for letter in "ab"))
    house.until(lambda: all(house.state(f"p/c{step}") is JobState.SUCCEEDED for step in steps))
    for step in steps:
        assert house.told("p", f"{step:02}.a") == {"job": f"p/c{step}", "created": True}
    submitted = Counter(event["job"]["id"] for event in house.events("JobSubmitted"))
    assert submitted == Counter(["p", *(f"p/c{step}" for step in steps)])
    assert Counter(event["name"] for event in house.events("EndpointRegistered")) == Counter(
        f"e{step}" for step in steps
    )
    assert Counter(job for job, _ in house.runs) == submitted, "and each ran once"
    assert list(house.box("p", "outbox").iterdir()) == []
