"""Names that Kubernetes accepts."""

from __future__ import annotations

from hashlib import sha256

from iris_cli.core.text import pattern

LONGEST = 40
"""Characters of the name of a JobSet: its pods add `-slice-9999-9999-` and five more, and have 63."""

_LABEL = pattern(r"[a-z](?:[-a-z0-9]*[a-z0-9])?")
_HASHED = pattern(r".*-[0-9a-f]{10}")
_LABEL_VALUE = pattern(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_OTHER = pattern(r"[^a-z0-9]+")


def dns_label(name: str) -> str:
    """The name as a DNS label of at most `LONGEST` characters; different names have different ones.

    A name that is one stays as it is. Others end in a hash, and so does a name that looks like one of those.
    """
    if len(name) <= LONGEST and _LABEL.fullmatch(name) and not _HASHED.fullmatch(name):
        return name
    digest = sha256(name.encode()).hexdigest()[:10]
    stem = _OTHER.sub("-", name.lower())[: LONGEST - len(digest) - 2].strip("-")
    if not stem[:1].isalpha():
        stem = f"j{stem}"
    return f"{stem}-{digest}"


def is_label_value(text: str) -> bool:
    """Whether the text can be the value of a label. One that is not empty can be its name, too."""
    return _LABEL_VALUE.fullmatch(text) is not None
