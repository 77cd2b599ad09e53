"""Read the sources of an import: lists of hosts or TPU VMs, and SSH configurations. Find sources on this machine."""

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

from iris_cli.capacity import opening
from iris_cli.capacity.provider import ProviderError
from iris_cli.clock import Clock
from iris_cli.config.hosts import MAX_HOSTS, expand_hosts
from iris_cli.config.yaml_text import NewHost
from iris_cli.core import Connection, clip, did_you_mean, is_name
from iris_cli.core.messages.cloud import Refusal
from iris_cli.errors import IrisError, UnreachableError, UsageError
from iris_cli.ops.setup.cluster_import import nodes
from iris_cli.ops.setup.init import read_host, read_slice
from iris_cli.remote.ssh.config import Hop, Routes, host_names
from iris_cli.remote.transport import NoAnswer

_GIT_USER = "git"  # the user of git servers in SSH configurations; git servers provide no shell
GCP = "gcp"
SSH_CONFIG = "ssh-config"
STDIN = "-"
MAX_SOURCE = 64 << 20
_MESSAGE = re.compile(
    r"(ERROR|WARNING): |Listed 0 items\b|Your active configuration is: |.*\bcommand not found\b"
)
_TABLE = re.compile(r"NAME[ \t]+ZONE\b")  # gcloud's default output format
_SSH_LINE = re.compile(r"^\s*(Host|Match|Include)[ \t=]", re.IGNORECASE | re.MULTILINE)
_MAX_FILES = 20
_MAX_OFFERED = 4 << 20  # maximum bytes of a file that may be a list of TPU VMs


def read_host_list(text: str) -> nodes.SourceContent:
    """Read hosts separated by blanks or line feeds. `#` begins a comment. Raises UsageError with the line number."""
    words = []
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), start=1):
        words += [(f"line {number}: ", word) for word in line.partition("#")[0].split()]
    if not words:
        raise UsageError("it has no hosts", hint="write [USER@]HOST[:PORT] on each line, or v4a-w-[0-3]")
    return _read_words(words)


def _read_words(words: Iterable[tuple[str, str]]) -> nodes.SourceContent:
    """Read hosts and slices from pairs of position and word. Error messages begin with the position."""
    hosts: list[NewHost] = []
    slices: list[nodes.FoundSlice] = []
    for position, word in words:
        try:
            if "=" in word:
                listed = read_slice(word)
                addresses = tuple(host for each in listed.hosts for host in expand_hosts(each))
                slices.append(nodes.FoundSlice(name=listed.name, type=listed.type, internal=addresses))
            else:
                hosts += _read_hosts(word)
        except UsageError as error:
            raise UsageError(f"{position}{error.message}", hint=error.hint) from error
        if len(hosts) > MAX_HOSTS:
            raise UsageError(f"more than {MAX_HOSTS} hosts")
    return nodes.SourceContent(hosts=tuple(hosts), slices=tuple(slices))


def _read_hosts(word: str) -> list[NewHost]:
    user, at, address = word.rpartition("@")
    if any(character in clip(address) for character in "{}\"'"):
        raise UsageError(f"{clip(word)!r} is not a host", hint="write a range as host-[0-3]")
    return [read_host(f"{user}{at}{each}") for each in expand_hosts(address)]


def read_ssh_config(path: Path) -> nodes.SourceContent:
    """Read the hosts of the SSH configuration. Patterns such as `*.lab` are ignored. Raises UsageError."""
    if not path.is_file():
        raise UsageError(f"no such file: {path}", hint="use --from FILE, or name the hosts")
    try:
        names, routes = host_names(path), Routes(path)
    except NoAnswer as error:
        raise UsageError(error.detail, hint=error.hint) from error
    routes_by_name: dict[str, tuple[Hop, ...]] = {}
    skipped: list[nodes.SkippedEntry] = []
    for name in names:
        try:
            routes_by_name[name] = routes.resolve(Connection(host=name))
        except NoAnswer as error:
            skipped.append(nodes.SkippedEntry(name, error.detail, error.hint))
    found = list(_check_hosts(routes_by_name))
    return nodes.SourceContent(
        hosts=tuple(each for each in found if isinstance(each, NewHost)),
        skipped=(*skipped, *(each for each in found if isinstance(each, nodes.SkippedEntry))),
    )


def _check_hosts(routes_by_name: dict[str, tuple[Hop, ...]]) -> Iterator[NewHost | nodes.SkippedEntry]:
    jumps: dict[str, str] = {}
    for name, route in routes_by_name.items():
        for hop in route[:-1]:
            jumps.setdefault(hop.label, name)
    names_by_route: dict[tuple[str, ...], str] = {}
    for name, route in routes_by_name.items():
        last_hop = route[-1]
        key = (*(f"{hop.host} {hop.port}" for hop in route), last_hop.proxy_command)
        if name in jumps:
            yield nodes.SkippedEntry(
                name, f"it is a jump host, for example of {jumps[name]}", f"iris cluster import {name}"
            )
        elif last_hop.user == _GIT_USER:
            yield nodes.SkippedEntry(name, "the user git can't run commands")
        elif not is_name(name):
            yield nodes.SkippedEntry(name, "its name is not valid for a worker")
        elif key in names_by_route:
            yield nodes.SkippedEntry(name, f"same host as {names_by_route[key]}")
        else:
            names_by_route[key] = name
            yield NewHost(name, name)


def list_nodes(project: str, zone: str, clock: Clock) -> str:
    """Return all TPU nodes as JSON in the format of the TPU API. Raises UsageError, UnreachableError."""
    try:
        return json.dumps(opening.list_nodes(project, zone, clock))
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
) -> nodes.SourceContent:
    """Read the source of `--from`, and keep the entries that match `names` ((): all entries).

    If `source` is '', `names` are hosts to import. Raises UsageError.
    """
    if not source:
        return _read_words([("", word) for word in names])
    if source == GCP:
        found = nodes.read_nodes(list_nodes(project, zone, clock))
    elif source == SSH_CONFIG:
        found = read_ssh_config(home / ".ssh" / "config")
    else:
        found = _read_text(source)
    if project and zone:
        found = structs.replace(found, scopes=found.scopes | {(project, zone)})
    return _filter(found, names) if names else found


def _read_text(source: str) -> nodes.SourceContent:
    """Read a file. Its content shows of which supported kind it is."""
    text = _read_file(source)
    _check_is_list(source, text.lstrip().partition("\n")[0])
    if text.lstrip("\ufeff \t\r\n")[:1] in ("[", "{"):
        return nodes.read_nodes(text)
    if not _SSH_LINE.search(text):
        return read_host_list(text)
    if source == STDIN:
        raise UsageError("an SSH configuration can't be read from standard input", hint="use --from FILE")
    return read_ssh_config(Path(source).absolute())


def _check_is_list(source: str, first_line: str) -> None:
    """Raise UsageError if the first line is a message or table of gcloud, or a message of a shell."""
    if _MESSAGE.match(first_line):
        raise UsageError(
            f"{_source_words(source)}: this is a message, not a list: {clip(first_line)}",
            hint="run that command alone, and without 2>&1",
        )
    if _TABLE.match(first_line):
        raise UsageError(f"{_source_words(source)}: this is a table, not JSON", hint=nodes.LIST_COMMAND)


def _source_words(source: str) -> str:
    return "standard input" if source == STDIN else clip(source)


def _read_file(source: str) -> str:
    where = _source_words(source)
    try:
        if source == STDIN:
            data = sys.stdin.buffer.read(MAX_SOURCE + 1)
        else:
            with Path(source).open("rb") as file:
                data = file.read(MAX_SOURCE + 1)
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{where}: this is not UTF-8 text") from None
    except OSError as error:
        near = did_you_mean(clip(source), (GCP, SSH_CONFIG))
        raise UsageError(f"{where}: {error.strerror or error}", hint=near) from error
    if len(data) > MAX_SOURCE:
        raise UsageError(f"{where}: this is larger than {MAX_SOURCE >> 20} MiB")
    if not text.strip():
        raise UsageError(f"{where} is empty", hint="check the command that wrote it")
    return text


def _filter(found: nodes.SourceContent, patterns: Sequence[str]) -> nodes.SourceContent:
    def matches(name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in patterns)

    named = [*(each.name for each in found.slices), *(each.worker for each in found.hosts)]
    others = [each for each in found.skipped if matches(each.name)]
    if not any(map(matches, (*named, *(each.name for each in others)))):
        more = " and more" if len(named) > 20 else ""
        hint = f"available: {clip(', '.join(named[:20]))}{more}" if named else ""
        raise UsageError(f"no host matches {clip(' or '.join(patterns))}", hint=hint)
    return structs.replace(
        found,
        slices=tuple(each for each in found.slices if matches(each.name)),
        hosts=tuple(each for each in found.hosts if matches(each.worker)),
        skipped=tuple(others),
        scopes=frozenset(),  # the list is no longer complete
    )


class Offer(Struct, frozen=True):
    """An import command, and the number of slices and hosts that it would import (0: unknown)."""

    command: str
    slices: int = 0
    hosts: int = 0


def offers(directory: Path, home: Path, environ: Mapping[str, str]) -> list[Offer]:
    """Return the possible imports: lists of TPU VMs in `directory`, gcloud, and hosts of the SSH configuration."""
    return [*_node_lists(directory), *_gcloud(home, environ), *_ssh_hosts(home)]


def _node_lists(directory: Path) -> Iterator[Offer]:
    for path in sorted(directory.glob("*.json"))[:_MAX_FILES]:
        with suppress(OSError, ValueError, IrisError):
            if path.is_file() and path.stat().st_size <= _MAX_OFFERED:
                found = nodes.read_nodes(path.read_text("utf-8"))
                if found.slices:
                    name = shlex.quote(path.name)
                    yield Offer(f"iris cluster import --from {name}", slices=len(found.slices))


def _gcloud(home: Path, environ: Mapping[str, str]) -> Iterator[Offer]:
    if shutil.which("gcloud", path=environ.get("PATH")) is None:
        return
    zone = shlex.quote(_default_zone(home, environ) or "ZONE")
    command = f"gcloud compute tpus tpu-vm list --zone {zone} --format json"
    yield Offer(f"{command} | iris cluster import --from -")


def _default_zone(home: Path, environ: Mapping[str, str]) -> str:
    """Return gcloud's default zone, from its environment variable or its active configuration; '' if unknown."""
    directory = Path(environ.get("CLOUDSDK_CONFIG") or home / ".config" / "gcloud")
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    with suppress(OSError, ValueError, configparser.Error):
        active = environ.get("CLOUDSDK_ACTIVE_CONFIG_NAME") or _active_configuration(directory)
        parser.read(directory / "configurations" / f"config_{Path(active).name}", encoding="utf-8")
    return environ.get("CLOUDSDK_COMPUTE_ZONE") or str(parser.get("compute", "zone", fallback=""))


def _active_configuration(directory: Path) -> str:
    try:
        return (directory / "active_config").read_text("utf-8").strip() or "default"
    except OSError:
        return "default"


def _ssh_hosts(home: Path) -> Iterator[Offer]:
    with suppress(IrisError):
        found = read_ssh_config(home / ".ssh" / "config")
        if found.hosts:
            yield Offer("iris cluster import --from ssh-config", hosts=len(found.hosts))
