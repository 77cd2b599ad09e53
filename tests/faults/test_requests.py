"""Requests of tasks over real SSH, while the operator is killed at any step."""

from __future__ import annotations

import json
import shlex
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from iris_cli.core.model.job import JobState
from tests.faults.hall import LEASE
from tests.support.desk import Desk
from tests.support.invocations import Invocations
from tests.support.ledger import Ledger
from tests.support.site import Site
from tests.support.worker_host import is_alive

pytestmark = pytest.mark.ssh


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


@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.soak)])
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
