"""Logs of all formats that ever were: each must read for ever, and go on.

A file in `museum/` is never changed. What a new event type, field or format looks like goes into a new file.
"""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

from iris_cli.core.events import AttemptEvent, Event, WorkerDrained
from iris_cli.core.evolve import replay
from iris_cli.journal.codec import encode_event
from iris_cli.journal.state_dir import StateDir
from iris_cli.journal.verify import verify
from tests.journal.samples import COMPACTED, HELD_UP, LOSSES, NOON, REAPING, STORY, state_in

MUSEUM = Path(__file__).parent / "museum"
LOGS = sorted(MUSEUM.glob("*.jsonl"))


@pytest.fixture(params=LOGS, ids=lambda path: path.name)
def exhibit(request: pytest.FixtureRequest, tmp_path: Path) -> StateDir:
    return hung(request.param.name, tmp_path / "state")


def hung(name: str, path: Path) -> StateDir:
    """An exhibit as a state directory, with its archive if it has one beside it."""
    path.mkdir(mode=0o700)
    shutil.copyfile(MUSEUM / name, path / "events.jsonl")
    (path / "events.jsonl").chmod(0o600)
    archive = MUSEUM / name.removesuffix(".jsonl")
    if archive.is_dir():
        shutil.copytree(archive, path / "archive")
        (path / "archive").chmod(0o700)
    return state_in(path)


def test_an_old_log_is_read_whole_and_replayed(exhibit: StateDir) -> None:
    assert verify(exhibit.path).ok
    view = exhibit.read()
    assert view.damage is None
    cluster = replay(view.transactions)
    assert (cluster.name, cluster.seq) == ("museum", view.seq)


def test_an_old_log_goes_on(exhibit: StateDir) -> None:
    seq = exhibit.read().seq
    with exhibit.locked("iris drain") as writer:
        drained = WorkerDrained(worker=next(iter(replay(exhibit.read().transactions).workers)))
        assert writer.append([drained], at=NOON).seq == seq + 1
    assert verify(exhibit.path).ok


STORIES = pytest.mark.parametrize(
    ("name", "story"),
    [
        ("format-1.jsonl", STORY),
        ("format-1-losses.jsonl", LOSSES),
        ("format-1-reaping.jsonl", REAPING),
        ("format-1-held-up.jsonl", HELD_UP),
        ("format-1-compacted.jsonl", COMPACTED),
    ],
)


@STORIES
def test_format_1_says_what_it_said_when_it_was_written(
    tmp_path: Path, name: str, story: tuple[tuple[Event, ...], ...]
) -> None:
    transactions = hung(name, tmp_path / "state").read().transactions
    assert tuple(each.events for each in transactions) == story
    assert [each.at for each in transactions] == [NOON + index for index in range(len(story))]
    assert transactions[0].actor == "me@laptop iris init"


@STORIES
def test_format_1_is_still_what_is_written(name: str, story: tuple[tuple[Event, ...], ...]) -> None:
    archive = sorted((MUSEUM / name.removesuffix(".jsonl")).glob("*.gz"))
    old = "".join(gzip.decompress(path.read_bytes()).decode("ascii") for path in archive)
    lines = (old + (MUSEUM / name).read_text(encoding="ascii")).splitlines()
    for line, events in zip(lines, story, strict=True):
        assert json.dumps([encode_event(event) for event in events], separators=(",", ":")) in line


def test_every_type_of_event_stands_in_the_museum() -> None:
    entries = [json.loads(line) for path in LOGS for line in path.read_text(encoding="ascii").splitlines()]
    seen = {event["type"] for entry in entries for event in entry["events"]}
    assert seen == Event.TYPES.keys() - {AttemptEvent.__name__}
