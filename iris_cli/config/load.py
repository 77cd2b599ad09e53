"""Load `cluster.yaml` as a ClusterConfig: expand slices to hosts, apply inherited settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from iris_cli.config import schema
from iris_cli.config.attributes import attributes_of
from iris_cli.config.hosts import (
    MOST_HOSTS,
    Inherited,
    host_name,
    inherit,
    remote_dir,
    slice_hosts,
    ssh_block,
    with_port,
)
from iris_cli.config.job_file import argv, cores, duration, gpu_device, read_field, size, tpu_type
from iris_cli.config.reading import Place, Section, integer, list_of, matching, one_of, section, text, written
from iris_cli.config.scale_groups import read_scale_group
from iris_cli.config.schema import ClusterConfig, Defaults, HostConfig, Mode, Notify
from iris_cli.config.yaml_source import Report, read_yaml
from iris_cli.core import NOWHERE, Limits, ReplaceLost, lookup, pattern
from iris_cli.core.attributes import (
    DEVICE_TYPE_ATTRIBUTE_KEY,
    DEVICE_VARIANT_ATTRIBUTE_KEY,
    TPU_NAME_ATTRIBUTE_KEY,
    TPU_TOPOLOGY_ATTRIBUTE_KEY,
    TPU_VM_COUNT_ATTRIBUTE_KEY,
    TPU_WORKER_ID_ATTRIBUTE_KEY,
    AttributeValue,
)
from iris_cli.core.ids import parse_worker_id
from iris_cli.core.model.job_fields import JOB_FIELDS, request_of
from iris_cli.core.resources import AUTO, Device
from iris_cli.errors import UsageError

_NAME = pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_URL = pattern(r"https?://[^\s/?#@]+([/?#]\S*)?")
_MAY_BE_ZERO = frozenset(  # zero means: do not wait, or off
    {"device_wait", "settle_seconds", "gang_reserve_after", "reap_after"}
)
_SIZES = frozenset({"workspace_size", "keep_logs"})


class _PlacedHost(Struct, frozen=True):
    """A worker, the place of its host, and the entry of its slice or worker."""

    host: HostConfig
    place: Place
    whole: Place


def load_cluster_config(path: Path, data: bytes | None = None) -> ClusterConfig:
    """Read and check `cluster.yaml`, or `data` in its place. Raises ConfigError with all its problems."""
    report = Report(path)
    root = read_yaml(path, report, data)
    config = Place(root, "", report).read(_cluster) if root else None
    report.raise_if_any()
    return replace(config or ClusterConfig(path=path), warnings=tuple(report.warnings))


def _cluster(place: Place) -> ClusterConfig:
    with section(place) as top:
        name = top.get("cluster", _cluster_name, "cluster")
        ssh = top.get("ssh", lambda block: ssh_block(block, NOWHERE), NOWHERE)
        defaults = top.get("defaults", _defaults, Defaults())
        above = Inherited(
            connection=replace(ssh, remote_dir=top.get("remote_dir", remote_dir, NOWHERE.remote_dir)),
            env=defaults.env,
            replace_lost=top.get("replace_lost", one_of(ReplaceLost), ReplaceLost.PREEMPTIBLE),
        )
        slices = top.get("slices", lambda entries: _slices(entries, above), [])
        workers = top.get("workers", list_of(lambda entry: _worker(entry, above)), ())
        groups = top.get("scale_groups", list_of(lambda entry: (entry, read_scale_group(entry, above))), ())
        entries = [each for some in (*slices, *workers) for each in some]
        _check_names(entries)
        if not entries and not groups:
            place.warn("no workers yet")
        limits = top.get("limits", _limits, Limits())
        silent_after = top.get("silent_after", duration, limits.silent_after)
        schema.unique("scale group", ((group.name, entry) for entry, group in groups))
        return ClusterConfig(
            path=place.report.file,
            name=name,
            ssh=above.connection,
            hosts=tuple(each.host for each in entries),
            scale_groups=tuple(group for _, group in groups),
            replace_lost=above.replace_lost,
            notify=top.get("notify", _notify, Notify()),
            loop=top.get("loop", one_of(Mode), Mode.AUTO),
            autoscale=top.get("autoscale", one_of(Mode), Mode.OFF),
            limits=replace(limits, silent_after=silent_after),
            defaults=defaults,
        )


def _check_names(entries: list[_PlacedHost]) -> None:
    slices = {each.whole.path: (each.host.slice, each.whole) for each in entries if each.host.slice}
    schema.unique("slice", slices.values())
    first = {name: place.path for name, place in reversed(slices.values())}
    # A duplicate slice also duplicates its workers: report that as one problem.
    kept = [each for each in entries if each.host.slice is None or first[each.host.slice] == each.whole.path]
    schema.hosts([(each.host, each.place) for each in kept])


def _cluster_name(place: Place) -> str:
    with section(place) as entry:
        return entry.need("name", matching(_NAME, "a name", "use letters, digits and . _ -"), "cluster")


def _slices(place: Place, above: Inherited) -> list[list[_PlacedHost]]:
    found: list[list[_PlacedHost]] = []
    total = 0
    for item in place.items():
        found.append(item.read(lambda entry: _slice(entry, above)) or [])
        total += len(found[-1])
        if total > MOST_HOSTS:
            raise UsageError(f"more than {MOST_HOSTS} hosts")
    return found


def _slice(place: Place, above: Inherited) -> list[_PlacedHost]:
    """Return the workers of one slice, `{slice}-{index}`, in the order of its hosts."""
    with section(place) as entry:
        name = entry.need("name", matching(_NAME, "a name", "use letters, digits and . _ -"), "")
        kind = entry.need("type", tpu_type, "")
        settings = inherit(entry, above)
        hosts = entry.need("hosts", slice_hosts(settings.connection), [])
        shared = attributes_of(entry)
        if kind and hosts:
            schema.host_count(kind, len(hosts), entry.at("hosts"))
        entry.get("incarnation", text)  # used only by `iris cluster import`
        cpu, memory = entry.get("cpu", cores), entry.get("memory", size)
    if not (name and kind):
        return []
    found = []
    for index, (connection, written_at) in enumerate(hosts):
        made = HostConfig(
            worker=parse_worker_id(f"{name}-{index}"),
            connection=connection,
            attributes={**shared, **_member(name, kind, index, len(hosts))},
            cpu=cpu,
            memory=memory,
            device=Device("tpu", kind),
            env=settings.env,
            slice=name,
            replace_lost=settings.replace_lost,
        )
        found.append(_PlacedHost(made, written_at, place))
    return found


def _worker(place: Place, above: Inherited) -> list[_PlacedHost]:
    """Return one host, or none if it is invalid. Its TPU becomes a slice of one VM with the worker's name."""
    with section(place) as entry:
        name = entry.need("id", matching(_NAME, "a worker id", "use letters, digits and . _ -"), "")
        settings = inherit(entry, above)
        connection = entry.need("host", lambda each: with_port(host_name(each), settings.connection), NOWHERE)
        attributes = attributes_of(entry)
        device = _device(entry)
        entry.get("incarnation", text)
        cpu, memory = entry.get("cpu", cores), entry.get("memory", size)
    if not (name and connection.host):
        return []
    is_tpu = device is not None and device.kind == "tpu"
    made = HostConfig(
        worker=parse_worker_id(name),
        connection=connection,
        attributes={**attributes, **_device_attributes(name, device)},
        cpu=cpu,
        memory=memory,
        device=device,
        env=settings.env,
        slice=name if is_tpu else None,
        replace_lost=settings.replace_lost,
    )
    return [_PlacedHost(made, place, place)]


def _device(entry: Section) -> Device | None:
    gpus = entry.get("gpu", gpu_device)
    tpu = entry.get("tpu", tpu_type)
    if tpu is None:
        return gpus
    if gpus is not None:
        entry.at("tpu").problem("a worker has a TPU or a GPU, not both")
    known = lookup(tpu)
    if known is not None and known.vms > 1:
        entry.at("tpu").problem(f"{tpu} has {known.vms} VMs", "write it under slices with all its hosts")
    return Device("tpu", tpu)


def _device_attributes(worker: str, device: Device | None) -> dict[str, AttributeValue]:
    if device is None:
        return {}
    if device.kind == "tpu":
        return _member(worker, device.variant, 0, 1)
    attributes = {DEVICE_TYPE_ATTRIBUTE_KEY: AttributeValue(device.kind)}
    if device.variant != AUTO:
        attributes[DEVICE_VARIANT_ATTRIBUTE_KEY] = AttributeValue(device.variant)
    return attributes


def _member(slice_name: str, kind: str, index: int, vms: int) -> dict[str, AttributeValue]:
    return {
        TPU_NAME_ATTRIBUTE_KEY: AttributeValue(slice_name),
        TPU_WORKER_ID_ATTRIBUTE_KEY: AttributeValue(index),
        TPU_TOPOLOGY_ATTRIBUTE_KEY: AttributeValue(kind),
        TPU_VM_COUNT_ATTRIBUTE_KEY: AttributeValue(vms),
        DEVICE_TYPE_ATTRIBUTE_KEY: AttributeValue("tpu"),
        DEVICE_VARIANT_ATTRIBUTE_KEY: AttributeValue(kind),
    }


def _defaults(place: Place) -> Defaults:
    with section(place) as entry:
        fields = {row.name: read_field(entry, row) for row in JOB_FIELDS if row.defaults}
    env = fields.pop("env")  # overridden by the `env` of workers, which is overridden by that of jobs
    fields["memory_default"] = fields.pop("memory")  # a default never becomes a limit
    return Defaults(job=request_of(fields), env=env or {})


def _notify(place: Place) -> Notify:
    with section(place) as entry:
        return Notify(command=entry.get("command", argv, ()), webhook=entry.get("webhook", _webhook, ""))


def _webhook(place: Place) -> str:
    """Parse a URL. Errors do not repeat it: knowing the URL is enough to post to it."""
    found = text(place)
    if _URL.fullmatch(found) is None:
        raise UsageError("not a URL to post to", hint="write https://host/... without user or blanks")
    return found


def _limits(place: Place) -> Limits:
    """Parse all fields of Limits, durations in any form."""
    fields: dict[str, Any] = {}
    with section(place) as entry:
        for name in Limits.__struct_fields__:
            if name == "silent_after":
                continue  # has a separate key
            default = getattr(Limits(), name)
            if name in _SIZES:
                fields[name] = entry.get(name, size, default)
            elif isinstance(default, int):
                fields[name] = entry.get(name, integer(1, 10_000), default)
            else:
                reader = duration if name in _MAY_BE_ZERO else _positive_duration
                fields[name] = entry.get(name, reader, default)
        limits = Limits(**fields)
        schema.limits(limits, entry)
    return limits


def _positive_duration(place: Place) -> float:
    if seconds := duration(place):
        return seconds
    raise UsageError(f"{written(place)} is too short")
