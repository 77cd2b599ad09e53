"""A job of a real Slurm that has used up its steps: its nodes fall silent, and the reason is shown."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from iris_cli.core.messages.observations import SilenceKind
from iris_cli.demo.local_slurm import why_no_slurm
from iris_cli.remote.transport import NoAnswer, Script
from tests.support.allocation import Allocate
from tests.support.slurm import Slurm
from tests.support.waiting import PATIENCE

STEPS = 6


@pytest.fixture
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    if why := why_no_slurm():
        pytest.skip(why)
    made = Slurm(tmp_path_factory.mktemp("slurm"), nodes=1, settings={"MaxStepCount": str(STEPS)})
    try:
        made.start()
        yield made
    finally:
        made.stop()


def test_the_limit_of_steps_is_silence_with_a_hint(allocate: Allocate) -> None:
    allocation = allocate(1, node="n0")
    target = allocation.target("n0")

    def use_up() -> None:
        for _ in range(STEPS + 1):
            allocation.transport.run(target, Script(text=b"true", connect_timeout=PATIENCE, timeout=PATIENCE))

    with pytest.raises(NoAnswer) as caught:
        use_up()
    assert (caught.value.kind, caught.value.step, caught.value.sent) == (
        SilenceKind.UNREACHABLE,
        "srun",
        False,
    )
    assert caught.value.hint == "raise MaxStepCount in slurm.conf, or end the allocation"
