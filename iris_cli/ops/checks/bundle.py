"""Bundle for bug reports (`iris doctor --bundle`): one text file without secrets, hosts and users."""

import json
import os
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from msgspec import Struct

from iris_cli import __version__
from iris_cli.config.yaml_source import Node, Report, read_yaml
from iris_cli.core import Cluster, Connection, count
from iris_cli.errors import IrisError, NotWritableError, UsageError
from iris_cli.files import DISK, last_lines, opened, write_all
from iris_cli.journal.layout import LOG, LOOP_LOG
from iris_cli.ops.checks.findings import Finding
from iris_cli.ops.checks.host_checks import SSH_CONFIG, all_workers
from iris_cli.ops.checks.redaction import Redactor
from iris_cli.ops.cluster_handle import user_name
from iris_cli.ops.secret_values import values_to_mask
from iris_cli.ops.session import Session
from iris_cli.remote.ssh.config import Hop, Routes
from iris_cli.remote.transport import NoAnswer

MAX_EVENTS = 300  # maximum number of transactions, taken from the end of the event log
_MAX_LINES = 100  # lines of the loop's log
_MAX_TAIL = 4 << 20  # bytes read from the end of a file
_PACKAGES = ("typer", "rich", "paramiko", "filelock", "msgspec", "PyYAML", "google-cloud-tpu")
_HARMLESS_KEYS = """
type tpu gpu zone region known_hosts provider runtime accelerator topology addresses replace_lost loop autoscale
silent_after priority idle_timeout memory grace timeout setup_timeout scheduling_timeout taints limits
"""
_SHOWN_KEYS = frozenset(_HARMLESS_KEYS.split())
"""Keys of `cluster.yaml` whose values are harmless words. The bundle shows these values, and all numbers."""
_NAME_KEYS = frozenset(("name", "id", "remote_dir"))  # keys whose values are shown after redaction
_HOST_KEYS = frozenset(("host", "hosts", "proxy_jump", "login"))
"""Keys whose values are hosts, shown as pseudonyms."""
_FIELDS = """
type at actor name program worker task job id state reason error cause condition detail chosen text kind trigger
containment refusal priority setting step array group_by variant key op mode slice zone region signal after again
origin attempt attempts env_preset replace_lost known_hosts incarnation boot_id exit group status provider runtime
topology request digest hash host user proxy_jump address token allocation node login
"""
_SHOWN_FIELDS = frozenset(_FIELDS.split())
"""Fields of events whose text is shown after redaction. The text of other fields is hidden."""
_PLAIN_WORDS = frozenset(("true", "false", "none", "null", "auto", "info", "debug", "warning"))
_WHOLE_MAPPINGS = frozenset(("env", "labels", "attributes", "notify", "limits"))
"""Mappings of a configuration. The key of such a mapping decides whether its entries are shown."""
_USER_KEYS = frozenset(("env", "labels", "metadata", "attributes", "secret_files"))
"""Mappings in events in which the user chooses the keys. Their values are hidden."""


class Part(Struct, frozen=True, kw_only=True):
    """One part of a bundle: its name, a short description, and its lines."""

    name: str
    about: str
    lines: tuple[str, ...]

    @property
    def size(self) -> int:
        """Size of the lines in bytes."""
        return sum(len(line.encode("utf-8", "backslashreplace")) + 1 for line in self.lines)


def bundle(
    config: Path | None, state: Path | None, findings: Sequence[Finding], session: Session | None
) -> tuple[Part, ...]:
    """Collect and redact the parts of a bundle. Hosts and users that one part names are redacted in all parts.

    `config` is cluster.yaml, `state` the state directory. `config`, `state` and `session` are None if unavailable.
    """
    root = read_yaml(config, Report(config)) if config is not None else None
    redactor = Redactor()
    for name, directory in (("state", state), ("config", config and config.parent)):
        for path in (directory.absolute(), directory.resolve()) if directory is not None else ():
            redactor.know_path(str(path), f"<{name}>")
    redactor.know_path(str(Path.home()), "~")
    machine = os.uname().nodename
    redactor.know_hosts([machine, machine.partition(".")[0]])
    redactor.know_users([user_name(), Path.home().name, os.environ.get("SUDO_USER", "")])
    if session is not None:
        _register_session(session, redactor)
    _register_config(root, redactor)
    lines = last_lines(state / LOG, MAX_EVENTS, _MAX_TAIL) if state is not None else []
    events = [_event(line) for line in lines]
    for each in events:
        _register_event(each, redactor)
    for _ in range(2):  # the second pass also replaces names that the first pass found in a later part
        parts = (
            _versions(),
            _configuration(root, redactor),
            _results(findings, redactor),
            _events(events, redactor),
            _loop(state, redactor),
        )
    return parts


def write_bundle(path: Path, parts: Iterable[Part]) -> None:
    """Write the parts to a new private file. Raises NotWritableError, or UsageError if the file exists."""
    lines = [line for part in parts for line in (f"=== {part.name}: {part.about}", *part.lines, "")]
    try:
        with opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd:
            try:
                write_all(DISK, fd, "\n".join(lines).encode("utf-8", "backslashreplace"))
            except OSError:
                path.unlink(missing_ok=True)  # a part of it would refuse the next attempt
                raise
    except FileExistsError:
        raise _exists(path) from None
    except OSError as error:
        raise NotWritableError(f"{path} can't be written: {error.strerror or error}") from error


def check_new(path: Path) -> None:
    """Raise UsageError if the path exists, even if it is a dangling link."""
    if os.path.lexists(path):
        raise _exists(path)


def _exists(path: Path) -> UsageError:
    return UsageError(f"{path} exists already", hint="name a new file")


def _register_session(session: Session, redactor: Redactor) -> None:
    """Register the hosts and users on the routes to all workers, and the secret values of jobs and notifications."""
    try:
        cluster = session.view()
    except IrisError:  # `iris doctor` has reported this error
        cluster = Cluster()
    connections = [session.target(worker).connection for worker in all_workers(session, cluster)]
    for each in connections:
        redactor.know_hosts(filter(None, (each.host, each.node, each.login)))
        redactor.know_users([each.user])
    for hop in _hops(connections):
        redactor.know_hosts([hop.host, hop.label, hop.key_name])
        redactor.know_users([hop.user])
    for job in cluster.jobs.values():
        redactor.know_secrets(value.decode("utf-8", "replace") for value in values_to_mask(job))
    redactor.know_secrets([session.config.notify.webhook])


def _hops(connections: Iterable[Connection]) -> Iterator[Hop]:
    """Yield the SSH servers on the routes to these hosts. Routes that can't be resolved are omitted."""
    with suppress(NoAnswer):
        routes = Routes(SSH_CONFIG.expanduser())
        for connection in connections:
            with suppress(NoAnswer):
                yield from routes.resolve(connection)


def _register_config(root: Node | None, redactor: Redactor) -> None:
    for key, text in _scalars(root, ""):
        if key in _HOST_KEYS:
            redactor.know_login(text)
        elif key == "user":
            redactor.know_users([text])
        elif key not in _SHOWN_KEYS and key not in _NAME_KEYS:
            redactor.know_secrets([text])


def _register_event(entry: Any, redactor: Redactor, key: str = "") -> None:
    """Register the hosts, users and secret values of one transaction of the log."""
    if isinstance(entry, Mapping):
        for name, value in entry.items():
            _register_event(value, redactor, key if key in ("env", "labels", "metadata") else str(name))
    elif isinstance(entry, list):
        for value in entry:
            _register_event(value, redactor, key)
    elif isinstance(entry, str) and entry:
        if key in ("host", "proxy_jump", "address", "addresses", "ip", "node", "login"):
            redactor.know_login(entry)
        elif key == "user":
            redactor.know_users([entry])
        elif key == "env":
            redactor.know_secrets([entry] if not _is_plain(entry) else [])


def _is_plain(text: str) -> bool:
    """Return True for common words and numbers, which must not be hidden, so that the bundle stays readable."""
    return text.lower() in _PLAIN_WORDS or not text.strip("0123456789.,:-")


def _versions() -> Part:
    lines = [
        f"iris {__version__}",
        f"Python {platform.python_version()} ({platform.python_implementation()})",
        f"{platform.system()} {platform.release()} {platform.machine()}",
        f"encoding {sys.getfilesystemencoding()}, terminal {sys.stdout.isatty()}",
    ]
    for name in _PACKAGES:
        try:
            lines.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            lines.append(f"{name}: not installed")
    lines += [f"{name} is set" for name in sorted(os.environ) if name.startswith("IRIS_")]
    return Part(name="versions", about="programs and libraries", lines=tuple(lines))


def _scalars(node: Node | None, key: str) -> Iterator[tuple[str, str]]:
    """Yield each text of a configuration, with the key that decides whether the text is shown."""
    if node is None:
        return
    for name, entry in node.entries.items():
        yield from _scalars(entry, _key_of_entry(key, name))
    for entry in node.items:
        yield from _scalars(entry, key)
    if isinstance(node.value, str) and not _is_plain(node.value):
        yield key, node.value


def _key_of_entry(key: str, name: str) -> str:
    """Return the key that decides whether the entry `name` of the mapping `key` is shown."""
    return key if key in _WHOLE_MAPPINGS else name


def _configuration(root: Node | None, redactor: Redactor) -> Part:
    lines = ["it can't be read" if root is None else "", *_config_lines(root, redactor, "", 0)]
    return Part(name="cluster.yaml", about="its structure, values redacted", lines=tuple(filter(None, lines)))


def _config_lines(node: Node | None, redactor: Redactor, key: str, depth: int) -> Iterator[str]:
    if node is None:
        return
    margin = "  " * depth
    entries = [
        (f"{redactor.text(name)}:", _key_of_entry(key, name), each) for name, each in node.entries.items()
    ]
    entries += [("-", key, each) for each in node.items]
    for mark, entry_key, entry in entries:
        if isinstance(entry.value, dict | tuple):
            yield f"{margin}{mark}"
            yield from _config_lines(entry, redactor, entry_key, depth + 1)
        else:
            yield f"{margin}{mark} {_config_value(entry, redactor, entry_key)}"


def _config_value(node: Node, redactor: Redactor, key: str) -> str:
    if not isinstance(node.value, str):
        return node.text
    if key == "user":
        return redactor.user(node.value)  # `text` would show a user name that is a number or a common word
    return redactor.text(node.value) if key in _HOST_KEYS | _SHOWN_KEYS | _NAME_KEYS else _hidden(node.value)


def _hidden(text: str) -> str:
    return f"<{count(len(text), 'character')}>"


def _results(findings: Iterable[Finding], redactor: Redactor) -> Part:
    lines = []
    for each in findings:
        lines.append(f"{each.level:<4}  {redactor.text(f'{each.subject}: {each.text}')}")
        if each.fix:
            lines.append(f"      fix: {redactor.text(each.fix)}")
    return Part(name="doctor", about="results of the checks, redacted", lines=tuple(lines))


def _event(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return f"<unreadable: {count(len(line), 'character')}>"


def _events(entries: Sequence[Any], redactor: Redactor) -> Part:
    lines = tuple(
        each if isinstance(each, str) else json.dumps(_redacted(each, redactor, ""), separators=(",", ":"))
        for each in entries
    )
    return Part(name="events", about=f"the last {MAX_EVENTS} transactions, redacted", lines=lines)


def _redacted(value: Any, redactor: Redactor, key: str) -> Any:
    """Return a value of the log without sensitive data. Text is hidden unless its field is in `_SHOWN_FIELDS`."""
    if isinstance(value, Mapping):
        return {
            redactor.text(str(name)): _redacted(each, redactor, key if key in _USER_KEYS else str(name))
            for name, each in value.items()
            if name not in ("crc", "prev")
        }
    if isinstance(value, list):
        return [_redacted(each, redactor, key) for each in value]
    if not isinstance(value, str):
        return value
    return redactor.text(value) if key in _SHOWN_FIELDS else _hidden(value)


def _loop(state: Path | None, redactor: Redactor) -> Part:
    lines = last_lines(state / LOOP_LOG, _MAX_LINES, _MAX_TAIL) if state is not None else []
    about = f"the last {_MAX_LINES} lines of the background loop, redacted"
    return Part(name=LOOP_LOG, about=about, lines=tuple(map(redactor.text, lines)))
