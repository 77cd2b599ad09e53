"""`iris stacks` on real hosts: where a gang hangs, which rank is the odd one out, and who could not be asked."""

from __future__ import annotations

import re
import sys

import pytest

from iris_cli.errors import ExitCode
from tests.support.site import Site

pytestmark = pytest.mark.ssh

PROGRAM = """
import faulthandler, os, threading
faulthandler.register(10, file=open(os.environ["IRIS_TASK_DIR"] + "/stacks.USR1", "a"))
def all_reduce(): open("up", "w").close(); threading.Event().wait(1000)
def read_data(): open("up", "w").close(); threading.Event().wait(1000)
def step(): read_data() if os.environ["IRIS_TASK_INDEX"] == "2" else all_reduce()
step()
"""


def test_a_gang_that_hangs_shows_its_odd_rank_and_who_is_silent(slice_of_four: Site) -> None:
    site = slice_of_four
    (site.directory / "train.py").write_text(PROGRAM)
    told = site.directory / "told"
    with (site.directory / "cluster.yaml").open("a") as config:
        config.write(f"notify: {{command: [sh, -c, 'echo $IRIS_EVENT $IRIS_REASON >>{told}']}}\n")
    command = ("--", sys.executable, str(site.directory / "train.py"))
    site.iris("launch", "--name", "train", "--tpu", "v5litepod-16", "--silent-after", "2s", *command)
    site.until(lambda: len(list(site.hosts[0].home.parent.parent.glob("*/home/**/up"))) == 4, cycles=False)
    site.until(lambda: site.job("train")["quiet"].startswith("all 4 ranks"))
    said = "rank 2 in read_data (train.py:5), ranks 0-1,3 in all_reduce (train.py:4)"
    assert site.job("train")["quiet"].endswith(f": {said}")
    assert said in " ".join(site.iris("why", "train").out.split())
    site.until(told.exists)
    # The first cycle that found any of them quiet has sent it: perhaps before the others were.
    assert re.match(r"tasks_quiet .+ 4 ranks quiet .+ in (read_data|all_reduce) \(train", told.read_text())
    site.hosts[3].stop()
    shown = site.iris("stacks", "train", code=ExitCode.UNREACHABLE)
    places, *blocks = (block.splitlines() for block in shown.out.split("\n\n"))
    assert places == ["ranks 0-1 in all_reduce (train.py:4); rank 2 in read_data (train.py:5)"]
    assert [block[0] for block in blocks] == ["[0-1] main thread", "[2] main thread"]
    assert [next(line for line in block if "train.py" in line).split()[0] for block in blocks] == [
        "all_reduce",
        "read_data",
    ]
    assert shown.err.startswith("train/task-3: no answer: ")
    some = site.iris("stacks", "train/task-2", "--json").json()
    assert [(each["kind"], each["ranks"], each["threads"]) for each in some["stacks"]] == [("main", [2], 1)]
    assert [(each["rank"], each["worker"], each["answered"]) for each in some["ranks"]] == [
        (2, "tpu-a-2", True)
    ]
