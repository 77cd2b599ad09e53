"""From what a probe found and what the configuration declares to the attributes of a worker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from iris_cli.core.attributes import (
    DEVICE_TYPE_ATTRIBUTE_KEY,
    DEVICE_VARIANT_ATTRIBUTE_KEY,
    PREEMPTIBLE_ATTRIBUTE_KEY,
    REGION_ATTRIBUTE_KEY,
    TPU_NAME_ATTRIBUTE_KEY,
    TPU_TOPOLOGY_ATTRIBUTE_KEY,
    TPU_VM_COUNT_ATTRIBUTE_KEY,
    TPU_WORKER_ID_ATTRIBUTE_KEY,
    ZONE_ATTRIBUTE_KEY,
    AttributeValue,
    region_of_zone,
)
from iris_cli.core.patterns import pattern
from iris_cli.core.resources.topology import canonical_type, lookup
from iris_cli.errors import UsageError

_WHOLE_NUMBER = pattern(r"[0-9]{1,9}")


class WorkerAttributes(Mapping[str, AttributeValue]):
    """The attributes of a worker, a mapping; a worker with `errors` must be registered unschedulable."""

    attributes: Mapping[str, AttributeValue]
    errors: tuple[str, ...]
    warnings: tuple[str, ...]

    def __init__(
        self,
        attributes: Mapping[str, AttributeValue],
        errors: tuple[str, ...] = (),
        warnings: tuple[str, ...] = (),
    ) -> None:
        self.attributes = attributes
        self.errors = errors
        self.warnings = warnings

    def __getitem__(self, key: str) -> AttributeValue:
        return self.attributes[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.attributes)

    def __len__(self) -> int:
        return len(self.attributes)


def build_worker_attributes(
    metadata: Mapping[str, object], declared: Mapping[str, AttributeValue] | None = None
) -> WorkerAttributes:
    """The attributes of a worker.

    `metadata` is what the probe found, by the keys of the TPU metadata server (`accelerator-type`,
    `agent-worker-number`, `instance-id`, `worker-network-endpoints`, `zone`) or by attribute keys
    (`device-type`, `device-variant`, `tpu-name`, `preemptible`, ...); other keys and blank values are
    ignored. `declared` is what the configuration says: it wins over the probe and is in the result whole.

    `device-type` and `preemptible` are always in the result, `region` follows from the zone. A member of a
    slice of several VMs (or of unknown size) without a whole-numbered worker id gets an error, never the
    id 0. The slice's own VM count wins over the table of types, whose gaps are warnings.
    """
    build = _Builder(_facts(metadata, declared or {}))
    build.device()
    build.slice_membership()
    build.place()
    return WorkerAttributes(
        {**(declared or {}), **build.attributes}, tuple(build.errors), tuple(build.warnings)
    )


def _facts(metadata: Mapping[str, object], declared: Mapping[str, AttributeValue]) -> dict[str, str]:
    """Both sources as stripped text, without blanks. What is declared wins."""
    texts = {
        key: str(AttributeValue(value) if isinstance(value, bool) else value)
        for key, value in metadata.items()
    }
    texts.update((key, str(value)) for key, value in declared.items())
    return {key: text.strip() for key, text in texts.items() if text.strip()}


class _Builder:
    """Collects attributes, errors and warnings from the facts of one worker."""

    def __init__(self, facts: dict[str, str]) -> None:
        self.facts = facts
        self.attributes: dict[str, AttributeValue] = {}
        self.errors: list[str] = []
        self.warnings: list[str] = []
        self.tpu_type = self._tpu_type()

    def device(self) -> None:
        kind = self.facts.get(DEVICE_TYPE_ATTRIBUTE_KEY) or ("tpu" if self.tpu_type else "cpu")
        self._put(DEVICE_TYPE_ATTRIBUTE_KEY, kind)
        self._put(DEVICE_VARIANT_ATTRIBUTE_KEY, self.facts.get(DEVICE_VARIANT_ATTRIBUTE_KEY) or self.tpu_type)
        self._put(TPU_TOPOLOGY_ATTRIBUTE_KEY, self.tpu_type)

    def slice_membership(self) -> None:
        # On a TPU VM the metadata server's `instance-id` is the name of the TPU.
        name = self.facts.get(TPU_NAME_ATTRIBUTE_KEY) or (self.tpu_type and self.facts.get("instance-id", ""))
        vms = self._vm_count()
        self._put(TPU_NAME_ATTRIBUTE_KEY, name)
        self._put(TPU_VM_COUNT_ATTRIBUTE_KEY, vms)
        worker_id = self.facts.get(TPU_WORKER_ID_ATTRIBUTE_KEY) or self.facts.get("agent-worker-number", "")
        if _WHOLE_NUMBER.fullmatch(worker_id):
            self.attributes[TPU_WORKER_ID_ATTRIBUTE_KEY] = AttributeValue(int(worker_id))
        elif worker_id:
            self.errors.append(
                f"worker id {worker_id[:40]!r} of TPU {name or 'of unknown name'} is not a whole number"
            )
        elif (name or self.tpu_type) and vms != 1:
            self.errors.append(f"TPU {name or 'of unknown name'} does not say which of its workers this is")

    def place(self) -> None:
        zone = self.facts.get(ZONE_ATTRIBUTE_KEY, "").rpartition("/")[2]  # projects/N/zones/ZONE
        self._put(ZONE_ATTRIBUTE_KEY, zone)
        self._put(REGION_ATTRIBUTE_KEY, self.facts.get(REGION_ATTRIBUTE_KEY) or region_of_zone(zone))
        preemptible = self.facts.get(PREEMPTIBLE_ATTRIBUTE_KEY, "false").lower()
        if preemptible not in ("true", "false"):
            self.warnings.append(
                f"preemptible is neither true nor false but {preemptible[:40]!r}: taken as false"
            )
            preemptible = "false"
        self._put(PREEMPTIBLE_ATTRIBUTE_KEY, preemptible)

    def _tpu_type(self) -> str:
        text = self.facts.get(TPU_TOPOLOGY_ATTRIBUTE_KEY) or self.facts.get("accelerator-type", "")
        if not text:
            return ""
        try:
            tpu_type = canonical_type(text.rpartition("/")[2])
        except UsageError:
            tpu_type = text
        if lookup(tpu_type) is None:
            self.warnings.append(
                f"TPU type {tpu_type[:40]!r} is not known: its VM count is that of the slice itself"
            )
        return tpu_type

    def _vm_count(self) -> int | None:
        known = lookup(self.tpu_type)
        table = known.vms if known else None
        said = self.facts.get(TPU_VM_COUNT_ATTRIBUTE_KEY, "")
        endpoints = self.facts.get("worker-network-endpoints", "")
        if _WHOLE_NUMBER.fullmatch(said):
            count = int(said)
        elif endpoints:
            count = endpoints.strip(",").count(",") + 1
        else:
            return table
        if table is not None and count != table:
            self.warnings.append(f"{self.tpu_type} has {table} VMs by the table, this slice has {count}")
        return count

    def _put(self, key: str, value: str | int | None) -> None:
        if value:
            self.attributes[key] = AttributeValue(value)
