"""Resolve a Connection and `~/.ssh/config` to a chain of SSH servers."""

import getpass
import glob
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace
from paramiko import SSHConfig, SSHConfigDict

from iris_cli.core.messages.observations import SilenceKind
from iris_cli.core.model.worker import Connection
from iris_cli.remote.host_keys import known_hosts_name
from iris_cli.remote.transport import NoAnswer

MAX_DEPTH = 8
"""Maximum number of jump hosts in a chain, and of nested Includes."""
MAX_FILE_SIZE = 1 << 20

_HOST = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.:%-]{0,254}")
_PROXY_SAFE = re.compile(r"[A-Za-z0-9_.:%@+-]+")
_DIRECTIVE = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.+)")
_JUMP = re.compile(
    r"(?:ssh://)?(?:(?P<user>[^@]+)@)?(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:\[\]]+))(?::(?P<port>\d+))?/?"
)
_YES = frozenset({"yes", "true"})
_PROXIES = frozenset({"proxycommand", "proxyjump"})
# Hide % and ~ from paramiko, which would expand them without the port and user of the Connection.
_HIDE = str.maketrans({"%": "\ue000", "~": "\ue001"})
_SHOW = str.maketrans({"\ue000": "%", "\ue001": "~"})


class Hop(Struct, frozen=True, kw_only=True):
    """One SSH server in the chain to a worker.

    The last server is the worker. `label` is the server's name in the configuration, `key_name` its name in the files
    `known_hosts` (None: the default files). `identities` are key files in the order in which they are offered. With
    `has_own_key` (`cluster.yaml` sets the key) or `identities_only`, no other keys are offered. Otherwise the agent's
    keys come first. Only the first hop can have a `proxy_command`.
    """

    label: str
    host: str
    port: int
    user: str
    key_name: str
    identities: tuple[Path, ...] = ()
    has_own_key: bool = False
    identities_only: bool = False
    known_hosts: tuple[Path, ...] | None = None
    proxy_command: str = ""


class Jump(NamedTuple):
    """One element of a ProxyJump list."""

    host: str
    user: str = ""
    port: int = 0


class Routes:
    """Resolves connections to hops. The SSH configuration is read once."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._config = SSHConfig()
        self._local_user = cache(_local_user)
        self._hops: dict[Connection, tuple[Hop, ...]] = {}
        if path is not None:
            with _errors_of_file(path):
                self._config.parse(map(_hide_expansions, _lines(path, path.parent, "Host *")))

    def resolve(self, connection: Connection) -> tuple[Hop, ...]:
        """Return the chain of servers, the worker last. Raises NoAnswer for wrong SSH settings."""
        if connection not in self._hops:
            worker = Jump(connection.host, connection.user, connection.port)
            self._hops[connection] = tuple(self._chain(worker, connection, depth=0))
        return self._hops[connection]

    def _chain(self, jump: Jump, connection: Connection, *, depth: int) -> list[Hop]:
        if depth > MAX_DEPTH:
            raise configuration_error(f"more than {MAX_DEPTH} jump hosts on the way to {connection.host!r}")
        is_worker = depth == 0
        options = self._lookup(jump.host)
        hop = self._hop(jump, options, connection, is_worker=is_worker)
        jumps = (is_worker and connection.proxy_jump) or _proxy_option(options, "proxyjump") or "none"
        if jumps.lower() != "none":
            return [*self._jump_hops(jumps, connection, depth), hop]
        if command := _proxy_option(options, "proxycommand"):
            hop = replace(hop, proxy_command=_expand(command, hop))
        return [hop]

    def _jump_hops(self, jumps: str, connection: Connection, depth: int) -> list[Hop]:
        """Return the hops of a ProxyJump `a,b`. `b` is reached from `a`, which may itself need jump hosts."""
        first, *others = [_parse_jump(text) for text in jumps.split(",")]
        return [
            *self._chain(first, connection, depth=depth + 1),
            *(self._hop(jump, self._lookup(jump.host), connection, is_worker=False) for jump in others),
        ]

    def _hop(self, jump: Jump, options: SSHConfigDict, connection: Connection, *, is_worker: bool) -> Hop:
        host = options.get("hostname") or jump.host
        port = jump.port or _port(options.get("port") or "22")
        if _HOST.fullmatch(host) is None:
            raise configuration_error(f"{host[:80]!r} is not a host name or an address")
        files = [file for file in options.get("identityfile") or [] if file.lower() != "none"]
        has_own_key = is_worker and bool(connection.key)
        if connection.key and (is_worker or not files):
            files = [connection.key]
        known_hosts = options.get("userknownhostsfile")
        return Hop(
            label=jump.host,
            host=host,
            port=port,
            user=jump.user or options.get("user") or self._local_user(),
            key_name=options.get("hostkeyalias") or known_hosts_name(host.lower(), port),
            identities=tuple(Path(file).expanduser() for file in files),
            has_own_key=has_own_key,
            identities_only=(options.get("identitiesonly") or "no").lower() in _YES,
            known_hosts=_files(known_hosts) if known_hosts else None,
        )

    def _lookup(self, host: str) -> SSHConfigDict:
        self._local_user()  # paramiko needs the user's name
        with _errors_of_file(self._path):
            return self._config.lookup(host)


def host_names(path: Path) -> list[str]:
    """Return the `Host` names in a configuration and its Includes, except patterns. Raises NoAnswer."""
    found: dict[str, None] = {}
    with _errors_of_file(path):
        for line in _lines(path, path.parent, "Host *"):
            directive = _DIRECTIVE.match(line)
            if directive and directive[1].lower() == "host":
                names = directive[2].partition(" #")[0].replace('"', "").split()
                found.update(dict.fromkeys(name for name in names if not set(name) & set("*?!")))
    return list(found)


@contextmanager
def _errors_of_file(path: Path | None) -> Iterator[None]:
    """Raise NoAnswer for any exception of the library, because the configuration file causes it."""
    try:
        yield
    except Exception as error:
        raise configuration_error(f"{path}: {error}", hint=f"correct {path}") from error


def configuration_error(
    detail: str, *, hint: str = "check the host in cluster.yaml and in ~/.ssh/config"
) -> NoAnswer:
    """Return the error for wrong SSH settings on this machine. Nothing was sent."""
    return NoAnswer(SilenceKind.LOCAL, "configuration", detail, hint=hint, sent=False)


def _lines(path: Path, base: Path, block: str, depth: int = 0) -> Iterator[str]:
    """Yield the lines of a file and of the files that it includes, because the library does not support Include.

    Names in an Include are relative to `base`. After an Include the enclosing Host or Match line, `block`, is repeated,
    because the next lines belong to it.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"more than {MAX_DEPTH} files that include each other")
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_FILE_SIZE + 1)
    except FileNotFoundError:
        return
    if len(text) > MAX_FILE_SIZE:
        raise ValueError("too large")
    for line in text.splitlines():
        directive = _DIRECTIVE.match(line)
        key = directive[1].lower() if directive else ""
        if directive and key == "include":
            for pattern in directive[2].replace('"', "").split():
                for name in sorted(glob.glob(os.path.join(base, os.path.expanduser(pattern)))):
                    yield from _lines(Path(name), base, block, depth + 1)
            yield block
            continue
        if key in ("host", "match"):
            block = line
        yield line


def _hide_expansions(line: str) -> str:
    """Return the line. If it sets a proxy, hide % and ~ in it."""
    directive = _DIRECTIVE.match(line)
    return line.translate(_HIDE) if directive and directive[1].lower() in _PROXIES else line


def _proxy_option(options: SSHConfigDict, key: str) -> str:
    """Return the value of a proxy option with % and ~ restored, "" if absent."""
    return (options.get(key) or "").translate(_SHOW)


def _parse_jump(text: str) -> Jump:
    match = _JUMP.fullmatch(text.strip())
    if match is None:
        raise configuration_error(f"{text[:80]!r} is not a jump host", hint="write it as [user@]host[:port]")
    return Jump(
        match["v6"] or match["host"], match["user"] or "", _port(match["port"]) if match["port"] else 0
    )


def _local_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:  # a container's user id may have no name
        raise configuration_error("the current user has no name", hint="export USER=name") from error


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 65536):
        raise configuration_error(f"{text[:20]!r} is not a port")
    return int(text)


def _files(setting: str) -> tuple[Path, ...]:
    return tuple(Path(name).expanduser() for name in setting.replace('"', "").split() if name != "none")


def _expand(command: str, hop: Hop) -> str:
    """Expand %h, %p, %r and %n. A shell reads the result, so values with special characters are rejected."""
    values = {"%h": hop.host, "%p": str(hop.port), "%r": hop.user, "%n": hop.label, "%%": "%"}
    for value in values.values():
        if _PROXY_SAFE.fullmatch(value) is None:
            raise configuration_error(f"{value[:80]!r} can't be used in a ProxyCommand")
    return re.sub(r"%[hprn%]", lambda token: values[token[0]], command)
