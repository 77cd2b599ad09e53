"""Lists and pieces of output files, in every shell: any names, changing files, links."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from iris_cli.core.ids import Token
from iris_cli.core.messages.observations import Silence
from iris_cli.remote import output_calls
from iris_cli.remote.output_calls import FileList, FilePiece, Version
from tests.remote.conftest import MakeHost, ProbedHost
from tests.support.local_transport import tools_of
from tests.support.worker_host import WorkerHost

ODD = (
    *(b"plain", b"two words", b" leading", b"-n", b"'quoted\"", b"back\\slash", b"$HOME `id`", b"*", b"?"),
    *(b"\xff\xfe", b"\xc3\xa4", b"a\nb", b"ends in a line break\n", b"\x1b[31m", b"%s%n", b"\\033", b"\x7f"),
)


def listed(host: WorkerHost, *tokens: Token) -> list[FileList]:
    answer = host.runner.outputs.list_files(host.target, tokens)
    assert not isinstance(answer, Silence), answer
    return list(answer.lists)


def piece(host: WorkerHost, token: Token, name: bytes, offset: int = 0, limit: int = 1 << 20) -> FilePiece:
    answer = host.runner.outputs.piece(host.target, token, name, offset, limit)
    assert not isinstance(answer, Silence), answer
    return answer


def batch(host: WorkerHost, token: Token, *names: bytes) -> list[bytes] | None:
    answer = host.runner.outputs.batch(host.target, token, names)
    assert not isinstance(answer, Silence), answer
    return None if answer is None else [data for _, data in answer]


def version(path: Path) -> Version:
    status = path.stat()
    return Version(status.st_size, int(status.st_mtime), status.st_ino)


@pytest.fixture
def token(host: WorkerHost) -> Token:
    """An attempt that has ended."""
    token = host.launch("sh", "-c", "echo said; echo complained >&2")
    host.wait(token)
    return token


def output(host: WorkerHost, token: Token) -> Path:
    return host.attempt_dir(token) / "output"


def test_an_output_that_has_become_a_link_is_reported_and_not_followed(
    host: WorkerHost, token: Token, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("secret")
    output(host, token).rmdir()
    output(host, token).symlink_to(tmp_path)
    (found,) = listed(host, token)
    assert (found.link, sorted(name for name, _ in found.files)) == (True, [b"err", b"out"])


def swapped_for_a_pipe(host: WorkerHost, tools: Path) -> Token:
    """`output/swapped` of a new attempt becomes a pipe after it was checked and before it is read."""
    path = host.transport.env["PATH"]
    token = host.launch("true")
    host.wait(token)
    swapped = output(host, token) / "swapped"
    swapped.write_bytes(b"0123456789")
    swap = f'case "$*" in *swapped*) rm -f {swapped}; mkfifo {swapped} ;; esac'
    (tools / "stat").write_text(f'#!/bin/sh\n{shutil.which("stat", path=path)} "$@" || exit\n{swap}\n')
    (tools / "stat").chmod(0o755)
    host.transport.env["PATH"] = f"{tools}:{path}"
    return token


def impatient(host: WorkerHost, tools: Path) -> None:
    """All time limits of the library are a second."""
    real = shutil.which("timeout", path=host.transport.env["PATH"])
    if real is None:
        pytest.skip("there is no `timeout` here")
    (tools / "timeout").write_text(f'#!/bin/sh\nshift\nexec {real} 1 "$@"\n')
    (tools / "timeout").chmod(0o755)


def test_a_pipe_in_place_of_a_file_blocks_nothing(dash_host: WorkerHost, tmp_path: Path) -> None:
    dd = shutil.which("dd", path=dash_host.transport.env["PATH"])
    if dd is None or subprocess.run([dd, "iflag=nonblock", "if=/dev/null"], capture_output=True).returncode:
        pytest.skip("this dd can't be passed to ssh not to wait")
    token = swapped_for_a_pipe(dash_host, tmp_path)
    assert piece(dash_host, token, b"output/swapped").data == b""
    assert (output(dash_host, token) / "swapped").is_fifo()


def test_without_nonblocking_reads_waiting_for_a_pipe_is_limited(host: WorkerHost, tmp_path: Path) -> None:
    token = swapped_for_a_pipe(host, tmp_path)
    (output(host, token) / "other").write_text("other")
    impatient(host, tmp_path)
    assert batch(host, token, b"output/other", b"output/swapped") is None
    (tmp_path / "dd").write_text(
        "#!/bin/sh\nfor each; do\ncase $each in iflag=*) exit 1 ;; if=*) cat ${each#if=} ;; esac\ndone\n"
    )
    (tmp_path / "dd").chmod(0o755)
    assert piece(host, token, b"output/swapped").data == b""
    assert (output(host, token) / "swapped").is_fifo()


def test_a_process_left_by_timeout_does_not_keep_the_answer_open(
    dash_host: WorkerHost, make_host: MakeHost, tmp_path: Path
) -> None:
    """busybox's `timeout` leaves a process for a second; this one leaves it for ever."""
    real = shutil.which("timeout")
    if real is None:
        pytest.skip("there is no `timeout` here")
    tools = tools_of("dash", tmp_path / "tools-that-leave")
    (tools / "timeout").write_text(f'#!/bin/sh\nsleep 1000 </dev/null >/dev/null 2>&1 &\nexec {real} "$@"\n')
    (tools / "timeout").chmod(0o755)
    token = dash_host.launch("true")
    dash_host.wait(token)
    (output(dash_host, token) / "a").write_text("a")
    there = make_host(tools=tools)
    assert piece(there, token, b"output/a").data == b"a"
    assert batch(there, token, b"output/a") == [b"a"]


def test_all_files_are_listed_and_nothing_else(host: WorkerHost, token: Token) -> None:
    top = output(host, token)
    (top / "sub/empty directory").mkdir(parents=True)
    (top / "sub/a").write_bytes(b"0123456789")
    (top / "link").symlink_to("sub/a")
    (top / "way").symlink_to("/etc")
    os.mkfifo(top / "pipe")
    os.utime(top / "sub/a", (1, 1_700_000_000))
    (found,) = listed(host, token)
    assert dict(found.files) == {
        b"out": version(host.attempt_dir(token) / "out"),
        b"err": version(host.attempt_dir(token) / "err"),
        b"output/sub/a": Version(10, 1_700_000_000, (top / "sub/a").stat().st_ino),
    }
    assert (found.gone, found.partial, found.cut) == (False, False, False)


def test_a_file_may_have_any_name(host: WorkerHost, token: Token) -> None:
    top = os.fsencode(output(host, token))
    for name in ODD:
        os.makedirs(os.path.join(top, b"in", name))
        with open(os.path.join(top, b"in", name, name), "wb") as file:
            file.write(b"in " + name)
    names = [b"output/in/%b/%b" % (name, name) for name in ODD]
    (found,) = listed(host, token)
    assert sorted(set(dict(found.files)) - {b"out", b"err"}) == sorted(names)
    assert all((known is None) == (b"\n" in name) for name, known in found.files)
    assert [piece(host, token, name).data for name in names] == [b"in " + name for name in ODD]
    assert batch(host, token, *names) == [b"in " + name for name in ODD]


def test_several_attempts_are_listed_in_order_including_missing_ones(host: WorkerHost, token: Token) -> None:
    nobody = host.request("true").token
    other = host.launch("true")
    host.wait(other)
    (output(host, other) / "b").touch()
    assert host.reaped(token) <= {token}
    found = listed(host, nobody, other)
    assert [each.token for each in found] == [nobody, other]
    assert [each.gone for each in found] == [True, False]
    assert b"output/b" in dict(found[1].files)
    assert piece(host, nobody, b"out").version == Version(0, 0, 0)
    assert batch(host, nobody, b"out") is None


def test_a_list_that_is_too_long_is_cut_at_a_whole_line(
    host: WorkerHost, token: Token, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(100):
        (output(host, token) / f"file-{number}").touch()
    monkeypatch.setattr(output_calls, "MAX_LIST_BYTES", 1000)
    (found,) = listed(host, token)
    assert found.cut
    assert 0 < len(found.files) < 100
    assert all((host.attempt_dir(token) / os.fsdecode(name)).exists() for name, _ in found.files)


def test_a_piece_begins_where_it_was_asked_for(host: WorkerHost, token: Token) -> None:
    data = os.urandom(200_000)
    (output(host, token) / "big").write_bytes(data)
    for offset, limit in [
        (0, 10), (0, 300_000), (65_535, 2), (65_536, 65_536), (100_001, 65_537), (199_999, 9), (200_000, 9),
        (10**9, 5), (0, 10**12),
    ]:  # fmt: skip
        found = piece(host, token, b"output/big", offset, limit)
        assert found.data == data[offset : offset + limit]
        assert found.version == version(output(host, token) / "big")


def test_all_bytes_arrive_as_they_are(host: WorkerHost, token: Token) -> None:
    data = bytes(range(256)) * 4096
    (output(host, token) / "bytes").write_bytes(data)
    assert piece(host, token, b"output/bytes").data == data
    (output(host, token) / "more").write_bytes(b"IRIS1 x END 1\nT AAAA\n")
    assert batch(host, token, b"output/more", b"out", b"output/more") == [
        b"IRIS1 x END 1\nT AAAA\n",
        b"said\n",
        b"IRIS1 x END 1\nT AAAA\n",
    ]


def test_no_link_is_followed_and_nothing_but_files_read(host: WorkerHost, token: Token) -> None:
    top = output(host, token)
    (top / "link").symlink_to("/etc/passwd")
    (top / "way").symlink_to("/etc")
    (top / "d").mkdir()
    os.mkfifo(top / "pipe")
    for name in (b"output/link", b"output/way/passwd", b"output/pipe", b"output/d", b"output/-"):
        assert piece(host, token, name) == FilePiece(data=b"", offset=0, version=Version(0, 0, 0))
        assert batch(host, token, b"out", name) is None


def test_a_batch_with_a_changed_file_is_discarded(probed_host: ProbedHost, tmp_path: Path) -> None:
    """The data is partly old and partly new, but has the right size."""
    tools = tools_of("dash", tmp_path / "tools")
    host = probed_host("dash", tools=tools)
    token = host.launch("true")
    host.wait(token)
    for name in ("a", "b"):
        (output(host, token) / name).write_text(name)
    assert batch(host, token, b"output/a", b"output/b") == [b"a", b"b"]
    (tools / "cat").write_text(
        '#!/bin/sh\n/bin/cat "$@" && mv output/a output/c && printf x >output/a && touch -d @1 output/a\n'
    )
    (tools / "cat").chmod(0o755)
    assert batch(host, token, b"output/a", b"output/b") is None


def test_an_unreadable_directory_is_reported(host: WorkerHost, token: Token) -> None:
    hidden = output(host, token) / "hidden"
    hidden.mkdir()
    hidden.chmod(0)
    if os.access(hidden, os.R_OK):
        pytest.skip("whoever runs this can read everything")
    try:
        assert [each.partial for each in listed(host, token)] == [True]
    finally:
        hidden.chmod(0o700)


def test_an_output_directory_that_is_a_link_is_gone(dash_host: WorkerHost, tmp_path: Path) -> None:
    token = dash_host.launch("true")
    dash_host.wait(token)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/secret").touch()
    output(dash_host, token).rmdir()
    output(dash_host, token).symlink_to(tmp_path / "elsewhere")
    assert [name for name, _ in listed(dash_host, token)[0].files] == [b"out", b"err"]
    assert piece(dash_host, token, b"output/secret").version.inode == 0


def test_a_thousand_small_files_come_in_few_calls(dash_host: WorkerHost) -> None:
    token = dash_host.launch("true")
    dash_host.wait(token)
    names = [f"output/file-{number}" for number in range(1000)]
    for name in names:
        (dash_host.attempt_dir(token) / name).write_text(name)
    before = len(dash_host.transport.scripts)
    for start in range(0, 1000, output_calls.MAX_NAMES):
        part = [name.encode() for name in names[start : start + output_calls.MAX_NAMES]]
        assert batch(dash_host, token, *part) == part
    assert len(dash_host.transport.scripts) - before == 4


def test_a_nul_in_a_name_is_rejected(dash_host: WorkerHost) -> None:
    token = dash_host.launch("true")
    with pytest.raises(ValueError, match="NUL"):
        piece(dash_host, token, b"a\0b")


def test_a_packed_workspace_must_be_a_regular_file_in_its_directory(
    host: WorkerHost, token: Token, tmp_path: Path
) -> None:
    def packed(name: str) -> FilePiece:
        answer = host.runner.outputs.packed(host.target, token, name * 64, 0)
        assert not isinstance(answer, Silence), answer
        return answer

    place = host.attempt_dir(token) / "outbox/.packed"
    place.mkdir(parents=True)
    files = {name: place / f"{name * 64}.tar.gz" for name in "abcd"}
    files["a"].write_bytes(b"packed")
    files["b"].symlink_to("/etc/passwd")
    os.mkfifo(files["c"])
    files["d"].mkdir()
    assert packed("a").data == b"packed"
    for name in "bcde":
        assert packed(name) == FilePiece(data=b"", offset=0, version=Version(0, 0, 0))
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    assert not packed("a").version.inode
