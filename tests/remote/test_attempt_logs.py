"""Pieces of output files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from iris_cli.core.ids import Token
from iris_cli.core.messages.observations import RemoteState, Silence
from iris_cli.remote.task_runner import LogChunk, LogPiece
from tests.remote.conftest import MakeHost, ProbedHost
from tests.support.waiting import until
from tests.support.worker_host import WorkerHost


def piece(host: WorkerHost, token: Token, offset: int, limit: int, stream: str = "out") -> LogChunk:
    wanted = [LogPiece(token=token, stream=stream, offset=offset, limit=limit)]
    answer = host.runner.pieces(host.target, wanted)
    assert not isinstance(answer, Silence), answer
    return answer[0]


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


def test_many_pieces_come_in_one_call(host: WorkerHost) -> None:
    first, second = host.launch("sh", "-c", "printf abc; printf def >&2"), host.launch("seq", "20000")
    host.wait(first)
    host.wait(second)
    wanted = [
        LogPiece(token=token, stream=stream, offset=offset, limit=limit)
        for token, stream, offset, limit in [
            (first, "err", 1, 10),
            (second, "out", 5, 50_000),
            (host.request("true").token, "out", 0, 10),
            (second, "out", -100, 8000),
            (first, "out", 0, 10),
        ]
    ]
    numbers = "".join(f"{number}\n" for number in range(1, 20001)).encode()
    answer = host.runner.pieces(host.target, wanted)
    assert not isinstance(answer, Silence), answer
    assert [chunk.data for chunk in answer] == [b"ef", numbers[5:50_005], b"", numbers[-100:], b"abc"]


def test_without_a_working_gzip_bytes_are_sent_uncompressed(probed_host: ProbedHost, tmp_path: Path) -> None:
    """The same if gzip does not work."""
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "gzip").write_text("#!/bin/sh\nexit 1\n")
    (broken / "gzip").chmod(0o755)
    host = probed_host("dash")
    token = host.launch("seq", "5000")
    host.wait(token)
    seen = host.output(token)
    host.transport.env["PATH"] = f"{broken}:{host.transport.env['PATH']}"
    assert host.output(token) == seen == "".join(f"{number}\n" for number in range(1, 5001)).encode()


def test_more_than_one_call_can_fetch_needs_several(dash_host: WorkerHost) -> None:
    token = dash_host.launch("true")
    dash_host.wait(token)
    (dash_host.attempt_dir(token) / "out").write_bytes(b"x" * 3_000_000)
    chunk = piece(dash_host, token, 0, 10**9)
    assert (len(chunk.data), chunk.size) == (512 << 10, 3_000_000)


def test_a_missing_output_is_an_empty_file(host: WorkerHost) -> None:
    chunk = piece(host, host.request("true").token, 5, 10)
    assert (chunk.data, chunk.offset, chunk.size, chunk.inode) == (b"", 0, 0, 0)


def test_an_invalid_stream_or_token_is_rejected_before_sending(dash_host: WorkerHost) -> None:
    for token, stream in [("0" * 32, "../../x"), ("../x", "out")]:
        wanted = [LogPiece(token=Token(token), stream=stream, offset=0, limit=1)]
        with pytest.raises(ValueError):  # noqa: PT011 - each has its own words
            dash_host.runner.pieces(dash_host.target, wanted)


def test_the_time_of_the_last_write_is_reported_if_requested(host: WorkerHost) -> None:
    token = host.launch("sh", "-c", "printf abc")
    host.wait(token)
    out = host.attempt_dir(token) / "out"
    os.utime(out, times=(out.stat().st_atime, out.stat().st_mtime - 3600))
    wanted = [
        LogPiece(token=token, stream="out", offset=0, limit=10, dated=True),
        LogPiece(token=token, stream="out", offset=1, limit=1),
        LogPiece(token=host.request("true").token, stream="out", offset=0, limit=10, dated=True),
    ]
    dated, undated, missing = told(host, wanted)
    assert (dated.data, undated.data) == (b"abc", b"b")
    assert dated.idle is not None
    assert dated.idle >= 3599
    assert undated.idle is missing.idle is None


def told(host: WorkerHost, wanted: list[LogPiece]) -> tuple[LogChunk, ...]:
    chunks = host.runner.pieces(host.target, wanted)
    assert not isinstance(chunks, Silence), chunks
    return chunks


def test_output_of_a_task_that_ends_during_a_poll_is_reported_with_its_end(
    host: WorkerHost, make_host: MakeHost, tmp_path: Path
) -> None:
    """It ends after the poll has read the sizes, and before the poll reads its state."""
    stat = shutil.which("stat", path=host.transport.env["PATH"])
    end = tmp_path / "end"
    token = host.running(
        "sh", "-c", 'echo begun; until [ -e "$0" ]; do sleep 0.1; done; echo lost >&2; exit 3', str(end)
    )
    until(lambda: (host.attempt_dir(token) / "out").read_text() != "")
    tools = shutil.copytree(host.tools, tmp_path / "tools", symlinks=True)
    (tools / "stat").unlink(missing_ok=True)
    (tools / "stat").write_text(f"""#!/bin/sh
        {stat} "$@"
        : >{end}
        until [ -e {host.attempt_dir(token)}/x.3 ]; do sleep 0.1; done
    """)
    (tools / "stat").chmod(0o755)
    (report,) = make_host(tools=tools).poll(token)
    assert (report.state, report.log_tail) == (RemoteState.EXITED, "begun\nlost\n")
    assert report.output_bytes == len("begun\nlost\n")
