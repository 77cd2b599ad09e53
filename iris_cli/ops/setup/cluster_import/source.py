"""Where an import reads from."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec.structs import replace

from iris_cli.capacity.opening import list_nodes as ask
from iris_cli.capacity.provider import ProviderError
from iris_cli.clock import Clock
from iris_cli.core.ids import clip
from iris_cli.core.messages.cloud import Refusal
from iris_cli.core.text import did_you_mean
from iris_cli.errors import UnreachableError, UsageError
from iris_cli.ops.setup.cluster_import.found import Found
from iris_cli.ops.setup.cluster_import.host_list import read_host_list, read_host_words
from iris_cli.ops.setup.cluster_import.nodes import HOW, read_nodes
from iris_cli.ops.setup.cluster_import.ssh_hosts import read_ssh_config

GCP = "gcp"
SSH_CONFIG = "ssh-config"
STDIN = "-"
LARGEST = 64 << 20
_MESSAGE = re.compile(
    r"(ERROR|WARNING): |Listed 0 items\b|Your active configuration is: |.*\bcommand not found\b"
)
_TABLE = re.compile(r"NAME[ \t]+ZONE\b")  # as gcloud lists for people
_SSH_HOST = re.compile(r"^\s*(Host|Match|Include)[ \t=]", re.IGNORECASE | re.MULTILINE)


def list_nodes(project: str, zone: str, clock: Clock) -> str:
    """The JSON of all nodes, as `projects.locations.nodes.list` answers it. Raises UsageError, UnreachableError."""
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
    """What `--from` names, as far as the `names` (or patterns) choose it; without `--from` these are the hosts.

    Raises UsageError.
    """
    if not source:
        return read_host_words(names)
    if source == GCP:
        found = read_nodes(list_nodes(project, zone, clock))
    elif source == SSH_CONFIG:
        found = read_ssh_config(home / ".ssh" / "config")
    else:
        found = _read_text(source)
    if project and zone:
        found = replace(found, scopes=found.scopes | {(project, zone)})
    return _chosen(found, names) if names else found


def _read_text(source: str) -> Found:
    """A file of any of the kinds that there are: each shows in its first words."""
    text = _text(source)
    _refuse_words(source, text.lstrip().partition("\n")[0])
    if text.lstrip("\ufeff \t\r\n")[:1] in ("[", "{"):
        return read_nodes(text)
    if not _SSH_HOST.search(text):
        return read_host_list(text)
    if source == STDIN:
        raise UsageError("an SSH configuration is read from a file", hint="say --from FILE")
    return read_ssh_config(Path(source).absolute())


def _refuse_words(source: str, first_line: str) -> None:
    """What gcloud or a shell says, where its list should be: each word of it could be the name of a host."""
    if _MESSAGE.match(first_line):
        raise UsageError(
            f"{_where(source)}: this is a message, and no list: {clip(first_line)}",
            hint="see what that command does alone; behind 2>&1 its messages come with the list",
        )
    if _TABLE.match(first_line):
        raise UsageError(f"{_where(source)}: this is a table for people to read", hint=HOW)


def _where(source: str) -> str:
    return "what came in" if source == STDIN else clip(source)


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
        raise UsageError(f"{where}: there is nothing in it", hint="did the command before it fail?")
    return text


def _chosen(found: Found, patterns: Sequence[str]) -> Found:
    def fits(name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in patterns)

    named = [*(each.name for each in found.slices), *(each.worker for each in found.hosts)]
    others = [each for each in found.left_out if fits(each.name)]
    if not any(map(fits, (*named, *(each.name for each in others)))):
        raise UsageError(f"nothing is called {clip(' or '.join(patterns))}", hint=_some(named))
    return replace(
        found,
        slices=tuple(each for each in found.slices if fits(each.name)),
        hosts=tuple(each for each in found.hosts if fits(each.worker)),
        left_out=tuple(others),
        scopes=frozenset(),  # what is not named is not gone
    )


def _some(names: Sequence[str]) -> str:
    if not names:
        return ""
    return f"there are: {clip(', '.join(names[:20]))}" + (" and more" if len(names) > 20 else "")
