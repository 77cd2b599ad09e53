"""What an exit record means, and how it is called."""

from __future__ import annotations

import pytest

from iris_cli.core.model.task import End, EndReason, reason_of_exit, signal_of


@pytest.mark.parametrize(
    ("exit_code", "cause", "reason"),
    [
        (0, "", EndReason.OK),
        (1, "", EndReason.USER_ERROR),
        (2, "", EndReason.USER_ERROR),
        (127, "", EndReason.USER_ERROR),
        (128, "", EndReason.USER_ERROR),
        (137, "", EndReason.USER_ERROR),
        (137, "signal", EndReason.SIGNAL),
        (143, "signal", EndReason.SIGNAL),
        (255, "signal", EndReason.USER_ERROR),
        (3, "signal", EndReason.USER_ERROR),
        (0, "signal", EndReason.OK),
        (137, "oom", EndReason.OOM),
        (143, "timeout", EndReason.TIMEOUT),
        (0, "timeout", EndReason.TIMEOUT),
        (1, "something else", EndReason.USER_ERROR),
    ],
)
def test_an_exit_has_the_reason_of_its_status_and_cause(
    exit_code: int, cause: str, reason: EndReason
) -> None:
    assert reason_of_exit(exit_code, cause) is reason


@pytest.mark.parametrize(
    ("exit_code", "name"),
    [(None, None), (0, None), (9, None), (128, None), (129, "SIGHUP"), (137, "SIGKILL"), (255, None)],
)
def test_only_an_end_by_a_signal_names_the_signal_of_its_exit_code(
    exit_code: int | None, name: str | None
) -> None:
    assert signal_of(End(reason=EndReason.SIGNAL, exit_code=exit_code)) == name
    assert signal_of(End(reason=EndReason.USER_ERROR, exit_code=exit_code)) is None


def test_the_reasons_have_their_published_names() -> None:
    names = (
        "ok, user_error, timeout, oom, signal, setup_failed, worker_failed, preempted, dispatch_failed, sibling, "
        "cancelled, retried, job_ended, scheduling_timeout, dependency_failed"
    )
    assert ", ".join(EndReason) == names
