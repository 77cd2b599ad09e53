"""What is agreed on with a server when keys are exchanged, and what the library must not spend seconds on meanwhile."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from functools import cache
from typing import Any

import paramiko
from paramiko.kex_gex import KexGexSHA256

from iris_cli.randomness import SYSTEM_RANDOMNESS

LARGEST_GROUP = 4096
"""Bits. One power in a group of 8,192 takes a second, in which the interpreter does nothing else."""
_EXPONENT = 512
"""Bits: twice the strength of any cipher here, as in OpenSSH. The library takes as many as the group has."""
_GROUP_EXCHANGE = "diffie-hellman-group-exchange-sha256"
_MOST_EXTENSIONS = 64

_LIBRARY: Any = paramiko.Transport  # whose published types leave out what is for subclasses
_GROUP: Any = KexGexSHA256


class GroupExchange(KexGexSHA256):
    """RFC 4419 within bounds: a server chooses the group, and so how long we calculate."""

    min_bits = 2048
    max_bits = LARGEST_GROUP
    preferred_bits = 3072

    def _parse_kexdh_gex_group(self: Any, message: paramiko.Message) -> None:
        bits = int.from_bytes(message.get_binary(), "big").bit_length()
        if bits > LARGEST_GROUP:
            raise paramiko.SSHException(
                f"the server wants to exchange keys with {bits} bits; more than {LARGEST_GROUP} take too long: "
                "allow curve25519-sha256 in KexAlgorithms of its sshd_config"
            )
        message.rewind()
        _GROUP._parse_kexdh_gex_group(self, message)

    def _generate_x(self: Any) -> None:
        self.x = int(SYSTEM_RANDOMNESS.hexadecimal(_EXPONENT // 8), 16) | 1 << (_EXPONENT - 1)


def _rank(method: str) -> tuple[int, int]:
    """Which method of exchange is asked for first: the cheapest, then as the library has them; SHA-1 comes last."""
    if method.startswith("curve25519-sha256"):
        cost = 0
    elif method.endswith("-sha1"):
        cost = 3
    else:
        cost = 2 if method == _GROUP_EXCHANGE else 1
    known = _LIBRARY._preferred_kex
    return cost, known.index(method) if method in known else -1


_METHODS = {
    **{name: method for name, method in _LIBRARY._kex_info.items() if "-group-exchange-" not in name},
    _GROUP_EXCHANGE: GroupExchange,
}
with suppress(KeyError):  # the library knows it by its first name alone (RFC 8731)
    _METHODS["curve25519-sha256"] = _METHODS["curve25519-sha256@libssh.org"]


class Exchange(paramiko.Transport):
    """The library's connection, which asks first for what costs least."""

    # One pass instead of a cipher and a checksum, the latter compared byte by byte in Python.
    _preferred_ciphers = tuple(sorted(_LIBRARY._preferred_ciphers, key=lambda name: "-gcm@" not in name))
    # Where there is a checksum, it is over what is sent: then the length of a packet is in clear.
    _preferred_macs = tuple(sorted(_LIBRARY._preferred_macs, key=lambda name: "-etm@" not in name))
    _preferred_kex = tuple(
        sorted(_METHODS.keys() & {"curve25519-sha256", *_LIBRARY._preferred_kex}, key=_rank)
    )
    _kex_info = _METHODS

    def __init__(self, sock: Any, key_types: Collection[str], packetizer: Any) -> None:
        """Key types of the server that come first: a host known by one key must not be asked for another."""
        super().__init__(sock, packetizer_class=packetizer)
        self._preferred_keys = _first(frozenset(key_types))
        self._secret: tuple[object, bytes] = (None, b"")

    # What the library calls

    def _compute_key(self: Any, letter: str, size: int) -> bytes:
        """RFC 4253, 7.2. Those for checksums are for ciphers that have none built in.

        The library would encode the secret for each anew.
        """
        if letter in "EF" and self.local_cipher == self.remote_cipher and "-gcm@" in self.local_cipher:
            return b""
        if self._secret[0] is not self.K:
            secret = paramiko.Message()
            secret.add_string(self.K) if isinstance(self.K, bytes) else secret.add_mpint(self.K)
            self._secret = self.K, secret.asbytes()
        hash_algorithm = self.kex_engine.hash_algo
        known = self._secret[1] + self.H
        key = hash_algorithm(known + letter.encode() + self.session_id).digest()
        while len(key) < size:
            key += hash_algorithm(known + key).digest()
        return bytes(key[:size])

    def _parse_ext_info(self: Any, message: paramiko.Message) -> None:
        """The library believes in any number of them."""
        if int.from_bytes(message.get_remainder()[:4], "big") > _MOST_EXTENSIONS:
            raise paramiko.SSHException("too many extensions")
        _LIBRARY._parse_ext_info(self, message)

    def _filter_algorithm(self, type_: str) -> tuple[str, ...]:
        """No algorithm is disabled; the library would look for each, whenever it looks at a list of them."""
        preferred: tuple[str, ...] = getattr(self, f"_preferred_{type_}")
        return preferred


@cache
def _first(key_types: frozenset[str]) -> tuple[str, ...]:
    return tuple(sorted(_LIBRARY._preferred_keys, key=lambda name: _key_type(name) not in key_types))


def _key_type(algorithm: str) -> str:
    """The type of the key that a signature algorithm uses: RSA keys have several."""
    return "ssh-rsa" if algorithm.startswith("rsa-sha2-") else algorithm
