"""The bytes of a tar file, the same for the same files wherever and whenever they are packed.

The format is ustar, and for names that don't fit into it the long names of GNU: what GNU tar, busybox and bsdtar
all read (busybox passes over the headers of pax). There are only files and links, no directories.
"""

from __future__ import annotations

END = bytes(1024)
END_SIZE = len(END)

BLOCK = 512
_MTIME = 946_684_800  # the year 2000: some programs complain of 1970
FILE, LINK, LONG_NAME, LONG_TARGET = b"0", b"2", b"L", b"K"
_NAME_SIZE, _PREFIX_SIZE = 100, 155
_LONG = b"././@LongLink"


def padded(size: int) -> int:
    """Bytes that so many take in a tar file."""
    return -(-size // BLOCK) * BLOCK


def padding(size: int) -> bytes:
    """What stands behind so many bytes."""
    return bytes(padded(size) - size)


def tar_header(name: bytes, *, size: int = 0, executable: bool = False, target: bytes | None = None) -> bytes:
    """What stands before the contents of a file of `size` bytes, or is all of a link to `target`."""
    long, (prefix, last) = b"", _split(name)
    if not last:
        long, last = _record(LONG_NAME, name), name[:_NAME_SIZE]
    if target is None:
        return long + _block(prefix, last, 0o755 if executable else 0o644, size, FILE)
    if len(target) > _NAME_SIZE:
        long += _record(LONG_TARGET, target)
    return long + _block(prefix, last, 0o777, 0, LINK, target[:_NAME_SIZE])


def _split(name: bytes) -> tuple[bytes, bytes]:
    """The name in the two fields of ustar; both empty if it doesn't fit."""
    if len(name) <= _NAME_SIZE:
        return b"", name
    cut = name.find(b"/", len(name) - _NAME_SIZE - 1)
    if 0 < cut <= _PREFIX_SIZE and cut + 1 < len(name):
        return name[:cut], name[cut + 1 :]
    return b"", b""


def _record(kind: bytes, text: bytes) -> bytes:
    """A record of its own that holds a long name, which ends in a NUL."""
    data = text + b"\0"
    return _block(b"", _LONG, 0o644, len(data), kind) + data + padding(len(data))


def _block(prefix: bytes, name: bytes, mode: int, size: int, kind: bytes, target: bytes = b"") -> bytes:
    fields = (
        (name, _NAME_SIZE),
        (b"%07o" % mode, 8),
        (b"%07o" % 0, 8),  # user
        (b"%07o" % 0, 8),  # group
        (b"%011o" % size, 12),
        (b"%011o" % _MTIME, 12),
        (b" " * 8, 8),  # the checksum counts as blanks
        (kind, 1),
        (target, 100),
        (b"ustar\0", 6),
        (b"00", 2),
        (b"", 32 + 32 + 8 + 8),  # names of user and group, device
        (prefix, _PREFIX_SIZE),
        (b"", 12),
    )
    block = b"".join(text.ljust(size, b"\0") for text, size in fields)
    return b"%b%06o\0 %b" % (block[:148], sum(block), block[156:])
