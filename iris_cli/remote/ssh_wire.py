"""The SSH library's connection without what takes time with hundreds of them and serves nobody here."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Any

import paramiko
from paramiko.packet import Packetizer

FOREVER = 1e9
"""For the library's own time-outs, in seconds: the call's deadline is the only one."""
LARGEST_PACKET = 256 << 10
"""As in OpenSSH; the library would believe any length."""


_LIBRARY: Any = paramiko.Transport


class Wire(paramiko.Transport):
    """A connection."""

    # One pass instead of a cipher and a checksum, the latter compared byte by byte in Python.
    _preferred_ciphers = tuple(sorted(_LIBRARY._preferred_ciphers, key=lambda name: "-gcm@" not in name))
    _preferred_kex = tuple(
        sorted(_LIBRARY._preferred_kex, key=lambda name: not name.startswith("curve25519-sha256"))
    )

    def __init__(self, sock: Any, key_types: Collection[str]) -> None:
        """Key types of the server that come first: a host known by one key must not be asked for another."""
        super().__init__(sock, packetizer_class=_Packetizer)
        self._preferred_keys = tuple(
            sorted(_LIBRARY._preferred_keys, key=lambda name: _key_type(name) not in key_types)
        )
        self.banner_timeout = self.auth_timeout = self.channel_timeout = FOREVER

    def _log(self, level: int, msg: object, *args: object) -> None:
        """Nothing would be written."""

    def _filter_algorithm(self, type_: str) -> tuple[str, ...]:
        """No algorithm is disabled; the library would look for each, whenever it looks at a list of them."""
        preferred: tuple[str, ...] = getattr(self, f"_preferred_{type_}")
        return preferred


class _Packetizer(Packetizer):
    """The library's reader and writer of packets, with three of its habits broken."""

    def start_handshake(self, timeout: float) -> None:
        """No timer thread: it would keep the interpreter from exiting for 15 s."""

    def close(self) -> None:
        """Without a word: a tunnel says goodbye through a connection that may be gone."""
        with suppress(EOFError, OSError, paramiko.SSHException):
            super().close()

    def read_all(self, n: int, check_rekey: bool = False) -> bytes:
        if n > LARGEST_PACKET:
            raise paramiko.SSHException(f"packet of {n} bytes")
        return super().read_all(n, check_rekey)


def _key_type(algorithm: str) -> str:
    """The type of the key that a signature algorithm uses: RSA keys have several."""
    return "ssh-rsa" if algorithm.startswith("rsa-sha2-") else algorithm
