"""The card of a failure shows facts of the worker beside the known cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from iris_cli.core.messages.observations import AttemptReport, RemoteState
from iris_cli.core.model.task import Fact, FactKind
from tests.ops.test_failure import card, several
from tests.render.scenes import session_of


@pytest.mark.parametrize(("cause", "known"), [("", "exit-above-128"), ("signal", None)])
def test_a_kill_that_was_not_for_memory_hides_only_the_rule_that_blames_memory(
    tmp_path: Path, cause: str, known: str | None
) -> None:
    """The program's own exit 137 keeps its cause; behind SIGKILL nothing but the fact is known."""
    lab = several(1)
    attempt = lab.cluster.attempt(next(iter(lab.attempts_named("sweep/task-0"))))
    fact = Fact(kind=FactKind.KILLED, proven=True, text="not out of memory")
    report = AttemptReport(
        token=attempt.token, state=RemoteState.EXITED, exit_code=137, cause=cause, facts=(fact,)
    )
    found = card(session_of(lab.answers(lab.answer_of("w", report)), tmp_path / "state"), "sweep")
    assert (found.known.name if found.known is not None else None, found.facts) == (known, (fact,))
