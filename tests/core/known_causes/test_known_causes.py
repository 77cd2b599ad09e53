"""A failure that others have met before is known by its words, or by its exit status where it left none."""

from __future__ import annotations

import re
import string
import sys

import pytest

from iris_cli.core.known_causes import MAX_LINE, MAX_SEARCHED, known_cause, rules
from iris_cli.core.known_causes.multi_host import MULTI_HOST, MULTI_HOST_ECHOES
from iris_cli.core.model.task import End, EndReason
from tests.core.known_causes.messages import MESSAGES
from tests.core.known_causes.multi_host import LOOK_ALIKES

FAILED = End(reason=EndReason.USER_ERROR, exit_code=1)
BY_WORDS = [rule for rule in rules() if rule.text]
AROUND = "step 4199 loss 2.31\n{}  warnings below\nsys.exit(1)\n"


def name(end: End, text: str = "") -> str | None:
    found = known_cause(end, text)
    return found.rule.name if found is not None else None


def test_every_recorded_message_is_recognized() -> None:
    for rule, message in ((each, text) for each in BY_WORDS for text in MESSAGES[each.name]):
        found = known_cause(FAILED, AROUND.format(message))
        assert found is not None, rule.name
        assert found.rule is rule
        assert found.line
        assert found.line.strip("…") in message


def test_every_rule_of_several_hosts_rejects_a_line_that_looks_like_its_own() -> None:
    assert LOOK_ALIKES.keys() == {rule.name for rule in (*MULTI_HOST, *MULTI_HOST_ECHOES)}
    for of, text in LOOK_ALIKES.items():
        assert name(FAILED, AROUND.format(text)) is None, of


def test_a_rank_that_lost_its_peer_is_only_an_echo() -> None:
    """The card then looks for another rank that says what happened."""
    for rule in MULTI_HOST_ECHOES:
        found = known_cause(FAILED, MESSAGES[rule.name][0])
        assert found is not None
        assert found.rule.echo, rule.name
    assert name(FAILED, MESSAGES["gloo-peers"][0] + MESSAGES["jax-gloo-loopback"][0]) == "jax-gloo-loopback"
    assert (
        name(FAILED, MESSAGES["jax-peers-missing"][0] + MESSAGES["jax-no-register"][0]) == "jax-peers-missing"
    )


def test_a_saying_is_found_whatever_touches_it() -> None:
    for rule in BY_WORDS:
        for saying in rule.text:
            found = known_cause(FAILED, "step 1\n(" * ("\n" not in saying) + saying.replace("*", "...") + ")")
            assert found is not None, saying
            assert found.line, saying


def test_an_ordinary_text_is_searched_for_few_of_all_sayings() -> None:
    """So that a table of a thousand failed jobs is there at once."""
    searches = 0

    def count(_frame: object, event: str, what: object) -> None:
        nonlocal searches
        searches += event == "c_call" and getattr(what, "__name__", "") == "find"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        found = known_cause(FAILED, "step 4200 loss 2.31\nTraceback\nValueError: loss is nan\n")
    finally:
        sys.setprofile(before)
    assert found is None
    assert 0 < searches < sum(len(rule.text) for rule in BY_WORDS) / 4


def test_every_message_belongs_to_a_rule() -> None:
    assert MESSAGES.keys() == {rule.name for rule in BY_WORDS}
    assert len(rules()) >= 30


@pytest.mark.parametrize(
    ("exit_code", "reason", "expected"),
    [
        (127, EndReason.USER_ERROR, "exit-not-found"),
        (127, EndReason.SETUP_FAILED, "exit-not-found"),
        (126, EndReason.USER_ERROR, "exit-not-executable"),
        (132, EndReason.SIGNAL, "exit-illegal-instruction"),
        (134, EndReason.SIGNAL, "exit-abort"),
        (135, EndReason.SIGNAL, "exit-bus-error"),
        (137, EndReason.SIGNAL, "exit-killed"),
        (139, EndReason.SIGNAL, "exit-segfault"),
        (143, EndReason.SIGNAL, "exit-terminated"),
        (137, EndReason.OOM, "out-of-memory"),
        (137, EndReason.USER_ERROR, "exit-above-128"),
        (139, EndReason.SETUP_FAILED, "exit-crashed"),
        (143, EndReason.USER_ERROR, "exit-above-128"),
        (143, EndReason.TIMEOUT, "time-limit"),  # that signal was ours
        (137, EndReason.PREEMPTED, None),
        (1, EndReason.USER_ERROR, None),
        (0, EndReason.OK, None),
    ],
)
def test_an_exit_status_tells_something_where_there_are_no_words(
    exit_code: int, reason: EndReason, expected: str | None
) -> None:
    assert name(End(reason=reason, exit_code=exit_code), "step 1\n") == expected


def test_words_tell_more_than_an_exit_status() -> None:
    end = End(reason=EndReason.SIGNAL, exit_code=134)
    assert name(end, MESSAGES["tpu-halted"][0]) == "tpu-halted"


def test_a_cause_comes_before_the_news_that_another_rank_died() -> None:
    said = MESSAGES["jax-peer-died"][0] + MESSAGES["disk-full"][0]
    assert name(FAILED, said) == "disk-full"


def test_what_a_task_said_tells_nothing_of_the_end_of_its_host() -> None:
    lost = End(reason=EndReason.WORKER_FAILED, error="the VM is deleted", exit_code=137)
    assert name(lost, MESSAGES["disk-full"][0]) is None


def test_an_ordinary_failure_has_no_known_cause() -> None:
    assert name(FAILED, "step 4200 loss 2.31\nTraceback\nValueError: loss is nan\n") is None
    assert name(FAILED) is None


def test_the_pieces_of_a_saying_must_be_in_one_line_and_in_order() -> None:
    assert name(FAILED, "open(/dev/accel0): Device or resource busy\n") == "tpu-in-use"
    assert name(FAILED, "open(/dev/accel0)\nDevice or resource busy\n") is None
    assert name(FAILED, "Device or resource busy: open(/dev/accel0)\n") is None
    assert (
        name(FAILED, "open(/dev/accel0) worked\nopen(/dev/accel1): Device or resource busy\n") == "tpu-in-use"
    )
    assert name(FAILED, "no MemoryError here\n") is None, "that one begins its line"


def test_a_long_line_is_cut_around_what_gave_it_away() -> None:
    said = "x" * 5000 + " No space left on device " + "y" * 5000
    found = known_cause(FAILED, said)
    assert found is not None
    assert "No space left on device" in found.line
    assert len(found.line) <= MAX_LINE + 2


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("open(/dev/vfio/" * 400_000, id="half of a saying, over and over"),
        pytest.param("open(/dev/vfio/\n" * 400_000, id="the same in lines"),
        pytest.param(
            "which implies that the global size of its dimension should be divisible by\n" * 50_000,
            id="two of three pieces in lines",
        ),
        pytest.param("\n" * 4_000_000, id="empty lines"),
        pytest.param("N" * 4_000_000, id="one letter"),
        pytest.param("\x1b[31m\x00\ud800[/]" * 400_000, id="escapes"),
    ],
)
def test_megabytes_of_anything_are_searched_only_at_their_end(text: str) -> None:
    assert name(FAILED, text) is None
    assert name(FAILED, f"No space left on device\n{text}") is None, "too far from the end"
    assert name(FAILED, f"{text[: 2 * MAX_SEARCHED]}\nNo space left on device\n") == "disk-full"


def test_rules_are_whole_and_can_be_typed() -> None:
    """Each has a page that tells of it; its command names only what is known of a failure."""
    names = [rule.name for rule in rules()]
    assert len(names) == len(set(names))
    for rule in rules():
        assert re.fullmatch(r"[a-z0-9-]+", rule.name)
        assert re.fullmatch(r"https://[^\s]+", rule.source), rule.name
        assert rule.text or rule.exits or rule.signal or rule.reasons, rule.name
        assert len(rule.cause) <= 90, rule.name
        assert rule.fix.endswith((".", "...")), rule.name
        assert not rule.next or rule.next.startswith("iris "), rule.name
        fields = {field for _, field, _, _ in string.Formatter().parse(rule.next) if field}
        assert fields <= {"job", "task", "worker", "variable"}, rule.name
        for saying in rule.text:
            assert all(piece.strip() for piece in saying.split("*")), rule.name
