"""Read settings of hosts in `cluster.yaml`: addresses, SSH settings, environment, attributes.

The operator writes attributes, or `iris cluster import` writes them from a provider's labels.
"""

from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from iris_cli.config import reading
from iris_cli.config.reading import Section, Setting
from iris_cli.config.schema import check_region
from iris_cli.config.variable_files import path_of, read_variables
from iris_cli.core import NOWHERE, Connection, ReplaceLost, clip, pattern
from iris_cli.core import attributes as keys
from iris_cli.core.attributes import AttributeValue, taint_key
from iris_cli.errors import UsageError

MAX_HOSTS = 10_000
"""Maximum number of hosts in a file, because a typo in a range may result in a huge number."""

_RANGE = pattern(r"\[([0-9]{1,6})-([0-9]{1,6})\]")
_HOST = pattern(r"[A-Za-z0-9_:][A-Za-z0-9_.:%-]{0,254}")
_HOST_AND_PORT = pattern(r"([^:]+):([0-9]{1,5})")
_USER = pattern(r"[A-Za-z0-9_.][A-Za-z0-9_.@\\-]{0,63}")
_JUMPS = pattern(r"[A-Za-z0-9_\[][A-Za-z0-9_.:%@\[\],/-]{0,999}")
_REMOTE_DIR = pattern(r"(~/|/)[^/\x00-\x1f\x7f][^\x00-\x1f\x7f]{0,254}")


class Inherited(Struct, frozen=True, kw_only=True):
    """Settings that a host or slice inherits from the cluster or the slice."""

    connection: Connection = NOWHERE
    env: Mapping[str, str] = field(default_factory=dict)
    replace_lost: ReplaceLost = ReplaceLost.PREEMPTIBLE


def inherit(entry: Section, base: Inherited) -> Inherited:
    """Return an entry's settings. Keys of the entry override keys in its `ssh` block, and both override `base`."""
    connection = entry.get("ssh", lambda setting: ssh_block(setting, base.connection), base.connection)
    connection = _ssh_keys(entry, connection)
    return Inherited(
        connection=replace(connection, remote_dir=entry.get("remote_dir", remote_dir, connection.remote_dir)),
        env={**base.env, **(entry.get("env", read_variables) or {})},
        replace_lost=entry.get("replace_lost", reading.one_of(ReplaceLost), base.replace_lost),
    )


def ssh_block(setting: Setting, base: Connection) -> Connection:
    """Parse an `ssh:` mapping. `base` has the values of omitted keys."""
    with reading.section(setting) as block:
        return _ssh_keys(block, base)


def _ssh_keys(entry: Section, base: Connection) -> Connection:
    return replace(
        base,
        user=entry.get("user", reading.matching_text(_USER, "a user name"), base.user),
        port=entry.get("port", reading.integer(1, 65535), base.port),
        key=entry.get("key", lambda setting: str(path_of(setting).absolute()), base.key),
        proxy_jump=entry.get(
            "proxy_jump", reading.matching_text(_JUMPS, "a jump host", "[user@]host[:port]"), base.proxy_jump
        ),
        known_hosts=entry.get("known_hosts", reading.word_of(("strict", "accept-new")), base.known_hosts),
    )


def remote_dir(setting: Setting) -> str:
    hint = "write a directory like ~/.iris or /mnt/disk/iris"
    return reading.matching_text(_REMOTE_DIR, "a directory for iris", hint)(setting).rstrip("/")


def host_name(setting: Setting) -> str:
    return reading.matching_text(_HOST, "a host name or an address")(setting)


def slice_hosts(base: Connection) -> Callable[[Setting], list[tuple[Connection, Setting]]]:
    """Return a reader of one host or a list of hosts. The reader returns a connection and a setting for each host.

    A host is an address with optional ranges and port, such as `v4a-w-[0-3]:2222`, or a mapping with `host` and SSH
    settings. `base` has the values of omitted SSH settings.
    """

    def read(setting: Setting) -> list[tuple[Connection, Setting]]:
        items = setting.items() if isinstance(setting.node.value, tuple) else [setting]
        found: list[tuple[Connection, Setting]] = []
        for item in items:
            found += [
                (connection, item) for connection in item.read(lambda each: _connections(each, base)) or ()
            ]
            if len(found) > MAX_HOSTS:
                raise UsageError(f"more than {MAX_HOSTS} hosts")
        if not found and not items:
            raise UsageError("no hosts")
        return found

    return read


def _connections(setting: Setting, base: Connection) -> list[Connection]:
    if not isinstance(setting.node.value, dict):
        return [host_connection(name, base) for name in expand_hosts(reading.scalar_text(setting))]
    with reading.section(setting) as entry:
        names = entry.require("host", reading.parsed(expand_hosts), [])
        settings = _ssh_keys(entry, base)
    return [replace(settings, host=name) for name in names]


def host_connection(name: str, base: Connection) -> Connection:
    """Return the connection to a host with an optional port, such as `10.0.0.1:2222`. Raises UsageError."""
    match = _HOST_AND_PORT.fullmatch(name)
    if match is None:  # no port; an IPv6 address has several colons
        return replace(base, host=name)
    port = int(match[2])
    if not 1 <= port <= 65535:
        raise UsageError(f"port {port} must be between 1 and 65535")
    return replace(base, host=match[1], port=port)


def expand_hosts(pattern: str) -> list[str]:
    """Expand a pattern such as `v4a-w-[0-3]` to its hosts. Raises UsageError."""
    count = 1
    for first, last in _RANGE.findall(pattern):
        if int(first) > int(last):
            raise UsageError(f"the range [{first}-{last}] runs backwards")
        count *= int(last) - int(first) + 1
        if count > MAX_HOSTS:
            raise UsageError(f"more than {MAX_HOSTS} hosts")
    names = list(_expand_ranges(pattern))
    if _HOST.fullmatch(names[0]) is None:
        raise UsageError(
            f"{clip(pattern)!r} is not a host name or an address", hint="write a range as host-[0-3]"
        )
    return names


def _expand_ranges(pattern: str) -> Iterator[str]:
    match = _RANGE.search(pattern)
    if match is None:
        yield pattern
        return
    first, last = match.groups()
    width = len(first) if first.startswith("0") else 0
    for number in range(int(first), int(last) + 1):
        for rest in _expand_ranges(pattern[match.end() :]):
            yield f"{pattern[: match.start()]}{number:0{width}d}{rest}"


_KEY = pattern(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,127}")
_TAINT = reading.matching_text(reading.NAME, "the name of a taint", "use letters, digits and . _ -")
_MAX_LABEL = 63  # characters; Google's limit for keys and values
_SET_BY_SLICE = frozenset(
    {keys.REGION_ATTRIBUTE_KEY, keys.ZONE_ATTRIBUTE_KEY, keys.PREEMPTIBLE_ATTRIBUTE_KEY}
)
_RESERVED = frozenset(
    {
        keys.TPU_NAME_ATTRIBUTE_KEY,
        keys.TPU_WORKER_ID_ATTRIBUTE_KEY,
        keys.TPU_TOPOLOGY_ATTRIBUTE_KEY,
        keys.TPU_VM_COUNT_ATTRIBUTE_KEY,
        keys.DEVICE_TYPE_ATTRIBUTE_KEY,
        keys.DEVICE_VARIANT_ATTRIBUTE_KEY,
        keys.SCALE_GROUP_ATTRIBUTE_KEY,
        keys.WORKER_ID_ATTRIBUTE_KEY,
        keys.ALLOCATION_ATTRIBUTE_KEY,
        keys.CGROUP_OF_JOB_ATTRIBUTE_KEY,
        keys.GPU_INDEXES_ATTRIBUTE_KEY,
    }
)


def attributes_of(entry: Section) -> dict[str, AttributeValue]:
    """Return all attributes of a slice or worker. The keys `region`, `zone` and `preemptible` become attributes too.

    `attributes` override `labels`. If the region is omitted, it is derived from the zone.
    """
    attributes = {**(entry.get("labels", reading.mapping_by_key(_label)) or {}), **operator_attributes(entry)}
    for key in (keys.REGION_ATTRIBUTE_KEY, keys.ZONE_ATTRIBUTE_KEY):
        _declare(attributes, entry, key, entry.get(key, reading.text))
    _declare(
        attributes,
        entry,
        keys.PREEMPTIBLE_ATTRIBUTE_KEY,
        entry.get(keys.PREEMPTIBLE_ATTRIBUTE_KEY, reading.boolean),
    )
    path = () if keys.REGION_ATTRIBUTE_KEY in entry else ("attributes",)
    check_region(attributes, entry.setting.child(*path, keys.REGION_ATTRIBUTE_KEY))
    return attributes


def operator_attributes(entry: Section) -> dict[str, AttributeValue]:
    """Return the attributes that the operator wrote under `attributes` and `taints`."""
    attributes = entry.get("attributes", reading.mapping_by_key(_attribute)) or {}
    for taint in entry.get("taints", reading.list_of(_TAINT), ()):
        attributes[taint_key(taint)] = AttributeValue("true")
    return attributes


def _label(key: str, setting: Setting) -> AttributeValue:
    """Parse a label that `iris cluster import` has written under `labels`."""
    value = reading.scalar(setting)
    if fault := label_fault(key, str(value)):
        raise UsageError(fault, hint="write your own attributes under attributes")
    return AttributeValue(value)


def label_fault(key: str, value: object) -> str:
    """Return why a provider's label can't become an attribute; "" if the label is valid."""
    if key in _SET_BY_SLICE:
        return "iris takes it from the slice"
    if key in _RESERVED or key.startswith(keys.TAINT_KEY_PREFIX):
        return "the name is reserved"
    if _KEY.fullmatch(key) is None:
        return "not a valid attribute name"
    if not isinstance(value, str) or not value.isprintable():
        return "the value is not printable"
    return "" if len(value) <= _MAX_LABEL else f"the value is longer than {_MAX_LABEL} characters"


def _attribute(key: str, setting: Setting) -> AttributeValue:
    if key.startswith(keys.TAINT_KEY_PREFIX):
        raise UsageError(
            "taints are not attributes", hint=f"write taints: [{key.removeprefix(keys.TAINT_KEY_PREFIX)}]"
        )
    if key in _RESERVED:
        raise UsageError(f"{key!r} is reserved", hint="iris sets it from the type or the probe")
    if _KEY.fullmatch(key) is None:
        raise UsageError(
            f"{clip(key)!r} can't be the key of an attribute", hint="use letters, digits and _ . : / -"
        )
    if key in (keys.REGION_ATTRIBUTE_KEY, keys.ZONE_ATTRIBUTE_KEY):
        return AttributeValue(reading.text(setting))
    return AttributeValue(
        reading.boolean(setting) if key == keys.PREEMPTIBLE_ATTRIBUTE_KEY else reading.scalar(setting)
    )


def _declare(
    attributes: dict[str, AttributeValue], entry: Section, key: str, value: str | bool | None
) -> None:
    """Add an attribute that has its own key in the entry. Report a different value under `attributes`."""
    if value is None:
        return
    attribute = AttributeValue(value)
    if attributes.setdefault(key, attribute) != attribute:
        entry.setting_for(key).problem(
            f"{key} is {str(attribute)!r}, but {str(attributes[key])!r} under attributes", "set it once"
        )
