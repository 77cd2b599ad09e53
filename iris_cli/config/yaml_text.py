"""Write YAML that all parsers read alike: text that could have another meaning in YAML 1.1 or 1.2 is quoted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from iris_cli.core.text import pattern

_PLAIN = pattern(r"[A-Za-z][A-Za-z0-9]*(?:[./_-][A-Za-z0-9]+)*")
_WORDS = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null", "inf", "nan"])


class _Dumper(yaml.SafeDumper):
    """PyYAML's dumper, with a representer for text."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        style = None
    else:
        style = "|" if "\n" in text and text.isascii() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def yaml_text(document: Mapping[str, Any]) -> str:
    """Return one document as YAML, in ASCII, with the keys in the order of the mapping."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=1 << 20)
