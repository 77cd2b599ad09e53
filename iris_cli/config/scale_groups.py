"""Read the `scale_groups` of `cluster.yaml`."""

from collections.abc import Iterable

from msgspec.structs import replace

from iris_cli.config import reading
from iris_cli.config.hosts import Inherited, host_name, inherit, operator_attributes
from iris_cli.config.job_file import duration, tpu_type
from iris_cli.config.reading import Section, Setting
from iris_cli.config.schema import check_region
from iris_cli.core import REGION_ATTRIBUTE_KEY, AttributeValue, ScaleGroup, clip, pattern, slice_attributes
from iris_cli.core.attributes import PREEMPTIBLE_ATTRIBUTE_KEY, ZONE_ATTRIBUTE_KEY
from iris_cli.core.messages.cloud import LABEL_PREFIX
from iris_cli.core.model.slice import Addresses, GcpOptions, NodeAccess, Provider, SliceTemplate, SlurmOptions
from iris_cli.core.topology import family_of, lookup, type_from_user
from iris_cli.errors import UsageError

_PROJECT = pattern(r"([a-z0-9.-]{1,100}:)?[a-z0-9][a-z0-9-]{0,62}")
_RUNTIME = pattern(r"[a-z0-9][a-z0-9._-]{0,127}")
_RESOURCE = pattern(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,254}")  # a name, or a path that ends in a name
_CLOUD_NAME = pattern(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_EMAIL = pattern(r"[A-Za-z0-9._+-]{1,100}@[A-Za-z0-9.-]{1,150}")
_LABEL_KEY = pattern(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE = pattern(r"[a-z0-9_-]{0,63}")
_MAX_LABELS = 60  # Google allows 64 labels, and iris adds some
_ACCELERATOR_HINT = "set both, for example accelerator: v4 and topology: 2x2x4"
_GCP_ONLY = (
    *("accelerator", "topology", "spot", "reserved", "reservation", "queued", "addresses", "network"),
    *("subnetwork", "service_account", "tags", "labels"),
)
# The names of slices begin with the name of the group. Google's rules for names are the strictest.
_NAME = pattern(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
_SLURM_NAME = pattern(r"[A-Za-z0-9_][A-Za-z0-9_.,:@=/*&|()\[\]-]{0,254}")
_DIRECTIVE = pattern(r"(-[A-Za-z]|--[a-z][a-z-]{0,40})((=| )[^\x00-\x1f\x7f]{1,255})?")
_MAX_NODES = 4096
_RESERVED_NAMES = (
    "job-name J comment dependency d nodes N ntasks-per-node chdir D output o error e partition p account A qos q"
    " time t gres constraint C requeue no-requeue parsable wrap array a wait W test-only clusters M cluster"
    " help h usage version V"
)
_RESERVED = frozenset(_RESERVED_NAMES.split())


def _slice_template(setting: Setting) -> SliceTemplate:
    with reading.section(setting) as entry:
        provider = entry.require("provider", reading.one_of(Provider), Provider.MANUAL)
        if provider is Provider.SLURM:
            return _slurm_template(entry)
        _reject_keys(entry, SlurmOptions.__struct_fields__, Provider.SLURM)
        if provider is Provider.GCP:
            return _gcp_template(entry)
        _reject_keys(entry, _GCP_ONLY, Provider.GCP)
        return SliceTemplate(
            provider=provider,
            type=entry.require("type", tpu_type, ""),
            project=entry.get("project", reading.text, ""),
            zone=entry.get(ZONE_ATTRIBUTE_KEY, reading.text, ""),
            runtime=entry.get("runtime", reading.text, ""),
            preemptible=entry.get(PREEMPTIBLE_ATTRIBUTE_KEY, reading.boolean, False),
        )


def _reject_keys(entry: Section, keys: Iterable[str], provider: Provider) -> None:
    """Report these keys, because only templates for `provider` may have them."""
    for key in keys:
        if key in entry and entry.get(key, lambda _: True):
            entry.setting_for(key).problem(f"only for provider {provider}")


def _gcp_template(entry: Section) -> SliceTemplate:
    options = _gcp_options(entry)
    template = SliceTemplate(
        provider=Provider.GCP,
        type=_type(entry, options.topology),
        project=entry.require("project", reading.matching_text(_PROJECT, "a project id"), ""),
        zone=entry.require(
            ZONE_ATTRIBUTE_KEY,
            reading.matching_text(_CLOUD_NAME, "a zone", "write a zone such as us-west4-a"),
            "",
        ),
        runtime=entry.require(
            "runtime", reading.matching_text(_RUNTIME, "the name of a runtime version"), ""
        ),
        preemptible=entry.get(PREEMPTIBLE_ATTRIBUTE_KEY, reading.boolean, options.spot),
        gcp=options,
    )
    _check_provisioning(entry, template)
    return template


def _gcp_options(entry: Section) -> GcpOptions:
    reservation = entry.get("reservation", reading.matching_text(_RESOURCE, "the name of a reservation"), "")
    return GcpOptions(
        topology=entry.get("topology", reading.scalar_text, ""),
        spot=entry.get("spot", reading.boolean, False),
        reserved=entry.get("reserved", reading.boolean, bool(reservation)),
        reservation=reservation,
        queued=entry.get("queued", reading.boolean, False),
        addresses=entry.get("addresses", reading.one_of(Addresses), Addresses.EXTERNAL),
        network=entry.get("network", reading.matching_text(_RESOURCE, "a network"), ""),
        subnetwork=entry.get("subnetwork", reading.matching_text(_RESOURCE, "a subnetwork"), ""),
        service_account=entry.get(
            "service_account", reading.matching_text(_EMAIL, "the address of a service account"), ""
        ),
        tags=entry.get("tags", reading.list_of(reading.matching_text(_CLOUD_NAME, "a network tag")), ()),
        labels=entry.get("labels", _labels, {}),
    )


def _labels(setting: Setting) -> dict[str, str]:
    hint = "at most 63 characters: a-z, 0-9, '-' and '_'; a key begins with a letter"
    found = reading.mapping_of(reading.matching_text(_LABEL_VALUE, "the value of a label", hint))(setting)
    for key, entry in setting.entries().items():
        if _LABEL_KEY.fullmatch(key) is None:
            entry.problem(f"{clip(key)!r} is not a valid label key", hint)
        elif key.startswith(LABEL_PREFIX):
            entry.problem(f"{LABEL_PREFIX}... is reserved for iris")
    if len(found) > _MAX_LABELS:
        setting.problem(f"more than {_MAX_LABELS} labels")
    return found


def _type(entry: Section, topology: str) -> str:
    """Return `type`, or the type that `accelerator` and `topology` describe; "" if the settings are invalid."""
    family = entry.get("accelerator", reading.parsed(family_of), "")
    if "accelerator" not in entry:
        if topology:
            entry.setting_for("topology").problem("'accelerator' is missing", _ACCELERATOR_HINT)
        return entry.require("type", tpu_type, "")
    if entry.get("type", tpu_type):
        entry.setting_for("type").problem("type and accelerator can't be combined", "drop one of them")
    if not topology:
        entry.setting_for("accelerator").problem("'topology' is missing", _ACCELERATOR_HINT)
    if not family or not topology:
        return ""
    return entry.setting_for("topology").read(lambda _: type_from_user(family, topology)) or ""


def _check_provisioning(entry: Section, template: SliceTemplate) -> None:
    """Report contradictions, because slices are either on demand, or preemptible, or reserved."""
    options = template.gcp
    if options.spot and not template.preemptible:
        entry.setting_for(PREEMPTIBLE_ATTRIBUTE_KEY).problem("spot slices are preemptible")
    if options.reserved and template.preemptible:
        entry.setting_for("reserved" if "reserved" in entry else "reservation").problem(
            "reserved slices are not preemptible", "drop one of them"
        )
    if options.reservation and not options.reserved:
        entry.setting_for("reserved").problem("reserved is false, but reservation is set")
    if options.reservation and not options.queued:
        entry.setting_for("reservation").problem(
            "a named reservation needs a queued resource", "write queued: true"
        )


def read_scale_group(setting: Setting, base: Inherited) -> ScaleGroup:
    """Parse one scale group. Problems are added to the report."""
    with reading.section(setting) as entry:
        name = entry.require(
            "name", reading.matching_text(_NAME, "a name", "use a-z, 0-9 and '-', a letter first"), ""
        )
        template = entry.require(
            "slice_template", _slice_template, SliceTemplate(provider=Provider.MANUAL, type="")
        )
        group = ScaleGroup(
            name=name,
            template=template,
            min_slices=entry.get("min_slices", reading.integer(0, 10_000), 0),
            max_slices=entry.get("max_slices", reading.integer(0, 10_000), 1),
            priority=entry.get("priority", reading.integer(-1_000_000, 1_000_000), 0),
            idle_timeout=entry.get("idle_timeout", duration, 600.0),
            setup=entry.get("setup", reading.text, ""),
            env=base.env,
            connection=base.connection,
        )
        group = entry.get("worker", lambda worker: _add_worker_settings(group, worker, base), group)
        if group.min_slices > group.max_slices:
            entry.setting_for("min_slices").problem(
                f"min_slices is {group.min_slices}, more than max_slices {group.max_slices}"
            )
        attributes = dict(group.attributes)
        _complete_attributes(attributes, template, entry.setting_for("worker"))
        if template.type and lookup(template.type) is None:
            entry.setting_for("slice_template").warn(f"TPU type {template.type} is not known")
    group = replace(group, attributes=attributes)
    return replace(group, attributes=slice_attributes(group))


def _add_worker_settings(group: ScaleGroup, setting: Setting, base: Inherited) -> ScaleGroup:
    with reading.section(setting) as entry:
        settings = inherit(entry, base)
        return replace(
            group, attributes=operator_attributes(entry), env=settings.env, connection=settings.connection
        )


def _complete_attributes(
    attributes: dict[str, AttributeValue], template: SliceTemplate, setting: Setting
) -> None:
    """Add the template's attributes to the attributes of the workers. Report contradictions."""
    if template.zone:
        zone = AttributeValue(template.zone)
        if attributes.setdefault(ZONE_ATTRIBUTE_KEY, zone) != zone:
            attribute = setting.child("attributes", ZONE_ATTRIBUTE_KEY)
            attribute.problem(
                f"zone is {str(attributes[ZONE_ATTRIBUTE_KEY])!r}, but {str(zone)!r} in slice_template"
            )
    check_region(attributes, setting.child("attributes", REGION_ATTRIBUTE_KEY))
    preemptible = AttributeValue(template.preemptible)
    value = attributes.setdefault(PREEMPTIBLE_ATTRIBUTE_KEY, preemptible)
    if value != preemptible:
        setting.child("attributes", PREEMPTIBLE_ATTRIBUTE_KEY).problem(
            f"preemptible is {value} for the workers and {preemptible} in slice_template",
            "set the same value in both",
        )


def _slurm_template(entry: Section) -> SliceTemplate:
    """Parse the template of Slurm allocations. A time limit of 0 means the partition's default."""
    hint = "see `sinfo`, `sacctmgr show assoc`, `scontrol show partition`"
    name = reading.matching_text(_SLURM_NAME, "a name of Slurm's", hint)
    options = SlurmOptions(
        nodes=entry.get("nodes", reading.integer(1, _MAX_NODES), 1),
        partition=entry.get("partition", name, ""),
        account=entry.get("account", name, ""),
        qos=entry.get("qos", name, ""),
        time=entry.get("time", duration, 0.0),
        gres=entry.get("gres", name, ""),
        constraint=entry.get("constraint", name, ""),
        directives=entry.get("directives", reading.list_of(_directive), ()),
        login=entry.get("login", host_name, ""),
        transport=entry.get("transport", reading.one_of(NodeAccess), NodeAccess.SSH),
    )
    return SliceTemplate(
        provider=Provider.SLURM,
        type="",
        preemptible=entry.get(PREEMPTIBLE_ATTRIBUTE_KEY, reading.boolean, False),
        slurm=options,
    )


def _directive(setting: Setting) -> str:
    """Parse an option of sbatch, such as `--mem=64G`, and return it as one argument. Reject options that iris sets."""
    found = reading.scalar_text(setting)
    if _DIRECTIVE.fullmatch(found) is None:
        raise UsageError("not an option of sbatch", hint="write it like --exclusive or --mem=64G")
    name, _, value = found.lstrip("-").replace(" ", "=", 1).partition("=")
    is_long = found.startswith("--")
    # sbatch accepts abbreviations of long options.
    if name in _RESERVED or (is_long and any(each.startswith(name) for each in _RESERVED)):
        raise UsageError(
            f"{name} is set by iris", hint="some options are keys of slice_template: nodes, time, gres"
        )
    if not is_long:
        return f"-{name}{value}"
    return f"--{name}={value}" if value else f"--{name}"
