"""Constraints: a job's conditions on the attributes of workers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum

from msgspec import MsgspecError, Struct, json
from msgspec.structs import force_setattr

from iris_cli.core.attributes import (
    DEVICE_TYPE_ATTRIBUTE_KEY,
    DEVICE_VARIANT_ATTRIBUTE_KEY,
    PREEMPTIBLE_ATTRIBUTE_KEY,
    REGION_ATTRIBUTE_KEY,
    SCALE_GROUP_ATTRIBUTE_KEY,
    TAINT_KEY_PREFIX,
    TPU_NAME_ATTRIBUTE_KEY,
    TPU_TOPOLOGY_ATTRIBUTE_KEY,
    TPU_VM_COUNT_ATTRIBUTE_KEY,
    TPU_WORKER_ID_ATTRIBUTE_KEY,
    ZONE_ATTRIBUTE_KEY,
    AttributeValue,
    RawValue,
    WorkerAttributes,
    build_worker_attributes,
    taint_key,
    wrap,
)
from iris_cli.core.structs import Value, to_json_value


class ConstraintOp(StrEnum):
    """Comparison operator of a constraint."""

    EQ = "EQ"
    NE = "NE"
    EXISTS = "EXISTS"
    NOT_EXISTS = "NOT_EXISTS"
    GT = "GT"
    GE = "GE"
    LT = "LT"
    LE = "LE"
    IN = "IN"

    __hash__ = str.__hash__  # an enum's own hash is much slower


class ConstraintMode(StrEnum):
    """A required constraint excludes workers that do not satisfy it; a preferred constraint only ranks workers."""

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

    `EXISTS` and `NOT_EXISTS` take no value, `IN` takes `values`, all other operators take `value`. `GT GE LT LE`
    compare numbers only. Raw values become attribute values. Raises ValueError for other combinations.
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
        """Return a constraint. The type checker accepts raw values here. Raises ValueError."""
        return cls(key, op, value, values, mode)  # type: ignore[arg-type]  # __post_init__ converts

    def __post_init__(self) -> None:
        self._convert_raw_fields()
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
            raise ValueError(f"{self.key!r}: > >= < <= compare numbers, not the text {self.value.value!r}")

    def _convert_raw_fields(self) -> None:
        values: object = self.values
        if isinstance(values, str):
            raise ValueError(f"constraint on {self.key!r}: values is a list, not one text")
        if self.value is not None and type(self.value) is not AttributeValue:
            force_setattr(self, "value", wrap(self.value))
        if type(self.values) is not tuple or any(type(each) is not AttributeValue for each in self.values):
            force_setattr(self, "values", tuple(map(wrap, self.values)))
        if type(self.op) is not ConstraintOp:
            force_setattr(self, "op", ConstraintOp(self.op))
        if type(self.mode) is not ConstraintMode:
            force_setattr(self, "mode", ConstraintMode(self.mode))

    @property
    def required(self) -> bool:
        return self.mode is ConstraintMode.REQUIRED

    @property
    def operands(self) -> tuple[AttributeValue, ...]:
        """The values to compare with: 0, 1 or several."""
        return self.values if self.value is None else (self.value,)

    def matches(self, attributes: Mapping[str, AttributeValue]) -> bool:
        """Return whether attributes satisfy the constraint. A value of another type satisfies only NE and EXISTS."""
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
                return any(_compare_numbers(ordering, found, each) for each in self.operands)

    def type_clash(self, attributes: Mapping[str, AttributeValue]) -> str:
        """Return a description of the type mismatch that prevents a comparison with the worker's value, or ''."""
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


def _compare_numbers(op: ConstraintOp, found: AttributeValue, bound: AttributeValue) -> bool:
    if isinstance(found.value, str) or isinstance(bound.value, str):
        return False
    return _ORDER[op](found.value, bound.value)


class NormalizedConstraints(Struct, frozen=True):
    """The values of `preemptible` and `region` that the required constraints allow. None means any value."""

    preemptible: bool | None
    required_regions: frozenset[str] | None


_CANONICAL_KEYS = (REGION_ATTRIBUTE_KEY, PREEMPTIBLE_ATTRIBUTE_KEY)


def preemptible_constraint(preemptible: bool = True) -> Constraint:
    """Return a constraint that requires preemptible, or non-preemptible, workers."""
    return Constraint.of(PREEMPTIBLE_ATTRIBUTE_KEY, ConstraintOp.EQ, preemptible)


def region_constraint(regions: Sequence[str]) -> Constraint:
    """Return a constraint that requires one of `regions`. Raises ValueError if the list or a name is empty."""
    if isinstance(regions, str):
        raise ValueError(f"regions is a list, not the text {regions!r}")
    names = list(dict.fromkeys(regions))
    if not names:
        raise ValueError("no region given")
    if not all(name.strip() for name in names):
        raise ValueError("a region is blank")
    if len(names) == 1:
        return Constraint.of(REGION_ATTRIBUTE_KEY, ConstraintOp.EQ, names[0])
    return Constraint.of(REGION_ATTRIBUTE_KEY, ConstraintOp.IN, values=names)


def preemptible_preference_from_constraints(constraints: Iterable[Constraint]) -> bool | None:
    """Return the value of `preemptible` that is required; None if any value is allowed. Raises ValueError."""
    wanted: set[bool] = set()
    for constraint in (c for c in constraints if c.required and c.key == PREEMPTIBLE_ATTRIBUTE_KEY):
        text = constraint.value.value if constraint.value is not None else None
        if constraint.op is not ConstraintOp.EQ or text not in ("true", "false"):
            raise ValueError(f"{PREEMPTIBLE_ATTRIBUTE_KEY} takes only =true or =false")
        wanted.add(text == "true")
    if len(wanted) > 1:
        raise ValueError(f"{PREEMPTIBLE_ATTRIBUTE_KEY} is both true and false")
    return wanted.pop() if wanted else None


def required_regions_from_constraints(constraints: Iterable[Constraint]) -> frozenset[str] | None:
    """Return the regions that all required constraints on `region` allow; None: all. Raises ValueError."""
    allowed: frozenset[str] | None = None
    for constraint in (c for c in constraints if c.required and c.key == REGION_ATTRIBUTE_KEY):
        if constraint.op not in (ConstraintOp.EQ, ConstraintOp.IN):
            raise ValueError(f"{REGION_ATTRIBUTE_KEY} takes only = and in")
        names = frozenset(_region_name(each) for each in constraint.operands)
        if allowed is not None and not allowed & names:
            one, other = (", ".join(sorted(each)) for each in (allowed, names))
            raise ValueError(
                f"no {REGION_ATTRIBUTE_KEY} satisfies all constraints: one allows {one}, another {other}"
            )
        allowed = names if allowed is None else allowed & names
    return allowed


def normalize_constraints(constraints: Iterable[Constraint]) -> NormalizedConstraints:
    """Return the values of `preemptible` and `region` that the required constraints allow. Raises ValueError."""
    constraints = tuple(constraints)
    return NormalizedConstraints(
        preemptible=preemptible_preference_from_constraints(constraints),
        required_regions=required_regions_from_constraints(constraints),
    )


def merge_constraints(parent: Sequence[Constraint], child: Sequence[Constraint]) -> list[Constraint]:
    """Return the constraints of a child job: its parent's constraints, then its own, without duplicates.

    The child's constraints on `region` or `preemptible` replace the parent's constraints on that key, but a preferred
    constraint never replaces a required one. Contradictions on other keys remain; `contradiction_in` finds them.
    """
    replaced = {c.key for c in child if c.key in _CANONICAL_KEYS}
    required = {c.key for c in child if c.required}
    kept = [c for c in parent if c.key not in replaced or (c.required and c.key not in required)]
    return list(dict.fromkeys([*kept, *child]))


def contradiction_in(constraints: Iterable[Constraint]) -> str:
    """Return a description of required constraints on one key that no worker could ever satisfy, or ''."""
    by_key: dict[str, list[Constraint]] = {}
    for constraint in constraints:
        if constraint.required:
            by_key.setdefault(constraint.key, []).append(constraint)
    for key, group in by_key.items():
        if not _can_be_satisfied(key, group):
            return f"the constraints on {key!r} contradict each other"
    return ""


def _can_be_satisfied(key: str, group: Sequence[Constraint]) -> bool:
    ops = {c.op for c in group}
    if ConstraintOp.NOT_EXISTS in ops:
        return len(ops) == 1
    for constraint in group:
        if constraint.op in (ConstraintOp.EQ, ConstraintOp.IN):
            return any(all(c.matches({key: each}) for c in group) for each in constraint.operands)
    return _bounds_overlap(key, group)


def _bounds_overlap(key: str, group: Sequence[Constraint]) -> bool:
    """Return whether some number is within all bounds. It need not be a whole number."""
    lower = _bounds_of(group, ConstraintOp.GT, ConstraintOp.GE)
    upper = _bounds_of(group, ConstraintOp.LT, ConstraintOp.LE)
    if not lower or not upper:
        return True
    low, high = max(lower), min(upper)
    return low < high or (low == high and all(c.matches({key: AttributeValue(low)}) for c in group))


def _bounds_of(group: Iterable[Constraint], *ops: ConstraintOp) -> list[int | float]:
    operands = [each.value for c in group if c.op in ops for each in c.operands]
    return [operand for operand in operands if not isinstance(operand, str)]


def _region_name(value: AttributeValue) -> str:
    if not isinstance(value.value, str) or not value.value.strip():
        raise ValueError(f"{REGION_ATTRIBUTE_KEY} takes a name, not {value.value!r}")
    return value.value


_JSON_LIMIT = 1 << 20  # characters


def constraints_to_json(constraints: Iterable[Constraint]) -> str:
    """Return the constraints as a JSON array that keeps the type of every value."""
    return _ENCODER.encode(list(constraints)).decode("utf-8")


def constraints_from_json(raw: str) -> list[Constraint]:
    """Parse the output of `constraints_to_json`. Raises ValueError for any other text."""
    if len(raw) > _JSON_LIMIT:
        raise ValueError(f"constraints are longer than {_JSON_LIMIT} characters")
    try:
        return _DECODER.decode(raw)
    except RecursionError:
        raise ValueError("constraints are nested too deeply") from None
    except MsgspecError as error:
        raise ValueError(str(error)) from error


_ENCODER = json.Encoder(enc_hook=to_json_value)
_DECODER = json.Decoder(list[Constraint], dec_hook=lambda _, content: AttributeValue(content))
