"""Canonical keys: `region` and `preemptible` are placement intent, read by scheduler and autoscaler alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from iris_cli.core.attributes import PREEMPTIBLE_ATTRIBUTE_KEY, REGION_ATTRIBUTE_KEY, AttributeValue
from iris_cli.core.constraints.types import Constraint, ConstraintOp


class NormalizedConstraints(Struct, frozen=True):
    """The placement intent in the required constraints on canonical keys; None means: no matter."""

    preemptible: bool | None
    required_regions: frozenset[str] | None


_CANONICAL_KEYS = (REGION_ATTRIBUTE_KEY, PREEMPTIBLE_ATTRIBUTE_KEY)


def preemptible_constraint(preemptible: bool = True) -> Constraint:
    """Require preemptible workers, or workers that aren't."""
    return Constraint.of(PREEMPTIBLE_ATTRIBUTE_KEY, ConstraintOp.EQ, preemptible)


def region_constraint(regions: Sequence[str]) -> Constraint:
    """Require one of `regions`. Raises ValueError if there is none, or a blank one."""
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
    """What the required constraints say of `preemptible`; None if nothing. Raises ValueError."""
    wanted: set[bool] = set()
    for constraint in _required_on(PREEMPTIBLE_ATTRIBUTE_KEY, constraints):
        text = constraint.value.value if constraint.value is not None else None
        if constraint.op is not ConstraintOp.EQ or text not in ("true", "false"):
            raise ValueError(f"{PREEMPTIBLE_ATTRIBUTE_KEY} takes only =true or =false")
        wanted.add(text == "true")
    if len(wanted) > 1:
        raise ValueError(f"{PREEMPTIBLE_ATTRIBUTE_KEY} is asked to be both true and false")
    return wanted.pop() if wanted else None


def required_regions_from_constraints(constraints: Iterable[Constraint]) -> frozenset[str] | None:
    """The regions that all required constraints on `region` allow; None without any. Raises ValueError."""
    allowed: frozenset[str] | None = None
    for constraint in _required_on(REGION_ATTRIBUTE_KEY, constraints):
        if constraint.op not in (ConstraintOp.EQ, ConstraintOp.IN):
            raise ValueError(f"{REGION_ATTRIBUTE_KEY} takes only = and in, not {constraint.op}")
        names = frozenset(_region_name(each) for each in constraint.operands)
        if allowed is not None and not allowed & names:
            raise ValueError(
                f"no {REGION_ATTRIBUTE_KEY} satisfies all constraints: one allows {_listed(allowed)}, "
                f"another {_listed(names)}"
            )
        allowed = names if allowed is None else allowed & names
    return allowed


def normalize_constraints(constraints: Iterable[Constraint]) -> NormalizedConstraints:
    """The placement intent of a job, as scheduler and autoscaler read it. Raises ValueError."""
    constraints = tuple(constraints)
    return NormalizedConstraints(
        preemptible=preemptible_preference_from_constraints(constraints),
        required_regions=required_regions_from_constraints(constraints),
    )


def merge_constraints(parent: Sequence[Constraint], child: Sequence[Constraint]) -> list[Constraint]:
    """The constraints of a child job: the parent's that stay in force, then the child's, each once.

    On a canonical key the child's replace the parent's, but a preferred one never replaces a required one.
    Contradictions on other keys stay in; `contradiction_in` finds them.
    """
    named = {c.key for c in child if c.key in _CANONICAL_KEYS}
    required = {c.key for c in child if c.required}
    kept = [c for c in parent if c.key not in named or (c.required and c.key not in required)]
    return list(dict.fromkeys([*kept, *child]))


def contradiction_in(constraints: Iterable[Constraint]) -> str:
    """In words, why no worker could ever satisfy the required constraints on some key; else ''."""
    by_key: dict[str, list[Constraint]] = {}
    for constraint in constraints:
        if constraint.required:
            by_key.setdefault(constraint.key, []).append(constraint)
    for key, group in by_key.items():
        if not _satisfiable(key, group):
            return f"the constraints on {key!r} contradict each other"
    return ""


def _satisfiable(key: str, group: Sequence[Constraint]) -> bool:
    ops = {c.op for c in group}
    if ConstraintOp.NOT_EXISTS in ops:
        return len(ops) == 1
    for constraint in group:
        if constraint.op in (ConstraintOp.EQ, ConstraintOp.IN):
            return any(all(c.matches({key: each}) for c in group) for each in constraint.operands)
    return _bounds_meet(key, group)


def _bounds_meet(key: str, group: Sequence[Constraint]) -> bool:
    """Whether some number lies within all bounds: between two different ones there always is one."""
    lower = _numbers(group, ConstraintOp.GT, ConstraintOp.GE)
    upper = _numbers(group, ConstraintOp.LT, ConstraintOp.LE)
    if not lower or not upper:
        return True
    low, high = max(lower), min(upper)
    return low < high or (low == high and all(c.matches({key: AttributeValue(low)}) for c in group))


def _numbers(group: Iterable[Constraint], *ops: ConstraintOp) -> list[int | float]:
    operands = [each.value for c in group if c.op in ops for each in c.operands]
    return [operand for operand in operands if not isinstance(operand, str)]


def _required_on(key: str, constraints: Iterable[Constraint]) -> list[Constraint]:
    return [c for c in constraints if c.required and c.key == key]


def _region_name(value: AttributeValue) -> str:
    if not isinstance(value.value, str) or not value.value.strip():
        raise ValueError(f"{REGION_ATTRIBUTE_KEY} takes a name, not {value.value!r}")
    return value.value


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
