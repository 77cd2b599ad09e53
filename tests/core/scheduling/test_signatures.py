"""Jobs have equal signatures if they ask for the same, and no name or value of a job can feign another's."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

from msgspec.structs import replace

from iris_cli.core.constraints import Constraint, ConstraintMode, ConstraintOp, RawValue
from iris_cli.core.ids import JobId
from iris_cli.core.model.job import CoschedulingConfig, Job, Signature
from iris_cli.core.resources import Device, Resources

# With texts that would be read as the parts of a signature if nothing kept them apart.
TEXTS = [
    *("a", "b", "a EXISTS [] REQUIRED b", "b' EXISTS [] REQUIRED 'a", "'a' REQUIRED 'b' EXISTS []", "a', 'b"),
    *("a 1", "'", "\\", "\udcff"),
]
VALUES: list[RawValue] = ["a", "a', 'b", "1", "1.0", "true", 0, 1, 1.0, 0.0, -0.0, True, 10**22, 1e22]

JOB = Job(id=JobId("job"))
EXISTING = [Constraint.of(text, ConstraintOp.EXISTS) for text in TEXTS]
CONSTRAINTS = [
    *((each,) for each in EXISTING),
    *combinations(EXISTING, 2),
    *((Constraint.of("a", ConstraintOp.EXISTS, mode=ConstraintMode.PREFERRED), each) for each in EXISTING),
    *((Constraint.of("a", op, value),) for op in (ConstraintOp.EQ, ConstraintOp.NE) for value in VALUES),
    *((Constraint.of("a", ConstraintOp.IN, values=several),) for several in product(VALUES, repeat=2)),
]
DEVICES = [
    Device("cpu"),
    *(Device("tpu", text) for text in TEXTS),
    *(Device("gpu", text, count) for text in TEXTS for count in (1, 2, 11)),
]
JOBS = [
    JOB,
    replace(JOB, id=JobId("other"), order=7, command=("other",)),
    *(replace(JOB, constraints=each) for each in CONSTRAINTS),
    *(replace(JOB, tolerations=each) for each in [*combinations(TEXTS, 1), *combinations(TEXTS, 2)]),
    *(replace(JOB, tolerations=(text,), constraints=(each,)) for text in TEXTS for each in EXISTING),
    *(replace(JOB, resources=Resources(cpu, size)) for cpu in (1, 1.0, 1.1, 11) for size in (1, 11)),
    *(replace(JOB, resources=Resources(device=device)) for device in DEVICES),
    *(replace(JOB, coscheduling=CoschedulingConfig("'a'"), constraints=(each,)) for each in EXISTING),
    *(
        replace(JOB, replicas=replicas, slices=slices, coscheduling=gang, spread=spread)
        for gang in (None, *map(CoschedulingConfig, TEXTS))
        for replicas in (1, 2, 12)
        for slices in (1, 2)
        for spread in (False, True)
    ),
]


def asked(job: Job) -> tuple[Any, ...]:
    """All that the scheduler looks at. Values of different types are not equal, 0.0 and -0.0 are."""
    return (
        job.resources,
        job.tolerations,
        job.constraints,
        (job.coscheduling, job.replicas, job.slices, job.spread) if job.coscheduling else None,
    )


def test_signatures_are_equal_for_jobs_that_ask_for_the_same_and_no_others() -> None:
    signatures: dict[tuple[Any, ...], Signature] = {}
    for job in JOBS:
        assert signatures.setdefault(asked(job), job.signature) == job.signature
    assert len(frozenset(signatures.values())) == len(signatures) > 300
