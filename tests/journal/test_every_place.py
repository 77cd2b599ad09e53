"""A log of 1,000 transactions, spoilt at every place: what stands before is all there, and nothing is invented.

What a fault does is decided by the lines around it, so most tests let a reader follow the log up to the place, and
look at it from there: thousands of places take a second. The long versions read everything from the beginning.
"""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path

import pytest
from msgspec.structs import replace

from iris_cli.core.events.events import Transaction, WorkerDrained
from iris_cli.core.ids import WorkerId
from iris_cli.errors import IrisError, LogDamagedError
from iris_cli.files import Disk
from iris_cli.journal.log.file_store import FileStore, Loaded
from iris_cli.journal.log.head import Head, read_head
from iris_cli.journal.log.position import FaultKind
from iris_cli.journal.log.record import Conflict
from iris_cli.journal.log.recovery import Damage, damage_of
from iris_cli.journal.log.verify import salvage, verify
from iris_cli.journal.state_dir import StateDir
from tests.journal.samples import NOON, state_in, written

COUNT = 1000


class Original:
    """The log as it was written, and where its lines are."""

    def __init__(self, path: Path) -> None:
        self.state = written(path, COUNT)
        self.content = (path / "events.jsonl").read_bytes()
        self.lines = self.content.splitlines(keepends=True)
        self.starts = [0, *accumulate(map(len, self.lines))]
        self.transactions = self.state.read().transactions
        self.crcs = [json.loads(line)["crc"] for line in self.lines]
        self.cluster_id = json.loads(self.lines[0])["cluster_id"]

    def head(self, seq: int) -> Head | None:
        return Head(seq=seq, crc=self.crcs[seq - 1], cluster_id=self.cluster_id) if seq else None

    def whole_before(self, place: int) -> int:
        """How many lines end before this byte."""
        return self.content.count(b"\n", 0, place)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Original:
    return Original(tmp_path_factory.mktemp("every-place") / "state")


@pytest.fixture
def state(original: Original, tmp_path: Path) -> StateDir:
    """A copy, to be spoilt."""
    shutil.copytree(original.state.path, tmp_path / "state")
    return state_in(tmp_path / "state")


class Follower:
    """A reader that knows all before the line `known`, and what it finds when the rest is so and so."""

    def __init__(self, original: Original, path: Path) -> None:
        self._original = original
        self._log = path / "events.jsonl"
        self._file = self._log.open("wb", buffering=0)
        self._store = FileStore(path)
        self.known = 0

    def finds(self, rest: bytes) -> Loaded:
        """What it reads if these bytes come behind what it knows."""
        start = self._original.starts[self.known]
        self._file.seek(start)
        self._file.write(rest)
        self._file.truncate(start + len(rest))
        return self._store.load(self.known)

    def step(self) -> None:
        """Get to know the next line."""
        (record,) = self.finds(self._original.lines[self.known]).records
        assert record == self._original.transactions[self.known]
        self.known += 1

    def verdict(self, loaded: Loaded, head: Head | None) -> Damage | None:
        """What follows from it, if HEAD is at so and so."""
        return damage_of(self._log, replace(loaded, head=head))


@pytest.fixture
def follower(original: Original, tmp_path: Path) -> Iterator[Follower]:
    (tmp_path / "followed").mkdir(mode=0o700)
    follower = Follower(original, tmp_path / "followed")
    yield follower
    follower._file.close()


def commit(state: StateDir, *, accept_loss: bool = False) -> Transaction:
    with state.locked("iris drain", accept_loss=accept_loss) as writer:
        return writer.append([WorkerDrained(worker=WorkerId("v4a-0"))], at=NOON)


# Cut


@pytest.mark.soak
def test_cut_at_any_byte_all_whole_lines_are_there_and_head_tells_torn_from_lost(
    original: Original, follower: Follower
) -> None:
    for number, line in enumerate(original.lines):
        for size in range(1, len(line)):
            found = follower.finds(line[:size])
            assert found.records == ()
            assert (found.end.seq, found.end.offset) == (number, original.starts[number])
            assert found.fault is not None
            assert found.fault.kind is FaultKind.TORN
            assert follower.verdict(found, original.head(number)) is None
            lost = follower.verdict(found, original.head(number + 1))
            assert lost is not None
            assert f"line {number + 1} (byte {original.starts[number]}, seq {number + 1})" in lost.what
        follower.step()
        lost = follower.verdict(follower.finds(b""), original.head(min(number + 2, COUNT)))
        assert (lost is None) == (number + 1 == COUNT)


@pytest.mark.soak
def test_cut_anywhere_the_next_writer_goes_on_behind_the_last_whole_line(
    original: Original, tmp_path: Path
) -> None:
    chance = random.Random(200)
    for number in range(200):
        path = tmp_path / str(number)
        shutil.copytree(original.state.path, path)
        place = chance.randrange(1, len(original.content))
        whole = original.whole_before(place)
        (path / "events.jsonl").write_bytes(original.content[:place])
        state = state_in(path)
        view = state.read()
        assert view.damage is not None
        assert view.transactions == original.transactions[:whole]
        with pytest.raises(LogDamagedError, match=f"seq {COUNT} was committed"):
            commit(state)
        assert (path / "events.jsonl").read_bytes() == original.content[:place]
        salvage(path, now=NOON, actor="me@laptop")
        assert state.read().transactions == original.transactions[:whole]
        if whole:
            assert commit(state).seq == whole + 1
            assert verify(path).ok
        shutil.rmtree(path)


# Flipped bits


def flip(raw: bytes, bit: int) -> bytes:
    spoilt = bytearray(raw)
    spoilt[bit // 8] ^= 1 << bit % 8
    return bytes(spoilt)


def places(original: Original, flips: int, seed: int = 0) -> Iterator[tuple[int, int]]:
    """Random bits of the log, in order: the line, and the bit in it."""
    chance = random.Random(seed)
    for bit in sorted(chance.sample(range(len(original.content) * 8), flips)):
        line = original.whole_before(bit // 8)
        yield line, bit - 8 * original.starts[line]


@pytest.mark.parametrize(
    ("flips", "seed"), [(10, 0), *(pytest.param(1_000, seed, marks=pytest.mark.soak) for seed in range(1, 3))]
)
def test_a_flipped_bit_costs_the_line_that_it_is_in_and_verify_names_it(
    original: Original, state: StateDir, flips: int, seed: int
) -> None:
    """Five thousand places in the long version, in five parts."""
    verdicts: Counter[str] = Counter()
    with (state.path / "events.jsonl").open("rb+", buffering=0) as log:
        for line, bit in places(original, flips, seed):
            log.seek(original.starts[line])
            log.write(flip(original.lines[line], bit))
            verdict = verify(state.path)
            verdicts[f"{verdict.findings[0].kind}, {COUNT - verdict.records} lost"] += 1
            assert (verdict.unfinished or verdict.findings[0]).line == line + 1
            assert verdict.sound_until.seq == line
            # A newline that is gone makes one bad line of two good ones.
            newline_is_gone = bit // 8 == len(original.lines[line]) - 1 and line < COUNT - 1
            assert verdict.records == COUNT - 1 - newline_is_gone
            log.seek(original.starts[line])
            log.write(original.lines[line])
    print(dict(verdicts))
    assert verdicts.total() == flips
    assert verify(state.path).ok


@pytest.mark.parametrize("made_by", ["iris", "somebody who makes no checksum"])
def test_a_flipped_bit_anywhere_in_head_loses_nothing_and_is_refused_or_mended(
    tmp_path: Path, made_by: str
) -> None:
    """What names no line at all is made anew, as what a power cut leaves of HEAD is."""
    state = written(tmp_path / "few", 5)
    said = read_head(state.path)
    if made_by != "iris":
        entry = json.loads((state.path / "HEAD").read_text())
        del entry["check"]
        (state.path / "HEAD").write_text(json.dumps(entry) + "\n")
    head, log = (state.path / "HEAD").read_bytes(), (state.path / "events.jsonl").read_bytes()
    refused = 0
    for bit in range(0, len(head) * 8, 3):
        (state.path / "HEAD").write_bytes(flip(head, bit))
        view = state.read()
        assert view.seq == 5
        if view.damage is not None:
            refused += 1
            assert view.damage.forgivable
            assert verify(state.path).findings
            assert "HEAD" in view.damage.what or "--accept-loss" in view.damage.hint
        if bit % 36 == 0:
            if view.damage is not None:
                with pytest.raises(LogDamagedError), state.locked("iris drain"):
                    pass
            with state.locked("iris drain", accept_loss=True) as writer:
                assert writer.seq == 5
            assert (state.path / "events.jsonl").read_bytes() == log
            assert read_head(state.path) == said
    assert (refused > 33) == (made_by != "iris")


def test_a_flipped_bit_anywhere_in_lock_json_changes_nothing(tmp_path: Path) -> None:
    state = written(tmp_path / "few", 5)
    with state.locked("iris drain"):
        said = (state.path / "lock.json").read_bytes()
    for bit in range(0, len(said) * 8, 5):
        (state.path / "lock.json").write_bytes(flip(said, bit))
        state.lock_holder()
        if bit % 20 == 0:
            with state.locked("iris drain", 60.0) as writer:
                assert writer.seq == 5


# Blocks


@pytest.mark.parametrize("page", [512, 4096])
def test_zeros_from_any_page_to_the_end_are_torn_or_lost_as_head_says(
    original: Original, state: StateDir, page: int
) -> None:
    log = state.path / "events.jsonl"
    pages = range(page, len(original.content), page)
    for place in random.Random(page).sample(pages, min(len(pages), 8)):
        whole = original.whole_before(place)
        log.write_bytes(original.content[:place] + bytes(len(original.content) - place))
        found = FileStore(state.path).load()
        assert found.records == original.transactions[:whole]
        assert damage_of(log, replace(found, head=original.head(whole))) is None
        lost = damage_of(log, found)
        assert lost is not None
        assert f"seq {COUNT} was committed" in lost.what


@pytest.mark.parametrize("zeros", [1, 100, 4096])
def test_zeros_in_front_of_good_lines_are_damage_even_if_head_lags(
    original: Original, state: StateDir, zeros: int
) -> None:
    """As if a page never reached the disk, and the next one did."""
    for line in (1, 400, COUNT - 2):
        place = original.starts[line]
        spoilt = original.content[:place] + bytes(zeros) + original.content[place + zeros :]
        (state.path / "events.jsonl").write_bytes(spoilt[: max(len(original.content), place + zeros)])
        found = FileStore(state.path).load()
        assert found.records == original.transactions[:line]
        verdict = damage_of(state.path / "events.jsonl", found)
        assert verdict is not None
        if zeros < 200:
            behind = damage_of(state.path / "events.jsonl", replace(found, head=original.head(line)))
            assert behind is not None


def lines_again(original: Original, count: int) -> bytes:
    return b"".join(original.lines[-count:])


def bytes_again(original: Original, count: int) -> bytes:
    return original.content[-count:]


@pytest.mark.parametrize("count", [1, 7, 4096])
@pytest.mark.parametrize("again", [lines_again, bytes_again], ids=["lines", "bytes"])
def test_a_tail_that_stands_there_twice_is_damage_and_salvage_keeps_all_that_was_committed(
    original: Original, state: StateDir, again: Callable[[Original, int], bytes], count: int
) -> None:
    log = state.path / "events.jsonl"
    tail = again(original, count)
    log.write_bytes(original.content + tail)
    assert state.read().transactions == original.transactions
    if any(line == tail[-len(line) :] for line in original.lines[-1:]):  # at least one whole line
        with pytest.raises(
            LogDamagedError, match=rf"line {COUNT + 1} \(byte {len(original.content)}, seq 1001"
        ):
            commit(state)
        assert log.read_bytes() == original.content + tail
        assert salvage(state.path, now=NOON, actor="me@laptop").kept == COUNT
        assert log.read_bytes() == original.content
    assert commit(state).seq == COUNT + 1
    assert verify(state.path).ok


# A process that is behind


class Interrupted(Disk):
    """Something happens just before a line is written."""

    def __init__(self, happens: Callable[[], object]) -> None:
        self._happens: Callable[[], object] | None = happens

    def write(self, fd: int, data: bytes) -> int:
        happens, self._happens = self._happens, None
        if happens is not None:
            happens()
        return super().write(fd, data)


def drain(store: FileStore, expected_seq: int, name: str) -> int | Conflict:
    return store.append(expected_seq, [WorkerDrained(worker=WorkerId(name))], at=NOON, actor=name)


def test_a_process_that_is_behind_writes_nothing_though_it_has_no_lock(
    original: Original, state: StateDir
) -> None:
    stale, other = FileStore(state.path), FileStore(state.path)
    stale.load()
    other.load()
    assert drain(other, COUNT, "other") == COUNT + 1
    assert drain(stale, COUNT, "stale") == Conflict(COUNT + 1)
    assert len((state.path / "events.jsonl").read_bytes().splitlines()) == COUNT + 1


def test_two_that_write_at_the_very_same_moment_without_a_lock_are_found_out_and_nothing_is_lost(
    original: Original, state: StateDir
) -> None:
    """The lock makes this impossible; where it was deleted by hand, the second line is refused by all."""
    other = FileStore(state.path)
    other.load()
    stale = FileStore(state.path, Interrupted(lambda: drain(other, COUNT, "other")))
    stale.load()
    drain(stale, COUNT, "stale")
    log = state.path / "events.jsonl"
    before = log.read_bytes()
    assert len(before.splitlines()) == COUNT + 2
    with pytest.raises(IrisError):
        drain(other, COUNT + 1, "other")
    with pytest.raises(LogDamagedError, match=f"line {COUNT + 2} .*seq {COUNT + 1} follows {COUNT + 1}"):
        commit(state)
    view = state.read()
    assert view.damage is not None
    assert view.transactions[:COUNT] == original.transactions
    assert view.transactions[-1].events == (WorkerDrained(worker=WorkerId("other")),)
    assert log.read_bytes() == before
    assert [fault.line for fault in verify(state.path).findings][:1] == [COUNT + 2]
    assert salvage(state.path, now=NOON, actor="me@laptop").kept == COUNT + 1
    assert commit(state).seq == COUNT + 2
