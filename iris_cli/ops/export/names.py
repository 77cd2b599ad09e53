"""Kubernetes names."""

from __future__ import annotations

from hashlib import sha256

from iris_cli.core.text import pattern

MAX_LENGTH = 40
"""Maximum length of a JobSet's name: its pods append `-slice-9999-9999-` and five characters, in total 63."""

_LABEL = pattern(r"[a-z](?:[-a-z0-9]*[a-z0-9])?")
_HASHED = pattern(r".*-[0-9a-f]{10}")
_LABEL_VALUE = pattern(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_OTHER = pattern(r"[^a-z0-9]+")


def dns_label(name: str) -> str:
    """Return a DNS label for the name, with at most `MAX_LENGTH` characters, different for different names.

    A valid name is unchanged, unless it ends like a hash. All other names get a hash at the end.
    """
    if len(name) <= MAX_LENGTH and _LABEL.fullmatch(name) and not _HASHED.fullmatch(name):
        return name
    digest = sha256(name.encode()).hexdigest()[:10]
    stem = _OTHER.sub("-", name.lower())[: MAX_LENGTH - len(digest) - 2].strip("-")
    if not stem[:1].isalpha():
        stem = f"j{stem}"
    return f"{stem}-{digest}"


def is_label_value(text: str) -> bool:
    """Return True if the text is a valid label value. Unless the text is empty, it is then a valid label name, too."""
    return _LABEL_VALUE.fullmatch(text) is not None
