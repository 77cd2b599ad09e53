"""The card of a failure shows facts of the worker beside the known cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from iris_cli.core.messages.observations import AttemptReport, RemoteState
from iris_cli.core.model.task import Fact, FactKind
from tests.ops.test_failure import card, ended, several
from tests.render.scenes import session_of
from tests.support.inside import Inside
from tests.support.lab import Lab


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


@pytest.mark.parametrize(
    ("code", "cause", "said", "leads_to"),
    [
        (139, "signal", "", "iris launch --again sweep --env PYTHONFAULTHANDLER=1"),
        (139, "", "", "iris launch --again sweep --env PYTHONFAULTHANDLER=1"),
        (134, "signal", "step 1\n", "iris launch --again sweep --env PYTHONFAULTHANDLER=1"),
        (139, "signal", "line\n" * 30, "iris logs sweep/task-0 --tail 200"),
        (137, "", "", "iris ssh sweep/task-0"),
        (127, "", "run: 2: exec: ./train.sh: not found\n", "iris launch --again sweep --workdir ."),
        (1, "", "urllib.error.HTTPError: HTTP Error 401: Unauthorized\n", "iris launch --again sweep"),
    ],
)
def test_the_next_command_shows_more_than_the_card(
    tmp_path: Path, code: int, cause: str, said: str, leads_to: str
) -> None:
    """A log of which the card shows every line is worth no command."""
    lab = several(1)
    attempt = lab.cluster.attempt(next(iter(lab.attempts_named("sweep/task-0"))))
    report = AttemptReport(
        token=attempt.token, state=RemoteState.EXITED, exit_code=code, cause=cause, log_tail=said
    )
    assert (
        card(session_of(lab.answers(lab.answer_of("w", report)), tmp_path / "state"), "sweep").next
        == leads_to
    )


@pytest.mark.parametrize(
    ("said", "leads_to"),
    [
        ("Traceback (most recent call last):\nValueError\n", "{} --workdir ."),
        ("sh: 1: ./train.sh: not found\n", "{} --workdir ."),
        ("urllib.error.HTTPError: HTTP Error 401: Unauthorized\n", "{}"),
        ("observed errors are: [Hardware]\n", "iris worker drain w --reason hardware && {}"),
    ],
)
@pytest.mark.parametrize(
    ("codes", "again"),
    [((0, 1, 0), "iris launch --again sweep --failed"), ((1, 1, 1), "iris launch --again sweep")],
)
def test_of_an_array_what_succeeded_is_not_launched_again(
    tmp_path: Path, said: str, leads_to: str, codes: tuple[int, ...], again: str
) -> None:
    lab = Lab().worker("w", cpu=64).job("sweep", array="4-6").schedule().reports("sweep/* running")
    for index, code in enumerate(codes):
        ended(lab, f"sweep/task-{index}", code, said if code else "")
    assert card(session_of(lab, tmp_path / "state"), "sweep").next == leads_to.format(again)


def test_a_child_job_is_not_launched_again_by_its_own_card(tmp_path: Path) -> None:
    """Only its parent can submit it."""
    lab = Lab().worker("w", cpu=8).job("tune").schedule().reports("tune/* running")
    Inside(lab, "tune/task-0").submit(name="trial")
    lab.schedule().reports("tune/trial/* running")
    ended(lab, "tune/trial/task-0", 139)
    assert card(session_of(lab, tmp_path / "state"), "tune/trial").next == "iris ssh tune/trial/task-0"
