"""Write YAML: documents, and items of the lists `slices` and `workers` in `cluster.yaml`.

Text is quoted if YAML 1.1 or YAML 1.2 could read it as something else.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from msgspec import Struct, field

from iris_cli.core import PREEMPTIBLE_ATTRIBUTE_KEY, ZONE_ATTRIBUTE_KEY, pattern, scalar_of

_PLAIN = pattern(r"[A-Za-z~/][A-Za-z0-9._/~-]*|[0-9]{1,3}(\.[0-9]{1,3}){3}")
_NOT_PLAIN = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "inf", "nan", "~"})


class NewHost(Struct, frozen=True):
    """A single host. An empty `user` and a `port` of 0 mean ssh's defaults."""

    worker: str
    host: str
    user: str = ""
    port: int = 0


class NewSlice(Struct, frozen=True):
    """One TPU slice. `hosts`: in the order of worker numbers. None and '' mean unknown values.

    `incarnation` distinguishes the slice from earlier slices with the same name.
    """

    name: str
    type: str
    hosts: tuple[str, ...]
    zone: str = ""
    preemptible: bool | None = None
    incarnation: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


def quote(text: str) -> str:
    """Return a YAML scalar with this text, in quotes if necessary."""
    return text if _is_plain(text) else json.dumps(text, ensure_ascii=not text.isprintable())


def _is_plain(text: str) -> bool:
    return _PLAIN.fullmatch(text) is not None and text.lower() not in _NOT_PLAIN


def format_list(texts: Sequence[str]) -> str:
    return f"[{', '.join(map(quote, texts))}]"


def format_labels(labels: Mapping[str, str]) -> str:
    """Return labels as a YAML mapping in braces, sorted by key. A numeric value is written as a number."""
    return f"{{{', '.join(f'{quote(key)}: {format_label(labels[key])}' for key in sorted(labels))}}}"


def format_label(text: str) -> str:
    return quote(text) if isinstance(scalar_of(text), str) else text


def slice_lines(each: NewSlice) -> list[str]:
    """Return the lines of an item of `slices`. The first line begins with the dash."""
    zone = f"{ZONE_ATTRIBUTE_KEY}: {quote(each.zone)}" if each.zone else f"# {ZONE_ATTRIBUTE_KEY}: us-west4-a"
    preemptible = f"{PREEMPTIBLE_ATTRIBUTE_KEY}: {'true' if each.preemptible else 'false'}"
    lines = [
        f"- name: {quote(each.name)}",
        f"  type: {quote(each.type)}",
        f"  hosts: {format_list(each.hosts)}",
        f"  {zone}",
        f"  # {PREEMPTIBLE_ATTRIBUTE_KEY}: true" if each.preemptible is None else f"  {preemptible}",
    ]
    lines += [f"  labels: {format_labels(each.labels)}"] * bool(each.labels)
    return lines + [f"  incarnation: {quote(each.incarnation)}"] * bool(each.incarnation)


def host_lines(each: NewHost) -> list[str]:
    """Return the lines of an item of `workers`."""
    user = f", user: {quote(each.user)}" if each.user else ""
    port = f", port: {each.port}" if each.port else ""
    return [f"- {{id: {quote(each.worker)}, host: {quote(each.host)}{user}{port}}}"]


class _Dumper(yaml.SafeDumper):
    """PyYAML's dumper, with a representer for text."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text and text.isascii() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if _is_plain(text) else style)


_Dumper.add_representer(str, _represent_text)


def yaml_text(document: Mapping[str, Any]) -> str:
    """Return one document as YAML, in ASCII, with the keys in the order of the mapping."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=1 << 20)
