"""Constraints that nothing satisfies because of a slip of the pen: values are compared exactly, and case matters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from iris_cli.core.attributes import AttributeValue
from iris_cli.core.constraints.types import Constraint, ConstraintOp
from iris_cli.core.ids import clip
from iris_cli.core.nearest import did_you_mean

_WANTED = frozenset({ConstraintOp.EQ, ConstraintOp.IN})
_ABSENCE = frozenset({ConstraintOp.NOT_EXISTS, ConstraintOp.NE})


def near_misses(
    constraints: Iterable[Constraint], fleet: Sequence[Mapping[str, AttributeValue]]
) -> Iterator[str]:
    """A warning for each key or value that no worker has, where one that some worker has is like it."""
    known: dict[str, dict[AttributeValue, None]] = {}
    for attributes in fleet:
        for key, value in attributes.items():
            known.setdefault(key, {})[value] = None
    for constraint in constraints:
        if constraint.key not in known:
            meant = did_you_mean(constraint.key, known)
            if meant and constraint.op not in _ABSENCE:
                yield f"no worker has an attribute {clip(constraint.key)!r}; {meant}"
        elif constraint.op in _WANTED:
            values = known[constraint.key]
            for wanted in constraint.operands:
                if wanted not in values and (meant := _meant(wanted, values)):
                    yield f"no worker has {constraint.key} {clip(repr(wanted.value))}; {meant}"


def _meant(wanted: AttributeValue, values: Iterable[AttributeValue]) -> str:
    alike = [value for value in values if str(value.value) == str(wanted.value)]
    if alike:
        return f"did you mean the {alike[0].type_word} {alike[0].value!r}?"
    return did_you_mean(str(wanted.value), [str(value.value) for value in values])
