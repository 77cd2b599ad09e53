"""Whatever a command or a server does, it costs no more than its time, and what went wrong is said in words."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

import pytest

from iris_cli.clock import Clock, SystemClock
from iris_cli.config.schema import Notify
from iris_cli.core.messages.notices import Notice
from iris_cli.ops.notify import Command, Webhook, notice_json, notice_variables
from tests.ops.notify.processes import A_LONG_TIME, is_written, number_in, until_gone
from tests.support.listener import SECRET, Listener


@dataclass
class Desk:
    """Runs commands in a directory, by the real clock."""

    path: Path
    clock: Clock = field(default_factory=SystemClock)

    def run(self, script: str) -> str:
        words = ("sh", "-c", script)
        return Command(words=words, directory=self.path, clock=self.clock, timeout=A_LONG_TIME).run(
            {}, Event()
        )


class Waits(SystemClock):
    """A clock that stands still after its first word until something is so; then a long time is over."""

    def __init__(self, so: Callable[[], bool]) -> None:
        self._so = so
        self._asked = False

    def monotonic(self) -> float:
        asked, self._asked = self._asked, True
        return A_LONG_TIME if asked and self._so() else 0.0


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.mark.parametrize(
    ("script", "trouble"),
    [
        ("exit 0", ""),
        ("echo all is well; echo not so >&2", ""),
        ("echo one; echo two; exit 7", "the command failed with exit 7: two"),
        ("exit 7", "the command failed with exit 7"),
        ("kill -TERM $$", "the command was ended by signal 15"),
        (
            "echo 'at https://me:pw@h.example/a?b=c'; exit 1",
            "the command failed with exit 1: at https://h.example/...",
        ),
        (r"printf '\033[31mred\033[0m\a\n'; exit 1", "the command failed with exit 1: [31mred [0m"),
        ("read line", "the command failed with exit 1"),  # there is nobody to ask
        ("yes | head -c 3000000; exit 1", "the command failed with exit 1: y"),
        ("exec >&- 2>&-; sleep 0.2; exit 4", "the command failed with exit 4"),
    ],
)
def test_how_a_command_ended_is_said_in_words(desk: Desk, script: str, trouble: str) -> None:
    assert desk.run(script) == trouble


def test_a_command_that_is_not_there_is_said_to_be(tmp_path: Path) -> None:
    command = Command(words=("./nobody",), directory=tmp_path, clock=SystemClock(), timeout=A_LONG_TIME)
    assert command.run({}, Event()) == "the command can't be run: No such file or directory"


@pytest.mark.parametrize(
    "script",
    ["echo $$ >pid; sleep 1000", "echo $$ >pid; yes", "(sleep 1000 & echo $! >pid); sleep 1000"],
    ids=["hangs", "floods", "forks"],
)
def test_a_command_that_does_not_end_is_killed_with_all_that_it_started(desk: Desk, script: str) -> None:
    desk.clock = Waits(lambda: is_written(desk.path / "pid"))
    assert desk.run(script) == "the command was killed after 1m"
    until_gone(number_in(desk.path / "pid"))


def test_a_command_that_leaves_something_in_the_background_is_not_waited_for(desk: Desk) -> None:
    assert desk.run("(sleep 1000 & echo $! >pid); exit 0") == ""
    os.kill(number_in(desk.path / "pid"), 9)


def test_a_server_that_redirects_is_not_followed(listener: Listener) -> None:
    listener.location = "/elsewhere"
    for code in (301, 302, 303, 307, 308):
        listener.answers = [code]
        said = _post(listener.url)
        assert said == f"the webhook answered {code} (redirects are not followed)"
    assert listener.posted == []
    assert "/elsewhere" not in listener.paths


def test_a_server_that_stalls_or_drips_or_is_not_there_costs_no_more_than_its_time(
    listener: Listener,
) -> None:
    listener.answers = [0]
    assert _post(listener.url, 0.3) == "no answer from the webhook within 0.3s"
    with _dripping() as url:
        assert _post(url, 0.5) == "no answer from the webhook within 0.5s"
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        said = _post(f"http://127.0.0.1:{nobody.getsockname()[1]}/{SECRET}")
    assert said == "the webhook can't be reached: Connection refused"
    assert _post(f"http://127.0.0.1:port/{SECRET}") == "the webhook can't be reached: InvalidURL"


def test_no_text_of_a_user_can_break_what_is_told() -> None:
    reason = "a\0b\n\x1b[31m\ud800 " + "x" * 5000
    notice = Notice(event="job_ended", job="j", state="FAILED", reason=reason)
    said = notice_variables(notice, "lab")["IRIS_REASON"]
    assert said.startswith("a b [31m x")
    assert len(said) == 1000
    os.fsencode(said)
    assert b"\n" not in notice_json(notice, "lab")


def test_the_url_is_in_no_repr() -> None:
    assert SECRET not in repr(Notify(webhook=f"https://h/{SECRET}", command=("curl", SECRET)))


def _post(url: str, timeout: float = A_LONG_TIME) -> str:
    said = Webhook(url=url, clock=SystemClock(), timeout=timeout).post(b"{}", Event())
    assert SECRET not in said
    return said


class _dripping:  # noqa: N801 - used as a function
    """A server whose answer comes byte by byte, each in time."""

    def __enter__(self) -> str:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}/"

    def _serve(self) -> None:
        peer, _ = self._socket.accept()
        with peer:
            while not self._over.wait(0.05):
                try:
                    peer.sendall(b"H")
                except OSError:
                    return

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._socket.close()
