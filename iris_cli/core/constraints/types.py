"""One constraint: a condition on one attribute of a worker."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum

from iris_cli.core.attributes import AttributeValue, RawValue, wrap
from iris_cli.core.structs import Value


class ConstraintOp(StrEnum):
    """How a constraint compares."""

    EQ = "EQ"
    NE = "NE"
    EXISTS = "EXISTS"
    NOT_EXISTS = "NOT_EXISTS"
    GT = "GT"
    GE = "GE"
    LT = "LT"
    LE = "LE"
    IN = "IN"

    __hash__ = str.__hash__  # that of the text it is equal to; an enum's own one is much slower


class ConstraintMode(StrEnum):
    """Required constraints filter workers, preferred ones only rank them."""

    REQUIRED = "REQUIRED"
    PREFERRED = "PREFERRED"

    __hash__ = str.__hash__


_UNARY = frozenset({ConstraintOp.EXISTS, ConstraintOp.NOT_EXISTS})
_ORDER: Mapping[ConstraintOp, Callable[[float, float], bool]] = {
    ConstraintOp.GT: operator.gt,
    ConstraintOp.GE: operator.ge,
    ConstraintOp.LT: operator.lt,
    ConstraintOp.LE: operator.le,
}


class Constraint(Value, frozen=True):
    """One condition on one attribute of a worker.

    `EXISTS` and `NOT_EXISTS` take no value, `IN` takes `values`, the others take `value`; `GT GE LT LE`
    compare numbers only. Raises ValueError for anything else.
    """

    key: str
    op: ConstraintOp
    value: AttributeValue | None = None
    values: tuple[AttributeValue, ...] = ()
    mode: ConstraintMode = ConstraintMode.REQUIRED

    @classmethod
    def of(
        cls,
        key: str,
        op: ConstraintOp,
        value: AttributeValue | RawValue | None = None,
        values: Iterable[AttributeValue | RawValue] = (),
        mode: ConstraintMode = ConstraintMode.REQUIRED,
    ) -> Constraint:
        """A constraint with raw values, which are wrapped. Raises ValueError."""
        if isinstance(values, str):
            raise ValueError(f"constraint on {key!r}: values is a list, not one text")
        wrapped = None if value is None else wrap(value)
        return cls(key, ConstraintOp(op), wrapped, tuple(map(wrap, values)), ConstraintMode(mode))

    def __post_init__(self) -> None:
        if not self.key:
            raise ValueError("a constraint needs the key of an attribute")
        wants_value = self.op not in _UNARY and self.op is not ConstraintOp.IN
        if (self.value is not None) != wants_value:
            raise ValueError(
                f"{self.op} on {self.key!r} takes {'one value' if wants_value else 'no single value'}"
            )
        if bool(self.values) != (self.op is ConstraintOp.IN):
            wanted = "one or more values" if self.op is ConstraintOp.IN else "no list of values"
            raise ValueError(f"{self.op} on {self.key!r} takes {wanted}")
        if self.op in _ORDER and self.value is not None and not self.value.is_number:
            raise ValueError(f"{self.op} on {self.key!r} compares numbers, not the text {self.value.value!r}")

    @property
    def required(self) -> bool:
        return self.mode is ConstraintMode.REQUIRED

    @property
    def operands(self) -> tuple[AttributeValue, ...]:
        """All values that it compares with: none, one or several."""
        return self.values if self.value is None else (self.value,)

    def matches(self, attributes: Mapping[str, AttributeValue]) -> bool:
        """Whether a worker with these attributes satisfies it. Values of other types never raise."""
        found = attributes.get(self.key)
        if found is None:
            return self.op is ConstraintOp.NOT_EXISTS
        match self.op:
            case ConstraintOp.EQ:
                return found == self.value
            case ConstraintOp.NE:
                return found != self.value
            case ConstraintOp.EXISTS:
                return True
            case ConstraintOp.NOT_EXISTS:
                return False
            case ConstraintOp.IN:
                return found in self.values
            case ordering:
                return any(_in_order(ordering, found, each) for each in self.operands)

    def type_clash(self, attributes: Mapping[str, AttributeValue]) -> str:
        """In words, why types alone keep the constraint from comparing with the worker's value; else ''."""
        found = attributes.get(self.key)
        if found is None or self.op in _UNARY:
            return ""
        if self.op in _ORDER:
            clash = not found.is_number
        else:
            clash = all(type(each.value) is not type(found.value) for each in self.operands)
        if not clash:
            return ""
        wanted = " or ".join(f"{each.type_word} {each.value!r}" for each in self.operands[:3])
        return f"{self.key}: the worker has {found.type_word} {found.value!r}, the constraint {wanted}"


def _in_order(op: ConstraintOp, found: AttributeValue, bound: AttributeValue) -> bool:
    if isinstance(found.value, str) or isinstance(bound.value, str):
        return False
    return _ORDER[op](found.value, bound.value)
