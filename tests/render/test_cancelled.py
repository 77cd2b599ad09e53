"""`iris cancel` says what is still being stopped, and what the operator can do about it."""

from __future__ import annotations

import pytest

from iris_cli.core.ids import JobId
from iris_cli.ops.jobs.change import Cancelled
from iris_cli.render import jobs
from iris_cli.render.console import Output
from tests.support.lab import Lab


@pytest.mark.parametrize(
    ("tpu", "waited", "said"),
    [
        ("v4-16", False, "2 attempts are being stopped on a-[0-1]; iris cancel --wait train waits for that"),
        ("v4-8", False, "1 attempt is being stopped on a-0; iris cancel --wait train waits for that"),
        (
            "v4-8",
            True,
            "1 attempt is not proven gone on a-0 (silent or unkillable); retried in every cycle:",
        ),
    ],
)
def test_after_a_wait_nobody_is_told_to_wait(
    tpu: str, waited: bool, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = Lab().slice("a", tpu).job("train", tpu=tpu).schedule().reports("train/* running").cancel("train")
    stopping = [attempt for attempt, _ in lab.cluster.live_attempts_of(JobId("train"))]
    result = Cancelled(cancelled=[JobId("train")], stopping=stopping)
    jobs.show_cancelled(Output(), lab.cluster, result, waited=waited)
    shown = capsys.readouterr()
    assert shown.out == "cancelled train\n"
    assert " ".join(shown.err.split()).startswith(said)
