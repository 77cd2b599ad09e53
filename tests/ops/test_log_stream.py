"""From bytes on a worker to whole lines here, whatever is cut off in between."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from iris_cli.ops.logs import log_reading
from iris_cli.ops.logs.log_reading import LineCutter, LogStream
from iris_cli.remote.task_runner import LogChunk

TEXTS = st.text(alphabet=st.sampled_from("ab é€𝄞\n\r\t"), max_size=60)


@dataclass
class RemoteFile:
    """A file on a worker. It can grow, be replaced or vanish."""

    data: bytes = b""
    inode: int = 7
    most: int = 1 << 20  # bytes that the worker gives in one call, whatever is asked for
    calls: list[tuple[int, int]] = field(default_factory=list)

    def piece(self, offset: int, limit: int) -> LogChunk:
        self.calls.append((offset, limit))
        start = offset if offset >= 0 else max(0, len(self.data) + offset)
        start = min(start, len(self.data))
        data = self.data[start : start + min(limit, self.most)]
        return LogChunk(data=data, offset=start, size=len(self.data), inode=self.inode)

    def read(self, stream: LogStream) -> list[str]:
        """Everything there is."""
        lines = []
        for _ in range(1000):
            lines += stream.take(self.piece(*stream.wanted)).split("\n")[:-1]
            if stream.at_end:
                return lines
        raise AssertionError("it never comes to an end")


def rest(stream: LogStream) -> list[str]:
    return stream.cutter.rest().split("\n")[:-1]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rules with small numbers: every branch is met with short texts."""
    monkeypatch.setattr(log_reading, "FIRST_READ", 8)
    monkeypatch.setattr(log_reading, "PIECE", 16)
    monkeypatch.setattr(log_reading, "MAX_SEARCH", 256)
    monkeypatch.setattr(log_reading, "MAX_LINE", 40)


def literally(data: bytes) -> str:
    """The same rules, line by line."""
    lines = []
    for line in data.split(b"\n")[:-1]:
        while len(line) > log_reading.MAX_LINE:
            cut = next(
                (each for each in range(40, 36, -1) if line[each] & 0xC0 != 0x80),
                log_reading.MAX_LINE - 4,
            )
            lines.append(line[:cut])
            line = line[cut:]
        lines.append(line)
    texts = [line.decode("utf-8", "replace").rstrip("\r").rpartition("\r")[2] for line in lines]
    return "".join(f"{text}\n" for text in texts)


@given(st.lists(st.one_of(st.binary(max_size=90), TEXTS.map(str.encode)), max_size=6))
def test_many_lines_at_once_are_cut_as_one_by_one(lines: list[bytes]) -> None:
    data = b"".join(line + b"\n" for line in lines)
    assert LineCutter().feed(data) == literally(data)


@given(TEXTS, st.lists(st.integers(0, 200)))
def test_lines_are_the_same_however_the_bytes_are_divided(text: str, cuts: list[int]) -> None:
    data = text.encode()
    whole, pieces = LineCutter(), LineCutter()
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    found = "".join(pieces.feed(data[a:b]) for a, b in pairwise(edges))
    assert found + pieces.rest() == whole.feed(data) + whole.rest()


@given(st.text(alphabet="é€𝄞a", max_size=200))
def test_a_line_that_is_too_long_is_cut_between_characters(text: str) -> None:
    cutter = LineCutter()
    said = "".join(cutter.feed(bytes([byte])) for byte in text.encode()) + cutter.rest()
    lines = said.split("\n")
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
    assert LineCutter().feed(data) == "".join(f"{line}\n" for line in lines)


def numbered(count: int) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(count))


@pytest.mark.parametrize("lines_there", [0, 1, 2, 3, 20, 200])
@pytest.mark.parametrize("wanted", [0, 1, 2, 5])
def test_the_last_lines_come_whole_whatever_the_size_of_the_file(lines_there: int, wanted: int) -> None:
    file, stream = RemoteFile(numbered(lines_there)), LogStream(tail=wanted)
    last = range(max(0, lines_there - wanted), lines_there)
    assert file.read(stream) == [f"line {number}" for number in last]


@pytest.mark.parametrize("size", [0, 4, 10_000])
def test_the_last_short_lines_take_one_call(size: int) -> None:
    file = RemoteFile(b"a\n" * size)
    file.read(LogStream(tail=3))
    assert file.calls == [(-8, 8)]


def test_what_is_written_while_the_worker_answers_comes_once() -> None:
    """The size was taken before the bytes: there may be more of them."""
    file, stream = RemoteFile(b"one\ntwo\n"), LogStream(tail=5)
    found = stream.take(replace(file.piece(*stream.wanted), size=4))
    assert found.split() + file.read(stream) == ["one", "two"]


def test_a_file_that_grows_faster_than_it_is_read_does_not_hold_its_last_lines_back() -> None:
    file, stream = RemoteFile(b"x" * 100, most=10), LogStream(tail=3)
    for _ in range(200):
        stream.take(file.piece(*stream.wanted))
        file.data += b"y" * 50
        if stream.offset:
            return
    raise AssertionError("it never begins")


def test_a_file_without_line_ends_is_not_read_as_a_whole() -> None:
    file = RemoteFile(b"x" * 100_000)
    file.read(LogStream(tail=3))
    assert sum(limit for _, limit in file.calls) < 1000
    file.calls.clear()
    file.read(LogStream(tail=1))
    assert sum(limit for _, limit in file.calls) < 200  # of one line, no more than 40 bytes are shown


def test_the_end_of_a_last_line_longer_than_what_is_read_is_shown() -> None:
    file = RemoteFile(b"x" * 100_000 + b"end\n")
    lines = file.read(LogStream(tail=3))
    assert "".join(lines).strip("x") == "end"


def test_a_long_line_before_the_last_ones_is_shown_in_part() -> None:
    file = RemoteFile(b"x" * 100_000 + b"\nlast\nend\n")
    cut, *lines = file.read(LogStream(tail=3))
    assert (set(cut), lines) == ({"x"}, ["last", "end"])


@given(
    st.binary(max_size=300),
    st.lists(st.binary(max_size=80), max_size=6),
    st.integers(0, 4),
    st.integers(1, 30),
)
def test_following_gives_each_line_once(before: bytes, later: list[bytes], tail: int, most: int) -> None:
    file, stream = RemoteFile(before, most=most), LogStream(tail=tail)
    found = file.read(stream)
    for more in later:
        file.data += more
        found += file.read(stream)
    found += rest(stream)

    everything = LineCutter()
    there = (everything.feed(file.data) + everything.rest()).split("\n")[:-1]
    if len(before) <= min(256, 40 * (tail + 1)):  # beyond that the first line may be the end of a cut one
        assert found == there[len(there) - len(found) :]
    assert len(found) >= b"".join(later).count(b"\n")


@given(st.binary(max_size=300), st.sampled_from([None, 0, 3]), st.lists(st.booleans(), max_size=60))
def test_an_answer_that_is_lost_is_asked_for_again(data: bytes, tail: int | None, lost: list[bool]) -> None:
    file, stream, undisturbed = RemoteFile(data), LogStream(tail), LogStream(tail)
    found = []
    for is_lost in lost:
        answer = file.piece(*stream.wanted)
        if not is_lost:
            found += stream.take(answer).split("\n")[:-1]
    assert found + file.read(stream) == file.read(undisturbed)


@pytest.mark.parametrize(("data", "inode"), [(b"new 1\n", 8), (b"new 1\n", 7), (b"new 1\nnew 2\nnew 3\n", 8)])
def test_a_file_that_was_replaced_or_cut_off_is_read_from_its_beginning(data: bytes, inode: int) -> None:
    file, stream = RemoteFile(b"old 1\nold 2\nold"), LogStream()
    file.read(stream)
    file.data, file.inode = data, inode
    assert stream.take(file.piece(*stream.wanted)) == "old\n"
    assert (stream.replaced, stream.at_end) == (True, False)
    assert file.read(stream) == data.decode().split("\n")[:-1]
    assert not stream.replaced


def test_a_file_that_is_gone_and_back_is_read_on() -> None:
    """As of a host whose disk was not mounted for a moment."""
    file, stream = RemoteFile(b"one\ntw"), LogStream()
    assert file.read(stream) == ["one"]
    there, file.data, file.inode = file.data, b"", 0
    assert file.read(stream) == []
    file.data, file.inode = there + b"o\n", 7
    assert file.read(stream) == ["two"]


def test_a_log_whose_file_is_replaced_for_ever_is_at_its_end() -> None:
    stream = LogStream()
    for inode in range(1, 10):
        stream.take(LogChunk(data=b"x\n", offset=stream.offset, size=2, inode=inode))
    assert stream.at_end
