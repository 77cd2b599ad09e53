"""The `scale_groups` of `cluster.yaml`."""

from __future__ import annotations

from msgspec.structs import replace

from iris_cli.config.attributes import free_attributes
from iris_cli.config.hosts import Inherited, inherit
from iris_cli.config.job_file import duration
from iris_cli.config.reading import Place, integer, matching, section, text
from iris_cli.config.slice_template import slice_template
from iris_cli.config.validate import preemptible_as_template, region_and_zone
from iris_cli.core.attributes import (
    PREEMPTIBLE_ATTRIBUTE_KEY,
    REGION_ATTRIBUTE_KEY,
    ZONE_ATTRIBUTE_KEY,
    AttributeValue,
)
from iris_cli.core.model.scale_group import Provider, ScaleGroup, SliceTemplate, slice_attributes
from iris_cli.core.patterns import pattern
from iris_cli.core.resources.topology import lookup

# The names of slices are made of it, and Google's resource names are the strictest.
_NAME = pattern(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")


def read_scale_group(place: Place, above: Inherited) -> ScaleGroup:
    """One scale group; what is wrong with it goes into the report."""
    with section(place) as entry:
        name = entry.need("name", matching(_NAME, "a name", "use a-z, 0-9 and '-', a letter first"), "")
        template = entry.need(
            "slice_template", slice_template, SliceTemplate(provider=Provider.MANUAL, type="")
        )
        group = ScaleGroup(
            name=name,
            template=template,
            min_slices=entry.get("min_slices", integer(0, 10_000), 0),
            max_slices=entry.get("max_slices", integer(0, 10_000), 1),
            priority=entry.get("priority", integer(-1_000_000, 1_000_000), 0),
            idle_timeout=entry.get("idle_timeout", duration, 600.0),
            setup=entry.get("setup", text, ""),
            env=above.env,
            connection=above.connection,
        )
        group = entry.get("worker", lambda worker: _with_worker(group, worker, above), group)
        if group.min_slices > group.max_slices:
            entry.at("min_slices").problem(
                f"min_slices is {group.min_slices}, more than max_slices {group.max_slices}"
            )
        attributes = dict(group.attributes)
        _check_place(attributes, template, entry.at("worker"))
        if template.type and lookup(template.type) is None:
            entry.at("slice_template").warn(f"TPU type {template.type} is not known")
    group = replace(group, attributes=attributes)
    return replace(group, attributes=slice_attributes(group))


def _with_worker(group: ScaleGroup, place: Place, above: Inherited) -> ScaleGroup:
    with section(place) as entry:
        settings = inherit(entry, above)
        return replace(
            group, attributes=free_attributes(entry), env=settings.env, connection=settings.connection
        )


def _check_place(attributes: dict[str, AttributeValue], template: SliceTemplate, place: Place) -> None:
    """What the workers are said to be must agree with the template; what is left out follows from it."""
    if template.zone:
        zone = AttributeValue(template.zone)
        if attributes.setdefault(ZONE_ATTRIBUTE_KEY, zone) != zone:
            there = place.down("attributes", ZONE_ATTRIBUTE_KEY)
            there.problem(
                f"zone is {str(attributes[ZONE_ATTRIBUTE_KEY])!r} here and {str(zone)!r} in slice_template"
            )
    region_and_zone(attributes, place.down("attributes", REGION_ATTRIBUTE_KEY))
    there = place.down("attributes", PREEMPTIBLE_ATTRIBUTE_KEY)
    preemptible_as_template(attributes, there, template_preemptible=template.preemptible)
