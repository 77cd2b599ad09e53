"""Build scripts for workers: the shell library, then the lines of a call or of a holder step."""

import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from types import MappingProxyType

from msgspec import Struct


class HostPaths(Struct, frozen=True, kw_only=True):
    """Paths of system files on a host. If `proc` is not readable, the shell library uses ps."""

    proc: str = "/proc"
    dev: str = "/dev"
    sys: str = "/sys"
    mounts: str = "/proc/self/mounts"
    root: str = ""  # prefix of absolute paths of the host's configuration
    lock: str = "/tmp/libtpu_lockfile"  # noqa: S108 - libtpu's lock file


_PROCESSES = ("host", "attempt", "group", "tree")
_STARTS = ("begin", "handover")
_PARTS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "probe": ("host", "handover", "fence", "group", "report", "logind", "commands", "metadata", "probe"),
        "prepare": (*_STARTS, "launch", "report", "commands"),
        "go": (*_PROCESSES, *_STARTS, "fence", "report", "launch"),
        "prepare_with": (*_STARTS, "launch", "report", "commands", "workspace"),
        "ship": (*_PROCESSES, *_STARTS, "fence", "report", "launch", "commands", "trees", "ship"),
        "poll": (*_PROCESSES, "report", "outbox"),
        "answer": (*_PROCESSES, "report", "outbox", "answer"),
        "stop": ("handover", "report"),
        "logs": ("host", "report", "logs"),
        "unwedge": ("handover", "report", "unwedge"),
        "reap": (*_PROCESSES, "fence", "report", "reap"),
        "pull": ("host", "report", "pull"),
        "caches": ("host", "report", "trees", "caches"),
        "usage": ("host", "report", "reap", "usage"),
        "exec": (*_PROCESSES, "report", "exec"),
        "stacks": (*_PROCESSES, "report", "early", "stacks"),
    }
)
_DETACHED: Mapping[str, Sequence[str]] = MappingProxyType(
    {  # parts that processes need after the call: they are kept as text, which the processes execute
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
"""Parts that only the wrapper executes: the call writes them to `run`."""

_WITH_PAYLOAD = frozenset({"ship"})
"""Calls that read a payload from stdin."""

_READ_BY_SHELL = frozenset({"stop", *_WITH_PAYLOAD})
"""Calls that a shell reads without `cat`: a stop must work on a host that can't start processes."""

_READ_AT_ONCE = (
    'if [ -n "${BASH_VERSION-}" ] && command -v cat >/dev/null 2>&1; then'
    ' call_text=$(cat); eval "$call_text"; exit; fi'
)
"""Read all of stdin at once: bash reads it byte by byte. A truncated script lacks its last brace and never runs."""


def worker_script(call: str, body: Sequence[str], paths: HostPaths) -> bytes:
    """Return the script of a call.

    A truncated script does nothing, even if only the last byte is missing. The script is one brace group, which a shell
    executes only after it has read all of it. Processes started in the group can't read the script. A script with a
    payload ends in a newline, because its shell can't wait for the end of stdin. Raises ValueError for text that can't
    be encoded.
    """
    end = [b""] if call in _WITH_PAYLOAD else []
    return b"\n".join([_library(call, paths), *(line.encode() for line in body), b"exit 0", b"}", *end])


@cache
def _library(call: str, paths: HostPaths) -> bytes:
    """Return the beginning of the scripts of a call. It is cached, because a fan-out sends hundreds of scripts."""
    library = _variables(paths) + _shell(*_DETACHED.get(call, ()))
    lines = [
        *([] if call in _READ_BY_SHELL else [_READ_AT_ONCE]),
        "{",
        "exec 3<&0 </dev/null" if call in _WITH_PAYLOAD else "exec </dev/null",
        f"library={quote(library)}",
        f"wrapper_text={quote(_shell(*_WRAPPER.get(call, ())))}",
        'eval "$library"',
        _shell(*_PARTS[call]).rstrip("\n"),
    ]
    return "\n".join(lines).encode()


def quote(text: str) -> str:
    """Return the text as one shell word. Raises ValueError for a NUL."""
    if "\0" in text:
        raise ValueError("a NUL byte can't be passed to a program")
    return shlex.quote(text)


def holder_text() -> str:
    """Return the library for the holder of a node of a Slurm job. The caller appends the call of `hold`."""
    return _variables(HostPaths()) + _shell("host", "begin", "holder")


_HOLDER_STEP = 'srun --job-name=iris-holder --overlap --nodelist="$node" --nodes=1 --ntasks=1 --mem=0'


def holder_script(remote_dir: str) -> str:
    """Return the lines of a batch script that keep a holder step running on each node, until the job ends.

    A step that ends is started again after a pause, which doubles up to 32 s because Slurm limits the number of steps
    of a job (MaxStepCount). `remote_dir` as in a connection. Raises ValueError for another user's home.
    """
    program = f"{holder_text()}hold {directory_word(remote_dir)}"
    return f"""\
holder={quote(program)}
for node in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do
    pause=1
    while :; do
        {_HOLDER_STEP} --chdir=/ --quiet --input=none /bin/sh -c "$holder" </dev/null
        sleep "$pause"
        [ "$pause" -ge 32 ] || pause=$((pause * 2))
    done &
done
wait
"""


def library_part(name: str) -> str:
    """Return a part of the library, without its last newline."""
    return _shell(name).rstrip("\n")


def directory_word(remote_dir: str) -> str:
    """Return `remote_dir` as a shell word. Relative paths are below the remote home. Raises ValueError for `~other`."""
    first, slash, rest = remote_dir.rstrip("/").partition("/")
    if remote_dir.startswith("/"):
        return quote(remote_dir.rstrip("/") or "/")
    if first == "~":
        return f'"${{HOME:?}}"{quote(slash + rest) if rest else ""}'
    if first.startswith("~") or not first:
        raise ValueError(f"remote_dir {remote_dir!r} is neither an absolute path nor one below ~")
    return f'"${{HOME:?}}"/{quote(first + slash + rest)}'


def _variables(paths: HostPaths) -> str:
    lines = [f"iris_{name}={quote(getattr(paths, name))}\n" for name in paths.__struct_fields__]
    # The environment of the SSH session must not affect the library.
    return "".join(lines) + "set +eu\nunset CDPATH IFS\n"


@cache
def _shell(*names: str) -> str:
    """Return parts of the library without comments and indentation, to send and store less."""
    lines = []
    for name in names:
        source = resources.files("iris_cli") / "remote" / "shell" / f"{name}.sh"
        stripped = (line.strip() for line in source.read_text("utf-8").splitlines())
        lines += [line for line in stripped if line and not line.startswith("#")]
    return "".join(f"{line}\n" for line in lines)
