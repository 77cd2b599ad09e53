"""Output files, piece by piece."""

from __future__ import annotations

import pytest

from iris_cli.core.ids import Token
from iris_cli.remote.task_runner import LogChunk
from tests.support.worker_host import WorkerHost


def piece(host: WorkerHost, token: Token, offset: int, limit: int, stream: str = "out") -> LogChunk:
    chunk = host.runner.logs(host.target, token, stream=stream, offset=offset, limit=limit)
    assert isinstance(chunk, LogChunk), chunk
    return chunk


def test_a_piece_begins_where_it_was_asked_for(host: WorkerHost) -> None:
    token = host.launch("sh", "-c", "printf 0123456789; printf abc >&2")
    host.wait(token)
    inode = (host.attempt_dir(token) / "out").stat().st_ino
    for offset, limit, data, at in [
        (0, 4, b"0123", 0),
        (4, 4, b"4567", 4),
        (8, 4, b"89", 8),
        (10, 4, b"", 10),
        (99, 4, b"", 10),
        (-3, 100, b"789", 7),
        (-3, 2, b"78", 7),
        (-99, 2, b"01", 0),
        (0, 0, b"", 0),
    ]:
        chunk = piece(host, token, offset, limit)
        assert (chunk.data, chunk.offset, chunk.size, chunk.inode) == (data, at, 10, inode)
    assert piece(host, token, 0, 10, "err").data == b"abc"


def test_all_bytes_arrive_as_they_are(host: WorkerHost) -> None:
    token = host.launch("true")
    host.wait(token)
    data = bytes(range(256)) * 1200 + b"\nIRIS1 x END 1\n"
    (host.attempt_dir(token) / "out").write_bytes(data)
    assert host.output(token) == data


def test_more_than_a_call_may_bring_comes_in_several(dash_host: WorkerHost) -> None:
    token = dash_host.launch("true")
    dash_host.wait(token)
    (dash_host.attempt_dir(token) / "out").write_bytes(b"x" * 3_000_000)
    chunk = piece(dash_host, token, 0, 10**9)
    assert (len(chunk.data), chunk.size) == (512 << 10, 3_000_000)


def test_what_is_not_there_is_an_empty_file(host: WorkerHost) -> None:
    chunk = piece(host, host.request("true").token, 5, 10)
    assert (chunk.data, chunk.offset, chunk.size, chunk.inode) == (b"", 0, 0, 0)


def test_another_stream_or_token_than_there_can_be_is_refused_at_home(dash_host: WorkerHost) -> None:
    for token, stream in [("0" * 32, "../../x"), ("../x", "out")]:
        with pytest.raises(ValueError):  # noqa: PT011 - each has its own words
            dash_host.runner.logs(dash_host.target, Token(token), stream=stream, offset=0, limit=1)
