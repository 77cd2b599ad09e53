"""The power goes at any moment: of all that POSIX allows to be left then, nothing costs what was acknowledged."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from iris_cli.core.events.events import Event, LogCompacted, Transaction, WorkerDrained
from iris_cli.core.ids import WorkerId
from iris_cli.errors import NotWritableError
from iris_cli.files import Disk
from iris_cli.journal.log.verify import salvage, verify
from iris_cli.journal.state_dir import StateDir
from tests.journal.power import PowerCuts, State
from tests.journal.samples import NOON, filled, state_in

BEFORE = 4
TAIL = b'{"seq":5,"torn'
SAMPLE = 50
"""States that are tried of each story by default; the long version tries them all."""


class Quick(Disk):
    """What the checks themselves write need not survive anything."""

    def fsync(self, fd: int) -> None:
        pass


class Story:
    """What is done on a disk of which the power may go, and what was acknowledged when."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.disk = PowerCuts(path)
        self.before = [each.events for each in state_in(path).read().transactions]
        self.acknowledged: list[tuple[int, tuple[Event, ...]]] = []  # at which moment, what
        self.attempted: list[tuple[Event, ...]] = []

    @property
    def state(self) -> StateDir:
        return StateDir(self.path, now=lambda: NOON, actor="me@laptop", disk=self.disk)

    def commit(self, *, accept_loss: bool = False) -> None:
        event = WorkerDrained(worker=WorkerId(f"story-{len(self.attempted)}"), reason="x" * 80)
        self.attempted.append((event,))
        with self.state.locked("iris drain", 60.0, accept_loss=accept_loss) as writer:
            writer.append([event], at=NOON)
            self.acknowledged.append((self.disk.moments, (event,)))

    def due(self, moment: int) -> list[tuple[Event, ...]]:
        """What must be there whenever the power goes at this moment."""
        return self.before + [events for when, events in self.acknowledged if when <= moment]


def commits(story: Story) -> None:
    for _ in range(3):
        story.commit()


def begins(story: Story) -> None:
    story.state.create("lab")
    story.before = []
    commits(story)


def refused_once(story: Story) -> None:
    """The first fsync fails, and with it that commit; it is repeated."""
    fsync = story.disk.fsync

    def broken(fd: int) -> None:
        story.disk.fsync = fsync  # type: ignore[method-assign]  # once only
        raise OSError(5, os.strerror(5))

    story.disk.fsync = broken  # type: ignore[method-assign]  # a disk with a fault
    with pytest.raises(NotWritableError):
        story.commit()
    story.commit()


def accepts_a_loss(story: Story) -> None:
    story.commit(accept_loss=True)
    story.commit()


def compacts(story: Story) -> None:
    """Twice, with work before, between and after."""
    for _ in range(2):
        story.commit()
        done, _ = story.state.compact("iris log compact")
        assert done is not None
    story.commit()


def nothing(path: Path) -> None:
    path.mkdir(mode=0o700)


def sound(path: Path) -> None:
    filled(path, BEFORE)


def beyond_head_and_torn(path: Path) -> None:
    filled(path, BEFORE - 1)
    head = (path / "HEAD").read_bytes()
    with state_in(path).locked("iris drain") as writer:
        writer.append([WorkerDrained(worker=WorkerId("beyond"))], at=NOON)
    (path / "HEAD").write_bytes(head)
    with (path / "events.jsonl").open("ab") as log:
        log.write(TAIL)


def torn(path: Path) -> None:
    filled(path, BEFORE)
    with (path / "events.jsonl").open("ab") as log:
        log.write(TAIL)


def shorter_than_head(path: Path) -> None:
    filled(path, BEFORE + 2)
    lines = (path / "events.jsonl").read_bytes().splitlines(keepends=True)
    (path / "events.jsonl").write_bytes(b"".join(lines[:BEFORE]))


Act = Callable[[Story], None]
Prepare = Callable[[Path], None]


def tell(tmp_path: Path, prepare: Prepare, act: Act) -> Story:
    path = tmp_path / "story"
    prepare(path)
    story = Story(path)
    act(story)
    return story


def left_by(story: Story, sample: int | None) -> Sequence[tuple[int, State]]:
    """The states that a power cut may leave, each with the last moment at which it may."""
    last: dict[frozenset[tuple[str, bytes]], int] = {}
    for moment, states in enumerate(story.disk.left, start=1):
        for state in states:
            last[frozenset(state.items())] = moment
    found = [
        (moment, dict(state))
        for state, moment in sorted(last.items(), key=lambda each: (each[1], sorted(each[0])))
    ]
    if sample is None or len(found) <= sample:
        return found
    return random.Random(sample).sample(found, sample)


def materialized(tmp_path: Path, state: State) -> Path:
    path = tmp_path / "left"
    if path.exists():
        shutil.rmtree(path)
    path.mkdir(mode=0o700)
    for name, data in state.items():
        (path / name).parent.mkdir(mode=0o700, exist_ok=True)
        (path / name).write_bytes(data)
        (path / name).chmod(0o600)
    return path


def worth_telling(transactions: Sequence[Transaction]) -> list[tuple[Event, ...]]:
    """All but those that say where the log was cut."""
    return [each.events for each in transactions if not isinstance(each.events[0], LogCompacted)]


def go_on(path: Path, *, accept_loss: bool = False) -> int:
    event = WorkerDrained(worker=WorkerId("afterwards"))
    state = StateDir(path, now=lambda: NOON, actor="me@laptop", disk=Quick())
    if state.read().header is None:
        state.create("lab")
    with state.locked("iris drain", accept_loss=accept_loss) as writer:
        return writer.append([event], at=NOON).seq


samples = pytest.mark.parametrize("sample", [SAMPLE, pytest.param(None, marks=pytest.mark.soak)])


def test_a_log_whose_first_line_lost_its_end_is_begun_again(tmp_path: Path) -> None:
    """Only the data of the first write had reached the disk, and not its last byte."""
    assert go_on(tmp_path) == 2
    log = tmp_path / "events.jsonl"
    first = log.read_bytes().splitlines()[0]
    for path in tmp_path.iterdir():
        if path.is_file():
            path.unlink()
    log.write_bytes(first)
    log.chmod(0o600)
    assert go_on(tmp_path) == 2
    assert verify(tmp_path).ok


@samples
@pytest.mark.parametrize(
    ("prepare", "act"),
    [
        (nothing, begins),
        (sound, commits),
        (sound, refused_once),
        (torn, commits),
        (beyond_head_and_torn, commits),
        (sound, compacts),
    ],
    ids=[
        "it begins",
        "it goes on",
        "a commit is refused",
        "it was torn",
        "it was ahead of HEAD and torn",
        "it is compacted",
    ],
)
def test_what_was_acknowledged_survives_a_power_cut_at_any_moment(
    tmp_path: Path, prepare: Prepare, act: Act, sample: int | None
) -> None:
    story = tell(tmp_path, prepare, act)
    states = left_by(story, sample)
    assert len(states) >= 10  # some may be equal
    for moment, state in states:
        path = materialized(tmp_path, state)
        view = state_in(path).read()
        assert view.damage is None, (moment, state)
        due, found = story.due(moment), worth_telling(view.transactions)
        if act is begins and found:
            found = found[1:]  # the one that makes the cluster, which nobody was told of by then
        assert found[: len(due)] == due, (moment, state)
        assert all(each in story.attempted for each in found[len(due) :])
        assert go_on(path) == max(view.seq, 1) + 1
        assert verify(path).ok
        if prepare in (torn, beyond_head_and_torn):
            assert any(TAIL in each.read_bytes() for each in path.iterdir()), (moment, state)


@samples
def test_a_loss_that_was_accepted_need_not_be_accepted_again_once_work_went_on(
    tmp_path: Path, sample: int | None
) -> None:
    story = tell(tmp_path, shorter_than_head, accepts_a_loss)
    accepted, _ = story.acknowledged[0]
    for moment, state in left_by(story, sample):
        path = materialized(tmp_path, state)
        view = state_in(path).read()
        due = story.due(moment)
        assert [each.events for each in view.transactions][: len(due)] == due, (moment, state)
        if moment >= accepted:
            assert view.damage is None, (moment, state)
        assert go_on(path, accept_loss=True) == view.seq + 1
        assert verify(path).ok


@samples
def test_salvage_cut_short_by_the_power_keeps_the_damaged_log_and_can_be_repeated(
    tmp_path: Path, sample: int | None
) -> None:
    path = tmp_path / "story"
    filled(path, BEFORE + 2)
    damaged = (path / "events.jsonl").read_bytes().replace(b'"w4"', b'"w5"')
    (path / "events.jsonl").write_bytes(damaged)
    story = Story(path)
    salvage(path, now=NOON, actor="me@laptop", disk=story.disk)
    for moment, state in left_by(story, sample):
        left = materialized(tmp_path, state)
        assert damaged in state.values(), (moment, sorted(state))
        assert [each.events for each in state_in(left).read().transactions] == story.before
        salvage(left, now=NOON, actor="me@laptop", disk=Quick())
        assert go_on(left) == BEFORE + 1
        assert verify(left).ok
        assert any(each.read_bytes() == damaged for each in left.glob("events.jsonl.damaged-*"))
