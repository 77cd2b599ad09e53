"""Logs of all formats that ever were: each must read for ever, and go on.

A file in `museum/` is never changed. What a new event type, field or format looks like goes into a new file.
"""

from __future__ import annotations

import gzip
import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from msgspec import NODEFAULT
from msgspec.structs import fields

from iris_cli.core.constraints import Constraint
from iris_cli.core.events.events import Event, WorkerDrained
from iris_cli.core.evolve import replay
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.job import CoschedulingConfig, EarlySignal, Job, Lines, Origin, Workspace
from iris_cli.core.model.slice import GcpOptions, SliceHost, SliceTemplate, SlurmOptions
from iris_cli.core.model.task import End
from iris_cli.core.model.worker import Connection
from iris_cli.core.resources import Device, Resources
from iris_cli.errors import LogDamagedError
from iris_cli.journal.log.position import PROGRAM
from iris_cli.journal.log.record import EVENT_TYPES, encode_event
from iris_cli.journal.log.verify import verify
from iris_cli.journal.state_dir import StateDir
from tests.journal.samples import (
    ARRAYS,
    CHOSEN,
    COMPACTED,
    HELD_UP,
    LOSSES,
    NOON,
    REAPING,
    SHIPPED,
    SPOT,
    STORY,
    state_in,
)
from tests.journal.samples_of_families import (
    BY_SRUN,
    CHILDREN,
    DURATIONS,
    EXPLAINED,
    HELD,
    IN_A_CONTAINER,
    KEPT_GOING,
    LIMITED,
    ON_A_TERMINAL,
    QUIET,
    SPREAD,
    STUCK,
    TRIED_AGAIN,
)
from tests.journal.scaled import ADOPTED, ASKED_FOR, ON_SLURM, SCALED, SET_UP

MUSEUM = Path(__file__).parent / "museum"
LOGS = sorted(MUSEUM.glob("*.jsonl"))


@pytest.fixture(params=LOGS, ids=lambda path: path.name)
def exhibit(request: pytest.FixtureRequest, tmp_path: Path) -> StateDir:
    return hung(request.param.name, tmp_path / "state")


def hung(name: str, path: Path) -> StateDir:
    """An exhibit as a state directory, with its archive if it has one beside it."""
    path.mkdir(mode=0o700)
    shutil.copyfile(MUSEUM / name, path / "events.jsonl")
    (path / "events.jsonl").chmod(0o600)
    archive = MUSEUM / name.removesuffix(".jsonl")
    if archive.is_dir():
        shutil.copytree(archive, path / "archive")
        (path / "archive").chmod(0o700)
    return state_in(path)


def test_an_old_log_is_read_whole_and_replayed(exhibit: StateDir) -> None:
    assert verify(exhibit.path).ok
    view = exhibit.read()
    assert view.damage is None
    cluster = replay(view.transactions)
    assert (cluster.name, cluster.seq) == ("museum", view.seq)


def test_an_old_log_goes_on(exhibit: StateDir) -> None:
    seq = exhibit.read().seq
    with exhibit.locked("iris drain") as writer:
        drained = WorkerDrained(worker=next(iter(replay(exhibit.read().transactions).workers)))
        assert writer.append([drained], at=NOON).seq == seq + 1
    assert verify(exhibit.path).ok


STORIES = pytest.mark.parametrize(
    ("name", "story"),
    [
        ("format-1.jsonl", STORY),
        ("format-1-losses.jsonl", LOSSES),
        ("format-1-reaping.jsonl", REAPING),
        ("format-1-held-up.jsonl", HELD_UP),
        ("format-1-compacted.jsonl", COMPACTED),
        ("format-1-chosen.jsonl", CHOSEN),
        ("format-1-spread.jsonl", SPREAD),
        ("format-1-shipped.jsonl", SHIPPED),
        ("format-1-children.jsonl", CHILDREN),
        ("format-1-arrays.jsonl", ARRAYS),
        ("format-1-scaled.jsonl", SCALED),
        ("format-1-asked-for.jsonl", ASKED_FOR),
        ("format-1-set-up.jsonl", SET_UP),
        ("format-1-adopted.jsonl", ADOPTED),
        ("format-1-slurm.jsonl", ON_SLURM),
        ("format-1-keep-going.jsonl", KEPT_GOING),
        ("format-1-durations.jsonl", DURATIONS),
        ("format-1-image.jsonl", IN_A_CONTAINER),
        ("format-1-quiet.jsonl", QUIET),
        ("format-1-tried-again.jsonl", TRIED_AGAIN),
        ("format-1-explained.jsonl", EXPLAINED),
        ("format-1-held.jsonl", HELD),
        ("format-1-terminal.jsonl", ON_A_TERMINAL),
        ("format-1-memory-limit.jsonl", LIMITED),
        ("format-1-stuck.jsonl", STUCK),
        ("format-1-srun.jsonl", BY_SRUN),
    ],
)


@STORIES
def test_format_1_says_what_it_said_when_it_was_written(
    tmp_path: Path, name: str, story: tuple[tuple[Event, ...], ...]
) -> None:
    transactions = hung(name, tmp_path / "state").read().transactions
    assert tuple(each.events for each in transactions) == story
    assert [each.at for each in transactions] == [NOON + index for index in range(len(story))]
    assert transactions[0].actor == "me@laptop iris init"


@STORIES
def test_format_1_is_still_what_is_written(name: str, story: tuple[tuple[Event, ...], ...]) -> None:
    archive = sorted((MUSEUM / name.removesuffix(".jsonl")).glob("*.gz"))
    old = "".join(gzip.decompress(path.read_bytes()).decode("ascii") for path in archive)
    lines = (old + (MUSEUM / name).read_text(encoding="ascii")).splitlines()
    for line, events in zip(lines, story, strict=True):
        assert json.dumps([encode_event(event) for event in events], separators=(",", ":")) in line


def events_in_the_museum() -> list[dict[str, Any]]:
    entries = [json.loads(line) for path in LOGS for line in path.read_text(encoding="ascii").splitlines()]
    return [event for entry in entries for event in entry["events"] if "ignorable" not in event]


def test_every_type_of_event_stands_in_the_museum() -> None:
    seen = {event["type"] for event in events_in_the_museum()}
    assert seen == EVENT_TYPES.keys()


def test_every_field_that_is_written_stands_in_the_museum() -> None:
    """With another value than its default, which is not written."""
    seen: dict[str, set[str]] = {}
    for event in events_in_the_museum():
        seen.setdefault(event["type"], set()).update(event)
        for name, part in (
            ("Job", "job"),
            ("Connection", "connection"),
            ("End", "end"),
            ("SliceTemplate", "template"),
        ):
            seen.setdefault(name, set()).update(event.get(part, ()))
        seen.setdefault("GcpOptions", set()).update(event.get("template", {}).get("gcp", ()))
        seen.setdefault("SlurmOptions", set()).update(event.get("template", {}).get("slurm", ()))
    known: dict[str, type] = dict(EVENT_TYPES)
    known |= {cls.__name__: cls for cls in (Connection, End, Job, SliceTemplate, GcpOptions, SlurmOptions)}
    missing = {
        f"{name}.{field.name}"
        for name, cls in known.items()
        for field in fields(cls)
        if field.name not in seen[name]
    }
    assert missing == KEPT_BY_REPLAY


KEPT_BY_REPLAY = {
    f"Job.{name}"
    for name in (
        *("submitted_at", "order", "cancelled", "rounds", "end", "origin", "adopted", "tried_again"),
        *("settled_rounds", "failed_rounds", "preempted_rounds", "refused_rounds", "last_task_ended_at"),
        *("held_at", "released_at"),
    )
}
"""What a job only has in memory: its submission is written without."""


def test_no_default_ever_changes() -> None:
    """A field that is equal to it is not written, so that a default says what old lines mean.

    A new field gets a line in the table; a line that stands there stays.
    """
    parts: list[type] = [
        Job,
        Workspace,
        Origin,
        Lines,
        EarlySignal,
        Connection,
        End,
        Constraint,
        CoschedulingConfig,
        Device,
        Resources,
    ]
    parts += [SliceTemplate, GcpOptions, SlurmOptions, SliceHost]
    defaults = {}
    for cls in [*EVENT_TYPES.values(), *parts]:
        for each in fields(cls):
            if each.default_factory is not NODEFAULT:
                defaults[f"{cls.__name__}.{each.name}"] = repr(each.default_factory())
            elif each.default is not NODEFAULT:
                defaults[f"{cls.__name__}.{each.name}"] = repr(each.default)
    assert defaults == json.loads((MUSEUM.parent / "defaults.json").read_text(encoding="ascii"))


# What else stands here


def test_a_line_of_a_newer_program_that_may_be_ignored_is_passed_over_for_ever(tmp_path: Path) -> None:
    state = hung("format-1-ignorable.jsonl", tmp_path / "state")
    transactions = state.read().transactions
    assert [len(each.events) for each in transactions] == [1, 1, 0, 1]
    with state.locked("iris drain") as writer:
        writer.append([WorkerDrained(worker=SPOT)], at=NOON)
    programs = [json.loads(line).get("program") for line in (state.path / "events.jsonl").open()]
    assert programs[:4] == ["iris 0.1.0", None, "iris 0.2.0", None]
    assert programs[4] == PROGRAM


def test_a_torn_log_is_read_to_its_last_whole_line_for_ever(tmp_path: Path) -> None:
    state = hung("format-1-torn.log", tmp_path / "state")
    whole, tail = (MUSEUM / "format-1-torn.log").read_bytes().rsplit(b"\n", 1)
    view = state.read()
    assert (view.damage, view.seq) == (None, whole.count(b"\n") + 1)
    with state.locked("iris drain") as writer:
        assert "unfinished" in writer.messages[0]
        assert writer.append([WorkerDrained(worker=SPOT)], at=NOON).seq == view.seq + 1
    assert [path.read_bytes() for path in state.path.glob("torn-*")] == [tail]


def test_a_damaged_log_is_refused_at_the_same_place_for_ever(tmp_path: Path) -> None:
    state = hung("format-1-damaged.log", tmp_path / "state")
    assert [(fault.line, fault.seq) for fault in verify(state.path).findings] == [(3, 3)]
    with pytest.raises(LogDamagedError, match="line 3"), state.locked("iris drain"):
        pass
    assert state.read().seq == 2


# The meaning of a log


def meaning(cluster: Cluster) -> dict[str, Any]:
    """What an operator sees of a cluster, in plain words."""
    return {
        "jobs": {str(job): str(cluster.job_state(job)) for job in cluster.jobs},
        "tasks": {
            str(task.id): {
                "state": str(task.state),
                "attempts": [
                    [str(each.worker), str(each.state), str(each.end.reason) if each.end else None]
                    for each in task.attempts
                ],
            }
            for task in cluster.tasks.values()
        },
        "workers": {
            str(each.id): [str(each.condition), each.draining, sorted(each.taints)]
            for each in cluster.workers.values()
        },
        **(
            {"slices": {each.name: str(each.state) for each in cluster.slices.values()}}
            if cluster.slices
            else {}
        ),
        **(
            {
                "slices are looked after from": cluster.slice_owner.where,
                "slices asked for": {each.name: each.requested for each in cluster.scale_groups.values()},
            }
            if cluster.slice_owner is not None
            else {}
        ),
    }


def test_an_old_log_means_what_it_meant(exhibit: StateDir, request: pytest.FixtureRequest) -> None:
    name = request.node.callspec.id.replace(".jsonl", ".meaning.json")
    assert meaning(replay(exhibit.read().transactions)) == json.loads((MUSEUM / name).read_text())


def test_no_exhibit_is_ever_changed() -> None:
    """A new one gets a line in MANIFEST, as `sha256sum` prints it; a line that stands there stays."""
    listed = {}
    for line in (MUSEUM / "MANIFEST").read_text(encoding="ascii").splitlines():
        checksum, name = line.split("  ")
        assert name not in listed
        listed[name] = checksum
    found = {
        str(path.relative_to(MUSEUM)): sha256(path.read_bytes()).hexdigest()
        for path in MUSEUM.rglob("*")
        if path.is_file() and path.name != "MANIFEST"
    }
    assert found == listed
