"""Parse the frame of an answer. An output without a complete, well-formed frame is not an answer."""

import re
from collections.abc import Collection

from msgspec import Struct

from iris_cli.core.ids import Token
from iris_cli.core.messages.observations import SilenceKind
from iris_cli.core.model.task import Fact, FactKind
from iris_cli.remote.transport import NoAnswer, ScriptResult

NUMBER = r"(?:0|[1-9][0-9]{0,14})"
"""The pattern of a number in a line."""
MAX_LINE = 512
_PLAIN = bytes(range(0x20, 0x7F)) + b"\n"
_BEGIN = re.compile(rb"IRIS1 ([0-9a-f]{32}) BEGIN ([A-Za-z0-9._-]{1,64}) ([0-9a-f]{32}|-)")
_END = re.compile(rb"IRIS1 ([0-9a-f]{32}) END (0|[1-9][0-9]{0,6})")


class Frame(Struct, frozen=True):
    """The lines of a worker's answer. `boot_id` and `incarnation` are empty if the worker has none."""

    boot_id: str
    incarnation: str
    text: str


def parse_frame(output: bytes, nonce: str) -> Frame:
    """Find and validate the frame with this nonce, which only this call has. Raises NoAnswer (PROTOCOL).

    Text that a login shell prints before or after the frame is ignored.
    """
    mark = nonce.encode()
    if (marks := output.count(mark)) != 2:
        raise malformed_answer(
            "the answer has no frame" if not marks else "the frame of the answer is truncated or doubled"
        )
    (first, after_first), (last, after_last) = (
        (output.rfind(b"\n", 0, at) + 1, output.find(b"\n", at) + 1)
        for at in (output.find(mark), output.rfind(mark))
    )
    if not after_last:
        raise malformed_answer("the frame of the answer is truncated or doubled")
    begin = _BEGIN.fullmatch(output, first, after_first - 1)
    end = _END.fullmatch(output, last, after_last - 1)
    if begin is None or end is None or begin[1] != mark or end[1] != mark:
        raise malformed_answer("the answer's frame is malformed")
    inside = output[after_first:last]
    count = inside.count(b"\n")
    if count != int(end[2]):
        raise malformed_answer(f"the answer has {count} lines and claims {int(end[2])}")
    if inside.translate(None, _PLAIN):
        raise malformed_answer("the answer has a line that is not plain text")
    if any(not 0 < len(line) <= MAX_LINE for line in inside.split(b"\n")[:-1]):
        raise malformed_answer("the answer has a line that is empty or too long")
    boot_id, incarnation = ("" if word == b"-" else word.decode() for word in begin.group(2, 3))
    return Frame(boot_id, incarnation, inside[:-1].decode())


def malformed_answer(detail: str, *, hint: str = "") -> NoAnswer:
    """Return the error for a malformed answer."""
    return NoAnswer(SilenceKind.PROTOCOL, "answer", detail, hint=hint)


def failed_script(output: ScriptResult) -> NoAnswer:
    """Return the error for a script that did not exit with 0."""
    hint = "the login shell must be able to run: exec /bin/sh -s" if output.status in (1, 126, 127) else ""
    return malformed_answer(f"the call exited with {output.status}: {output.message}", hint=hint)


# Facts about failures: a line `D <token>`. Its data is the file `facts` that the wrapper wrote (`shell/deaths.sh`).


MAX_FACT = 300
_LINE = re.compile(r"D ([0-9a-f]{32})")
_FACT = re.compile(rf"({'|'.join(FactKind)}) (proven|guess) ([ -~]{{1,{MAX_FACT}}})")


def parse_facts(data: bytes) -> tuple[Fact, ...]:
    """Return the facts in the file, one of each kind. Skip malformed lines, because a task may have written them."""
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
    """Add the facts of a line `D` to `facts`. Return False for any other line.

    Raises NoAnswer for facts about an attempt that is not in `tokens`.
    """
    match = _LINE.fullmatch(line)
    if match is None:
        return False
    token = Token(match[1])
    if token in facts or token not in tokens:
        raise malformed_answer("the answer has facts that were not asked for")
    facts[token] = parse_facts(data)
    return True
