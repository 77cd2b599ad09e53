"""Ranks that write nothing are marked, named and reported; nothing is stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import Lab, one_slice
from tests.support.site import Site

pytestmark = pytest.mark.ssh


def test_the_silent_ranks_of_a_gang_are_named_and_reported_once(slice_of_two: Site) -> None:
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
    talk.touch()
    site.until(lambda: quiet() == [] and site.job("train")["state"] == "RUNNING")


def test_the_clock_of_a_worker_is_not_judged_by_a_task_that_never_wrote_anything(
    ssh_lab: Lab, tmp_path: Path
) -> None:
    site = one_slice(ssh_lab(1), tmp_path, "v4-8")
    site.iris("launch", "--name", "mute", "--cpu", "0.01", "--silent-after", "1s", "--", "sleep", "600")
    site.until(lambda: site.job("mute")["tasks"][0]["quiet_since"] is not None)
    assert [each for each in site.events() if each["type"] == "WorkerSkewChanged"] == []
    assert site.iris("worker", "show", "tpu-a-0", "--json").json()["skew"] == 0
