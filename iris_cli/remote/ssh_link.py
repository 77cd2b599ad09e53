"""One SSH connection: key exchange, authentication, tunnels, and running a script."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Collection, Sequence
from contextlib import closing, suppress
from typing import Any

import paramiko

from iris_cli.core.observations import SilenceKind
from iris_cli.remote.host_keys import PresentedKey
from iris_cli.remote.sockets import TunedSocket
from iris_cli.remote.ssh_call import Abandoned, Call
from iris_cli.remote.ssh_reader import Reader
from iris_cli.remote.ssh_wire import Wire
from iris_cli.remote.transport import NoAnswer, Output

COMMAND = "exec /bin/sh -s"
MOST_SESSIONS = 4
"""Calls that share a connection at the same time. sshd refuses the eleventh session (`MaxSessions`); to it, those
that have just ended may not be over yet, and one is opened ahead.
"""
BELIEVED_FOR = 5.0
"""Seconds for which a connection is taken to be alive because something has come over it."""
_PROHIBITED = 1  # SSH_OPEN_ADMINISTRATIVELY_PROHIBITED, RFC 4254
CHUNK = 32 << 10
PAUSE = 0.05
"""Seconds to wait for the other side to read on before looking whether it has written."""

# What it would log are tracebacks of what is reported here anyway, straight to the terminal.
logging.getLogger("paramiko").setLevel(logging.CRITICAL)


class BannerMissing(Exception):  # noqa: N818 - says what is the matter
    """The server hung up before it said who it is: too many connections (`MaxStartups`), or no sshd."""


class LinkLost(Exception):  # noqa: N818 - says what is the matter
    """The connection was found dead before anything was sent over it; `was_new` at its first use."""

    def __init__(self, no_answer: NoAnswer, *, was_new: bool) -> None:
        super().__init__(no_answer.detail)
        self.no_answer = no_answer
        self.was_new = was_new


class Link:
    """An SSH connection."""

    def __init__(
        self, sock: socket.socket | paramiko.Channel, key_types: Collection[str], reader: Reader
    ) -> None:
        self._is_new = True
        self._sessions = threading.BoundedSemaphore(MOST_SESSIONS)
        self._ahead: list[paramiko.Channel] = []
        self._opening = threading.Lock()
        self._sock = sock
        self._wire = Wire(sock, key_types, reader)
        self._heard_at = time.monotonic()

    def is_alive(self) -> bool:
        return self._wire.is_active()

    def abort(self) -> None:
        """Cut the connection without waiting for anything."""
        self._wire.hang_up()
        if not self._wire.is_watched:
            threading.Thread(target=self.close, name="iris-ssh-close", daemon=True).start()

    def close(self) -> None:
        self._wire.close()

    def exchange_keys(self, call: Call[Any], place: str) -> PresentedKey:
        """Greet and negotiate. The host key is then proven to be the server's, not to be the right one."""
        wire = self._wire
        call.guard(self.abort)
        call.enter(lambda: "key exchange" if wire.remote_version else "banner", place)
        try:
            done = threading.Event()
            wire.start_client(done)
            wire.await_event(done)
            if not wire.is_active():
                raise wire.get_exception() or EOFError
            return PresentedKey.of(wire.get_remote_server_key().asbytes())
        except Exception as error:  # whatever a server can make the library stumble over
            if not wire.remote_version:
                raise BannerMissing(str(error)) from error
            raise self._lost(call, error) from error

    def authenticate(self, call: Call[Any], user: str, keys: Sequence[paramiko.PKey]) -> None:
        """Offer the keys one after the other. There is no second try: it would lock operators out."""
        call.enter("authentication")
        for offered, key in enumerate(keys):
            try:
                self._wire.prove(user, key)
            except paramiko.BadAuthenticationType:
                break
            except paramiko.AuthenticationException as error:
                if not self.is_alive():
                    if offered:  # hung up after too many keys
                        break
                    raise self._lost(call, error) from error
            except Exception as error:
                raise self._lost(call, error) from error
            if self._wire.is_authenticated():
                return
        names = ", ".join(f"{key.get_name()} {PresentedKey.of(key.asbytes()).fingerprint}" for key in keys)
        raise NoAnswer(
            SilenceKind.AUTH,
            call.step,
            f"{call.place} refused user {user!r} with {names}",
            hint=f"append the public key to ~{user}/.ssh/authorized_keys there, or correct ssh.user, ssh.key",
            sent=False,
        )

    def open_tunnel(self, call: Call[Any], host: str, port: int) -> paramiko.Channel:
        """A byte stream from the server on to `host`."""
        kind, hint = SilenceKind.UNREACHABLE, ""
        wait = max(call.remaining(), 0)
        try:
            return self._wire.open_channel("direct-tcpip", (host, port), ("127.0.0.1", 0), timeout=wait)
        except Exception as error:  # not only the library's own kinds: the connection may be gone
            if isinstance(error, paramiko.ChannelException) and error.code == _PROHIBITED:
                kind, hint = SilenceKind.PROTOCOL, "set AllowTcpForwarding yes in the jump host's sshd_config"
            detail = f"{call.place} at {host}:{port}, from the jump host: {readable(error)}"
            raise NoAnswer(kind, call.step, detail, hint=hint, sent=False) from error

    def execute(self, call: Call[Any], script: bytes, limit: int, *, ahead: bool) -> Output:
        """Run the script; `ahead` begins the next call meanwhile.

        Raises LinkLost if the connection was dead with nothing sent, else NoAnswer.
        """
        was_new, self._is_new = self._is_new, False
        try:
            with call.turn(self._sessions, step="session"):
                call.guard(self.abort)  # not before: whoever waits in vain must not cut those who are at it
                call.enter("channel")
                with closing(self._shell()) as channel:
                    self._make_sure()
                    call.sending()
                    return self._converse(call, channel, script, limit, ahead=ahead)
        except paramiko.ChannelException as error:  # refused; the connection serves others
            raise self._lost(call, error) from error
        except Abandoned:  # cut by the guard, or not used at all
            raise
        except NoAnswer:
            self.close()
            raise
        except Exception as error:
            lost = self._lost(call, error)
            if not call.sent:
                raise LinkLost(lost, was_new=was_new) from error
            self.close()
            raise lost from error

    def _shell(self) -> paramiko.Channel:
        """A session with a shell that waits for its script."""
        with self._opening:  # what is on its way is for us: a server may allow no second one
            while self._ahead:
                if not (channel := self._ahead.pop()).closed:
                    return channel
        return self._start_shell()

    def _start_shell(self) -> paramiko.Channel:
        """Two round trips: only when the shell runs does a server take what is for it to read."""
        channel = self._wire.open_session()
        channel.exec_command(COMMAND)
        self._heard_at = time.monotonic()
        return channel

    def _start_ahead(self) -> None:
        """Start the shell of the next call, which then has one round trip and not three."""
        if self._opening.acquire(blocking=False):
            try:
                if not self._ahead:
                    with suppress(Exception):  # the next call will see
                        self._ahead.append(self._start_shell())
            finally:
                self._opening.release()

    def _make_sure(self) -> None:
        """Raises EOFError if the connection is dead; only one that was quiet for a while has to prove it."""
        if isinstance(self._sock, TunedSocket) and self._sock.has_ended():
            raise EOFError
        is_quiet = time.monotonic() - self._heard_at > BELIEVED_FOR
        if not (self._still_answers() if is_quiet else self.is_alive()):
            raise EOFError

    def _converse(
        self, call: Call[Any], channel: paramiko.Channel, script: bytes, limit: int, *, ahead: bool
    ) -> Output:
        streams = _Streams(channel, limit)
        call.enter("script")
        _send(channel, script, streams)
        call.enter(lambda: "exit status" if channel.eof_received else "output")
        if ahead:
            with suppress(RuntimeError):  # there can't be more threads: the next call starts its own
                threading.Thread(target=self._start_ahead, name="iris-ssh-ahead", daemon=True).start()
        streams.read_to_end()
        if not channel.eof_received and not self._still_answers():
            raise EOFError
        self._heard_at = time.monotonic()
        return Output(stdout=bytes(streams.out), stderr=bytes(streams.err), status=channel.exit_status)

    def _still_answers(self) -> bool:
        """Whether the channel was closed by the server, and not by the end of the connection.

        The status can come before the last output, so it proves nothing alone. OpenSSH also says that no more
        output will come; a server that doesn't is asked for a sign of life.
        """
        self._wire.global_request("keepalive@openssh.com", wait=True)
        return self.is_alive()

    def _lost(self, call: Call[Any], error: Exception) -> NoAnswer:
        """What a broken connection means: silence only if the network says that nobody is there."""
        silent = isinstance(self._sock, TunedSocket) and self._sock.fell_silent
        kind = SilenceKind.TIMEOUT if silent else SilenceKind.PROTOCOL
        return NoAnswer(kind, call.step, f"{call.place}: {readable(error)}", sent=call.sent)


class _Wake(threading.Event):
    """Set by both streams of a channel. Each also clears it when it is empty; then the other may not be."""

    def clear(self) -> None:
        pass

    def reset(self) -> None:
        super().clear()


class _Streams:
    """Reads both outputs as they come: one that is left unread blocks the other, and the script."""

    def __init__(self, channel: paramiko.Channel, limit: int) -> None:
        self.out = bytearray()
        self.err = bytearray()
        self._channel = channel
        self._limit = limit
        self._wake = _Wake()
        channel.in_buffer.set_event(self._wake)
        channel.in_stderr_buffer.set_event(self._wake)

    def read(self) -> None:
        """What is there now. Raises NoAnswer over the limit."""
        while self._channel.recv_ready():
            self.out += self._channel.recv(CHUNK)
            self._check(self.out, "stdout")
        while self._channel.recv_stderr_ready():
            self.err += self._channel.recv_stderr(CHUNK)
            self._check(self.err, "stderr")

    def read_to_end(self) -> None:
        is_last = False
        while not is_last:
            self._wake.wait(1.0)
            self._wake.reset()
            is_last = self._channel.closed
            self.read()

    def _check(self, stream: bytearray, name: str) -> None:
        if len(stream) > self._limit:
            raise NoAnswer(SilenceKind.PROTOCOL, "output", f"more than {self._limit} bytes on {name}")


def _send(channel: paramiko.Channel, script: bytes, streams: _Streams) -> None:
    """Feed the script in, reading meanwhile. A shell that ends before it has read all is no error."""
    channel.settimeout(PAUSE)
    start = 0
    while start < len(script) and not channel.closed:
        try:
            start += channel.send(script[start : start + CHUNK])
        except TimeoutError:
            pass
        except OSError:  # closed just now
            break
        streams.read()
    channel.shutdown_write()


def readable(error: BaseException) -> str:
    """An error in one short printable line: parts of it may come from the server."""
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror
    elif isinstance(error, EOFError):
        text = "the connection was closed"
    elif isinstance(error, paramiko.ChannelException):
        text = error.text
    else:
        text = str(error) or type(error).__name__
    return "".join(c if c.isprintable() else "�" for c in text[:200])
