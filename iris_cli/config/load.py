"""Find `cluster.yaml`, and read it into a ClusterConfig. Expand slices to hosts, and apply inherited settings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from iris_cli.config import hosts, reading, schema
from iris_cli.config.job_file import argv, cores, duration, gpu_device, read_field, size, tpu_type
from iris_cli.config.reading import Section, Setting
from iris_cli.config.scale_groups import read_scale_group
from iris_cli.config.schema import ClusterConfig, Defaults, HostConfig, Mode, Notify
from iris_cli.config.yaml_source import Report, read_yaml
from iris_cli.core import NOWHERE, AttributeValue, Limits, ReplaceLost, lookup, pattern
from iris_cli.core import attributes as keys
from iris_cli.core.attributes import interned
from iris_cli.core.ids import parse_worker_id
from iris_cli.core.model.job_fields import JOB_FIELDS, request_of
from iris_cli.core.model.worker import DEFAULT_REMOTE_DIR
from iris_cli.core.resources import AUTO, Device
from iris_cli.errors import ConfigError, UsageError

FILE_NAME = "cluster.yaml"
_NAME_HINT = "use letters, digits and . _ -"
_URL = pattern(r"https?://[^\s/?#@]+([/?#]\S*)?")
_MAY_BE_ZERO = frozenset(  # limits that are off, or mean no waiting, if they are zero
    {"device_wait", "settle_seconds", "gang_reserve_after", "reap_after"}
)
_SIZES = frozenset({"workspace_size", "keep_logs"})


def find_config(config_option: Path | None, environ: Mapping[str, str], cwd: Path) -> Path:
    """Return the path of the configuration file. `config_option`: the value of --config.

    Return the first of: `config_option`, `$IRIS_CONFIG`, `./cluster.yaml` if it exists, and the file in the user's
    configuration directory. Raises ConfigError if the file does not exist.
    """
    named = config_option or (Path(environ["IRIS_CONFIG"]) if environ.get("IRIS_CONFIG") else None)
    if named is not None:
        path = cwd / named
        if not path.is_file():
            source = "--config" if config_option else "$IRIS_CONFIG"
            if path.exists():
                raise ConfigError(f"{source}: not a regular file: {named}", hint="name the file cluster.yaml")
            raise ConfigError(f"{source}: no such file: {named}", hint="create one: iris init")
        return path
    paths = [cwd / FILE_NAME, *_user_paths(environ)]
    for path in paths:
        if path.is_file():
            return path
    raise ConfigError(
        f"no {FILE_NAME} (looked for {', '.join(map(str, paths))})",
        hint="create one: iris cluster import or iris init; or use --config FILE",
    )


def _user_paths(environ: Mapping[str, str]) -> list[Path]:
    base = environ.get("XDG_CONFIG_HOME", "")
    if not base.startswith("/"):  # by the XDG specification, programs must ignore relative paths
        home = environ.get("HOME")
        base = f"{home}/.config" if home else ""
    return [Path(base, "iris", FILE_NAME)] if base else []


class _HostEntry(Struct, frozen=True):
    """A worker. `address`: the setting of its address. `entry`: the item of `slices` or `workers` that defines it."""

    host: HostConfig
    address: Setting
    entry: Setting


def load_cluster_config(path: Path, data: bytes | None = None) -> ClusterConfig:
    """Read and validate `cluster.yaml`, or its new content `data`. Raises ConfigError with all problems."""
    report = Report(path)
    root = read_yaml(path, report, data)
    config = Setting(root, "", report).read(_cluster) if root else None
    report.raise_if_any()
    return replace(config or ClusterConfig(path=path), warnings=tuple(report.warnings))


def _cluster(setting: Setting) -> ClusterConfig:
    with reading.section(setting) as top:
        name = top.get("cluster", _cluster_name, "cluster")
        ssh = top.get("ssh", lambda block: hosts.ssh_block(block, NOWHERE), NOWHERE)
        defaults = top.get("defaults", _defaults, Defaults())
        base = hosts.Inherited(
            connection=replace(ssh, remote_dir=top.get("remote_dir", hosts.remote_dir, DEFAULT_REMOTE_DIR)),
            env=defaults.env,
            replace_lost=top.get("replace_lost", reading.one_of(ReplaceLost), ReplaceLost.PREEMPTIBLE),
        )
        slices = top.get("slices", lambda entries: _slices(entries, base), [])
        workers = top.get("workers", reading.list_of(lambda entry: _worker(entry, base)), ())
        groups = top.get(
            "scale_groups", reading.list_of(lambda entry: (entry, read_scale_group(entry, base))), ()
        )
        entries = [each for group in (*slices, *workers) for each in group]
        _check_names(entries)
        if not entries and not groups:
            setting.warn("no hosts yet; add slices or workers")
        limits = top.get("limits", _limits, Limits())
        silent_after = top.get("silent_after", duration, limits.silent_after)
        schema.check_unique("scale group", ((group.name, entry) for entry, group in groups))
        return ClusterConfig(
            path=setting.report.file,
            name=name,
            ssh=base.connection,
            hosts=tuple(each.host for each in entries),
            scale_groups=tuple(group for _, group in groups),
            replace_lost=base.replace_lost,
            notify=top.get("notify", _notify, Notify()),
            loop=top.get("loop", reading.one_of(Mode), Mode.AUTO),
            autoscale=top.get("autoscale", reading.one_of(Mode), Mode.OFF),
            limits=replace(limits, silent_after=silent_after),
            defaults=defaults,
        )


def _check_names(entries: list[_HostEntry]) -> None:
    slices = {each.entry.path: (each.host.slice, each.entry) for each in entries if each.host.slice}
    schema.check_unique("slice", slices.values())
    first = {name: setting.path for name, setting in reversed(slices.values())}
    # The workers of a duplicate slice are duplicates, too. Report only the slice.
    kept = [each for each in entries if each.host.slice is None or first[each.host.slice] == each.entry.path]
    schema.check_hosts([(each.host, each.address) for each in kept])


def _cluster_name(setting: Setting) -> str:
    with reading.section(setting) as entry:
        return entry.require("name", reading.matching_text(reading.NAME, "a name", _NAME_HINT), "cluster")


def _slices(setting: Setting, base: hosts.Inherited) -> list[list[_HostEntry]]:
    found: list[list[_HostEntry]] = []
    total = 0
    for item in setting.items():
        found.append(item.read(lambda entry: _slice(entry, base)) or [])
        total += len(found[-1])
        if total > hosts.MAX_HOSTS:
            raise UsageError(f"more than {hosts.MAX_HOSTS} hosts")
    return found


def _slice(setting: Setting, base: hosts.Inherited) -> list[_HostEntry]:
    """Return the workers of one slice, named `{slice}-{index}`, in the order of the slice's hosts."""
    with reading.section(setting) as entry:
        name = entry.require("name", reading.matching_text(reading.NAME, "a name", _NAME_HINT), "")
        kind = entry.require("type", tpu_type, AUTO)
        settings = hosts.inherit(entry, base)
        problems = len(setting.report.problems)
        members = entry.require("hosts", hosts.slice_hosts(settings.connection), [])
        are_valid = len(setting.report.problems) == problems
        shared = hosts.attributes_of(entry)
        if kind != AUTO and members and are_valid:
            schema.check_host_count(kind, len(members), entry.setting_for("hosts"))
        entry.get("incarnation", reading.text)  # a known key, but only `iris cluster import` uses the value
        cpu, memory = entry.get("cpu", cores), entry.get("memory", size)
    if not name:
        return []
    found, device = [], Device("tpu", kind)
    attributes = {**shared, **_first_vm_attributes(name, kind, len(members))}
    for index, (connection, address) in enumerate(members):
        host = HostConfig(
            worker=parse_worker_id(f"{name}-{index}"),
            connection=connection,
            attributes={**attributes, keys.TPU_WORKER_ID_ATTRIBUTE_KEY: interned(index)},
            cpu=cpu,
            memory=memory,
            device=device,
            env=settings.env,
            slice=name,
            replace_lost=settings.replace_lost,
        )
        found.append(_HostEntry(host, address, setting))
    return found


def _worker(setting: Setting, base: hosts.Inherited) -> list[_HostEntry]:
    """Return a list with the worker; [] if the entry is invalid. A worker with a TPU is also a slice of one VM."""
    with reading.section(setting) as entry:
        name = entry.require("id", reading.matching_text(reading.NAME, "a worker id", _NAME_HINT), "")
        settings = hosts.inherit(entry, base)
        connection = entry.require(
            "host", lambda each: hosts.host_connection(hosts.host_name(each), settings.connection), NOWHERE
        )
        attributes = hosts.attributes_of(entry)
        device = _device(entry)
        entry.get("incarnation", reading.text)
        cpu, memory = entry.get("cpu", cores), entry.get("memory", size)
    if not (name and connection.host):
        return []
    is_tpu = device is not None and device.kind == "tpu"
    host = HostConfig(
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
    return [_HostEntry(host, setting, setting)]


def _device(entry: Section) -> Device | None:
    gpus = entry.get("gpu", gpu_device)
    tpu = entry.get("tpu", tpu_type)
    if tpu is None:
        return gpus
    if gpus is not None:
        entry.setting_for("tpu").problem("a worker has a TPU or a GPU, not both")
    known = lookup(tpu)
    if known is not None and known.vms > 1:
        entry.setting_for("tpu").problem(
            f"{tpu} has {known.vms} VMs", "write it under slices with all its hosts"
        )
    return Device("tpu", tpu)


def _device_attributes(worker: str, device: Device | None) -> dict[str, AttributeValue]:
    if device is None:
        return {}
    if device.kind == "tpu":
        return _first_vm_attributes(worker, device.variant, 1)
    attributes = {keys.DEVICE_TYPE_ATTRIBUTE_KEY: AttributeValue(device.kind)}
    if device.variant != AUTO:
        attributes[keys.DEVICE_VARIANT_ATTRIBUTE_KEY] = AttributeValue(device.variant)
    return attributes


def _first_vm_attributes(slice_name: str, kind: str, vms: int) -> dict[str, AttributeValue]:
    """Return the attributes of the first VM of a slice. The others differ in their worker index."""
    return {
        keys.TPU_NAME_ATTRIBUTE_KEY: interned(slice_name),
        keys.TPU_WORKER_ID_ATTRIBUTE_KEY: interned(0),
        keys.TPU_TOPOLOGY_ATTRIBUTE_KEY: interned(kind),
        keys.TPU_VM_COUNT_ATTRIBUTE_KEY: interned(vms),
        keys.DEVICE_TYPE_ATTRIBUTE_KEY: interned("tpu"),
        keys.DEVICE_VARIANT_ATTRIBUTE_KEY: interned(kind),
    }


def _defaults(setting: Setting) -> Defaults:
    with reading.section(setting) as entry:
        fields = {row.name: read_field(entry, row) for row in JOB_FIELDS if row.defaults}
    # The `env` of a worker overrides this default, and the `env` of a job overrides both.
    env = fields.pop("env")
    # Unlike `memory` of a job, a default does not limit the tasks.
    fields["memory_default"] = fields.pop("memory")
    # A gang with `max_task_failures` is refused; the default is only for other jobs.
    fields["max_task_failures_default"] = fields.pop("max_task_failures")
    return Defaults(job=request_of(fields), env=env or {})


def _notify(setting: Setting) -> Notify:
    with reading.section(setting) as entry:
        return Notify(command=entry.get("command", argv, ()), webhook=entry.get("webhook", _webhook, ""))


def _webhook(setting: Setting) -> str:
    """Parse a URL. No error message contains the URL, because anyone who knows it can post to it."""
    found = reading.text(setting)
    if _URL.fullmatch(found) is None:
        raise UsageError("not a URL to post to", hint="write https://host/... without user or blanks")
    return found


def _limits(setting: Setting) -> Limits:
    """Parse all fields of Limits. Durations may have units."""
    fields: dict[str, Any] = {}
    with reading.section(setting) as entry:
        for name in Limits.__struct_fields__:
            if name == "silent_after":
                continue  # a key at the top level of the file
            default = getattr(Limits(), name)
            if name in _SIZES:
                fields[name] = entry.get(name, size, default)
            elif isinstance(default, int):
                fields[name] = entry.get(name, reading.integer(1, 10_000), default)
            else:
                reader = duration if name in _MAY_BE_ZERO else _positive_duration
                fields[name] = entry.get(name, reader, default)
        limits = Limits(**fields)
        if limits.backoff_first > limits.backoff_max:
            entry.setting_for("backoff_first").problem("backoff_first is longer than backoff_max")
        if limits.scale_backoff_first > limits.scale_backoff_max:
            message = "scale_backoff_first is longer than scale_backoff_max"
            entry.setting_for("scale_backoff_first").problem(message)
    return limits


def _positive_duration(setting: Setting) -> float:
    if seconds := duration(setting):
        return seconds
    raise UsageError(f"{reading.scalar_text(setting)} is too short")
