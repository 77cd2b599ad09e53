"""Events as JSON objects: everything comes back as it was, and nothing else is taken for an event."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris_cli.core.constraints import AttributeValue, Constraint, ConstraintMode, ConstraintOp
from iris_cli.core.events.events import ClusterCreated, Event, TaskAssigned, WorkerUpdated
from iris_cli.core.ids import AttemptId, JobId, RequestId, TaskId, Token, WorkerId, parse_job_id
from iris_cli.core.model.job import CoschedulingConfig, Lines, Workspace
from iris_cli.core.resources import Device, Resources
from iris_cli.journal.codec import BadEventError, decode, encode, encode_record
from iris_cli.journal.log.record import EVENT_TYPES, UnknownTypeError, decode_event, encode_event
from tests.journal.samples import A0, HOST, RANK0, STORY

TYPES = sorted(EVENT_TYPES.values(), key=lambda cls: cls.__name__)
SAMPLES = {type(event).__name__: event for events in STORY for event in events}

_NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
_NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z._-]{0,20}", fullmatch=True)
_JOBS = st.lists(_NAMES, min_size=1, max_size=3).map(lambda parts: JobId("/".join(parts)))
_VALUES = (st.text(max_size=9) | st.integers(-(10**30), 10**30) | _NUMBERS).map(AttributeValue)
_CONSTRAINTS = st.one_of(
    st.builds(
        Constraint.of, st.text(min_size=1), st.sampled_from([ConstraintOp.EQ, ConstraintOp.NE]), _VALUES
    ),
    st.builds(
        Constraint.of,
        st.text(min_size=1),
        st.just(ConstraintOp.NOT_EXISTS),
        mode=st.sampled_from(ConstraintMode),
    ),
    st.builds(Constraint.of, st.text(min_size=1), st.just(ConstraintOp.LE), st.integers() | _NUMBERS),
    st.builds(
        Constraint.of,
        st.text(min_size=1),
        st.just(ConstraintOp.IN),
        values=st.lists(_VALUES, min_size=1, max_size=4),
    ),
)
_DEVICES = st.builds(Device, st.just("gpu"), st.text("ab", min_size=1), st.integers(1, 16)) | st.builds(
    Device, st.just("tpu")
)
_BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=20),
    int: st.integers(-(2**70), 2**70),
    bool: st.booleans(),
    float: _NUMBERS | st.integers(0, 10),
    JobId: _JOBS,
    WorkerId: _NAMES.map(WorkerId),
    TaskId: st.builds(TaskId, _JOBS, st.integers(0, 999_999_999)),
    AttemptId: st.builds(AttemptId, st.builds(TaskId, _JOBS, st.integers(0, 99)), st.integers(0, 999_999)),
    Token: st.text("0123456789abcdef", min_size=32, max_size=32).map(Token),
    RequestId: st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", fullmatch=True).map(RequestId),
    AttributeValue: _VALUES,
    Constraint: _CONSTRAINTS,
    Resources: st.builds(Resources, st.floats(0.001, 1000), st.integers(1, 1 << 60), st.none() | _DEVICES),
    Workspace: st.builds(
        Workspace,
        hash=st.text("0123456789abcdef", min_size=64, max_size=64),
        size=st.integers(0, 1 << 40),
        files=st.integers(0, 1 << 20),
        name=st.text(max_size=20),
    ),
    Lines: st.builds(
        Lines,
        hash=st.text("0123456789abcdef", min_size=64, max_size=64),
        count=st.integers(1, 1 << 20),
        size=st.integers(1 << 20, 1 << 40),
    ),
    Device: _DEVICES,
    CoschedulingConfig: st.just(CoschedulingConfig("tpu-name")),
}


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Any value that a field with this annotation may hold."""
    if hint in _BY_TYPE:
        return _BY_TYPE[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):  # the second of a new type or None
        return st.one_of(*(st.none() if each is types.NoneType else values_of(each) for each in arguments))
    if origin is tuple:
        return st.lists(values_of(arguments[0]), max_size=3).map(tuple)
    if origin in (dict, Mapping):
        return st.dictionaries(values_of(arguments[0]), values_of(arguments[1]), max_size=3)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(hint)
    return instances_of(hint)


def instances_of(cls: Any) -> st.SearchStrategy[Any]:
    """Any instance of a struct; a field with a default is left out now and then."""
    hints = typing.get_type_hints(cls)
    required: dict[str, st.SearchStrategy[Any]] = {}
    optional: dict[str, st.SearchStrategy[Any]] = {}
    for field in msgspec.structs.fields(cls):
        (required if field.required else optional)[field.name] = values_of(hints[field.name])
    return st.fixed_dictionaries(required, optional=optional).map(lambda given_fields: cls(**given_fields))


def through_text(event: Event) -> Event | None:
    return decode_event(json.loads(json.dumps(encode_event(event))))


@pytest.mark.parametrize("cls", TYPES, ids=lambda cls: cls.__name__)
def test_any_event_decodes_to_an_equal_event(cls: type[Event]) -> None:
    @settings(max_examples=5, deadline=None)
    @given(instances_of(cls))
    def comes_back(event: Event) -> None:
        assert through_text(event) == event

    comes_back()


@pytest.mark.parametrize("value", [1, "1", 1.0, 0, 0.0, "", "true", -7, 1e300, 10**40, "é\ud83d\x00"])
def test_the_exact_type_of_an_attribute_comes_back(value: str | int | float) -> None:
    event = WorkerUpdated(worker=A0, connection=HOST, attributes={"key": AttributeValue(value)})
    back = through_text(event)
    assert isinstance(back, WorkerUpdated)
    assert type(back.attributes["key"].value) is type(value)
    assert back.attributes["key"].value == value


def test_a_whole_number_in_a_field_of_decimals_comes_back_as_a_decimal() -> None:
    entry = {"type": "TaskRunning", "task": "train/task-0", "attempt": 0, "started_at": 5}
    event: Any = decode_event(entry)
    assert type(event.started_at) is float


def test_a_field_that_is_equal_to_its_default_is_not_written() -> None:
    event = TaskAssigned(task=RANK0, attempt=0, worker=A0, token=Token("8f0c" * 8), gpus=())
    assert encode_event(event) == {
        "type": "TaskAssigned",
        "task": "train/task-0",
        "attempt": 0,
        "worker": "v4a-0",
        "token": "8f0c" * 8,
    }


def test_a_constraint_is_written_with_raw_values() -> None:
    job = next(event for events in STORY for event in events if type(event).__name__ == "JobSubmitted")
    constraints: Any = encode_event(job)["job"]
    assert constraints["constraints"][0] == {"key": "region", "op": "EQ", "value": "us-central2"}
    assert constraints["constraints"][-1] == {
        "key": "zone",
        "op": "IN",
        "values": ["us-central2-b", 7, 7.0],
        "mode": "PREFERRED",
    }


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("TaskAssigned", {"task": "train"}),
        ("TaskAssigned", {"task": "train/task-01"}),
        ("TaskAssigned", {"task": ["train/task-0"]}),
        ("TaskAssigned", {"worker": "../w"}),
        ("TaskAssigned", {"token": "8F0C" * 8}),
        ("TaskAssigned", {"attempt": "0"}),
        ("TaskAssigned", {"attempt": 0.0}),
        ("TaskAssigned", {"attempt": True}),
        ("TaskAssigned", {"attempt": None}),
        ("TaskAssigned", {"gpus": 1}),
        ("TaskAssigned", {"gpus": {"0": 1}}),
        ("TaskAssigned", {"gpus": [0, "1"]}),
        ("TaskAssigned", {"colour": "red"}),
        ("TaskAssigned", {"ignorable": False}),
        ("TaskAssigned", {"ignorable": 1}),
        ("TaskRunning", {"started_at": float("inf")}),
        ("TaskRunning", {"started_at": 10**400}),
        ("TaskRunning", {"started_at": "5"}),
        ("TaskRunning", {"started_at": True}),
        ("JobCancelled", {"job": "task-3"}),
        ("JobCancelled", {"reason": None}),
        ("JobEnded", {"end": {"reason": "bored"}}),
        ("JobEnded", {"end": {}}),
        ("JobEnded", {"end": None}),
        ("JobEnded", {"end": "ok"}),
        ("WorkerForgotten", {"dead": 1}),
        ("WorkerUpdated", {"attributes": {"a": True}}),
        ("WorkerUpdated", {"attributes": {"a": None}}),
        ("WorkerUpdated", {"attributes": {"a": float("nan")}}),
        ("WorkerUpdated", {"attributes": []}),
        ("WorkerRegistered", {"connection": {}}),
        ("JobSubmitted", {"job": {"id": "x", "constraints": [{"key": "a", "op": "GT", "value": "text"}]}}),
        ("JobSubmitted", {"job": {"id": "x", "constraints": [{"key": "a", "op": "EQ"}]}}),
        ("JobSubmitted", {"job": {"id": "x", "env": {"A": 1}}}),
        ("JobSubmitted", {"job": {"id": "x", "resources": {"cpu": 0}}}),
        ("JobSubmitted", {"job": {"id": "x", "coscheduling": {"group_by": " "}}}),
        ("JobSubmitted", {"job": {"id": "x", "workspace": {"hash": "../../x", "size": 1}}}),
        ("JobSubmitted", {"job": {"id": "x", "workspace": {"hash": "0" * 64, "size": -1}}}),
        ("JobSubmitted", {"job": {"id": "x", "workspace": {"hash": "0" * 64}}}),
        ("JobSubmitted", {"job": {"id": "x", "each_line": {"hash": "../x", "count": 1, "size": 1}}}),
        ("JobSubmitted", {"job": {"id": "x", "each_line": {"hash": "0" * 64, "count": 0, "size": 1}}}),
        ("JobSubmitted", {"job": {"id": "x", "signal": {"lead": 1.0}}}),
    ],
)
def test_events_that_iris_never_writes_are_rejected(name: str, changes: dict[str, Any]) -> None:
    entry = json.loads(json.dumps(encode_event(SAMPLES[name]))) | changes
    with pytest.raises(BadEventError):
        decode_event(entry)


@pytest.mark.parametrize("field", ["task", "attempt", "worker", "token", "type"])
def test_a_missing_field_is_refused(field: str) -> None:
    entry = encode_event(SAMPLES["TaskAssigned"])
    del entry[field]
    with pytest.raises(BadEventError):
        decode_event(entry)


@pytest.mark.parametrize(
    "entry", [None, [], "TaskAssigned", 3, {}, {"type": 3}, {"type": ["ClusterCreated"]}]
)
def test_json_that_is_no_event_is_rejected(entry: object) -> None:
    with pytest.raises(BadEventError):
        decode_event(entry)


@pytest.mark.parametrize(
    "event",
    [
        ClusterCreated(name=typing.cast(str, 5)),
        TaskAssigned(task=RANK0, attempt=0, worker=WorkerId("a b"), token=Token("8f0c" * 8)),
        TaskAssigned(task=RANK0, attempt=True, worker=A0, token=Token("8f0c" * 8)),
        TaskAssigned(task=RANK0, attempt=0, worker=A0, token=Token("short")),
        TaskAssigned(task=TaskId(JobId("a//b"), 0), attempt=0, worker=A0, token=Token("8f0c" * 8)),
        TaskAssigned(
            task=RANK0,
            attempt=0,
            worker=A0,
            token=Token("8f0c" * 8),
            gpus=typing.cast("tuple[int, ...]", [1]),
        ),
        WorkerUpdated(worker=A0, connection=HOST, cpu=float("nan")),
        WorkerUpdated(worker=A0, connection=HOST, cpu=10**400),
        WorkerUpdated(
            worker=A0, connection=HOST, attributes=typing.cast("dict[str, AttributeValue]", {"a": 1})
        ),
    ],
)
def test_values_that_do_not_read_back_are_not_written(event: Event) -> None:
    with pytest.raises(BadEventError):
        encode_event(event)


def test_an_unknown_type_is_refused_unless_it_may_be_ignored() -> None:
    with pytest.raises(UnknownTypeError, match="MoonPhaseChanged"):
        decode_event({"type": "MoonPhaseChanged", "phase": 1})
    assert decode_event({"type": "MoonPhaseChanged", "phase": 1, "ignorable": True}) is None


def test_a_known_type_that_older_programs_may_ignore_is_read() -> None:
    assert decode_event({"type": "ClusterCreated", "name": "lab", "ignorable": True}) == ClusterCreated(
        name="lab"
    )


def test_the_word_is_read_each_time_also_behind_an_event_that_was_wrong() -> None:
    entry = {"type": "ClusterCreated", "ignorable": True, "name": 5}
    with pytest.raises(BadEventError):
        decode_event(entry)
    with pytest.raises(BadEventError, match="ignorable"):
        decode_event(entry | {"ignorable": False, "name": "lab"})


def test_the_common_base_of_events_is_no_event() -> None:
    with pytest.raises(UnknownTypeError):
        decode_event({"type": "AttemptEvent", "task": "train/task-0", "attempt": 0})


@pytest.mark.parametrize("value", [object(), {"a": 1j}, [object()]])
def test_values_without_a_json_form_are_rejected(value: object) -> None:
    for write in (encode, encode_record):
        with pytest.raises(BadEventError):
            write(value)


def test_json_that_nests_too_deep_is_rejected() -> None:
    with pytest.raises(BadEventError):
        decode(list, b"[" * 100_000 + b"]" * 100_000)


def test_ids_come_back_with_what_they_know() -> None:
    text = encode({AttemptId(TaskId(JobId("train/eval"), 7), 2): (RANK0, WorkerId("v4a-0"), Token("0" * 32))})
    ((attempt, values),) = decode(dict[AttemptId, tuple[TaskId, WorkerId, Token]], text).items()
    assert (attempt.task, attempt.number, attempt.task.index) == (TaskId(JobId("train/eval"), 7), 2, 7)
    assert values == (RANK0, WorkerId("v4a-0"), Token("0" * 32))


@pytest.mark.parametrize("text", ["train", "/task-0", "a b/task-0", "train/task-x"])
def test_an_id_without_a_valid_name_or_number_is_rejected(text: str) -> None:
    with pytest.raises(BadEventError):
        decode(list[TaskId], encode([text]))


BAD_NAMES = ["", ".a", "a b", "a/b", "a\n", "x" * 64, "ä"]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *((WorkerId, name) for name in BAD_NAMES),
        *(
            (JobId, name)
            for name in ["", "a//b", "/a", "a/", "a b", "task-1", "a/attempt-2", "a\n", "x" * 64]
        ),
        *((Token, text) for text in ["", "0" * 31, "0" * 33, "A" * 32, "0" * 32 + "\n"]),
        *((RequestId, text) for text in ["", ".a", "a/b", "x" * 65, "a\n"]),
    ],
)
def test_text_that_is_no_id_is_rejected(kind: Any, text: str) -> None:
    with pytest.raises(BadEventError):
        decode(list[kind], json.dumps([text]).encode())


@pytest.mark.parametrize("text", ["train", "train/eval", "task", "tasks-1", "task-x", "a/task-1b", "x" * 63])
def test_names_of_jobs_are_those_that_the_command_line_takes(text: str) -> None:
    assert decode(list[JobId], json.dumps([text]).encode()) == [parse_job_id(text)]
