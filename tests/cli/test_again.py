"""`iris launch --again` of an ended job: from two terminals at once, killed at any moment, without its workspace."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from iris_cli.client.iris_client import IrisClient
from iris_cli.errors import ExitCode, UsageError
from iris_cli.journal.log.verify import verify
from tests.render.scenes import session_of
from tests.support.invocations import Invocations
from tests.support.lab import Lab
from tests.support.site import Site

AGAIN = ("--lock-timeout", "240", "launch", "--no-schedule", "--again")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """`train` and two tasks of `sweep` have failed; `late` is pending."""
    for name in ("IRIS_STATE_DIR", "IRIS_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    lab = Lab().worker("w").job("train").job("sweep", array="5-8").schedule().reports("train/* exited 1")
    lab.reports(*(f"sweep/task-{index} exited {index % 2}" for index in range(4))).job("late")
    site = Site(tmp_path, [])
    session_of(lab, site.state)
    (tmp_path / "cluster.yaml").write_text("cluster: {name: lab}\nworkers: []\n")
    return site


@pytest.fixture
def invocations(site: Site) -> Iterator[Invocations]:
    invocations = Invocations(site)
    yield invocations
    invocations.close()


def origins(site: Site) -> dict[str, str]:
    """Of the jobs of the log that are another again: which."""
    assert verify(site.state).ok
    jobs = [event["job"] for event in site.events() if event["type"] == "JobSubmitted"]
    return {job["id"]: job["again"] for job in jobs if "again" in job}


def test_terminals_at_once_make_a_job_each(site: Site, invocations: Invocations) -> None:
    started = [invocations.start(*AGAIN, "train") for _ in range(6)]
    lines = [line for each in started for line in each.done().splitlines()]
    told = [line for line in lines if line.startswith("train-") and ":" not in line]
    assert sorted(told) == [f"train-{number}" for number in range(2, 8)]
    assert origins(site) == dict.fromkeys(told, "train")


def test_killed_at_any_step_there_is_a_whole_job_or_none(site: Site, invocations: Invocations) -> None:
    killed, made = [], 0
    for step in range(1, 40):
        code = invocations.start(*AGAIN, "sweep", "--failed", die_at=step).wait()
        assert code in (-signal.SIGKILL, 0)
        killed.append(code != 0)
        jobs = origins(site)
        assert len(jobs) - made in ((0, 1) if killed[-1] else (1,))
        made = len(jobs)
        if not killed[-1]:
            break
    assert (killed[0], killed[-1]) == (True, False)
    invocations.run(*AGAIN, "sweep", "--failed")
    assert origins(site) == {f"sweep-{number}": "sweep" for number in range(2, made + 3)}
    status = json.loads(invocations.run("--json", "status", "sweep"))
    assert status["tried_again"] == list(origins(site))


def test_a_job_that_has_not_ended_is_refused(site: Site, invocations: Invocations) -> None:
    said = invocations.start(*AGAIN, "late").done(ExitCode.USAGE)
    assert "late has not ended (PENDING)" in said
    assert "iris why late" in said
    assert origins(site) == {}


def test_the_workspace_is_kept_and_once_collected_refused_until_another_is_shipped(
    site: Site, invocations: Invocations
) -> None:
    work = site.directory / "work"
    work.mkdir()
    (work / "run.py").write_text("print()\n")
    launch = ("launch", "--no-schedule", "--name", "ship", "--workdir", "work", "--force", "--", "./run.py")
    invocations.run(*launch)
    invocations.run("cancel", "ship")
    invocations.run(*AGAIN, "ship")
    jobs = {event["job"]["id"]: event["job"] for event in site.events() if event["type"] == "JobSubmitted"}
    assert jobs["ship-2"]["workspace"] == jobs["ship"]["workspace"]
    shutil.rmtree(site.state / "workspaces")
    said = invocations.start(*AGAIN, "ship").done(ExitCode.USAGE)
    assert "the workspace of ship is no longer in the state directory" in said
    assert "--workdir ." in said
    assert "ship-3" in invocations.run(*AGAIN, "ship", "--workdir", "work")
    assert origins(site) == {"ship-2": "ship", "ship-3": "ship"}


def test_the_client_does_the_same(site: Site) -> None:
    misspelt: Any = {"replica": 2}
    with IrisClient(config=site.directory / "cluster.yaml") as client:
        again = client.job("sweep").again(failed=True, env={"A": "1"}, schedule=False)
        named = client.again("train", ["python", "fit.py"], name="fit", schedule=False)
        assert (again.id, named.id) == ("sweep-2", "fit")
        with pytest.raises(UsageError, match="has not ended"):
            again.again()
        with pytest.raises(TypeError, match=r"again\(\) got an unexpected keyword argument 'replica'"):
            client.job("train").again(**misspelt)
    jobs = {event["job"]["id"]: event["job"] for event in site.events() if event["type"] == "JobSubmitted"}
    assert (jobs["sweep-2"]["array"], jobs["sweep-2"]["env"]) == ("6,8", {"A": "1"})
    assert (jobs["fit"]["command"], jobs["fit"]["again"]) == (["python", "fit.py"], "train")
