"""Ranks that write nothing are marked, named and reported; nothing is stopped."""

from __future__ import annotations

import pytest

from tests.support.site import Site

pytestmark = pytest.mark.ssh


def test_the_silent_ranks_of_a_gang_are_named_and_reported_once(slice_of_two: Site) -> None:
    """Nor is the clock of a worker judged by a task that never wrote anything."""
    site = slice_of_two
    talk, told = site.directory / "talk", site.directory / "told"
    script = f"echo $IRIS_EVENT $IRIS_JOB_ID >>{told}"
    with (site.directory / "cluster.yaml").open("a") as config:
        config.write(f"notify: {{command: [sh, -c, '{script}']}}\n")
    writes = f"while sleep 0.2; do if [ $IRIS_TASK_INDEX = 1 ] || [ -e {talk} ]; then echo step; fi; done"
    tpu = ("--tpu", "v4-16", "--silent-after", "3s")
    site.iris("launch", "--name", "train", *tpu, "--", "sh", "-c", writes)

    def quiet() -> list[int]:
        tasks = site.job("train")["tasks"]
        return [rank for rank, task in enumerate(tasks) if task["quiet_since"] is not None]

    site.until(lambda: quiet() == [0])
    assert "of 2" in site.job("train")["quiet"]
    shown = site.iris("status", "train").out
    assert "iris stacks train" in shown
    assert "quiet" in site.iris("status").out
    assert "quiet" in site.iris("why", "train").out
    site.until(told.exists)
    site.iris("schedule", "--once")
    assert told.read_text().splitlines() == ["tasks_quiet train"]
    assert [each for each in site.events() if each["type"] == "WorkerSkewChanged"] == []
    assert site.iris("worker", "show", "tpu-a-0", "--json").json()["skew"] == 0
    talk.touch()
    site.until(lambda: quiet() == [] and site.job("train")["state"] == "RUNNING")
