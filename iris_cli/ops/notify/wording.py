"""A notice as the environment of a command, and as what is posted."""

from __future__ import annotations

import json

from iris_cli.core.messages.notices import Notice
from iris_cli.core.text import pattern

_LONGEST = 1000  # characters of a text that users or workers may have written
_URL = pattern(r"(https?://)(?:[^\s/@]*@)?([^\s/?#'\"]+)[^\s'\"]*")


def environment_of(notice: Notice, cluster: str) -> dict[str, str]:
    """What the command finds, beside what is in our own environment."""
    return {
        "IRIS_EVENT": notice.event,
        "IRIS_JOB_ID": notice.job,
        "IRIS_STATE": notice.state,
        "IRIS_REASON": one_line(notice.reason),
        "IRIS_NOTICE_ID": notice.id,
        "IRIS_CLUSTER": cluster,
    }


def body_of(notice: Notice, cluster: str) -> bytes:
    """What is posted: a JSON object. `text` says it all in a sentence, as chat services want it."""
    entry = {
        "schema_version": 1,
        "id": notice.id,
        "event": notice.event,
        "cluster": cluster,
        "job_id": notice.job,
        "state": notice.state,
        "reason": one_line(notice.reason),
        "at": notice.at,
        "text": one_line(f"{cluster}: {notice}"),
    }
    return json.dumps(entry).encode("ascii")


def one_line(text: str) -> str:
    """Text without what no variable can hold and no line should: controls become blanks, and it has an end."""
    shown = "".join(character if character.isprintable() else " " for character in text[: 2 * _LONGEST])
    shown = " ".join(shown.split())
    return shown if len(shown) <= _LONGEST else shown[: _LONGEST - 1] + "…"


def without_secrets(text: str) -> str:
    """Of each URL no more than the host: what comes behind it may be what gives access."""
    return _URL.sub(r"\1\2/...", text)
