"""Lines at the end of a script: calls of the shell library, every word of them checked or quoted."""

from __future__ import annotations

import re
from collections.abc import Sequence

from iris_cli.core.ids import RequestId, Token, parse_request_id, parse_token
from iris_cli.core.observations import Holder
from iris_cli.remote.launch_request import (
    LaunchRequest,
    command_text,
    environment_text,
    settings_text,
    setup_text,
)
from iris_cli.remote.worker_script import quote

Held = tuple[Token, RequestId]
"""A request that is known, and waits for what it is to be answered with."""

_BOOT_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


def prepare_line(request: LaunchRequest) -> str:
    """Raises ValueError for what no shell could be given."""
    texts = (command_text(request), environment_text(request), setup_text(request), settings_text(request))
    words = [parse_token(request.token), *map(quote, texts)]
    call = f"prepare_with {request.workspace}" if request.workspace else "prepare"
    return f"{call} {' '.join(words)}"


def answer_line(token: Token, request: RequestId, answer: bytes) -> str:
    """One answer for a task; nothing where the directory of attempts is missing."""
    words = parse_token(token), quote(parse_request_id(request)), quote(answer.decode("ascii"))
    return f'[ -n "$missing" ] || answer {" ".join(words)}'


def asking_lines(telling: Sequence[Token], held: Sequence[Held]) -> list[str]:
    """Let these tasks say what they ask for, less what is held."""
    known = " ".join(f"{parse_token(token)}/{parse_request_id(request)}" for token, request in held)
    return [*([f"held='{known}'"] if known else []), f"tell_requests {' '.join(telling)}"]


def go_lines(tokens: Sequence[Token]) -> list[str]:
    """Each of them starts if it is prepared."""
    return [f"go {parse_token(token)}" for token in tokens]


def process_word(holder: Holder) -> str:
    """One process for the library. Raises ValueError for what no worker could have said."""
    if not _BOOT_ID.fullmatch(holder.boot_id) or min(holder.pid, holder.start) < 0:
        raise ValueError(f"{holder!r:.80} is no process of a report")
    return f"{holder.boot_id}:{holder.pid}:{holder.start}"


def unique(tokens: Sequence[Token]) -> list[Token]:
    """Each of them once, in order. Raises ValueError for what is no token."""
    return [parse_token(token) for token in dict.fromkeys(tokens)]
