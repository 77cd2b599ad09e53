"""A shell's part of the protocol, message by message: what it says, and what it makes of what a server says."""

from __future__ import annotations

import struct

import paramiko
import pytest
from paramiko.common import (
    DEFAULT_WINDOW_SIZE,
    MSG_CHANNEL_CLOSE,
    MSG_CHANNEL_DATA,
    MSG_CHANNEL_EOF,
    MSG_CHANNEL_EXTENDED_DATA,
    MSG_CHANNEL_FAILURE,
    MSG_CHANNEL_OPEN,
    MSG_CHANNEL_OPEN_FAILURE,
    MSG_CHANNEL_OPEN_SUCCESS,
    MSG_CHANNEL_REQUEST,
    MSG_CHANNEL_SUCCESS,
    MSG_CHANNEL_WINDOW_ADJUST,
)

from iris_cli.remote.ssh_shell import SMALLEST_PACKET, Shell
from iris_cli.remote.transport import NoAnswer

THEIRS = 7
"""The number that the server gave the channel."""
LIMIT = 1000


def text(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


class Conversation:
    """A shell, and a server of which the test is in charge."""

    def __init__(self) -> None:
        self.said: list[bytes] = []
        self.events: list[str] = []
        self.shell = Shell(1, "sh", self.said.append)
        self.shell.open()

    @property
    def kinds(self) -> list[int]:
        return [message[0] for message in self.said]

    def tell(self, kind: int, *words: int | bytes) -> bool:
        body = b"".join(struct.pack(">I", w) if isinstance(w, int) else w for w in words)
        return self.shell.take(kind, paramiko.Message(body))

    def start(self, room: int = 1 << 20, largest: int = 1 << 15) -> None:
        self.tell(MSG_CHANNEL_OPEN_SUCCESS, THEIRS, room, largest)
        self.tell(MSG_CHANNEL_SUCCESS)

    def feed(self, script: bytes) -> None:
        self.shell.feed(
            script,
            LIMIT,
            before=lambda: self.events.append("before"),
            after=lambda: self.events.append("after"),
        )

    def data(self) -> bytes:
        """What the server got for the command to read."""
        return b"".join(message[9:] for message in self.said if message[0] == MSG_CHANNEL_DATA)


@pytest.fixture
def talk() -> Conversation:
    return Conversation()


def test_the_script_waits_until_the_server_runs_the_shell(talk: Conversation) -> None:
    talk.feed(b"script")
    assert talk.kinds == [MSG_CHANNEL_OPEN]
    talk.tell(MSG_CHANNEL_OPEN_SUCCESS, THEIRS, 1000, 1 << 15)
    assert talk.kinds[1:] == [MSG_CHANNEL_REQUEST]
    assert (talk.events, talk.shell.step) == ([], "channel")
    talk.tell(MSG_CHANNEL_SUCCESS)
    assert talk.kinds[2:] == [MSG_CHANNEL_DATA, MSG_CHANNEL_EOF]
    assert talk.data() == b"script"
    assert (talk.events, talk.shell.step) == (["before", "after"], "output")


@pytest.mark.parametrize("is_first", [True, False], ids=["room first", "agreement first"])
def test_no_more_is_sent_than_there_is_room_for(talk: Conversation, *, is_first: bool) -> None:
    script = bytes(range(250)) * 10
    talk.feed(script)
    talk.tell(MSG_CHANNEL_OPEN_SUCCESS, THEIRS, 0, SMALLEST_PACKET)
    news = [(MSG_CHANNEL_WINDOW_ADJUST, 1500), (MSG_CHANNEL_SUCCESS,)]
    for each in news if is_first else reversed(news):
        talk.tell(*each)
    assert (talk.data(), talk.shell.step, talk.events) == (script[:1500], "script", ["before"])
    talk.tell(MSG_CHANNEL_WINDOW_ADJUST, 10_000)
    assert talk.data() == script
    assert max(len(message) for message in talk.said if message[0] == MSG_CHANNEL_DATA) == 9 + SMALLEST_PACKET
    assert talk.kinds.count(MSG_CHANNEL_EOF) == 1


def test_a_server_that_would_have_each_byte_in_a_message_of_its_own_is_refused(talk: Conversation) -> None:
    talk.feed(b"script")
    with pytest.raises(paramiko.SSHException, match="1 bytes at a time"):
        talk.tell(MSG_CHANNEL_OPEN_SUCCESS, THEIRS, 1 << 20, 1)
    assert talk.data() == b""


def test_it_is_over_when_the_server_closes_it(talk: Conversation) -> None:
    talk.start()
    talk.feed(b"script")
    talk.tell(MSG_CHANNEL_DATA, text(b"out"))
    talk.tell(MSG_CHANNEL_EXTENDED_DATA, 1, text(b"err"))
    talk.tell(MSG_CHANNEL_EXTENDED_DATA, 2, text(b"neither"))
    talk.tell(MSG_CHANNEL_REQUEST, text(b"exit-status"), b"\0", 3)
    assert not talk.shell.over.is_set()
    talk.tell(MSG_CHANNEL_EOF)
    assert talk.shell.step == "exit status"
    assert not talk.tell(MSG_CHANNEL_CLOSE)
    assert talk.shell.over.is_set()
    assert (bytes(talk.shell.out), bytes(talk.shell.err), talk.shell.status) == (b"out", b"err", 3)
    assert talk.shell.failure is None
    assert talk.kinds[-1] == MSG_CHANNEL_CLOSE


def test_a_shell_that_is_gone_before_the_script_was_sent_has_failed(talk: Conversation) -> None:
    talk.start()
    talk.tell(MSG_CHANNEL_CLOSE)
    talk.feed(b"script")
    assert talk.shell.over.is_set()
    assert isinstance(talk.shell.failure, paramiko.SSHException)
    assert (talk.data(), talk.events) == (b"", [])


def test_a_refusal_is_named(talk: Conversation) -> None:
    assert not talk.tell(MSG_CHANNEL_OPEN_FAILURE, 4, text(b"no"), text(b""))
    assert isinstance(talk.shell.failure, paramiko.ChannelException)
    assert talk.shell.failure.code == 4


def test_a_server_that_runs_no_commands_has_failed(talk: Conversation) -> None:
    talk.tell(MSG_CHANNEL_OPEN_SUCCESS, THEIRS, 1000, 1 << 15)
    talk.tell(MSG_CHANNEL_FAILURE)
    assert isinstance(talk.shell.failure, paramiko.SSHException)
    assert talk.kinds[-1] == MSG_CHANNEL_CLOSE


def test_nothing_is_sent_if_nobody_wants_it_any_more(talk: Conversation) -> None:
    def no_more() -> None:
        raise EOFError

    talk.start()
    with pytest.raises(EOFError):
        talk.shell.feed(b"script", LIMIT, before=no_more, after=None)
    assert (talk.data(), talk.shell.was_fed) == (b"", False)
    assert isinstance(talk.shell.failure, EOFError)


def test_more_output_than_the_limit_is_no_answer(talk: Conversation) -> None:
    talk.start()
    talk.feed(b"script")
    talk.tell(MSG_CHANNEL_DATA, text(bytes(LIMIT)))
    assert not talk.shell.over.is_set()
    talk.tell(MSG_CHANNEL_DATA, text(b"!"))
    assert talk.shell.over.is_set()
    assert isinstance(talk.shell.failure, NoAnswer)
    talk.tell(MSG_CHANNEL_DATA, text(bytes(LIMIT)))  # what is on its way is let by
    assert len(talk.shell.out) == LIMIT + 1


def test_what_was_said_before_the_script_came_counts_too(talk: Conversation) -> None:
    talk.start()
    talk.tell(MSG_CHANNEL_DATA, text(bytes(LIMIT + 1)))
    assert not talk.shell.over.is_set()
    talk.feed(b"script")
    talk.tell(MSG_CHANNEL_CLOSE)
    assert isinstance(talk.shell.failure, NoAnswer)


def test_more_output_is_asked_for_once_there_is_somebody_who_reads_it(talk: Conversation) -> None:
    talk.start()
    half = DEFAULT_WINDOW_SIZE // 2 + 1
    talk.tell(MSG_CHANNEL_DATA, text(bytes(half)))
    assert MSG_CHANNEL_WINDOW_ADJUST not in talk.kinds
    talk.shell.feed(b"script", 2 * DEFAULT_WINDOW_SIZE, before=lambda: None, after=None)
    talk.tell(MSG_CHANNEL_DATA, text(b"!"))
    assert talk.said[-1] == struct.pack(">BII", MSG_CHANNEL_WINDOW_ADJUST, THEIRS, half + 1)


@pytest.mark.parametrize(
    "message",
    [
        (MSG_CHANNEL_DATA, text(bytes(DEFAULT_WINDOW_SIZE + 1))),
        (MSG_CHANNEL_OPEN_SUCCESS, THEIRS, 1, 1 << 15),
    ],
    ids=["more than was asked for", "opened twice"],
)
def test_what_a_server_must_not_say_ends_the_connection(
    talk: Conversation, message: tuple[int, int | bytes]
) -> None:
    talk.start()
    with pytest.raises(paramiko.SSHException):
        talk.tell(*message)


def test_nothing_is_said_of_a_channel_that_is_not_open(talk: Conversation) -> None:
    with pytest.raises(paramiko.SSHException):
        talk.tell(MSG_CHANNEL_DATA, text(b"early"))


def test_a_request_that_wants_an_answer_is_refused(talk: Conversation) -> None:
    talk.start()
    talk.tell(MSG_CHANNEL_REQUEST, text(b"strange"), b"\1")
    assert talk.said[-1] == struct.pack(">BI", MSG_CHANNEL_FAILURE, THEIRS)


def test_one_that_nobody_wants_any_more_is_closed_as_soon_as_it_has_a_number(talk: Conversation) -> None:
    talk.shell.close()
    assert talk.kinds == [MSG_CHANNEL_OPEN]
    talk.tell(MSG_CHANNEL_OPEN_SUCCESS, THEIRS, 1000, 1 << 15)
    assert talk.kinds[1:] == [MSG_CHANNEL_CLOSE]
    talk.tell(MSG_CHANNEL_CLOSE)
    assert talk.kinds[1:] == [MSG_CHANNEL_CLOSE]
