"""What every store of events must do: one suite for all of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from iris_cli.core.events.events import ClusterCreated, Transaction, WorkerDrained, WorkerUpdated
from iris_cli.core.ids import WorkerId
from iris_cli.journal.log.file_store import FileStore
from iris_cli.journal.log.position import FaultKind
from iris_cli.journal.log.record import Conflict
from tests.journal.memory_store import EventStore, MemoryStore
from tests.journal.samples import A0, HOST, NOON, STORY

CREATED = [ClusterCreated(name="lab")]
DRAINED = [WorkerDrained(worker=A0)]


STORES = ("file", "memory")


class ReadableStore(FileStore):
    """The log as a file, as the other stores are read."""

    def read(self, after_seq: int = 0) -> Iterator[Transaction]:
        loaded = self.load(after_seq)
        assert loaded.fault is None or loaded.fault.kind is FaultKind.TORN
        return iter(loaded.records)


def made(kind: str, path: Path) -> EventStore:
    """A store of that kind, on what is in the directory."""
    return ReadableStore(path) if kind == "file" else MemoryStore()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> EventStore:
    return made(request.param, tmp_path)


def commit(store: EventStore, expected_seq: int, worker: str = "w") -> int | Conflict:
    return store.append(expected_seq, [WorkerDrained(worker=WorkerId(worker))], at=NOON, actor="me@laptop")


def test_a_new_store_is_empty(store: EventStore) -> None:
    assert list(store.read()) == []


def test_what_was_appended_is_read_in_order(store: EventStore) -> None:
    for seq, events in enumerate(STORY):
        assert store.append(seq, events, at=NOON + seq, actor=f"me {seq}") == seq + 1
    assert [
        Transaction(seq=each.seq, at=each.at, actor=each.actor, events=each.events) for each in store.read()
    ] == [
        Transaction(seq=seq + 1, at=NOON + seq, actor=f"me {seq}", events=events)
        for seq, events in enumerate(STORY)
    ]


def test_reading_begins_behind_the_given_seq(store: EventStore) -> None:
    store.append(0, CREATED, at=NOON, actor="me")
    for seq in range(1, 6):
        commit(store, seq)
    for after in (0, 1, 5):
        assert [each.seq for each in store.read(after)] == list(range(after + 1, 7))
    assert list(store.read(6)) == []


@pytest.mark.parametrize("expected", [0, 1, 3, 99])
def test_a_decision_on_another_state_is_a_conflict_and_writes_nothing(
    store: EventStore, expected: int
) -> None:
    store.append(0, CREATED, at=NOON, actor="me")
    commit(store, 1)
    events = CREATED if expected == 0 else DRAINED
    assert store.append(expected, events, at=NOON, actor="me") == Conflict(2)
    assert [each.seq for each in store.read()] == [1, 2]
    assert commit(store, 2) == 3


def test_the_first_event_makes_the_cluster_and_no_other_does(store: EventStore) -> None:
    with pytest.raises(ValueError, match="ClusterCreated"):
        store.append(0, DRAINED, at=NOON, actor="me")
    store.append(0, CREATED, at=NOON, actor="me")
    with pytest.raises(ValueError, match="ClusterCreated"):
        store.append(1, CREATED, at=NOON, actor="me")
    assert [each.seq for each in store.read()] == [1]


def test_a_transaction_has_events(store: EventStore) -> None:
    store.append(0, CREATED, at=NOON, actor="me")
    with pytest.raises(ValueError, match="at least one"):
        store.append(1, [], at=NOON, actor="me")


@pytest.mark.parametrize("cpu", [float("nan"), float("inf")])
def test_a_value_that_does_not_read_back_is_rejected_and_nothing_is_written(
    store: EventStore, cpu: float
) -> None:
    store.append(0, CREATED, at=NOON, actor="me")
    with pytest.raises(ValueError, match="cpu"):
        store.append(1, [WorkerUpdated(worker=A0, connection=HOST, cpu=cpu)], at=NOON, actor="me")
    assert commit(store, 1) == 2


def test_a_time_is_kept_to_the_millisecond(store: EventStore) -> None:
    store.append(0, CREATED, at=NOON + 0.1234567, actor="me")
    assert next(store.read()).at == NOON + 0.123


# Several writers


Stores = Callable[[], EventStore]


@pytest.fixture(params=STORES)
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Stores:
    """Several stores on one log, as several processes have them. What is in memory has no other door."""
    memory = MemoryStore()
    return lambda: memory if request.param == "memory" else made(request.param, tmp_path)


def test_a_writer_that_missed_what_another_wrote_gets_a_conflict(stores: Stores) -> None:
    first, second = stores(), stores()
    first.append(0, CREATED, at=NOON, actor="me")
    assert [each.seq for each in second.read()] == [1]
    assert commit(first, 1, "first") == 2
    assert commit(second, 1, "second") == Conflict(2)
    assert commit(second, 2, "second") == 3
    assert commit(first, 2, "first") == Conflict(3)
    assert [each.seq for each in stores().read()] == [1, 2, 3]


def test_a_store_reads_on_from_where_it_was(stores: Stores) -> None:
    first, second = stores(), stores()
    first.append(0, CREATED, at=NOON, actor="me")
    seen = list(second.read())
    for seq in range(1, 9):
        commit(first, seq)
        seen += second.read(seen[-1].seq)
    assert seen == list(stores().read())


class Tally:
    """A writer whose every decision needs the newest state: it counts, and a number must not come twice."""

    def __init__(self, store: EventStore, name: str) -> None:
        self.store, self.name = store, name
        self.done = self.conflicts = 0
        self._seen: list[Transaction] = []

    def look(self) -> None:
        self._seen += self.store.read(len(self._seen))

    def act(self) -> None:
        """Decide on what was seen; on a conflict, look again, and decide again at the next turn."""
        seq = len(self._seen)
        number = sum(isinstance(event, WorkerDrained) for each in self._seen for event in each.events)
        event = WorkerDrained(worker=WorkerId(self.name), reason=str(number))
        result = self.store.append(seq, [event], at=NOON, actor=self.name)
        if isinstance(result, Conflict):
            self.conflicts += 1
            assert result.seq > seq
        else:
            self.done += 1
            assert result == seq + 1


def check_tally(log: list[Transaction], writers: list[Tally]) -> None:
    """Every decision was made on all that came before it, and those that were told of are there."""
    assert [each.seq for each in log] == list(range(1, len(log) + 1))
    events = [event for each in log[1:] for event in each.events]
    assert [event.reason for event in events if isinstance(event, WorkerDrained)] == [
        str(number) for number in range(len(log) - 1)
    ]
    for writer in writers:
        assert sum(each.actor == writer.name for each in log) == writer.done


def test_writers_that_take_turns_in_any_order_decide_again_on_conflict(stores: Stores) -> None:
    stores().append(0, CREATED, at=NOON, actor="me")
    chance = random.Random(5)
    writers = [Tally(stores(), f"w{number}") for number in range(4)]
    for _ in range(300):
        writer = chance.choice(writers)
        chance.choice((writer.look, writer.act))()
    check_tally(list(stores().read()), writers)
    assert all(writer.done and writer.conflicts for writer in writers)
