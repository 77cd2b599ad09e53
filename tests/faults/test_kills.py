"""An invocation is killed at any moment. The next one finds everything in order, and goes on."""

from __future__ import annotations

import random
import signal
import time
from functools import partial

import pytest

from iris_cli.core.ids import JobId
from iris_cli.core.model.task import TaskState
from tests.faults.hall import RANKS, Hall, end_well
from tests.support.waiting import until

pytestmark = pytest.mark.ssh

every_step = pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.soak)])


@every_step
def test_killed_at_any_step_of_a_dispatch_it_leaves_nothing_that_one_cycle_cannot_mend(
    hall: Hall, stride: int
) -> None:
    killed = 0
    for step in range(1, 26, stride):
        hall.gang(f"gang-{step}")
        killed += hall.dies_at(step)
    assert killed
    hall.repair()
    end_well(hall)


@every_step
def test_killed_at_any_step_of_a_gangs_fall_it_leaves_the_rest_of_the_stops_to_the_next_one(
    hall: Hall, stride: int
) -> None:
    names = [f"gang-{step}" for step in range(1, 13, stride)]
    with hall.ledger.closed("hold"):
        for name in names:
            hall.gang(name, f"[ $IRIS_TASK_INDEX != 0 ] || exit 3; {hall.ledger.at('hold')}")
        hall.until_running(*names)
        killed = 0
        for step, name in zip(range(1, 13, stride), names, strict=True):
            hall.open(name)
            until(partial(hall.has_fallen, name))
            killed += hall.dies_at(step)
        assert killed
        hall.until(lambda: not any(map(hall.ledger.living, names)))
        hall.until(lambda: all(job.end for job in hall.cluster.jobs.values()))
        for name in names:
            culprit, sibling = hall.cluster.tasks_of(JobId(name))
            assert (culprit.state, sibling.state) == (TaskState.FAILED, TaskState.WORKER_FAILED)
    hall.ledger.check()


@every_step
def test_killed_at_any_step_of_a_retry_the_order_is_whole_or_was_never_given(hall: Hall, stride: int) -> None:
    names = [f"gang-{step}" for step in range(1, 13, stride)]
    for name in names:
        hall.gang(name)
    hall.until_running(*names)
    killed = [
        hall.invocations.start("retry", name, die_at=step).wait() == -signal.SIGKILL
        for step, name in zip(range(1, 13, stride), names, strict=True)
    ]
    assert any(killed)
    orders = {name: [each.attempts[0].stop for each in hall.cluster.tasks_of(JobId(name))] for name in names}
    assert all(
        len(stops) == RANKS and len({stop is None for stop in stops}) == 1 for stops in orders.values()
    )
    rounds = {name: 2 if stops[0] is not None else 1 for name, stops in orders.items()}
    hall.until(lambda: {name: hall.cluster.jobs[JobId(name)].rounds for name in names} == rounds)
    hall.repair()
    end_well(hall)


@pytest.mark.soak
def test_killed_at_random_moments_while_twenty_gangs_run(hall: Hall) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for number in range(20):
        hall.gang(f"gang-{number}")
    hall.until_running(*hall.gates)
    began = time.monotonic()
    hall.invocations.run("schedule", "--once")
    usual = time.monotonic() - began
    for number in range(20, 80):
        hall.gang(f"gang-{number}")
        hall.open(f"gang-{number - 20}")
        invocation = hall.invocations.start("schedule", "--once")
        time.sleep(chance.uniform(0, 1.2 * usual))
        invocation.kill()
        invocation.wait()
    hall.repair()
    end_well(hall)
