"""Kubernetes names."""

from __future__ import annotations

from hashlib import sha256

from iris_cli.core.text import pattern

LONGEST = 40
"""Most characters of a JobSet's name: its pods append `-slice-9999-9999-` and five more, up to 63."""

_LABEL = pattern(r"[a-z](?:[-a-z0-9]*[a-z0-9])?")
_HASHED = pattern(r".*-[0-9a-f]{10}")
_LABEL_VALUE = pattern(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_OTHER = pattern(r"[^a-z0-9]+")


def dns_label(name: str) -> str:
    """Return the name as a DNS label of at most `LONGEST` characters, distinct for distinct names.

    A valid name is unchanged. Others end in a hash, and so does a name that looks hashed.
    """
    if len(name) <= LONGEST and _LABEL.fullmatch(name) and not _HASHED.fullmatch(name):
        return name
    digest = sha256(name.encode()).hexdigest()[:10]
    stem = _OTHER.sub("-", name.lower())[: LONGEST - len(digest) - 2].strip("-")
    if not stem[:1].isalpha():
        stem = f"j{stem}"
    return f"{stem}-{digest}"


def is_label_value(text: str) -> bool:
    """Return True if the text is a valid label value. A nonempty one is also a valid label name."""
    return _LABEL_VALUE.fullmatch(text) is not None
