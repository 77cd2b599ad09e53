"""An SSH connection: key exchange, authentication, tunnels, and running a script."""

import logging
import socket
import threading
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

import paramiko

from iris_cli.clock import SYSTEM_CLOCK
from iris_cli.core.messages.observations import SilenceKind
from iris_cli.remote.host_keys import PresentedKey
from iris_cli.remote.ssh.call import POLL_INTERVAL, Abandoned, ChannelRun, SshCall
from iris_cli.remote.ssh.sockets import CREDIT, ByteStream, Stream
from iris_cli.remote.transport import NoAnswer, Script, ScriptResult

COMMAND = "exec /bin/sh -s"
MAX_SESSIONS = 4
"""Maximum number of concurrent calls per connection. sshd refuses the eleventh session (`MaxSessions`), counting the
one opened in advance, and maybe sessions that have just ended."""
ALIVE_FOR = 5.0
"""Seconds after the last received data in which a connection is assumed to be alive."""
REPLACE_AFTER = 256 << 20
"""Bytes after which the next call opens a new connection. After twice as many, paramiko exchanges keys again, and
its thread would stop if the server closed a channel during that."""
NO_TIMEOUT = 1e9
"""Seconds for paramiko's timeouts, which iris does not use."""
_PROHIBITED, _CONNECT_FAILED = 1, 2  # SSH_OPEN_ADMINISTRATIVELY_PROHIBITED, SSH_OPEN_CONNECT_FAILED, RFC 4254

# iris reports errors of paramiko, which would also log their tracebacks to the terminal.
logging.getLogger("paramiko").setLevel(logging.CRITICAL)


class BannerMissing(Exception):  # noqa: N818 - names the condition
    """The server hung up without a banner: it has too many connections (`MaxStartups`), or is not sshd."""


class LinkLost(Exception):  # noqa: N818 - names the condition
    """The connection was lost before anything was sent. `was_new`: True if no earlier call had used the connection."""

    def __init__(self, no_answer: NoAnswer, *, was_new: bool) -> None:
        super().__init__(no_answer.detail)
        self.no_answer = no_answer
        self.was_new = was_new


class _Spare:
    """A shell on the server, started before a call needs it.

    `channel` is None until `is_decided` is set, and afterwards if the server refused the shell.
    """

    def __init__(self) -> None:
        self.channel: paramiko.Channel | None = None
        self.is_decided = threading.Event()


class Link:
    """An SSH connection."""

    def __init__(
        self,
        raw: socket.socket | paramiko.Channel,
        key_types: Collection[str],
        carrier: Stream | None = None,
    ) -> None:
        """Wrap a socket. `key_types` are the preferred types of host keys; `carrier` is the stream below a tunnel."""
        self._is_new = True
        self._is_aborted = False
        self._sessions = threading.BoundedSemaphore(MAX_SESSIONS)
        self._spares: list[_Spare] = []
        self.stream = Stream(raw, carrier)
        self._transport = paramiko.Transport(self.stream)  # type: ignore[arg-type]  # anything like a socket
        self._transport.handshake_timeout = self._transport.banner_timeout = NO_TIMEOUT
        _prefer(self._transport.get_security_options(), key_types)

    def is_alive(self) -> bool:
        return self._transport.is_active() and not self._is_aborted

    def needs_replacement(self) -> bool:
        return self.stream.bytes_passed > REPLACE_AFTER

    def abort(self) -> None:
        """Close the connection without blocking."""
        self._is_aborted = True
        # Stop a timer thread of the library.
        self._transport.handshake_timeout = 0
        self._transport.packetizer.complete_handshake()
        self.stream.hang_up()
        if not self._transport.is_alive():  # otherwise its thread closes the socket
            self.stream.close()

    def exchange_keys(self, call: SshCall[Any], peer: str) -> PresentedKey:
        """Exchange keys. Return the server's host key, which the caller must compare with the keys on record."""
        transport, exchanged = self._transport, threading.Event()
        call.guard(self.abort)
        call.enter(lambda: "key exchange" if transport.remote_version else "SSH banner", peer)
        try:
            transport.start_client(exchanged)
            self._await(exchanged)
            if not self.is_alive():
                raise transport.get_exception() or EOFError()
            return PresentedKey.parse(transport.get_remote_server_key().asbytes())
        except Exception as error:  # a server can make the library raise anything
            if not transport.remote_version:
                raise BannerMissing(str(error)) from error
            raise self._loss_error(call, error) from error

    def authenticate(self, call: SshCall[Any], user: str, keys: Sequence[paramiko.PKey]) -> None:
        """Offer each key once, because more failures could lock the user out. Raises NoAnswer if none is accepted."""
        call.enter("authentication")
        for offered, key in enumerate(keys):
            error = self._offer(user, key)
            if self._transport.is_authenticated():
                self.stream.credit = CREDIT
                return
            is_refused = error is None or isinstance(error, paramiko.AuthenticationException)
            if not (is_refused and self.is_alive()):
                if offered and (is_refused or isinstance(error, EOFError)):  # hangs up after too many keys
                    break
                raise self._loss_error(call, error or EOFError()) from error
            if isinstance(error, paramiko.BadAuthenticationType):
                break
        names = ", ".join(f"{key.get_name()} {PresentedKey.parse(key.asbytes()).fingerprint}" for key in keys)
        raise NoAnswer(
            SilenceKind.AUTH,
            call.step,
            f"{call.peer} rejected user {user!r} with key {names}",
            hint=f"append the public key to ~{user}/.ssh/authorized_keys on the host, or correct ssh.user or ssh.key "
            "in cluster.yaml",
            sent=False,
        )

    def _offer(self, user: str, key: paramiko.PKey) -> Exception | None:
        """Offer a key.

        Return the error of the server or the connection; None if the key was accepted. The library's thread signs, so
        an SSH agent that waits for its user blocks only this connection.
        """
        answered = threading.Event()
        try:
            self._transport.auth_publickey(user, key, answered)
        except Exception as error:  # the connection may be lost
            return error
        self._await(answered)
        return self._transport.get_exception()

    def open_tunnel(self, call: SshCall[Any], host: str, port: int) -> paramiko.Channel:
        """Open a byte stream from the server to `host`. Raises NoAnswer."""
        kind, hint = SilenceKind.UNREACHABLE, ""
        wait = max(call.remaining(), 0)
        try:
            return self._transport.open_channel("direct-tcpip", (host, port), ("127.0.0.1", 0), timeout=wait)
        except Exception as error:  # not only the library's types: the connection may be lost
            if isinstance(error, paramiko.ChannelException) and error.code == _PROHIBITED:
                kind, hint = SilenceKind.PROTOCOL, "set AllowTcpForwarding yes in the jump host's sshd_config"
            detail = f"{call.peer} at {host}:{port}, from the jump host: {readable_text(error)}"
            raise NoAnswer(kind, call.step, detail, hint=hint, sent=False) from error

    def open_port(self, port: int, timeout: float) -> ByteStream:
        """Open a byte stream to a port on the server's loopback within `timeout` seconds. Raises NoAnswer."""
        kind, hint = SilenceKind.PROTOCOL, ""
        try:
            channel = self._transport.open_channel(
                "direct-tcpip", ("localhost", port), ("127.0.0.1", 0), timeout=timeout
            )
        except Exception as error:  # not only the library's types: the connection may be lost
            detail = readable_text(error)
            if isinstance(error, paramiko.ChannelException) and error.code == _CONNECT_FAILED:
                detail = f"nothing listens on port {port}"
            elif isinstance(error, paramiko.ChannelException) and error.code == _PROHIBITED:
                hint = "set AllowTcpForwarding yes in the sshd_config of the worker"
            raise NoAnswer(kind, "port", detail, hint=hint) from error
        return ByteStream(channel, self.stream)

    def open_terminal(self, command: str, term: str, size: tuple[int, int], timeout: float) -> ByteStream:
        """Run a command on a new terminal of `size` (columns, lines). Raises NoAnswer."""
        try:
            channel = self._transport.open_session(timeout=timeout)
            channel.settimeout(timeout)
            channel.get_pty(term, *size)
            channel.exec_command(command)
            channel.settimeout(None)
        except Exception as error:  # not only the library's types: the connection may be lost
            hint = ""
            if self.is_alive() and "OpenSSH" in self._transport.remote_version:
                hint = "set PermitTTY yes in the sshd_config of the worker"
            elif self.is_alive():
                hint = "its SSH server has no terminals: iris launch --follow -- COMMAND ..."
            raise NoAnswer(SilenceKind.PROTOCOL, "terminal", readable_text(error), hint=hint) from error
        return ByteStream(channel, self.stream)

    def execute(self, call: SshCall[Any], script: Script, *, start_next: bool) -> ScriptResult:
        """Run the script. With `start_next` also start the shell of the next call.

        Raises LinkLost if the connection was lost before anything was sent, otherwise NoAnswer.
        """
        was_new, self._is_new = self._is_new, False
        try:
            with call.holding(self._sessions, step="session"):
                call.guard(self.abort)  # AFTER the wait, because a waiting call must not abort others
                return self._run(call, script, start_next=start_next)
        except Abandoned:  # `guard` has aborted it, or nothing was sent
            raise
        except NoAnswer:
            self.abort()
            raise
        except Exception as error:
            lost = self._loss_error(call, error)
            if not call.sent:
                if isinstance(error, paramiko.SSHException) and not self._is_ending():
                    raise lost from error  # the server refused the session, and the connection stays usable
                raise LinkLost(lost, was_new=was_new) from error
            self.abort()
            raise lost from error

    def _run(self, call: SshCall[Any], script: Script, *, start_next: bool) -> ScriptResult:
        call.enter("SSH channel")
        self._check_alive()
        run = ChannelRun(self._take_spare() or self._open_shell(), script, self.is_alive)
        if self.stream.has_ended():
            raise EOFError
        self.stream.credit = CREDIT
        call.sending()
        call.enter(lambda: run.step)
        run.send(call)
        if start_next:
            self._start_spare()
        output = run.finish()
        self.stream.credit = CREDIT
        if output.status == -1 and self._is_ending():
            raise EOFError
        return output

    def _open_shell(self) -> paramiko.Channel:
        channel = self._transport.open_session(timeout=NO_TIMEOUT)
        channel.exec_command(COMMAND)
        return channel

    def _start_spare(self) -> None:
        """Start the shell of the next call, so that this call takes one round trip instead of three."""
        if self._spares:
            return
        spare = _Spare()
        self._spares.append(spare)

        def start() -> None:
            with suppress(Exception):  # the next call reports the error
                spare.channel = self._open_shell()
            spare.is_decided.set()

        with suppress(RuntimeError):  # no more threads
            threading.Thread(target=start, name="iris-ssh-spare", daemon=True).start()
            return
        self._spares.clear()

    def _take_spare(self) -> paramiko.Channel | None:
        """Return the shell started in advance; None if it was not started or has ended."""
        try:
            spare = self._spares.pop()
        except IndexError:
            return None
        self._await(spare.is_decided)
        if not self.is_alive():
            raise EOFError
        channel = spare.channel
        return None if channel is None or channel.closed else channel

    def _check_alive(self) -> None:
        """Raise EOFError if the connection is dead. Send a keepalive if nothing was received for a while."""
        if SYSTEM_CLOCK.monotonic() - self.stream.received_at > ALIVE_FOR:
            self._transport.global_request("keepalive@openssh.com", wait=True)
        if not self.is_alive():
            raise EOFError

    def _is_ending(self) -> bool:
        """Return True if the connection has ended. Wait briefly, because it may end just after its last channel."""
        self._transport.join(POLL_INTERVAL)
        return not self.is_alive()

    def _await(self, event: threading.Event) -> None:
        """Wait for the event or the end of the connection. Check regularly, because the library's thread may hang."""
        while not event.wait(POLL_INTERVAL) and self.is_alive():
            pass

    def _loss_error(self, call: SshCall[Any], error: Exception) -> NoAnswer:
        """Return the error for a broken connection: TIMEOUT if the host stopped acknowledging, otherwise PROTOCOL."""
        kind = SilenceKind.TIMEOUT if self.stream.fell_silent else SilenceKind.PROTOCOL
        return NoAnswer(kind, call.step, f"{call.peer}: {readable_text(error)}", sent=call.sent)


def _prefer(options: paramiko.SecurityOptions, key_types: Collection[str]) -> None:
    """Prefer the cheapest algorithms and the host key types on record."""
    # GCM includes the checksum. For other ciphers paramiko compares a separate checksum byte by byte in Python.
    options.ciphers = sorted(options.ciphers, key=lambda name: "-gcm@" not in name)
    options.digests = sorted(options.digests, key=lambda name: "-etm@" not in name)
    options.kex = sorted(options.kex, key=_cost)
    options.key_types = sorted(options.key_types, key=lambda name: _key_type(name) not in key_types)


def _cost(method: str) -> int:
    """Return the rank of a key exchange method by cost, cheapest 0. A group exchange's cost depends on the server."""
    if method.startswith("curve25519-"):
        return 0
    if method.endswith("-sha1"):
        return 3
    return 2 if "-group-exchange-" in method else 1


def _key_type(algorithm: str) -> str:
    """Return the key type of a signature algorithm: RSA keys have several algorithms."""
    return "ssh-rsa" if algorithm.startswith("rsa-sha2-") else algorithm


def readable_text(error: BaseException) -> str:
    """Return an error, which may contain text of the server, as one short printable line."""
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror
    elif isinstance(error, EOFError):
        text = "the connection was closed"
    elif isinstance(error, paramiko.ChannelException):
        text = error.text
    else:
        text = str(error) or type(error).__name__
    return "".join(c if c.isprintable() else "�" for c in text[:200])
