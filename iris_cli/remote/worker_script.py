"""Puts together the one script that a call sends to a worker: the shell library, and the call on its last lines."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from types import MappingProxyType

from msgspec import Struct


class HostPaths(Struct, frozen=True, kw_only=True):
    """Where a host shows itself. Tests have their own; without a readable `proc` the library uses ps."""

    proc: str = "/proc"
    dev: str = "/dev"
    sys: str = "/sys"
    mounts: str = "/proc/self/mounts"
    root: str = ""  # before the absolute paths of the host's own configuration
    lock: str = "/tmp/libtpu_lockfile"  # noqa: S108 - where the TPU library has it


_PROCESSES = ("host", "attempt", "group", "tree")
_PARTS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "probe": ("host", "fence", "group", "report", "logind", "commands", "metadata", "probe"),
        "prepare": ("launch", "report", "commands"),
        "go": (*_PROCESSES, "fence", "report", "launch"),
        "prepare_with": ("launch", "report", "commands", "workspace"),
        "ship": (*_PROCESSES, "fence", "report", "launch", "commands", "trees", "ship"),
        "poll": (*_PROCESSES, "report", "outbox"),
        "answer": (*_PROCESSES, "report", "outbox", "answer"),
        "stop": ("report",),
        "logs": ("host", "report", "logs"),
        "unwedge": ("report", "unwedge"),
        "reap": (*_PROCESSES, "fence", "report", "reap"),
        "pull": ("host", "report", "pull"),
        "caches": ("host", "report", "trees", "caches"),
        "usage": ("host", "report", "reap", "usage"),
        "exec": (*_PROCESSES, "report", "exec"),
        "stacks": (*_PROCESSES, "report", "early", "stacks"),
    }
)
_LASTING: Mapping[str, Sequence[str]] = MappingProxyType(
    {  # what is left to run on the worker when the call is over: it travels as text, too
        "prepare": (*_PROCESSES, "fence", "devices"),
        "prepare_with": (*_PROCESSES, "fence", "devices", "trees"),
        "stop": (*_PROCESSES, "fence", "stop"),
        "unwedge": (*_PROCESSES, "fence", "stop", "devices", "evict"),
    }
)

_WRAPPER: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "prepare": ("run", "metadata", "deaths"),
        "prepare_with": ("run", "metadata", "deaths", "copies"),
    }
)
"""What only the processes of an attempt run, behind that: the call itself writes it, and need not read it."""

_FED = frozenset({"ship"})
"""Calls that take something from their stdin once they run."""

_LONE = frozenset({"stop", *_FED})
"""Calls that are read by the shell alone: a fence has to do without another process where none can be started."""

_READ_AT_ONCE = (
    'if [ -n "${BASH_VERSION-}" ] && command -v cat >/dev/null 2>&1; then'
    ' call_text=$(cat); eval "$call_text"; exit; fi'
)
"""bash reads its stdin byte by byte, which takes half of the time of a call. Cut off, it doesn't end in a brace."""


def worker_script(call: str, body: Sequence[str], paths: HostPaths) -> bytes:
    """The script of a call. Cut off anywhere, even before its last byte, it does nothing.

    It is one brace group, which a shell runs when it has read all of it; bash has a line before it. Whatever is
    started in it reads nothing of the script. One that is fed has a newline behind it: its shell can't wait for the
    end of its stdin.
    Raises ValueError for text that can't be encoded.
    """
    end = [b""] if call in _FED else []
    return b"\n".join([_library(call, paths), *(line.encode() for line in body), b"exit 0", b"}", *end])


@cache
def _library(call: str, paths: HostPaths) -> bytes:
    """What all scripts of a call begin with: a fan-out sends hundreds of them."""
    library = _head(paths) + _shell(*_LASTING.get(call, ()))
    lines = [
        *([] if call in _LONE else [_READ_AT_ONCE]),
        "{",
        "exec 3<&0 </dev/null" if call in _FED else "exec </dev/null",
        f"library={quote(library)}",
        f"wrapper_text={quote(_shell(*_WRAPPER.get(call, ())))}",
        'eval "$library"',
        _shell(*_PARTS[call]).rstrip("\n"),
    ]
    return "\n".join(lines).encode()


def quote(text: str) -> str:
    """The text as one shell word. Raises ValueError for a NUL, which no shell can hold."""
    if "\0" in text:
        raise ValueError("a NUL byte can't be passed to a program")
    return shlex.quote(text)


def early_signal_text() -> str:
    """What stands behind the settings of an attempt with an early signal, and goes with no other."""
    return _shell("early")


def directory_word(remote_dir: str) -> str:
    """`remote_dir` as a shell word; `~` is the home directory there, and so is where a relative path begins.

    Raises ValueError for another user's home.
    """
    first, slash, rest = remote_dir.rstrip("/").partition("/")
    if remote_dir.startswith("/"):
        return quote(remote_dir.rstrip("/") or "/")
    if first == "~":
        return f'"${{HOME:?}}"{quote(slash + rest) if rest else ""}'
    if first.startswith("~") or not first:
        raise ValueError(f"remote_dir {remote_dir!r} is neither an absolute path nor one below ~")
    return f'"${{HOME:?}}"/{quote(first + slash + rest)}'


def _head(paths: HostPaths) -> str:
    places = [f"iris_{name}={quote(getattr(paths, name))}\n" for name in paths.__struct_fields__]
    # The session's environment must not change what the library means.
    return "".join(places) + "set +eu\nunset CDPATH IFS\n"


@cache
def _shell(*names: str) -> str:
    """Files of the library without comments and indentation: fewer bytes to send, and to store."""
    lines = []
    for name in names:
        source = resources.files("iris_cli") / "remote" / "shell" / f"{name}.sh"
        stripped = (line.strip() for line in source.read_text("utf-8").splitlines())
        lines += [line for line in stripped if line and not line.startswith("#")]
    return "".join(f"{line}\n" for line in lines)
