"""The snapshot is a cache: whatever becomes of it, what a command sees is what the whole log says."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iris_cli.core.events.events import Transaction
from iris_cli.core.evolve import replay
from iris_cli.core.ids import JobId, TaskId, Token
from iris_cli.core.model.cluster import Cluster
from iris_cli.journal.snapshot import form
from iris_cli.ops.doctor import check_snapshot
from iris_cli.ops.views.view import as_of
from tests.core.test_random_walk import Step, new_lab, steps
from tests.journal.histories import NEVER, Log, busy_days, same, state_in, write
from tests.support.autoscaling_script import autoscale, scale_group
from tests.support.lab import Lab

HISTORIES = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
walks = st.lists(steps, min_size=20, max_size=50)
dice = st.randoms(use_true_random=False)


def history(walk: list[Step]) -> list[Transaction]:
    lab = new_lab()
    for step in walk:
        step(lab)
    return lab.log


def glance(cluster: Cluster, whole: Cluster, dice: random.Random) -> None:
    """Some of what is over is asked for, in one of the ways there are; the answer is that of the whole."""
    known = [*whole.jobs, JobId("nobody"), JobId("train/nobody")]
    for job in dice.sample(known, dice.randrange(len(known))):
        task = TaskId(job, dice.randrange(3))
        ask: Callable[[Cluster], object] = dice.choice(
            [
                lambda it, job=job: job in it.jobs,
                lambda it, job=job: it.jobs.get(job),
                lambda it, task=task: it.tasks.get(task),
                lambda it, task=task: task in it.tasks,
                lambda it, job=job: it.children.get(job),
                lambda it, job=job: it.children_of(job),
                lambda it, job=job: it.job_state(job) if job in it.jobs else None,
            ]
        )
        assert ask(cluster) == ask(whole)
    for worker in whole.workers:
        if dice.random() < 0.3:
            assert cluster.outputs.get(worker) == whole.outputs.get(worker)
    most = dice.randrange(4)
    assert cluster.last_ended(most) == whole.last_ended(most)
    tokens = [attempt.token for task in whole.tasks.values() for attempt in task.attempts]
    asked = [*dice.sample(tokens, min(2, len(tokens))), Token("f" * 32)]
    assert cluster.unknown_tokens(asked) == whole.unknown_tokens(asked) == (Token("f" * 32),)
    assert cluster.open_jobs() == whole.open_jobs()
    assert list(cluster.pending_tasks()) == list(whole.pending_tasks())


@HISTORIES
@given(walks, dice)
def test_a_snapshot_and_what_came_after_it_are_the_whole_history(
    tmp_path_factory: pytest.TempPathFactory, walk: list[Step], dice: random.Random
) -> None:
    log = Log(tmp_path_factory.mktemp("place") / "state", history(walk))
    for seq in sorted(dice.sample(range(1, len(log) + 1), 3)):
        log.grow(seq)
        whole = log.replayed()
        first = log.look(every=1)
        glance(first, whole, dice)
        second = log.look(every=NEVER)  # from the snapshot that the first one wrote
        assert second.past is not None
        glance(second, whole, dice)
        same(second, whole)
        same(first, whole)


# Whatever becomes of the file


def spoilt(snapshot: Path, dice: random.Random) -> None:
    """One thing of all that can happen to a file between two commands."""
    content = snapshot.read_bytes() if snapshot.is_file() else b""
    content = content or b"?"
    place = dice.randrange(len(content))
    length = dice.randrange(1, 40)
    other = bytes([content[place] ^ 1 << dice.randrange(8)])
    snapshot.unlink(missing_ok=True)
    kind = dice.randrange(9)
    if kind == 0:
        return
    if kind == 1:
        snapshot.symlink_to("events.jsonl")
    elif kind == 2:
        snapshot.mkdir()
    elif kind == 3:
        os.mkfifo(snapshot, 0o600)
    else:
        changed = {
            4: content[:place],
            5: content[:place] + other + content[place + 1 :],
            6: content[:place] + bytes(length) + content[place + length :],
            7: content + content[place:],
            8: content[:place] + content[place + length :],
        }
        write(snapshot, changed[kind])


def cleared(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()


@HISTORIES
@given(walks, dice)
def test_what_was_at_a_time_is_the_same_from_a_snapshot_of_before(
    tmp_path_factory: pytest.TempPathFactory, walk: list[Step], dice: random.Random
) -> None:
    transactions = history(walk)
    log = Log(tmp_path_factory.mktemp("place") / "state", transactions)
    log.grow(dice.randrange(1, len(log) + 1))
    log.look(every=1)
    log.grow(len(log))
    if dice.random() < 0.5:
        state_in(log.path).compact("iris log compact")
    for moment in (0.0, transactions[-1].at, *(each.at for each in dice.sample(transactions, 6))):
        all_of_it = list(state_in(log.path).read_history(archive=True))
        last = max((each.seq for each in all_of_it if each.at <= moment), default=0)
        whole = replay(all_of_it[:last])
        assert state_in(log.path).history_before(moment)[0].seq <= whole.seq
        same(as_of(state_in(log.path), moment, lambda _: nullcontext())[0], whole)


@HISTORIES
@given(walks, dice)
def test_a_snapshot_that_is_deleted_damaged_or_replaced_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, walk: list[Step], dice: random.Random
) -> None:
    log = Log(tmp_path_factory.mktemp("place") / "state", history(walk))
    older = log.path.parent / "older"
    for seq in sorted(dice.sample(range(1, len(log) + 1), 5)):
        for path in [log.snapshot, *log.snapshots]:
            cleared(path)
        log.grow(seq)
        whole = log.replayed()
        log.look(every=1)
        if dice.random() < 0.2 and older.exists():
            write(log.snapshot, older.read_bytes())
        elif log.snapshot.is_file():
            write(older, log.snapshot.read_bytes())
        spoilt(dice.choice([log.snapshot, *log.snapshots]), dice)
        seen = log.look(every=NEVER)
        glance(seen, whole, dice)
        same(seen, whole)


@HISTORIES
@given(walks, dice)
def test_damage_that_shows_only_when_something_is_looked_up_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, walk: list[Step], dice: random.Random
) -> None:
    log = Log(tmp_path_factory.mktemp("place") / "state", history(walk))
    log.grow(len(log))
    whole = log.replayed()
    for _ in range(4):
        for path in log.snapshots:
            path.unlink()
        log.look(every=1)
        content, start = (
            bytearray(log.snapshots[0].read_bytes()),
            log.pages,
        )  # what is before is checked at once
        for _ in range(dice.randrange(1, 4) if start < len(content) else 0):
            content[dice.randrange(start, len(content))] ^= 1 << dice.randrange(8)
        write(log.snapshots[0], bytes(content))
        seen = log.look(every=NEVER)
        assert seen.past is not None
        glance(seen, whole, dice)
        again = log.look(every=1)  # writes the next one, from what is left of this
        same(again, whole)
        same(seen, whole)


def after_busy_days(path: Path) -> tuple[Log, Cluster]:
    """A log with one snapshot, which has all jobs that ended, and the cluster."""
    log = Log(path / "state", busy_days())
    log.grow(len(log))
    log.look(every=len(log))
    return log, log.replayed()


def test_a_job_whose_name_is_damaged_is_found_all_the_same_and_no_other_is_invented(tmp_path: Path) -> None:
    log, whole = after_busy_days(tmp_path)
    sound, start = log.snapshot.read_bytes(), log.pages
    places = [found.end() - 1 for found in re.finditer(rb'"job-\d+|"\},', sound) if found.start() > start]
    for place in places[::5]:
        write(log.snapshot, sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :])
        for job in (*whole.jobs, JobId("job-00"), JobId("job-2"), JobId("job-31")):
            seen = log.look(every=NEVER)
            assert seen.past is not None
            assert seen.jobs.get(job) == whole.jobs.get(job)


def test_a_job_whose_name_is_no_text_any_more_is_listed_all_the_same(tmp_path: Path) -> None:
    log, whole = after_busy_days(tmp_path)
    sound, place = log.snapshot.read_bytes(), log.pages + len(b'{"')
    write(log.snapshot, sound[:place] + bytes([sound[place] ^ 0x80]) + sound[place + 1 :])
    assert list(log.look(every=NEVER).jobs) == list(whole.jobs)


def test_a_token_is_not_foreign_because_its_page_is_damaged(tmp_path: Path) -> None:
    log, whole = after_busy_days(tmp_path)
    sound, start = log.snapshot.read_bytes(), log.pages
    tokens = [each.token for task in whole.tasks.values() for each in task.attempts]
    there = [each for each in tokens if each.encode() in sound[start:]]
    assert len(there) > 10
    for token in there:
        write(log.snapshot, sound[:start] + sound[start:].replace(token.encode(), token.encode()[:-1] + b"X"))
        seen = log.look(every=NEVER)
        assert seen.past is not None
        assert seen.unknown_tokens([token, Token("e" * 32)]) == (Token("e" * 32),)


def test_a_damaged_page_is_not_copied_into_the_next_snapshot(tmp_path: Path) -> None:
    log = Log(tmp_path / "state", busy_days())
    log.grow(len(log) - 2)
    log.look(every=len(log) // 2)
    log.grow(len(log))
    sound, start = log.snapshot.read_bytes(), log.pages
    write(log.snapshot, sound[:start] + sound[start:].replace(b'"number":0', b'"number":1'))
    log.look(every=1)
    log.look(every=1)  # the first look found that it can't be copied, and deleted it
    same(log.look(every=NEVER), log.replayed())
    assert all(b'"number":1' not in path.read_bytes() for path in log.snapshots)


def test_a_snapshot_that_goes_on_from_others_is_as_if_written_from_nothing(tmp_path: Path) -> None:
    log = Log(tmp_path / "state", busy_days())
    for seq in range(1, len(log) + 1, 7):
        log.grow(seq)
        log.look(every=1)
    log.grow(len(log))
    log.look(every=1)
    assert len(log.snapshots) > 5
    same(log.look(every=NEVER), log.replayed())


def test_a_moment_in_the_archive_that_is_lost_or_another_changes_nothing(tmp_path: Path) -> None:
    log = Log(tmp_path / "state", busy_days())
    for seq in range(1, len(log) + 1, 7):
        log.grow(seq)
        log.look(every=1)
    whole, moments = log.replayed(), log.snapshots[1:]
    for moment in moments:
        sound = moment.read_bytes()
        for other in (None, moments[0].read_bytes() if moment != moments[0] else b""):
            moment.unlink()
            if other is not None:
                write(moment, other)
            same(log.look(every=NEVER), whole)
            assert [job for job in [*whole.jobs][::4] if job not in log.look(every=NEVER).jobs] == []
            write(moment, sound)


def test_alike_tasks_are_written_as_one(tmp_path: Path) -> None:
    log = Log(tmp_path / "state", Lab().job("wide", replicas=500).log)
    log.grow(len(log))
    log.look(every=1)
    assert log.snapshots[0].stat().st_size < 2_000
    same(log.look(every=NEVER), log.replayed())


def test_what_was_before_the_snapshot_comes_from_the_log_and_what_was_after_it_from_both(
    tmp_path: Path,
) -> None:
    log = Log(tmp_path / "state", busy_days())
    log.grow(20)
    at = log.look(every=20).at
    log.grow(len(log))
    assert state_in(log.path).history_before(at - 1)[0].seq == 0
    known, behind = state_in(log.path).history_before(at)
    assert known.seq == 20
    assert [each.seq for each in behind] == list(range(21, len(log) + 1))


def test_a_snapshot_of_another_log_is_not_believed(tmp_path: Path) -> None:
    ours, theirs = Log(tmp_path / "ours", busy_days()), Log(tmp_path / "theirs", busy_days()[:20])
    theirs.grow(20)
    theirs.look(every=20)
    ours.grow(len(ours))
    write(ours.snapshot, theirs.snapshot.read_bytes())
    seen = ours.look(every=NEVER)
    assert seen.past is None
    same(seen, ours.replayed())


def test_a_snapshot_that_is_ahead_of_a_restored_log_is_not_believed(tmp_path: Path) -> None:
    log = Log(tmp_path / "state", busy_days())
    log.grow(len(log))
    log.look(every=len(log))
    log.grow(10)
    seen = log.look(every=NEVER)
    assert (seen.past, seen.seq) == (None, 10)


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o622])
def test_a_snapshot_that_others_can_write_is_not_believed(tmp_path: Path, mode: int) -> None:
    log, _ = after_busy_days(tmp_path)
    log.snapshot.chmod(mode)
    assert log.look(every=NEVER).past is None
    log.snapshot.chmod(0o600)
    assert log.look(every=NEVER).past is not None


@pytest.mark.parametrize("name", ["FORM", "MEANING"])
def test_a_snapshot_of_another_form_or_meaning_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    log, _ = after_busy_days(tmp_path)
    monkeypatch.setattr(form, name, getattr(form, name) + 1)
    assert log.look(every=NEVER).past is None


def test_doctor_reports_whether_the_snapshot_is_usable(tmp_path: Path) -> None:
    log = Log(tmp_path / "state", busy_days())
    log.grow(len(log))
    state = state_in(log.path)

    def said() -> list[str]:
        return [each.text for each in check_snapshot(state, log.look(every=NEVER))]

    assert said() == []
    log.look(every=len(log))
    assert said() == ["in use"]
    write(log.snapshot, b"{}")
    assert [each.partition(":")[0] for each in said()] == ["ignored"]


def test_slices_that_were_made_on_demand_are_in_it(tmp_path: Path) -> None:
    lab = Lab()
    lab.cloud.groups["west"] = scale_group("west", {"min": "2"})
    autoscale(lab)
    autoscale(lab)
    log = Log(tmp_path / "state", lab.log)
    log.grow(len(log))
    log.look(every=1)
    known = log.look(every=NEVER)
    assert known.past is not None
    assert (known.slices, known.scale_groups) == (lab.cluster.slices, lab.cluster.scale_groups)
    assert len(known.slices) == 2
