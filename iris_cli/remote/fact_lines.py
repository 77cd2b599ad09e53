"""Parse facts about failures: `D <token>` and the file that the wrapper wrote (`shell/deaths.sh`)."""

from __future__ import annotations

import re
from collections.abc import Collection

from iris_cli.core.ids import Token
from iris_cli.core.model.task import Fact, FactKind
from iris_cli.remote.frames import broken

LONGEST_FACT = 300
_LINE = re.compile(r"D ([0-9a-f]{32})")
_FACT = re.compile(rf"({'|'.join(FactKind)}) (proven|guess) ([ -~]{{1,{LONGEST_FACT}}})")


def facts_of(data: bytes) -> tuple[Fact, ...]:
    """Parse the facts in a file, one per kind. A task may have written it: skip anything malformed."""
    found: dict[FactKind, Fact] = {}
    lines, end, _ = data.decode("ascii", "replace").partition("\n.\n")
    for line in lines.split("\n") if end else ():
        if match := _FACT.fullmatch(line):
            kind = FactKind(match[1])
            found.setdefault(kind, Fact(kind=kind, proven=match[2] == "proven", text=match[3].strip()))
    return tuple(found[kind] for kind in FactKind if kind in found)


def add_facts(
    facts: dict[Token, tuple[Fact, ...]], line: str, data: bytes, tokens: Collection[Token]
) -> bool:
    """Add the facts of a line; return False for any other line. Raises NoAnswer if they are not about `tokens`."""
    match = _LINE.fullmatch(line)
    if match is None:
        return False
    token = Token(match[1])
    if token in facts or token not in tokens:
        raise broken("the answer has facts that were not asked for")
    facts[token] = facts_of(data)
    return True
