"""From bytes on a worker to whole lines here."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_cli.core.ids import WorkerId
from iris_cli.core.observations import Silence, SilenceKind
from iris_cli.ops import log_stream
from iris_cli.ops.log_stream import LineCutter, LogStream
from iris_cli.remote.task_runner import LogChunk

SILENCE = Silence(worker=WorkerId("w"), kind=SilenceKind.TIMEOUT, step="output", detail="timed out")
TEXTS = st.text(alphabet=st.sampled_from("ab é€𝄞\n\r\t"), max_size=60)


@dataclass
class RemoteFile:
    """A file on a worker. It can grow, be replaced, and fall silent after some calls."""

    data: bytes = b""
    inode: int = 7
    most: int = 1 << 20  # bytes that the worker gives in one call, whatever is asked for
    answers: int = 1000
    calls: list[tuple[int, int]] = field(default_factory=list)

    def __call__(self, offset: int, limit: int) -> LogChunk | Silence:
        self.calls.append((offset, limit))
        if len(self.calls) > self.answers:
            return SILENCE
        if offset < 0:
            offset = max(0, len(self.data) + offset)
        data = self.data[offset : offset + min(limit, self.most)]
        return LogChunk(data=data, offset=offset, size=len(self.data), inode=self.inode)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rules with small numbers: every branch is met with short texts."""
    monkeypatch.setattr(log_stream, "FIRST", 8)
    monkeypatch.setattr(log_stream, "PIECE", 16)
    monkeypatch.setattr(log_stream, "TURN", 64)
    monkeypatch.setattr(log_stream, "FARTHEST", 256)
    monkeypatch.setattr(log_stream, "LONGEST", 40)


@given(TEXTS, st.lists(st.integers(0, 200)))
def test_lines_are_the_same_however_the_bytes_are_divided(text: str, cuts: list[int]) -> None:
    data = text.encode()
    whole, pieces = LineCutter(), LineCutter()
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    found = [line for a, b in pairwise(edges) for line in pieces.feed(data[a:b])]
    assert found + pieces.rest() == whole.feed(data) + whole.rest()


@given(st.text(alphabet="é€𝄞a", max_size=200))
def test_a_line_that_is_too_long_is_cut_between_characters(text: str) -> None:
    cutter = LineCutter()
    lines = [line for byte in text.encode() for line in cutter.feed(bytes([byte]))] + cutter.rest()
    assert "".join(lines) == text
    assert all(len(line.encode()) <= 40 for line in lines)


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\r\ntwo\r\n", ["one", "two"]),
        (b" 10%\r 50%\r100%\ndone\n", ["100%", "done"]),
        (b"\n\n", ["", ""]),
        (b"caf\xe9\n", ["caf\N{REPLACEMENT CHARACTER}"]),
        (b"no end", []),
    ],
)
def test_a_line_reads_as_on_a_terminal(data: bytes, lines: list[str]) -> None:
    assert LineCutter().feed(data) == lines


def numbered(count: int) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(count))


@pytest.mark.parametrize("lines_there", [0, 1, 2, 3, 20, 200])
@pytest.mark.parametrize("wanted", [0, 1, 2, 5])
def test_the_last_lines_come_whole_whatever_the_size_of_the_file(lines_there: int, wanted: int) -> None:
    file = RemoteFile(numbered(lines_there))
    found = LogStream().read_last(file, wanted)
    last = range(max(0, lines_there - wanted), lines_there)
    assert (found.lines, found.at_end) == ([f"line {number}" for number in last], True)


@pytest.mark.parametrize("size", [0, 4, 10_000])
def test_the_last_short_lines_take_one_call(size: int) -> None:
    file = RemoteFile(b"a\n" * size)
    LogStream().read_last(file, 3)
    assert file.calls == [(-8, 8)]


def test_what_is_written_while_the_worker_answers_comes_once() -> None:
    """The size was taken before the bytes: there may be more of them."""
    file, stream = RemoteFile(b"one\ntwo\n"), LogStream()

    def fetch(offset: int, limit: int) -> LogChunk | Silence:
        seen = file(offset, limit)
        return replace(seen, size=4) if isinstance(seen, LogChunk) else seen

    found = stream.read_last(fetch, 5).lines
    assert found + stream.read_on(file).lines == ["one", "two"]


def test_a_file_without_line_ends_is_not_read_as_a_whole() -> None:
    file = RemoteFile(b"x" * 100_000)
    LogStream().read_last(file, 3)
    assert sum(limit for _, limit in file.calls) < 1000


@given(
    st.binary(max_size=300),
    st.lists(st.binary(max_size=80), max_size=6),
    st.integers(0, 4),
    st.integers(1, 30),
)
def test_following_gives_each_line_once(before: bytes, later: list[bytes], tail: int, most: int) -> None:
    file, stream = RemoteFile(before, most=most), LogStream()
    found = stream.read_last(file, tail).lines
    for more in later:
        file.data += more
        while True:
            turn = stream.read_on(file)
            found += turn.lines
            if turn.at_end:
                break
    found += stream.cutter.rest()

    everything = LineCutter()
    there = everything.feed(file.data) + everything.rest()
    if len(before) <= 256:  # beyond that the first line may be the end of a cut one
        assert found == there[len(there) - len(found) :]
    assert len(found) >= b"".join(later).count(b"\n")


def test_a_file_that_was_replaced_is_read_from_its_beginning() -> None:
    file, stream = RemoteFile(b"old 1\nold 2\n"), LogStream()
    stream.read_on(file)
    file.data, file.inode = b"new 1\n", 8
    assert stream.read_on(file).lines == ["new 1"]


def test_a_worker_that_changes_its_file_for_ever_holds_nobody() -> None:
    inodes = iter(range(1, 10_000))

    def fetch(offset: int, limit: int) -> LogChunk:
        return LogChunk(data=b"x\n", offset=offset, size=2, inode=next(inodes))

    stream = LogStream()
    stream.read_on(fetch)
    assert stream.read_on(fetch).at_end is False


def test_a_flood_gives_way_to_others() -> None:
    turn = LogStream().read_on(RemoteFile(numbered(1000)))
    assert turn.at_end is False
    assert 0 < len(turn.lines) < 20


def test_lines_that_came_before_the_silence_are_not_lost() -> None:
    file, stream = RemoteFile(numbered(6), answers=2), LogStream()
    cut = stream.read_on(file)
    assert (cut.silence, cut.at_end) == (SILENCE, False)
    file.answers = 1000
    assert cut.lines + stream.read_on(file).lines == [f"line {number}" for number in range(6)]


def test_silence_at_the_first_look_is_tried_again_from_the_end() -> None:
    file, stream = RemoteFile(numbered(50), answers=1), LogStream()
    assert stream.read_last(file, 2).silence is SILENCE
    file.answers = 1000
    assert stream.read_last(file, 2).lines == ["line 48", "line 49"]
