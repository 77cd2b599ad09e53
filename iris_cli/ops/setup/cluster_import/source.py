"""Import sources: lists of hosts or TPU VMs, SSH configuration; and the sources available on this machine."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec import Struct, structs

from iris_cli.capacity.opening import list_nodes as ask
from iris_cli.capacity.provider import ProviderError
from iris_cli.clock import Clock
from iris_cli.config.entry_text import NewHost
from iris_cli.config.hosts import MOST_HOSTS, expanded
from iris_cli.core import Connection, clip, did_you_mean, is_name
from iris_cli.core.messages.cloud import Refusal
from iris_cli.errors import IrisError, UnreachableError, UsageError
from iris_cli.ops.setup.cluster_import.found import Found, FoundSlice, LeftOut
from iris_cli.ops.setup.cluster_import.nodes import HOW, read_nodes
from iris_cli.ops.setup.init import read_host, read_slice
from iris_cli.remote.ssh.config import Hop, Routes, host_names
from iris_cli.remote.transport import NoAnswer


def read_host_list(text: str) -> Found:
    """Read hosts separated by blanks or lines; `#` begins a comment. Raises UsageError with the line."""
    words = []
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), start=1):
        words += [(f"line {number}: ", word) for word in line.partition("#")[0].split()]
    if not words:
        raise UsageError("it has no hosts", hint="write [USER@]HOST[:PORT] on each line, or v4a-w-[0-3]")
    return _listed(words)


def read_host_words(words: Iterable[str]) -> Found:
    """Read hosts from the command line."""
    return _listed([("", word) for word in words])


def _listed(words: Iterable[tuple[str, str]]) -> Found:
    hosts: dict[NewHost, None] = {}
    slices: dict[str, FoundSlice] = {}
    for where, word in words:
        try:
            if "=" in word:
                found = _listed_slice(word)
                slices[found.name] = found
            else:
                hosts.update(dict.fromkeys(_listed_hosts(word)))
        except UsageError as error:
            raise UsageError(f"{where}{error.message}", hint=error.hint) from error
        if len(hosts) > MOST_HOSTS:
            raise UsageError(f"more than {MOST_HOSTS} hosts")
    return Found(hosts=tuple(hosts), slices=tuple(slices.values()))


def _listed_hosts(word: str) -> list[NewHost]:
    user, at, place = word.rpartition("@")
    if any(character in clip(place) for character in "{}\"'"):
        raise UsageError(f"{clip(word)!r} is not a host", hint="write a range as host-[0-3]")
    return [read_host(f"{user}{at}{each}") for each in expanded(place)]


def _listed_slice(word: str) -> FoundSlice:
    said = read_slice(word)
    hosts = [host for each in said.hosts for host in expanded(each)]
    return FoundSlice(name=said.name, type=said.type, internal=tuple(hosts))


_NO_SHELL = "git"  # the user of git servers, which offer no shell


def read_ssh_config(path: Path) -> Found:
    """Read every host named in the SSH configuration; patterns name no hosts. Raises UsageError."""
    if not path.is_file():
        raise UsageError(f"no such file: {path}", hint="use --from FILE, or name the hosts")
    try:
        names, routes = host_names(path), Routes(path)
    except NoAnswer as error:
        raise UsageError(error.detail, hint=error.hint) from error
    ways: dict[str, tuple[Hop, ...]] = {}
    left_out: list[LeftOut] = []
    for name in names:
        try:
            ways[name] = routes.to(Connection(host=name))
        except NoAnswer as error:
            left_out.append(LeftOut(name, error.detail, error.hint))
    found = list(_judged(ways))
    return Found(
        hosts=tuple(each for each in found if isinstance(each, NewHost)),
        left_out=(*left_out, *(each for each in found if isinstance(each, LeftOut))),
    )


def _judged(ways: dict[str, tuple[Hop, ...]]) -> Iterator[NewHost | LeftOut]:
    jumps: dict[str, str] = {}
    for name, way in ways.items():
        for hop in way[:-1]:
            jumps.setdefault(hop.label, name)
    ends: dict[tuple[str, ...], str] = {}
    for name, way in ways.items():
        end = way[-1]
        place = (*(f"{hop.host} {hop.port}" for hop in way), end.proxy_command)
        if name in jumps:
            yield LeftOut(
                name, f"it is a jump host, for example of {jumps[name]}", f"iris cluster import {name}"
            )
        elif end.user == _NO_SHELL:
            yield LeftOut(name, "the user git can't run commands")
        elif not is_name(name):
            yield LeftOut(name, "its name is not valid for a worker")
        elif place in ends:
            yield LeftOut(name, f"same host as {ends[place]}")
        else:
            ends[place] = name
            yield NewHost(name, name)


GCP = "gcp"
SSH_CONFIG = "ssh-config"
STDIN = "-"
LARGEST = 64 << 20
_MESSAGE = re.compile(
    r"(ERROR|WARNING): |Listed 0 items\b|Your active configuration is: |.*\bcommand not found\b"
)
_TABLE = re.compile(r"NAME[ \t]+ZONE\b")  # gcloud's default output
_SSH_LINE = re.compile(r"^\s*(Host|Match|Include)[ \t=]", re.IGNORECASE | re.MULTILINE)


def list_nodes(project: str, zone: str, clock: Clock) -> str:
    """Return all nodes as JSON in the form of `projects.locations.nodes.list`. Raises UsageError, UnreachableError."""
    try:
        return json.dumps(ask(project, zone, clock))
    except ProviderError as error:
        named = f" --project {shlex.quote(project)}" if project else ""
        kind = UnreachableError if error.refusal is Refusal.UNANSWERED else UsageError
        raise kind(
            error.message,
            hint=f"or: gcloud compute tpus tpu-vm list --zone {shlex.quote(zone or '-')}{named} --format json"
            " | iris cluster import --from -",
        ) from error


def read_source(
    source: str, names: Sequence[str], clock: Clock, *, home: Path, project: str = "", zone: str = ""
) -> Found:
    """Read the source of `--from`, filtered by `names`; without `--from` the names are hosts. Raises UsageError."""
    if not source:
        return read_host_words(names)
    if source == GCP:
        found = read_nodes(list_nodes(project, zone, clock))
    elif source == SSH_CONFIG:
        found = read_ssh_config(home / ".ssh" / "config")
    else:
        found = _read_text(source)
    if project and zone:
        found = structs.replace(found, scopes=found.scopes | {(project, zone)})
    return _chosen(found, names) if names else found


def _read_text(source: str) -> Found:
    """Read a file of any supported kind, detected by its first characters."""
    text = _text(source)
    _refuse_words(source, text.lstrip().partition("\n")[0])
    if text.lstrip("\ufeff \t\r\n")[:1] in ("[", "{"):
        return read_nodes(text)
    if not _SSH_LINE.search(text):
        return read_host_list(text)
    if source == STDIN:
        raise UsageError("an SSH configuration can't be read from standard input", hint="use --from FILE")
    return read_ssh_config(Path(source).absolute())


def _refuse_words(source: str, first_line: str) -> None:
    """Raise UsageError for a message of gcloud or a shell instead of a list: its words could be read as hosts."""
    if _MESSAGE.match(first_line):
        raise UsageError(
            f"{_where(source)}: this is a message, not a list: {clip(first_line)}",
            hint="run that command alone, and without 2>&1",
        )
    if _TABLE.match(first_line):
        raise UsageError(f"{_where(source)}: this is a table, not JSON", hint=HOW)


def _where(source: str) -> str:
    return "standard input" if source == STDIN else clip(source)


def _text(source: str) -> str:
    where = _where(source)
    try:
        if source == STDIN:
            data = sys.stdin.buffer.read(LARGEST + 1)
        else:
            with Path(source).open("rb") as file:
                data = file.read(LARGEST + 1)
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{where}: this is not UTF-8 text") from None
    except OSError as error:
        near = did_you_mean(clip(source), (GCP, SSH_CONFIG))
        raise UsageError(f"{where}: {error.strerror or error}", hint=near) from error
    if len(data) > LARGEST:
        raise UsageError(f"{where}: this is larger than {LARGEST >> 20} MiB")
    if not text.strip():
        raise UsageError(f"{where} is empty", hint="did the command before it fail?")
    return text


def _chosen(found: Found, patterns: Sequence[str]) -> Found:
    def fits(name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in patterns)

    named = [*(each.name for each in found.slices), *(each.worker for each in found.hosts)]
    others = [each for each in found.left_out if fits(each.name)]
    if not any(map(fits, (*named, *(each.name for each in others)))):
        raise UsageError(f"no host matches {clip(' or '.join(patterns))}", hint=_some(named))
    return structs.replace(
        found,
        slices=tuple(each for each in found.slices if fits(each.name)),
        hosts=tuple(each for each in found.hosts if fits(each.worker)),
        left_out=tuple(others),
        scopes=frozenset(),  # unnamed entries are not gone
    )


def _some(names: Sequence[str]) -> str:
    if not names:
        return ""
    return f"available: {clip(', '.join(names[:20]))}" + (" and more" if len(names) > 20 else "")


_MOST_FILES = 20
_LARGEST_OFFERED = 4 << 20  # of a file read without a request


class Offer(Struct, frozen=True):
    """An import command, with the number of slices and hosts it would bring, if known."""

    command: str
    slices: int = 0
    hosts: int = 0


def offers(directory: Path, home: Path, environ: Mapping[str, str]) -> list[Offer]:
    """Return imports: lists of TPU VMs in a directory, Google's list if gcloud is installed, SSH hosts."""
    return [*_lists(directory), *_gcloud(home, environ), *_ssh_hosts(home)]


def _lists(directory: Path) -> Iterator[Offer]:
    for path in sorted(directory.glob("*.json"))[:_MOST_FILES]:
        with suppress(OSError, ValueError, IrisError):
            if path.is_file() and path.stat().st_size <= _LARGEST_OFFERED:
                found = read_nodes(path.read_text("utf-8"))
                if found.slices:
                    name = shlex.quote(path.name)
                    yield Offer(f"iris cluster import --from {name}", slices=len(found.slices))


def _gcloud(home: Path, environ: Mapping[str, str]) -> Iterator[Offer]:
    if shutil.which("gcloud", path=environ.get("PATH")) is None:
        return
    zone = shlex.quote(_zone(home, environ) or "ZONE")
    command = f"gcloud compute tpus tpu-vm list --zone {zone} --format json"
    yield Offer(f"{command} | iris cluster import --from -")


def _zone(home: Path, environ: Mapping[str, str]) -> str:
    """Return gcloud's default zone: its variable, or the value of the active configuration."""
    directory = Path(environ.get("CLOUDSDK_CONFIG") or home / ".config" / "gcloud")
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    with suppress(OSError, ValueError, configparser.Error):
        active = environ.get("CLOUDSDK_ACTIVE_CONFIG_NAME") or _active(directory)
        parser.read(directory / "configurations" / f"config_{Path(active).name}", encoding="utf-8")
    return environ.get("CLOUDSDK_COMPUTE_ZONE") or str(parser.get("compute", "zone", fallback=""))


def _active(directory: Path) -> str:
    try:
        return (directory / "active_config").read_text("utf-8").strip() or "default"
    except OSError:
        return "default"


def _ssh_hosts(home: Path) -> Iterator[Offer]:
    with suppress(IrisError):
        found = read_ssh_config(home / ".ssh" / "config")
        if found.hosts:
            yield Offer("iris cluster import --from ssh-config", hosts=len(found.hosts))
