"""A log that another program rewrote as a text file of Windows: it is refused by name, and restored."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from iris_cli.errors import LogDamagedError
from iris_cli.journal.log.verify import salvage, verify
from iris_cli.journal.state_dir import StateDir
from tests.journal.samples import NOON, filled, state_in
from tests.journal.test_archive import found as found_in
from tests.journal.test_archive import grown
from tests.journal.test_compact import commit, transactions
from tests.journal.test_verify import COUNT, found, lines, spoil


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    return filled(tmp_path / "state", COUNT)


def crlf(lines: list[bytes]) -> list[bytes]:
    return [line.replace(b"\n", b"\r\n") for line in lines]


@pytest.mark.parametrize("edit", ["CR LF", "a byte order mark", "both", "CR LF in some lines"])
def test_salvage_restores_a_log_that_another_program_rewrote(state: StateDir, edit: str) -> None:
    whole, sound = state.read().transactions, lines(state)
    rewritten = {
        "CR LF": crlf(sound),
        "a byte order mark": [b"\xef\xbb\xbf", *sound],
        "both": [b"\xef\xbb\xbf", *crlf(sound)],
        "CR LF in some lines": [*sound[:7], *crlf(sound[7:9]), *sound[9:]],
    }[edit]
    spoil(state, rewritten)
    damage = state_in(state.path).read().damage
    assert damage is not None
    assert not damage.forgivable
    report = salvage(state.path, now=NOON, actor="me@laptop")
    (finding,) = report.findings
    assert finding.what.endswith("another program rewrote the file")
    assert finding.line == finding.seq == (8 if "some" in edit else 1)
    assert (report.kept, report.lost) == (COUNT, 0)
    assert report.old_log is not None
    assert report.old_log.read_bytes() == b"".join(rewritten)
    assert lines(state) == sound
    assert verify(state.path).ok
    with state_in(state.path).locked("iris drain") as writer:
        assert (writer.transactions, writer.messages) == (whole, ())


def test_other_damage_in_a_rewritten_log_ends_it_there(state: StateDir) -> None:
    sound = lines(state)
    spoil(state, crlf([*sound[:12], b"oops\n", *sound[13:]]))
    assert [line for line, _, _ in found(verify(state.path))] == [1, 13]
    report = salvage(state.path, now=NOON, actor="me@laptop")
    assert (report.kept, report.lost) == (12, COUNT - 12)
    assert lines(state) == sound[:12]


def test_a_log_that_another_program_rewrote_is_not_missing_beside_its_archive(tmp_path: Path) -> None:
    three = tmp_path / "state"
    grown(three)
    before, path = transactions(three), three / "events.jsonl"
    sound = path.read_bytes()
    path.write_bytes(sound.replace(b"\n", b"\r\n"))
    expected = r"events.jsonl is damaged at line 1 \(byte 0, seq 19\): it ends in CR LF"
    for refused in (lambda: state_in(three).create("lab"), lambda: commit(state_in(three))):
        with pytest.raises(LogDamagedError, match=expected):
            refused()
    view, reading = state_in(three).read(), state_in(three).read_history(archive=True)
    assert view.damage is not None
    assert re.search(expected, view.damage.what)
    assert view.transactions == tuple(reading) == before[:18]
    assert reading.damage == view.damage
    assert [each[:3] for each in found_in(verify(three))] == [("events.jsonl", 1, 19)]
    assert salvage(three, now=NOON, actor="me@laptop").kept == 20
    assert path.read_bytes() == sound
    assert transactions(three) == before
