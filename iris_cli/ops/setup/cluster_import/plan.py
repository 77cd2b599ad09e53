"""Plan of an import: changes of `cluster.yaml`, and notes for the user."""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from ipaddress import ip_address
from typing import ClassVar

from msgspec import Struct, field

from iris_cli.config.editing import SLICES, WORKERS, ClusterFile, Entry
from iris_cli.config.yaml_text import NewHost, NewSlice, host_lines, slice_lines
from iris_cli.core import PREEMPTIBLE_ATTRIBUTE_KEY, REGION_ATTRIBUTE_KEY, ZONE_ATTRIBUTE_KEY, region_of_zone
from iris_cli.core.ids import WorkerId
from iris_cli.ops.setup.cluster_import.nodes import FoundSlice, SkippedEntry, SourceContent

HEALTHY = "HEALTHY"


class Addresses(StrEnum):
    """Kind of the VMs' addresses that are written into cluster.yaml."""

    INTERNAL = "internal"
    EXTERNAL = "external"


class Recreated(Struct, frozen=True):
    """A slice whose VMs differ from its VMs in cluster.yaml.

    `workers` are the workers on the old VMs. `created_at` is the time of the new VMs' creation, or None if it is
    unknown. `how` is the end of a sentence about the slice, such as `was re-created`.
    """

    name: str
    workers: tuple[WorkerId, ...]
    created_at: float | None
    how: str


class Plan(Struct):
    """Changes of an import.

    An entry is an item of `slices` or `workers` in cluster.yaml. `updated` has the changed keys of each entry. `notes`
    has the name of an entry ('' for the source) and the note. `addresses` and `labels` are the new values of changed
    entries, by name.
    """

    OMITTED: ClassVar = ("addresses", "labels", "new_slices", "new_hosts")
    added: list[str] = field(default_factory=list)
    updated: dict[str, list[str]] = field(default_factory=dict)
    unchanged: list[str] = field(default_factory=list)
    recreated: list[Recreated] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    skipped: list[SkippedEntry] = field(default_factory=list, name="left_out")
    notes: list[tuple[str, str]] = field(default_factory=list)
    addresses: dict[str, tuple[str, ...]] = field(default_factory=dict)
    labels: dict[str, Mapping[str, str]] = field(default_factory=dict)
    new_slices: list[NewSlice] = field(default_factory=list)
    new_hosts: list[NewHost] = field(default_factory=list)


def plan_new(source: SourceContent, address_kind: Addresses | None) -> Plan:
    """Return the plan for a new file. `address_kind`: the addresses to write (None: internal addresses)."""
    additions = _Additions(source, address_kind)
    additions.add_entries(source.slices, [])
    return additions.plan


def plan_changes(
    file: ClusterFile, source: SourceContent, address_kind: Addresses | None, *, prune: bool
) -> Plan:
    """Return the plan for an existing file, and record the edits in `file`.

    `address_kind`: the addresses to write (None: as in each entry). With `prune`, remove entries of deleted slices.
    """
    changes = _Changes(file, source, address_kind)
    changes.compute(prune=prune)
    plan = changes.plan
    if plan.new_slices:
        file.add(SLICES, [slice_lines(each) for each in plan.new_slices])
    if plan.new_hosts:
        file.add(WORKERS, [host_lines(each) for each in plan.new_hosts])
    return plan


class _Matches:
    """Matches slices to entries of the file, each entry at most once."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.unmatched = {id(each): each for each in entries}
        tpus = [each for each in entries if each.type or each.kind == SLICES]
        self.by_name = {each.name: each for each in tpus}
        self.by_incarnation = {each.incarnation: each for each in tpus if each.incarnation}
        self.by_addresses = {each.addresses: each for each in entries if not each.incarnation}

    def match_by_name(self, found: FoundSlice) -> Entry | None:
        """Return the entry that was imported from this node, or an entry with the node's name, zone and project."""
        names = [self.by_name.get(name) for name in (found.name, name_with_zone(found))]
        imported = self.by_incarnation.get(found.incarnation) if found.incarnation else None
        similar = (each for each in names if each is not None and _has_same_zone(each, found))
        return self._take_first([imported, *similar])

    def match_by_addresses(self, found: FoundSlice) -> Entry | None:
        """Return a handwritten entry with the node's addresses. The name of the entry may differ."""
        return self._take_first(
            [self.by_addresses.get(found.internal), self.by_addresses.get(found.external)]
        )

    def match_moved(self, found: FoundSlice, scopes: frozenset[tuple[str, str]]) -> Entry | None:
        """Return an imported entry whose addresses now belong to this node.

        Equal addresses are not enough, because two networks may use them. In addition, the node must have the entry's
        name, or the source must list all nodes of the entry's project and zone (`scopes`).
        """
        if not found.incarnation:
            return None
        addresses = (sorted(found.internal), sorted(found.external))
        moved = [
            each
            for each in self.unmatched.values()
            if each.incarnation
            and sorted(each.addresses) in addresses
            and (_scope(each) in scopes or _has_same_name(each, found))
        ]
        return self._take_first(moved)

    def _take_first(self, entries: Sequence[Entry | None]) -> Entry | None:
        """Return the first of these entries that is unmatched, and mark it as matched."""
        entry = next((each for each in entries if each is not None and id(each) in self.unmatched), None)
        if entry is not None:
            del self.unmatched[id(entry)]
        return entry


def name_with_zone(found: FoundSlice) -> str:
    """Return the name with its zone if known, for an entry if another entry already has the slice's name."""
    return f"{found.name}-{found.zone}" if found.zone else found.name


def _has_same_zone(entry: Entry, found: FoundSlice) -> bool:
    zone, project = _zone(entry), entry.incarnation.partition(" ")[0]
    return zone in ("", found.zone or zone) and project in ("", "-", found.project or project)


def _has_same_name(entry: Entry, found: FoundSlice) -> bool:
    return _scope(entry)[0] == found.project and entry.name in (found.name, f"{found.name}-{_zone(entry)}")


def _scope(entry: Entry) -> tuple[str, str]:
    """Return project and zone of the node that an entry was imported from."""
    return entry.incarnation.partition(" ")[0], _zone(entry)


def _zone(entry: Entry) -> str:
    return entry.text_of(ZONE_ATTRIBUTE_KEY)


class _Additions:
    """The plan of the new entries."""

    def __init__(self, source: SourceContent, address_kind: Addresses | None) -> None:
        self.source = source
        self.address_kind = address_kind
        self.plan = Plan(skipped=list(source.skipped), notes=[("", each) for each in source.notes])

    def add_entries(self, slices: Sequence[FoundSlice], entries: Sequence[Entry]) -> None:
        """Add new entries for `slices` and for the hosts of the source. `entries`: the existing entries."""
        plan, names = self.plan, {each.name for each in entries}
        names |= {worker.worker for each in entries for worker in each.workers}
        new_addresses = {each.name: plan.addresses.get(each.name, each.addresses) for each in entries}
        owners = {address: name for name, addresses in new_addresses.items() for address in addresses}
        for each in slices:
            name = each.name if each.name not in names else name_with_zone(each)
            hosts = addresses_of(each, self.address_kind or Addresses.INTERNAL)
            used = next((host for host in hosts if host in owners), "")
            fault = ""
            if not hosts:
                fault = "not all of its VMs have an external address"
            elif name in names:
                fault = f"another {name} already exists"
            elif used:
                fault = f"{used} already belongs to slice {owners[used]}"
            if fault:
                plan.skipped.append(SkippedEntry(each.name, fault, zone=each.zone))
            else:
                names.add(name)
                owners.update(dict.fromkeys(hosts, name))
                new = NewSlice(
                    name, each.type, hosts, each.zone, each.preemptible, each.incarnation, each.labels or {}
                )
                plan.new_slices.append(new)
                plan.added.append(name)
                plan.addresses[name] = hosts
                self.add_notes(name, each)
        self._add_hosts(names, owners, entries)

    def _add_hosts(self, names: set[str], owners: dict[str, str], entries: Sequence[Entry]) -> None:
        plan, connections = self.plan, (worker.connection for each in entries for worker in each.workers)
        ports = {(each.host, each.port or 22) for each in connections}
        added: set[tuple[str, int]] = set()
        for host in self.source.hosts:
            port = (host.host, host.port or 22)
            if port in added:
                plan.skipped.append(SkippedEntry(host.worker, "the list has this host twice"))
            elif port in ports:
                plan.unchanged.append(owners.get(host.host, host.worker))
            elif host.worker in names:
                plan.skipped.append(SkippedEntry(host.worker, "another worker already has that name"))
            else:
                names.add(host.worker)
                added.add(port)
                plan.new_hosts.append(host)
                plan.added.append(host.worker)
                plan.addresses[host.worker] = (host.host,)

    def add_notes(self, name: str, found: FoundSlice) -> None:
        self.plan.notes += [(name, words) for words in found.skipped]
        if found.incarnation and found.health != HEALTHY:
            health = f"imported, but its health is {found.health or 'unknown'}"
            self.plan.notes.append((name, f"{health}; `iris worker probe` shows the state of its VMs"))


class _Changes(_Additions):
    """The plan of the changes of a file."""

    def __init__(self, file: ClusterFile, source: SourceContent, address_kind: Addresses | None) -> None:
        super().__init__(source, address_kind)
        self._file = file
        self._matches = _Matches(file.entries)

    def compute(self, *, prune: bool) -> None:
        """Compute the plan, and record the edits in the file."""
        file, source, matches = self._file, self.source, self._matches
        unnamed: list[FoundSlice] = []
        new: list[FoundSlice] = []
        # First match by name, then by address, because an address may have belonged to another slice before.
        by_name = (source.slices, matches.match_by_name, unnamed)
        by_address = (unnamed, matches.match_by_addresses, new)
        for slices, match, unmatched in (by_name, by_address):
            for each in slices:
                entry = match(each)
                if entry is None:
                    unmatched.append(each)
                else:
                    self._update_entry(entry, each)
        self._keep_skipped()
        entries = {id(each): each for each in file.entries}
        for each in list(new):
            entry = matches.match_moved(each, source.scopes)
            if entry is not None:
                new.remove(each)
                entries[id(entry)] = self._move_entry(entry, each, list(entries.values()))
        removed = self._record_gone(prune=prune)
        self.add_entries(new, [each for each in entries.values() if each.name not in removed])

    def _move_entry(self, entry: Entry, found: FoundSlice, entries: Sequence[Entry]) -> Entry:
        """Update an entry for the node that now has its addresses, and rename it after the node. Return the entry."""
        zone = _zone(entry)
        if _has_same_name(entry, found):
            self._update_entry(entry, found, f"moved from {zone} to {found.zone}")
            return entry
        name = found.name if all(each.name != found.name for each in entries) else name_with_zone(found)
        renamed = self._file.rename(entry, name)
        self._update_entry(renamed, found, f"took the addresses of {entry.name}")
        return renamed

    def _update_entry(self, entry: Entry, found: FoundSlice, how: str = "was re-created") -> None:
        file, plan = self._file, self.plan
        before = len(file.edits)
        changes = list(self._edit_values(entry, found))
        old, new = entry.incarnation, found.incarnation
        if new and new != old:
            file.set_value(entry, "incarnation", new)
            if old:
                workers = tuple(worker.worker for worker in entry.workers)
                plan.recreated.append(Recreated(entry.name, workers, found.created_at, how))
            else:
                changes.append("incarnation")
        if len(file.edits) > before or changes:
            plan.updated[entry.name] = changes
        else:
            plan.unchanged.append(entry.name)
        self.add_notes(entry.name, found)

    def _edit_values(self, entry: Entry, found: FoundSlice) -> Iterator[str]:
        """Edit the values of an entry that differ from the values of the found slice, and yield their keys."""
        file = self._file
        if entry.type != found.type:
            file.set_type(entry, found.type)
            yield f"type {entry.type or 'unset'} → {found.type}"
        hosts = self._addresses_for(entry, found)
        self.plan.addresses[entry.name] = hosts
        if hosts != entry.addresses:
            file.set_addresses(entry, hosts)
            yield "addresses"
        zone = _zone(entry)
        if found.zone and zone != found.zone:
            if not zone or ZONE_ATTRIBUTE_KEY in entry.node.entries:
                file.set_value(entry, ZONE_ATTRIBUTE_KEY, found.zone)
                yield ZONE_ATTRIBUTE_KEY
            else:
                self._add_wrong_attribute(entry, ZONE_ATTRIBUTE_KEY, zone)
            if REGION_ATTRIBUTE_KEY in entry.node.entries:
                file.set_value(entry, REGION_ATTRIBUTE_KEY, region_of_zone(found.zone))
        preemptible = entry.text_of(PREEMPTIBLE_ATTRIBUTE_KEY).lower()
        if found.preemptible is not None and preemptible != str(found.preemptible).lower():
            if PREEMPTIBLE_ATTRIBUTE_KEY in entry.node.entries or (found.preemptible and not preemptible):
                file.set_value(entry, PREEMPTIBLE_ATTRIBUTE_KEY, found.preemptible)
                yield PREEMPTIBLE_ATTRIBUTE_KEY
            elif preemptible:
                self._add_wrong_attribute(entry, PREEMPTIBLE_ATTRIBUTE_KEY, preemptible)
        if found.labels is not None:
            yield from self._changed_labels(entry, found.labels)

    def _changed_labels(self, entry: Entry, labels: Mapping[str, str]) -> Iterator[str]:
        """Replace the imported labels by `labels`. Handwritten attributes are kept and override labels."""
        if labels != entry.labels:
            self._file.set_labels(entry, labels)
            yield "labels"
        self.plan.labels[entry.name] = labels
        attributes = entry.node.entries.get("attributes")
        for key, attribute in attributes.entries.items() if attributes is not None else ():
            if key in labels and attribute.text != labels[key]:
                note = f"label {key} is overridden by its attributes: {key}: {attribute.text}"
                self.plan.notes.append((entry.name, note))

    def _addresses_for(self, entry: Entry, found: FoundSlice) -> tuple[str, ...]:
        """Return the addresses to write. If `address_kind` is None, their kind is the kind of the entry's addresses."""
        is_named = not any(map(_is_address, entry.addresses)) and all(map(_is_address, found.internal))
        if is_named and self.address_kind is None and len(entry.addresses) == len(found.internal):
            return entry.addresses  # keep names, which ~/.ssh/config may resolve
        is_public = all(_is_address(each) and ip_address(each).is_global for each in entry.addresses)
        default = Addresses.EXTERNAL if is_public and found.external else Addresses.INTERNAL
        if hosts := addresses_of(found, self.address_kind or default):
            return hosts
        note = "not all of its VMs have an external address; its addresses stay"
        self.plan.notes.append((entry.name, note))
        return entry.addresses

    def _add_wrong_attribute(self, entry: Entry, key: str, value: str) -> None:
        self.plan.notes.append((entry.name, f"its attributes say {key}: {value}, which is wrong"))

    def _keep_skipped(self) -> None:
        """Keep the entries of slices in the source that can't be imported."""
        matches = self._matches
        for each in self.source.skipped:
            entry = matches.by_name.get(each.name)
            if entry is not None and id(entry) in matches.unmatched and _zone(entry) in ("", each.zone):
                del matches.unmatched[id(entry)]
                self.plan.notes.append((entry.name, "its entry is not changed"))

    def _record_gone(self, *, prune: bool) -> list[str]:
        """Record the imported entries whose slice is missing from a complete list.

        With `prune`, remove these entries from the file and return their names. Otherwise return [].
        """
        for entry in self._matches.unmatched.values():
            if entry.incarnation and _scope(entry) in self.source.scopes:
                self.plan.gone.append(entry.name)
                if prune:
                    self._file.remove(entry)
        return self.plan.gone if prune else []


def addresses_of(found: FoundSlice, address_kind: Addresses) -> tuple[str, ...]:
    return found.external if address_kind is Addresses.EXTERNAL else found.internal


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
