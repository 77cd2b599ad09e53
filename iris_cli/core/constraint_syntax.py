"""Parse and print the text form of constraints: `region=us-west4`, `tpu-worker-id>=1`, `!pool`, `zone in a,b`,
`~pool`."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from iris_cli.core import clip, did_you_mean
from iris_cli.core.attributes import WORKER_ID_ATTRIBUTE_KEY, AttributeValue, scalar_of
from iris_cli.core.constraints import Constraint, ConstraintMode, ConstraintOp
from iris_cli.core.resources import DEVICE_KINDS
from iris_cli.errors import UsageError

_MAX_LENGTH = 4096  # characters
_QUOTED = r'"(?:[^"\\]|\\.)*"' + r"|'(?:[^'\\]|\\.)*'"
_BARE_KEY = r"[A-Za-z0-9_][A-Za-z0-9_.:/-]*"
# A value needs quotes if it begins with a sign, or contains a comma, a quote or a line break.
_BARE_VALUE = r"[^\s,\"'=<>!~](?:[^,\"'\r\n]*[^\s,\"'])?"
_KEY = rf"(?P<key>{_QUOTED}|{_BARE_KEY})"
_VALUE = rf"(?:{_QUOTED}|{_BARE_VALUE})"

# Compiled on first use: every command imports this module, but few commands parse a constraint.
_PRESENCE = rf"(?s)(?P<absent>!\s*)?{_KEY}"
_COMPARISON = rf"(?s){_KEY}\s*(?P<sign>!=|>=|<=|=|>|<)\s*(?P<value>{_VALUE})"
_MEMBERSHIP = rf"(?s){_KEY}\s+in\s+(?P<values>{_VALUE}(?:\s*,\s*{_VALUE})*)"

_SIGNS = {
    "=": ConstraintOp.EQ,
    "!=": ConstraintOp.NE,
    ">": ConstraintOp.GT,
    ">=": ConstraintOp.GE,
    "<": ConstraintOp.LT,
    "<=": ConstraintOp.LE,
}
_SIGN_OF = {op: sign for sign, op in _SIGNS.items()}
_NOTATION = "write key=value, key!=value, key>=1, key in a,b, key or !key; a leading ~ makes it soft"


def parse_constraint(text: str) -> Constraint:
    """Parse one constraint. An unquoted number is a number, a quoted value is text. Raises UsageError."""
    stripped = text.strip()
    mode = ConstraintMode.PREFERRED if stripped.startswith("~") else ConstraintMode.REQUIRED
    body = stripped.removeprefix("~").lstrip()
    try:
        constraint = None if len(text) > _MAX_LENGTH else _parse(body, mode)
    except ValueError as problem:
        raise UsageError(f"constraint {text[:80]!r}: {problem}", hint=_NOTATION) from None
    if constraint is None:
        raise UsageError(f"{text[:80]!r} is not a constraint", hint=_hint(body))
    return constraint


def format_constraint(constraint: Constraint) -> str:
    """Return the text form of a constraint, which `parse_constraint` parses to an equal constraint."""
    key = constraint.key if re.fullmatch(_BARE_KEY, constraint.key) else _quote(constraint.key)
    if constraint.op is ConstraintOp.EXISTS:
        body = key
    elif constraint.op is ConstraintOp.NOT_EXISTS:
        body = f"!{key}"
    elif constraint.op is ConstraintOp.IN:
        body = f"{key} in {','.join(_format_value(each) for each in constraint.values)}"
    else:
        body = f"{key}{_SIGN_OF[constraint.op]}{''.join(_format_value(each) for each in constraint.operands)}"
    return body if constraint.required else f"~{body}"


def _parse(body: str, mode: ConstraintMode) -> Constraint | None:
    if found := re.fullmatch(_PRESENCE, body):
        op = ConstraintOp.NOT_EXISTS if found["absent"] else ConstraintOp.EXISTS
        return Constraint.of(_unquote(found["key"]), op, mode=mode)
    if found := re.fullmatch(_COMPARISON, body):
        key = _unquote(found["key"])
        return Constraint.of(key, _SIGNS[found["sign"]], _parse_value(key, found["value"]), mode=mode)
    if found := re.fullmatch(_MEMBERSHIP, body):
        key = _unquote(found["key"])
        values = [_parse_value(key, each) for each in re.findall(f"(?s){_VALUE}", found["values"])]
        return Constraint.of(key, ConstraintOp.IN, values=values, mode=mode)
    return None


def _hint(body: str) -> str:
    key, sign, value = re.match(r"([^=<>!]*)([=<>!]*)(.*)", body[:80], re.DOTALL).groups()  # type: ignore[union-attr]  # matches any text
    if sign == "==" and value:
        return f"write {key}={value}"
    if sign in _SIGNS and not value:
        return f'give a value after {sign}, or {key}{sign}"" for the empty text'
    if sign == "=" and "," in value and '"' not in value:
        return f"write {key.strip()} in {value} for several values"
    return _NOTATION


def _parse_value(key: str, word: str) -> str | int | float:
    if word[0] in "\"'":
        return _unquote(word)
    return word if key == WORKER_ID_ATTRIBUTE_KEY else scalar_of(word)


def _format_value(value: AttributeValue) -> str:
    raw = value.value
    if not isinstance(raw, str):
        return repr(raw)
    needs_no_quotes = re.fullmatch(_BARE_VALUE, raw) and isinstance(scalar_of(raw), str)
    return raw if needs_no_quotes else _quote(raw)


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _unquote(word: str) -> str:
    return re.sub(r"(?s)\\(.)", r"\1", word[1:-1]) if word[0] in "\"'" else word


_OPS_WITH_VALUES = frozenset({ConstraintOp.EQ, ConstraintOp.IN})


def typo_warnings(
    constraints: Iterable[Constraint], fleet: Sequence[Mapping[str, AttributeValue]]
) -> Iterator[str]:
    """Yield a warning for each key or value that no worker of `fleet` has, if a worker has a similar key or value."""
    known: dict[str, dict[AttributeValue, None]] = {}
    for attributes in fleet:
        for key, value in attributes.items():
            known.setdefault(key, {})[value] = None
    for constraint in constraints:
        if constraint.key not in known:
            suggestion = did_you_mean(constraint.key, known)
            if suggestion and constraint.op not in (ConstraintOp.NOT_EXISTS, ConstraintOp.NE):
                yield f"no worker has an attribute {clip(constraint.key)!r}; {suggestion}"
        elif constraint.op in _OPS_WITH_VALUES:
            values = known[constraint.key]
            for wanted in constraint.operands:
                if wanted not in values and (suggestion := _suggest_value(wanted, values)):
                    yield f"no worker has {constraint.key} {clip(repr(wanted.value))}; {suggestion}"


def _suggest_value(wanted: AttributeValue, values: Iterable[AttributeValue]) -> str:
    equal_texts = [value for value in values if str(value.value) == str(wanted.value)]
    if equal_texts:
        return f"did you mean the {equal_texts[0].type_word} {equal_texts[0].value!r}?"
    texts = [str(value.value) for value in values]
    is_other_device = str(wanted.value).casefold() in {*DEVICE_KINDS} - {*texts}  # `cpu` is no typo of `tpu`
    return "" if is_other_device else did_you_mean(str(wanted.value), texts)
