"""An SSH server that accepts everyone, runs nothing, and answers every call of the worker protocol.

It does as little as the protocol allows, in one thread, so that measurements show the client's cost. To the client it
behaves like OpenSSH: the same algorithms are negotiated with the same number of messages. See RFC 4253 (transport),
4252 (authentication), 4254 (channels), 8731 (curve25519).
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import os
import re
import struct
import time
import zlib

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from bench.latency import DelayLine, listen

BOOT_ID = "00000000-0000-4000-8000-000000000000"

_BANNER = b"SSH-2.0-OpenSSH_9.2"
_RAW = (serialization.Encoding.Raw, serialization.PublicFormat.Raw)
_WINDOW = 2 << 20
_PACKET = 32 << 10
_LISTS = (
    b"curve25519-sha256,curve25519-sha256@libssh.org",
    b"ssh-ed25519",
    *([b"aes128-gcm@openssh.com"] * 2),
    *([b"hmac-sha2-256"] * 2),
    *([b"none"] * 2),
    *([b""] * 2),
)
_OPEN = re.compile(rb"^open_frame .* ([A-Za-z0-9._-]+)$", re.MULTILINE)
_NONCE = re.compile(rb"^nonce=([0-9a-f]{32})$", re.MULTILINE)
_TOKENS = re.compile(rb"^report ((?:[0-9a-f]{32} ?)*)$", re.MULTILINE)
_PIECES = re.compile(rb"^logs ([0-9a-f]{32}) (out|err) (-?[0-9]+) ([0-9]+)$", re.MULTILINE)
_GO = re.compile(rb"^(go|stop) ([0-9a-f]{32})", re.MULTILINE)


def incarnation_of(worker: str) -> str:
    """Return the incarnation that the server reports for a worker."""
    return hashlib.sha256(worker.encode()).hexdigest()[:32]


class HostKey:
    """The server's key; the ephemeral key is reused in every exchange, as nothing needs protection."""

    def __init__(self) -> None:
        self._private = Ed25519PrivateKey.generate()
        self.blob = _text(b"ssh-ed25519") + _text(self._private.public_key().public_bytes(*_RAW))
        self.ephemeral = X25519PrivateKey.generate()
        self.ephemeral_public = self.ephemeral.public_key().public_bytes(*_RAW)

    @property
    def line(self) -> str:
        return f"ssh-ed25519 {base64.b64encode(self.blob).decode()}"

    def sign(self, data: bytes) -> bytes:
        return _text(b"ssh-ed25519") + _text(self._private.sign(data))


class Writing:
    """The content of `out` of attempts: that many lines per second, different for each attempt unless `alike`."""

    def __init__(self, rate: int, *, alike: bool) -> None:
        self._rate = rate
        self._alike = alike
        self._begun = time.monotonic()

    def pieces(self, script: bytes) -> list[bytes]:
        lines = []
        for token, stream, offset, limit in _PIECES.findall(script):
            there = int((time.monotonic() - self._begun) * self._rate) if stream == b"out" else 0
            size = there * LINE
            start = min(int(offset), size) if int(offset) >= 0 else max(0, size + int(offset))
            data = self._data(token, start, min(start + int(limit), size))
            packed = zlib.compress(data, 1, wbits=31) if len(data) >= 4096 else data
            lines.append(b"L %d %d 1%b" % (start, size, b" gzip" if packed is not data else b""))
            lines += [b"T " + each for each in base64.encodebytes(packed).splitlines()]
        return lines

    def _data(self, token: bytes, start: int, end: int) -> bytes:
        first = start // LINE
        seed = 0 if self._alike else int(token, 16)
        lines = b"".join(line(number, seed) for number in range(first, -(-end // LINE)))
        return lines[start - first * LINE : end - first * LINE]


def line(number: int, seed: int) -> bytes:
    """Return one line of LINE bytes, like a training program's output. The measured values hardly repeat."""
    noise = (number * 2_654_435_761 + seed) % 10**12
    return b"step %08d loss %06d norm %06d tokens/s 123456 mfu 0.4%03d\n" % (
        number,
        noise % 10**6,
        noise // 10**6,
        noise % 997,
    )


LINE = len(line(0, 0))
"""Bytes."""


class Worker:
    """The simulated worker: attempts start when told to, and run until they are stopped."""

    def __init__(self, failed: frozenset[bytes] = frozenset(), writing: Writing | None = None) -> None:
        self._failed = failed  # tokens of attempts that have exited with 1
        self._writing = writing or Writing(0, alike=False)

    def answer(self, script: bytes) -> bytes:
        nonce, tokens, opened = _NONCE.search(script), _TOKENS.search(script), _OPEN.search(script)
        assert nonce is not None
        assert opened is not None
        host = (nonce[1], BOOT_ID.encode(), incarnation_of(opened[1].decode()).encode())
        asked = tokens[1].split() if tokens else []
        commands = {token: verb for verb, token in _GO.findall(script)}
        otherwise = b"PREPARED" if b"\nprepare " in script else b"RUNNING"
        lines = [b"H 1700000000 100000", *self._writing.pieces(script)]
        for token in asked:
            if token in self._failed:
                lines.append(b"A %b EXITED 1 - 2 1 0 -" % token)
                continue
            state = {b"go": b"RUNNING", b"stop": b"STOPPED"}.get(commands.get(token, b""), otherwise)
            lines.append(b"A %b %b - - %b - 0 -" % (token, state, b"1" if state == b"RUNNING" else b"-"))
        frame = [b"IRIS1 %b BEGIN %b %b" % host, *lines]
        return b"\n".join([*frame, b"IRIS1 %b END %d" % (nonce[1], len(lines)), b""])


class Sealing:
    """AES-128-GCM in one direction according to RFC 5647: the nonce is a fixed part and a counter."""

    def __init__(self, key: bytes, nonce: bytes) -> None:
        self._cipher = AESGCM(key[:16])
        self._fixed = nonce[:4]
        self._count = int.from_bytes(nonce[4:12], "big")

    def seal(self, length: bytes, plain: bytes) -> bytes:
        return length + self._cipher.encrypt(self._nonce(), plain, length)

    def open(self, length: bytes, sealed: bytes) -> bytes:
        return self._cipher.decrypt(self._nonce(), sealed, length)

    def _nonce(self) -> bytes:
        nonce = self._fixed + self._count.to_bytes(8, "big")
        self._count = (self._count + 1) % (1 << 64)
        return nonce


class Session(asyncio.Protocol):
    """One connection."""

    def __init__(self, key: HostKey, worker: Worker, round_trip: float) -> None:
        self._key = key
        self._worker = worker
        self._round_trip = round_trip
        self._received = bytearray()
        self._greeted = b""
        self._keys: dict[bytes, bytes] = {}
        self._incoming: Sealing | None = None
        self._outgoing: Sealing | None = None
        self._scripts: dict[int, bytearray] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._line = DelayLine(self._round_trip, self._arrived)
        # On loopback the handshake takes no time: its round trip is added here and below.
        greeting = DelayLine(2 * self._round_trip, transport.write)
        greeting.put(_BANNER + b"\r\n")

    def data_received(self, data: bytes) -> None:
        self._line.put(data, 0.0 if self._greeted else self._round_trip)

    def _arrived(self, data: bytes) -> None:
        self._received += data
        if not self._greeted:
            end = self._received.find(b"\r\n")
            if end < 0:
                return
            self._greeted = bytes(self._received[:end])
            del self._received[: end + 2]
            self._offer = b"\x14" + os.urandom(16) + b"".join(map(_text, _LISTS)) + bytes(5)
            self._send(self._offer)
        while (packet := self._packet()) is not None:
            self._handle(packet)

    # Packets

    def _packet(self) -> bytes | None:
        length = bytes(self._received[:4])
        end = 4 + int.from_bytes(length, "big") + (16 if self._incoming else 0)
        if len(length) < 4 or len(self._received) < end:
            return None
        packet = bytes(self._received[4:end])
        del self._received[:end]
        if self._incoming is not None:
            packet = self._incoming.open(length, packet)
        return packet[1 : len(packet) - packet[0]]

    def _send(self, *payloads: bytes) -> None:
        """Send all payloads in one write, as OpenSSH does with simultaneous messages."""
        out = b""
        for payload in payloads:
            # Encrypted data must fill whole blocks: with GCM that is everything except the length.
            block, before = (16, 1) if self._outgoing else (8, 5)
            padding = block - (len(payload) + before) % block
            padding += block if padding < 4 else 0
            length = struct.pack(">I", len(payload) + padding + 1)
            packet = bytes([padding]) + payload + bytes(padding)
            out += self._outgoing.seal(length, packet) if self._outgoing else length + packet
        self._transport.write(out)

    # Messages

    def _handle(self, message: bytes) -> None:
        kind = message[0]
        if kind == 20:
            self._their_offer = message
        elif kind == 30:
            self._exchange_keys(_texts(message[1:])[0])
        elif kind == 21:
            self._incoming = Sealing(self._keys[b"C"], self._keys[b"A"])
        elif kind == 5:
            self._send(b"\x06" + _text(b"ssh-userauth"))
        elif kind == 50:
            # A key that is only offered gets a request to sign; a signed one is accepted.
            offered = _texts(message[1:])[:3]
            signed = message[1 + sum(4 + len(each) for each in offered)] == 1
            algorithm, blob = _texts(message[2 + sum(4 + len(each) for each in offered) :])[:2]
            self._send(b"\x34" if signed else b"\x3c" + _text(algorithm) + _text(blob))
        elif kind == 1:
            self._transport.close()
        else:
            self._handle_channel(kind, message)

    def _handle_channel(self, kind: int, message: bytes) -> None:
        if kind == 80:
            if message[5 + int.from_bytes(message[1:5], "big")]:
                self._send(b"\x52")
            return
        if kind == 90:
            start = 5 + int.from_bytes(message[1:5], "big")
            channel = int.from_bytes(message[start : start + 4], "big")
            self._scripts[channel] = bytearray()
            self._send(b"\x5b" + struct.pack(">4I", channel, channel, 0, 32768))
            return
        channel = int.from_bytes(message[1:5], "big")
        to = struct.pack(">I", channel)
        if kind == 98:
            self._send(b"\x5d" + to + struct.pack(">I", _WINDOW), b"\x63" + to)
        elif kind == 94:
            self._scripts[channel] += message[9:]
        elif kind == 96:
            answer = self._worker.answer(bytes(self._scripts.pop(channel)))
            status = b"\x62" + to + _text(b"exit-status") + b"\0" + bytes(4)
            pieces = [answer[start : start + _PACKET] for start in range(0, len(answer), _PACKET)]
            data = [b"\x5e" + to + _text(each) for each in pieces]
            self._send(*data, b"\x60" + to, status, b"\x61" + to)

    def _exchange_keys(self, theirs: bytes) -> None:
        shared = self._key.ephemeral.exchange(X25519PublicKey.from_public_bytes(theirs)).lstrip(b"\0")
        secret = _text((b"\0" if shared[0] & 0x80 else b"") + shared)
        parts = (self._greeted, _BANNER, self._their_offer, self._offer, self._key.blob, theirs)
        known = b"".join(map(_text, parts)) + _text(self._key.ephemeral_public) + secret
        digest = hashlib.sha256(known).digest()
        for letter in (b"A", b"B", b"C", b"D"):
            self._keys[letter] = hashlib.sha256(secret + digest + letter + digest).digest()
        reply = b"\x1f" + _text(self._key.blob) + _text(self._key.ephemeral_public)
        self._send(reply + _text(self._key.sign(digest)), b"\x15")
        self._outgoing = Sealing(self._keys[b"D"], self._keys[b"B"])


def _text(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _texts(data: bytes) -> list[bytes]:
    """Parse consecutive strings, up to the first incomplete one."""
    found, start = [], 0
    while len(data) - start >= 4:
        end = start + 4 + int.from_bytes(data[start : start + 4], "big")
        found.append(data[start + 4 : end])
        start = end
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("round_trip", type=float, help="seconds")
    parser.add_argument(
        "counter", type=argparse.FileType("ab", 0), help="file that grows by a byte a connection"
    )
    parser.add_argument("--lines", type=int, default=0, help="that every attempt writes in a second")
    parser.add_argument("--alike", action="store_true", help="all of them the same")
    given = parser.parse_args()
    key, worker = HostKey(), Worker(writing=Writing(given.lines, alike=given.alike))

    def accept() -> Session:
        given.counter.write(b".")
        return Session(key, worker, given.round_trip)

    asyncio.run(listen(accept, key.line))


if __name__ == "__main__":
    main()
