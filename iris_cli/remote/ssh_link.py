"""One SSH connection: key exchange, authentication, tunnels, and running a script."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

import paramiko
from msgspec import Struct

from iris_cli.clock import SYSTEM_CLOCK
from iris_cli.core.observations import SilenceKind
from iris_cli.remote.host_keys import PresentedKey
from iris_cli.remote.sockets import TunedSocket
from iris_cli.remote.ssh_call import Abandoned, Call
from iris_cli.remote.ssh_reader import Reader
from iris_cli.remote.ssh_shell import Shell
from iris_cli.remote.ssh_wire import Proof, Wire
from iris_cli.remote.transport import NoAnswer, Output, Payload, time_for

COMMAND = "exec /bin/sh -s"
MOST_SESSIONS = 4
"""Calls that share a connection at the same time. sshd refuses the eleventh session (`MaxSessions`); to it, those
that have just ended may not be over yet, and one is opened ahead.
"""
BELIEVED_FOR = 5.0
"""Seconds for which a connection is taken to be alive because something has come over it."""
_PROHIBITED = 1  # SSH_OPEN_ADMINISTRATIVELY_PROHIBITED, RFC 4254

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


class Errand(Struct, frozen=True, kw_only=True):
    """What is to be run: a script, how much it may say on each stream in bytes, and what it may ask for."""

    script: bytes
    limit: int
    payload: Payload | None = None


class Link:
    """An SSH connection."""

    def __init__(
        self, sock: socket.socket | paramiko.Channel, key_types: Collection[str], reader: Reader
    ) -> None:
        self._is_new = True
        self._sessions = threading.BoundedSemaphore(MOST_SESSIONS)
        self._ahead: list[Shell] = []
        self._opening = threading.Lock()
        self._sock = sock
        self._wire = Wire(sock, key_types, reader)

    def is_alive(self) -> bool:
        return self._wire.is_active()

    def abort(self) -> None:
        """Cut the connection without waiting for anything."""
        self._wire.hang_up()
        if not self._wire.is_watched:
            threading.Thread(target=self.close, name="iris-ssh-close", daemon=True).start()

    def close(self) -> None:
        self._wire.close()

    def exchange_keys(self, call: Call[Any], place: str, proof: Proof | None) -> PresentedKey:
        """Greet and negotiate. The host key is then proven to be the server's, not to be the right one.

        With a proof the authentication has begun, which `authenticate` brings to its end.
        """
        wire = self._wire
        call.guard(self.abort)
        call.enter(lambda: wire.stage, place)
        try:
            wire.meet(proof)
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

    def execute(self, call: Call[Any], errand: Errand, *, ahead: bool) -> Output:
        """Run the script; `ahead` begins the next call meanwhile.

        Raises LinkLost if the connection was dead with nothing sent, else NoAnswer.
        """
        was_new, self._is_new = self._is_new, False
        try:
            with call.turn(self._sessions, step="session"):
                call.guard(self.abort)  # not before: whoever waits in vain must not cut those who are at it
                return self._converse(call, errand, ahead=ahead)
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

    def _converse(self, call: Call[Any], errand: Errand, *, ahead: bool) -> Output:
        call.enter("channel")
        shell = self._spare_shell()
        while shell is not None:
            self._make_sure()
            self._feed(call, shell, errand, ahead=ahead)
            if shell.was_fed or not self.is_alive() or isinstance(shell.failure, Abandoned):
                break
            shell = self._spare_shell()  # that one was gone, or refused
        else:
            shell = self._wire.shell(COMMAND)
            self._feed(call, shell, errand, ahead=ahead)
        if shell.failure is not None:
            raise shell.failure
        return Output(stdout=bytes(shell.out), stderr=bytes(shell.err), status=shell.status)

    def _feed(self, call: Call[Any], shell: Shell, errand: Errand, *, ahead: bool) -> None:
        """Give the script to the shell, and what it asks for, and wait for its end."""

        def begin() -> None:
            if isinstance(self._sock, TunedSocket) and self._sock.has_ended():
                raise EOFError
            call.sending()

        call.enter(lambda: shell.step)
        payload = errand.payload
        shell.feed(
            errand.script,
            errand.limit,
            before=begin,
            after=self._start_ahead if ahead else None,
            mark=payload.mark if payload is not None else b"",
        )
        if payload is not None:
            self._send_payload(call, shell, payload)
        self._wire.await_shell(shell)

    def _send_payload(self, call: Call[Any], shell: Shell, payload: Payload) -> None:
        latest = SYSTEM_CLOCK.monotonic() + max(call.remaining(), 0) + time_for(payload.size)
        try:
            self._wire.send_payload(shell, payload.chunks, lambda: call.progressed(latest))
        except OSError as error:  # of the file it comes from: what the network does is told by the shell
            shell.close()
            detail = f"what is to be sent can't be read: {readable(error)}"
            raise NoAnswer(SilenceKind.LOCAL, "payload", detail) from error

    def _spare_shell(self) -> Shell | None:
        """One that was started ahead. What is on its way is for us: a server may allow no second one."""
        with self._opening:
            return self._ahead.pop() if self._ahead else None

    def _start_ahead(self) -> None:
        """Start the shell of the next call, which then has one round trip and not three."""
        with self._opening, suppress(Exception):  # the next call will see
            if not self._ahead:
                self._ahead.append(self._wire.shell(COMMAND))

    def _make_sure(self) -> None:
        """Raises EOFError if the connection is dead; only one that was quiet for a while has to prove it."""
        is_quiet = SYSTEM_CLOCK.monotonic() - self._wire.heard_at > BELIEVED_FOR
        if not (self._still_answers() if is_quiet else self.is_alive()):
            raise EOFError

    def _still_answers(self) -> bool:
        self._wire.global_request("keepalive@openssh.com", wait=True)
        return self.is_alive()

    def _lost(self, call: Call[Any], error: Exception) -> NoAnswer:
        """What a broken connection means: silence only if the network says that nobody is there."""
        silent = isinstance(self._sock, TunedSocket) and self._sock.fell_silent
        kind = SilenceKind.TIMEOUT if silent else SilenceKind.PROTOCOL
        return NoAnswer(kind, call.step, f"{call.place}: {readable(error)}", sent=call.sent)


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
