"""The card of a gang whose hosts, devices or checkpoints did not fit each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from iris_cli.core.known_causes import Rule
from iris_cli.core.known_causes.multi_host import MULTI_HOST, MULTI_HOST_ECHOES
from iris_cli.core.messages.observations import AttemptReport, RemoteState
from iris_cli.ops.views.job_status import job_status
from tests.core.known_causes.multi_host import SEEN
from tests.render.scenes import session_of
from tests.support.lab import Lab

SHOWN = (MULTI_HOST[0], MULTI_HOST_ECHOES[0], next(rule for rule in MULTI_HOST if rule.next))
"""tests/core/known_causes recognizes the messages of all rules."""


@pytest.mark.parametrize("rule", SHOWN, ids=lambda rule: rule.name)
def test_the_card_shows_a_failure_of_several_hosts_with_its_fix_and_source(
    rule: Rule, tmp_path: Path
) -> None:
    lab = Lab().slice("v5a", "v5litepod-16").job("train", tpu="v5litepod-16").schedule()
    attempt = lab.reports("train/* running").advance("1h").attempt("train", 2)
    said = f"step 7 loss 2.3\n{SEEN[rule.name][0]}"
    crash = AttemptReport(token=attempt.token, state=RemoteState.EXITED, exit_code=1, log_tail=said)
    lab.answers(lab.answer_of(attempt.worker, crash))
    seen = job_status(session_of(lab, tmp_path / "state"), "train").failure
    assert seen is not None
    assert seen.known is not None
    assert (seen.known.name, seen.known.fix, seen.known.source) == (rule.name, rule.fix, rule.source)
    assert seen.known.line.strip("…") in SEEN[rule.name][0]
    if rule.next:
        assert seen.next == rule.next.replace("{job}", "train").replace("{worker}", attempt.worker)
