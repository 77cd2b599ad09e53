"""What can be written for a host, wherever it stands: addresses, SSH settings, attributes, environment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from iris_cli.config.env_file import env
from iris_cli.config.locate import at_home
from iris_cli.config.reading import (
    Place,
    Section,
    boolean,
    integer,
    list_of,
    matching,
    one_of,
    scalar,
    section,
    text,
    word_of,
    written,
)
from iris_cli.config.validate import region_and_zone
from iris_cli.core.attributes import (
    DEVICE_TYPE_ATTRIBUTE_KEY,
    DEVICE_VARIANT_ATTRIBUTE_KEY,
    PREEMPTIBLE_ATTRIBUTE_KEY,
    REGION_ATTRIBUTE_KEY,
    SCALE_GROUP_ATTRIBUTE_KEY,
    TAINT_KEY_PREFIX,
    TPU_NAME_ATTRIBUTE_KEY,
    TPU_TOPOLOGY_ATTRIBUTE_KEY,
    TPU_VM_COUNT_ATTRIBUTE_KEY,
    TPU_WORKER_ID_ATTRIBUTE_KEY,
    WORKER_ID_ATTRIBUTE_KEY,
    ZONE_ATTRIBUTE_KEY,
    AttributeValue,
    taint_key,
)
from iris_cli.core.connection import NOWHERE, Connection
from iris_cli.core.dataclass import dataclass, field, replace
from iris_cli.core.ids import clip, is_name
from iris_cli.core.job import ReplaceLost
from iris_cli.core.patterns import pattern
from iris_cli.errors import UsageError

MOST_HOSTS = 10_000
"""In one file; ranges make it easy to write more than could be meant."""

_RANGE = pattern(r"\[([0-9]{1,6})-([0-9]{1,6})\]")
_HOST = pattern(r"[A-Za-z0-9_:][A-Za-z0-9_.:%-]{0,254}")
_HOST_AND_PORT = pattern(r"([^:]+):([0-9]{1,5})")
_USER = pattern(r"[A-Za-z0-9_.][A-Za-z0-9_.@\\-]{0,63}")
_JUMPS = pattern(r"[A-Za-z0-9_\[][A-Za-z0-9_.:%@\[\],/-]{0,999}")
_REMOTE_DIR = pattern(r"(~/|/)[^/\x00-\x1f\x7f][^\x00-\x1f\x7f]{0,254}")
_KEY = pattern(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,127}")
_RESERVED = frozenset(
    {
        TPU_NAME_ATTRIBUTE_KEY,
        TPU_WORKER_ID_ATTRIBUTE_KEY,
        TPU_TOPOLOGY_ATTRIBUTE_KEY,
        TPU_VM_COUNT_ATTRIBUTE_KEY,
        DEVICE_TYPE_ATTRIBUTE_KEY,
        DEVICE_VARIANT_ATTRIBUTE_KEY,
        SCALE_GROUP_ATTRIBUTE_KEY,
        WORKER_ID_ATTRIBUTE_KEY,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inherited:
    """What an entry takes over from the one above where it says nothing itself."""

    connection: Connection = NOWHERE
    env: Mapping[str, str] = field(default_factory=dict)
    replace_lost: ReplaceLost = ReplaceLost.PREEMPTIBLE


def inherit(entry: Section, above: Inherited) -> Inherited:
    """The settings of an entry: SSH keys of its own or under `ssh`, then those from above."""
    connection = entry.get("ssh", lambda place: ssh_block(place, above.connection), above.connection)
    connection = _ssh_keys(entry, connection)
    return Inherited(
        connection=replace(connection, remote_dir=entry.get("remote_dir", remote_dir, connection.remote_dir)),
        env={**above.env, **(entry.get("env", env) or {})},
        replace_lost=entry.get("replace_lost", one_of(ReplaceLost), above.replace_lost),
    )


def ssh_block(place: Place, above: Connection) -> Connection:
    """An `ssh:` mapping."""
    with section(place) as block:
        return _ssh_keys(block, above)


def _ssh_keys(entry: Section, above: Connection) -> Connection:
    return replace(
        above,
        user=entry.get("user", matching(_USER, "a user name"), above.user),
        port=entry.get("port", integer(1, 65535), above.port),
        key=entry.get("key", _key_file, above.key),
        proxy_jump=entry.get(
            "proxy_jump", matching(_JUMPS, "a jump host", "[user@]host[:port]"), above.proxy_jump
        ),
        known_hosts=entry.get("known_hosts", word_of(("strict", "accept-new")), above.known_hosts),
    )


def remote_dir(place: Place) -> str:
    hint = "write a directory like ~/.iris or /mnt/disk/iris"
    return matching(_REMOTE_DIR, "a directory for iris", hint)(place).rstrip("/")


def _key_file(place: Place) -> str:
    """A private key; a relative name starts at the configuration file, so that cron finds it too."""
    return str(place.report.file.absolute().parent / at_home(text(place)))


# Hosts


def host_name(place: Place) -> str:
    """One host name or address."""
    return matching(_HOST, "a host name or an address")(place)


def slice_hosts(above: Connection) -> Callable[[Place], list[tuple[Connection, Place]]]:
    """A reader of a list of hosts, or of one: the way to each, and the place where it is written.

    A host is an address, perhaps with ranges and a port, `v4a-w-[0-3]:2222`; or a mapping with `host` and SSH
    keys of its own.
    """

    def read(place: Place) -> list[tuple[Connection, Place]]:
        items = place.items() if isinstance(place.node.value, tuple) else [place]
        found: list[tuple[Connection, Place]] = []
        for item in items:
            found += [(connection, item) for connection in item.read(lambda each: _ways(each, above)) or ()]
            if len(found) > MOST_HOSTS:
                raise UsageError(f"these are more than {MOST_HOSTS} hosts")
        if not found and not items:
            raise UsageError("there are no hosts")
        return found

    return read


def _ways(place: Place, above: Connection) -> list[Connection]:
    if not isinstance(place.node.value, dict):
        return [with_port(name, above) for name in _expanded(place)]
    with section(place) as entry:
        names = entry.need("host", _expanded, [])
        settings = _ssh_keys(entry, above)
    return [replace(settings, host=name) for name in names]


def with_port(name: str, above: Connection) -> Connection:
    """The way to a host that is written with or without a port. Raises UsageError."""
    match = _HOST_AND_PORT.fullmatch(name)
    if match is None:  # an IPv6 address has colons too, but more than one
        return replace(above, host=name)
    port = int(match[2])
    if not 1 <= port <= 65535:
        raise UsageError(f"port {port} must lie between 1 and 65535")
    return replace(above, host=match[1], port=port)


def _expanded(place: Place) -> list[str]:
    return expanded(written(place))


def expanded(pattern: str) -> list[str]:
    """The hosts that `v4a-w-[0-3]` means; one without a range is one. Raises UsageError."""
    count = 1
    for first, last in _RANGE.findall(pattern):
        if int(first) > int(last):
            raise UsageError(f"the range [{first}-{last}] runs backwards")
        count *= int(last) - int(first) + 1
        if count > MOST_HOSTS:
            raise UsageError(f"these are more than {MOST_HOSTS} hosts")
    names = list(_each(pattern))
    if _HOST.fullmatch(names[0]) is None:
        raise UsageError(
            f"{clip(pattern)!r} is not a host name or an address", hint="a range is written like host-[0-3]"
        )
    return names


def _each(pattern: str) -> Iterator[str]:
    match = _RANGE.search(pattern)
    if match is None:
        yield pattern
        return
    first, last = match.groups()
    width = len(first) if first.startswith("0") else 0
    for number in range(int(first), int(last) + 1):
        for rest in _each(pattern[match.end() :]):
            yield f"{pattern[: match.start()]}{number:0{width}d}{rest}"


# Attributes


def attributes_of(entry: Section) -> dict[str, AttributeValue]:
    """All declared attributes of an entry. A region that is left out follows from the zone."""
    attributes = free_attributes(entry)
    for key in (REGION_ATTRIBUTE_KEY, ZONE_ATTRIBUTE_KEY):
        _declare(attributes, entry, key, entry.get(key, text))
    _declare(attributes, entry, PREEMPTIBLE_ATTRIBUTE_KEY, entry.get(PREEMPTIBLE_ATTRIBUTE_KEY, boolean))
    direct = REGION_ATTRIBUTE_KEY in entry
    place = entry.place.down(*(() if direct else ("attributes",)), REGION_ATTRIBUTE_KEY)
    region_and_zone(attributes, place)
    return attributes


def free_attributes(entry: Section) -> dict[str, AttributeValue]:
    """What stands under `attributes` and `taints`."""
    attributes = entry.get("attributes", _attributes) or {}
    for taint in entry.get("taints", list_of(_taint), ()):
        attributes[taint_key(taint)] = AttributeValue("true")
    return attributes


def _attributes(place: Place) -> dict[str, AttributeValue]:
    found = {}
    for key, entry in place.entries().items():
        value = entry.read(lambda each, key=key: _attribute(key, each))  # type: ignore[misc]  # mypy can't infer a default argument of a lambda
        if value is not None:
            found[key] = value
    return found


def _attribute(key: str, place: Place) -> AttributeValue:
    if key.startswith(TAINT_KEY_PREFIX):
        raise UsageError(
            "taints are not written here", hint=f"write taints: [{key.removeprefix(TAINT_KEY_PREFIX)}]"
        )
    if key in _RESERVED:
        raise UsageError(f"{key!r} is reserved", hint="iris fills it in, from the type or from the probe")
    if _KEY.fullmatch(key) is None:
        raise UsageError(
            f"{clip(key)!r} can't be the key of an attribute", hint="use letters, digits and _ . : / -"
        )
    if key in (REGION_ATTRIBUTE_KEY, ZONE_ATTRIBUTE_KEY):
        return AttributeValue(text(place))
    return AttributeValue(boolean(place) if key == PREEMPTIBLE_ATTRIBUTE_KEY else scalar(place))


def _declare(
    attributes: dict[str, AttributeValue], entry: Section, key: str, value: str | bool | None
) -> None:
    if value is None:
        return
    declared = AttributeValue(value)
    if attributes.setdefault(key, declared) != declared:
        entry.at(key).problem(
            f"{key} is {str(declared)!r} here and {str(attributes[key])!r} under attributes", "say it once"
        )


def _taint(place: Place) -> str:
    name = written(place)
    if not is_name(name):
        raise UsageError(f"{clip(name)!r} is not the name of a taint", hint="use letters, digits and . _ -")
    return name
