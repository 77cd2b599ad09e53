"""Requests of tasks: files in an outbox, reported by polls, and answered in an inbox, with any contents."""

from __future__ import annotations

import itertools
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from iris_cli.core.ids import RequestId, Token
from iris_cli.core.messages.observations import RemoteState, Silence, SilenceKind, WorkerReport
from iris_cli.core.messages.requests import MAX_REQUEST_BYTES
from tests.remote.conftest import ProbedHost
from tests.support.waiting import until
from tests.support.worker_host import WorkerHost

STAY = ("sleep", "1000")


def put(host: WorkerHost, token: Token, name: str, data: bytes = b"{}") -> Path:
    """Write a request atomically, as the clients do."""
    outbox = host.attempt_dir(token) / "outbox"
    (outbox / f".{name}").write_bytes(data)
    return (outbox / f".{name}").rename(outbox / name)


def poll(host: WorkerHost, *tokens: Token, open_requests: tuple[tuple[Token, str], ...] = ()) -> WorkerReport:
    known = [(token, RequestId(name)) for token, name in open_requests]
    answer = host.runner.poll(host.target, tokens, open_requests=known)
    assert isinstance(answer, WorkerReport), answer
    return answer


def asked(report: WorkerReport) -> list[tuple[str, bytes | None]]:
    return [(each.id, each.data) for each in report.requests]


def answer(
    host: WorkerHost, token: Token, *names: str, text: bytes = b"{}\n", with_requests: bool = True
) -> WorkerReport:
    said = [(token, RequestId(name), text) for name in names]
    report = host.runner.answer(host.target, said, [token], with_requests=with_requests)
    assert isinstance(report, WorkerReport), report
    return report


def inbox(host: WorkerHost, token: Token) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((host.attempt_dir(token) / "inbox").iterdir())}


def outbox(host: WorkerHost, token: Token) -> list[str]:
    return sorted(path.name for path in (host.attempt_dir(token) / "outbox").iterdir())


def test_a_poll_reports_requests_in_order(host: WorkerHost) -> None:
    first, second = host.running(*STAY), host.running(*STAY)
    assert (poll(host, first).requests, poll(host, first).asking) == ((), ())
    everything = bytes(range(256)) * 64
    put(host, first, "b", b"")
    put(host, first, "a", b'{"v":1}\n')
    put(host, first, "B.10_x-y", everything)
    put(host, second, "0", b"other")
    report = poll(host, first, second)
    told = {(each.token, each.id): (each.size, each.data) for each in report.requests}
    assert told == {
        (first, "B.10_x-y"): (len(everything), everything),
        (first, "a"): (8, b'{"v":1}\n'),
        (first, "b"): (0, b""),
        (second, "0"): (5, b"other"),
    }
    assert [each.state for each in report.attempts] == [RemoteState.RUNNING] * 2
    assert report.asking == ()
    assert asked(poll(host, second)) == [("0", b"other")], "and again, until it is answered"


def test_a_too_large_request_is_reported_without_its_text(host: WorkerHost) -> None:
    token = host.running(*STAY)
    put(host, token, "a", b"x" * MAX_REQUEST_BYTES)
    put(host, token, "b", b"x" * (MAX_REQUEST_BYTES + 1))
    put(host, token, "c", b"x" * (10 << 20))
    report = poll(host, token)
    assert [(each.id, each.size, each.data is None) for each in report.requests] == [
        ("a", MAX_REQUEST_BYTES, False),
        ("b", MAX_REQUEST_BYTES + 1, True),
        ("c", 10 << 20, True),
    ]


def test_the_first_of_many_requests_are_reported_and_that_there_are_more(host: WorkerHost) -> None:
    token = host.running(*STAY)
    names = [f"{number:05}" for number in range(2_000)]
    for name in names:
        (host.attempt_dir(token) / "outbox" / name).touch()
    report = poll(host, token)
    assert [each.id for each in report.requests] == names[:16]
    assert report.asking == (token,)
    report = poll(host, token, open_requests=tuple((token, name) for name in names[:3]))
    assert [each.id for each in report.requests] == names[3:19], "those that are held make room"


def test_no_answer_becomes_too_long_for_many_large_ones(host: WorkerHost) -> None:
    tokens = [host.running(*STAY) for _ in range(3)]
    for token in tokens:
        for number in range(3):
            put(host, token, str(number), b"x" * MAX_REQUEST_BYTES)
    report = poll(host, *tokens)
    assert 3 <= len(report.requests) <= 5
    assert report.asking


def litter(outbox: Path) -> None:
    """Fill the outbox with all kinds of files that are no requests."""
    (outbox / "a-link").symlink_to("/etc/passwd")
    (outbox / "a-link-to-nothing").symlink_to("nowhere")
    os.mkfifo(outbox / "a-pipe")
    (outbox / "a-link-to-a-pipe").symlink_to("a-pipe")
    (outbox / "a-directory").mkdir()
    (outbox / "a-directory" / "file").touch()
    for name in (
        "x" * 65,
        "a b",
        "a\nQ 0 0",
        "a$(touch hacked)`id`",
        "-rf",
        "añb",
        "a\x1b[2J",
        ".draft",
        "a'b",
        'a"b',
    ):
        (outbox / name).touch()
    open(os.fsencode(outbox) + b"/a\xff\xfe", "wb").close()


def test_files_that_are_no_requests_are_skipped(host: WorkerHost) -> None:
    token = host.running(*STAY)
    litter(host.attempt_dir(token) / "outbox")
    put(host, token, "z", b"real")
    report = poll(host, token)
    assert (asked(report), report.asking) == ([("z", b"real")], ())
    assert not list(host.directory.rglob("hacked"))


def test_a_device_is_never_read(dash_host: WorkerHost) -> None:
    token = dash_host.running(*STAY)
    path = dash_host.attempt_dir(token) / "outbox" / "endless"
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    except OSError:
        pytest.skip("no devices can be made here")
    assert asked(poll(dash_host, token)) == []


def test_an_outbox_that_is_not_a_directory_is_ignored(dash_host: WorkerHost, tmp_path: Path) -> None:
    token = dash_host.running(*STAY)
    put(dash_host, token, "a")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "b").touch()
    ways: dict[str, Callable[[Path], None]] = {
        "link": lambda path: path.symlink_to(elsewhere),
        "file": lambda path: path.touch(),
        "nothing": lambda path: None,
    }
    for box, (kind, make) in itertools.product(("outbox", "inbox"), ways.items()):
        directory = dash_host.attempt_dir(token) / box
        directory.rename(directory.with_name("before"))
        make(directory)
        assert len(poll(dash_host, token).requests) == (box == "inbox"), (box, kind)
        answer(dash_host, token, "a", "b")
        assert [path.name for path in elsewhere.iterdir()] == ["b"], (box, kind)
        assert poll(dash_host, token).attempts[0].state is RemoteState.RUNNING
        directory.unlink(missing_ok=True)
        directory.with_name("before").rename(directory)


def test_an_answer_is_written_only_to_its_inbox(dash_host: WorkerHost, tmp_path: Path) -> None:
    token = dash_host.running(*STAY)
    box = dash_host.attempt_dir(token) / "inbox"
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").write_text("before")
    for name, target in (("a", "directory"), ("b", "file"), ("c", "nothing")):
        (box / name).symlink_to(tmp_path / target)
        answer(dash_host, token, name)
    assert not list((tmp_path / "directory").iterdir())
    assert (tmp_path / "file").read_text() == "before"
    assert not (tmp_path / "nothing").exists()
    assert [(box / name).is_symlink() for name in "abc"] == [True, False, False]


def test_an_answer_is_written_before_the_request_is_removed(host: WorkerHost) -> None:
    token = host.running(*STAY)
    text = b'{"v":1,"ok":true,"result":{"text":"it\'s $HOME `id` \\\\n %s"}}\n' + b"x" * 200_000 + b"\n"
    put(host, token, "a")
    put(host, token, "b", b"next")
    assert asked(answer(host, token, "a", text=text)) == [("b", b"next")], (
        "what is asked next comes in the same answer"
    )
    assert inbox(host, token) == {"a": text}
    assert outbox(host, token) == ["b"]
    assert asked(answer(host, token, "b", with_requests=False)) == []
    assert (sorted(inbox(host, token)), outbox(host, token)) == (["a", "b"], [])


def test_an_answer_may_come_again(host: WorkerHost) -> None:
    token = host.running(*STAY)
    answer(host, token, "a", text=b"first\n")
    answer(host, token, "a", text=b"second\n")
    assert inbox(host, token) == {"a": b"second\n"}


def test_a_request_stays_if_its_answer_can_not_be_written(dash_host: WorkerHost) -> None:
    token = dash_host.running(*STAY)
    put(dash_host, token, "a")
    (dash_host.attempt_dir(token) / "inbox").rename(dash_host.attempt_dir(token) / "was")
    assert asked(answer(dash_host, token, "a")) == [("a", b"{}")]
    (dash_host.attempt_dir(token) / "was").rename(dash_host.attempt_dir(token) / "inbox")
    assert asked(answer(dash_host, token, "a")) == []


def test_a_missing_attempt_gets_no_answer(host: WorkerHost) -> None:
    token = host.request("true").token
    report = answer(host, token, "a")
    assert [each.state for each in report.attempts] == [RemoteState.ABSENT]
    assert not host.attempt_dir(token).exists()


def test_an_ended_attempt_reports_remaining_requests_in_every_call(host: WorkerHost) -> None:
    ask = 'printf x >"$1/outbox/r1"; exit 3'
    token = host.launch("sh", "-c", ask, "sh", "$IRIS_TASK_DIR")
    host.wait(token)
    put(host, token, "r1")
    assert poll(host, token).asking == ()
    report = host.runner.go(host.target, [token], boot_id=host.boot_id, incarnation=host.incarnation)
    assert isinstance(report, WorkerReport)
    assert (report.requests, report.asking) == ((), (token,))
    report = host.runner.stop(host.target, [(token, 0.0)])
    assert isinstance(report, WorkerReport)
    assert report.asking == (token,)
    assert asked(poll(host, token)) == [("r1", b"{}")]
    assert answer(host, token, "r1").asking == ()


def test_a_file_that_changes_while_it_is_read_spoils_no_answer(dash_host: WorkerHost) -> None:
    token = dash_host.running(*STAY)
    path = put(dash_host, token, "a")
    over = threading.Event()

    def change() -> None:
        size = 0
        while not over.is_set():
            size = (size * 7 + 4099) % (2 * MAX_REQUEST_BYTES)
            path.write_bytes(b"x" * size)
            path.unlink()
            path.touch()

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(10):
            assert poll(dash_host, token).attempts[0].state is RemoteState.RUNNING
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("program", ["mv", "rm"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_call_killed_while_answering_loses_nothing(
    probed_host: ProbedHost, tmp_path: Path, program: str, when: str
) -> None:
    host = probed_host("dash", tools=tmp_path / "tools")
    (tmp_path / "tools").mkdir()
    token = host.running(*STAY)
    put(host, token, "a", b"asked")
    there = f"/bin/{program}" if Path(f"/bin/{program}").exists() else f"/usr/bin/{program}"
    kill, act = 'kill -9 "$PPID"', f'{there} "$@"'
    fatal = tmp_path / "tools" / program
    fatal.write_text("#!/bin/sh\n" + "\n".join([kill, act] if when == "before" else [act, kill]) + "\n")
    fatal.chmod(0o755)
    silence = host.runner.answer(host.target, [(token, RequestId("a"), b"told\n")], [token])
    assert isinstance(silence, Silence)
    assert silence.kind is SilenceKind.PROTOCOL
    fatal.unlink()
    until(lambda: when == "before" or (inbox(host, token) or outbox(host, token) == ["a"]))
    known = {name: text for name, text in inbox(host, token).items() if not name.startswith(".")}
    assert known in ({}, {"a": b"told\n"}), "whole, or not there"
    assert known or outbox(host, token) == ["a"], "never neither"
    answer(host, token, "a", text=b"told\n")
    assert outbox(host, token) == []
    assert inbox(host, token)["a"] == b"told\n"
    assert asked(poll(host, token)) == []
