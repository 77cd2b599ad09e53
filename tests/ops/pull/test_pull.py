"""`iris pull`: what tasks have written comes here whole, once, and nowhere else than where it belongs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from iris_cli.core.ids import AttemptId, JobId, TaskId, Token
from iris_cli.errors import NotFoundError
from iris_cli.ops.files.pull import pull
from iris_cli.ops.session import ProgressState
from iris_cli.remote.output_calls import PIECE
from tests.ops.pull.conftest import pulled, row, session_with, tree
from tests.ops.world import World
from tests.support.inside import Inside
from tests.support.lab import Lab
from tests.support.onlooker import Onlooker
from tests.support.remote_files import LONG_AGO, RemoteFile, RemoteFiles

MIB = 1 << 20


def test_files_of_all_sizes_come_whole(world: World, remote: RemoteFiles, rank0: Token, here: Path) -> None:
    files = {
        "empty": b"",
        "sub/small": b"x",
        "sub/deep/large": os.urandom(3 * MIB + 5),
        "two words": b"y" * 9,
    }
    for name, data in files.items():
        remote.put(rank0, f"output/{name}", data)
    found = row(world, remote, here)
    assert tree(here) == files
    assert (found.files, found.bytes, found.problems, found.notes) == (4, 3 * MIB + 15, [], [])
    assert {path.stat().st_mtime for path in here.rglob("*") if path.is_file()} == {LONG_AGO}


def test_what_is_here_is_not_fetched_again_and_what_differs_is_replaced(
    world: World, remote: RemoteFiles, rank0: Token, here: Path
) -> None:
    for name in ("a", "b", "c"):
        remote.put(rank0, f"output/{name}", b"1" + name.encode())
    pulled(world, remote, here)
    remote.put(rank0, "output/b", b"2b", mtime=LONG_AGO + 1)
    remote.put(rank0, "output/c", b"longer")
    remote.asked.clear()
    found = row(world, remote, here)
    assert tree(here) == {"a": b"1a", "b": b"2b", "c": b"longer"}
    assert (found.files, found.unchanged) == (2, 1)
    assert [what[0] for what in remote.asked] == ["files", "batch"]
    remote.asked.clear()
    pulled(world, remote, here)
    assert [what[0] for what in remote.asked] == ["files"]


def test_thousands_of_small_files_take_few_calls(
    world: World, remote: RemoteFiles, rank0: Token, here: Path
) -> None:
    for number in range(2000):
        remote.put(rank0, f"output/{number}", b"x" * (number % 99))
    assert row(world, remote, here).files == 2000
    assert len(remote.asked) < 12


def test_what_was_cut_off_goes_on_where_it_was(
    world: World, remote: RemoteFiles, rank0: Token, here: Path
) -> None:
    data = os.urandom(4 * PIECE)
    remote.put(rank0, "output/large", data)

    def third_time(what: tuple[object, ...]) -> None:
        if what == ("piece", b"output/large", 2 * PIECE):
            remote.silent.add("a-0")

    remote.before = third_time
    found = row(world, remote, here)
    assert (found.silent, found.problems) == (True, ["connect: no route"])
    assert not (here / "large").exists()
    remote.before = lambda _: None
    remote.silent.clear()
    remote.asked.clear()
    assert row(world, remote, here).files == 1
    assert tree(here) == {"large": data}
    assert [what[2] for what in remote.asked if what[0] == "piece"] == [2 * PIECE, 3 * PIECE]


def test_a_partial_file_of_another_version_is_not_continued(
    world: World, remote: RemoteFiles, rank0: Token, here: Path
) -> None:
    remote.put(rank0, "output/large", b"1" * (2 * PIECE))
    remote.before = lambda what: remote.silent.add("a-0") if what[-1] == PIECE else None
    pulled(world, remote, here)
    remote.before = lambda _: None
    remote.silent.clear()
    remote.put(rank0, "output/large", b"2" * (2 * PIECE), mtime=LONG_AGO + 9)
    pulled(world, remote, here)
    assert tree(here) == {"large": b"2" * (2 * PIECE)}


def changing(remote: RemoteFiles, token: Token, *versions: RemoteFile | None) -> None:
    """With each piece that is asked for, the file is what comes next."""
    rest = list(versions)

    def change(what: tuple[object, ...]) -> None:
        if what[0] == "piece" and rest:
            if (now := rest.pop(0)) is None:
                del remote.files[token][b"output/x"]
            else:
                remote.files[token][b"output/x"] = now

    remote.before = change


BIG = RemoteFile(b"a" * (2 * PIECE))
LONGER = RemoteFile(b"a" * (2 * PIECE) + b"more", mtime=LONG_AGO + 5)
REPLACED = RemoteFile(b"b" * (2 * PIECE), inode=8)
SHORTER = RemoteFile(b"c", mtime=LONG_AGO + 5)


@pytest.mark.parametrize(
    ("versions", "here_then", "said"),
    [
        ((BIG, LONGER), BIG.data, "still being written"),
        ((BIG, REPLACED), REPLACED.data, ""),
        ((BIG, SHORTER), SHORTER.data, ""),
        ((BIG, None), None, "was removed during the pull"),
        ((BIG, REPLACED, BIG, REPLACED, BIG, REPLACED, BIG), None, "keeps changing"),
    ],
    ids=["grows", "is replaced", "is truncated", "vanishes", "never rests"],
)
def test_a_file_that_changes_is_never_put_together_of_two(
    world: World,
    remote: RemoteFiles,
    rank0: Token,
    here: Path,
    versions: tuple[RemoteFile | None, ...],
    here_then: bytes | None,
    said: str,
) -> None:
    remote.put(rank0, "output/x", BIG.data)
    changing(remote, rank0, *versions)
    found = row(world, remote, here)
    assert tree(here) == ({} if here_then is None else {"x": here_then})
    assert said in " ".join((*found.notes, *found.problems))
    assert bool(found.problems) == (said == "keeps changing")


def test_a_file_that_grew_or_is_fresh_is_fetched_again_next_time(
    world: World, remote: RemoteFiles, rank0: Token, here: Path
) -> None:
    remote.put(rank0, "output/x", BIG.data)
    remote.put(rank0, "output/fresh", b"f", mtime=LONG_AGO + 999)
    changing(remote, rank0, BIG, LONGER)
    pulled(world, remote, here)
    found = row(world, remote, here)
    assert (found.files, found.unchanged) == (2, 0)
    assert tree(here) == {"x": LONGER.data, "fresh": b"f"}


def test_small_files_that_can_t_be_had_together_come_one_by_one(
    world: World, remote: RemoteFiles, rank0: Token, here: Path
) -> None:
    for name in ("a", "b", "c"):
        remote.put(rank0, f"output/{name}", name.encode())

    def vanish(what: tuple[object, ...]) -> None:
        if what[0] == "batch":
            remote.files[rank0].pop(b"output/b", None)

    remote.before = vanish
    found = row(world, remote, here)
    assert tree(here) == {"a": b"a", "c": b"c"}
    assert (found.problems, found.notes) == ([], ["output/b was removed during the pull"])


def test_names_whose_size_the_list_does_not_know_come_too(
    world: World, remote: RemoteFiles, rank0: Token, here: Path
) -> None:
    for name, data in {b"output/a\nb": b"1", b"output/c\nd": os.urandom(2 * MIB)}.items():
        remote.put(rank0, name, data)
        remote.unlisted.add(name)
    remote.put(rank0, b"output/c\nd", data := b"x" * (2 * MIB))
    assert row(world, remote, here).files == 2
    assert tree(here) == {"a%0Ab": b"1", "c%0Ad": data}


# Logs


def kept(world: World, stream: str) -> bytes:
    logs = world.session().state.task_logs
    return logs.read(AttemptId(TaskId(JobId("train"), 0), 0), stream, 0, 1 << 30)


def test_logs_are_kept_in_the_state_directory_and_gone_on_with(
    world: World, remote: RemoteFiles, rank0: Token, here: Path
) -> None:
    said = os.urandom(2 * PIECE + 7)
    remote.put(rank0, "out", said)
    remote.put(rank0, "err", b"warning\n")
    assert row(world, remote, here).log_bytes == len(said) + 8
    remote.put(rank0, "out", said + b"more\n")
    remote.asked.clear()
    assert row(world, remote, here).log_bytes == 5
    assert (kept(world, "out"), kept(world, "err")) == (said + b"more\n", b"warning\n")
    assert [what[1:] for what in remote.asked if what[0] == "piece"] == [(b"out", len(said))]
    assert not here.exists()


def test_a_replaced_log_is_fetched_from_the_start(
    world: World, remote: RemoteFiles, rank0: Token, here: Path
) -> None:
    remote.put(rank0, "out", b"a long first one")
    pulled(world, remote, here)
    remote.put(rank0, "out", b"second")
    pulled(world, remote, here)
    assert kept(world, "out") == b"second"


def test_logs_that_were_cut_off_are_no_whole_ones(
    world: World, remote: RemoteFiles, rank0: Token, here: Path
) -> None:
    remote.put(rank0, "out", os.urandom(3 * PIECE))
    attempt = AttemptId(TaskId(JobId("train"), 0), 0)

    def cut(what: tuple[object, ...]) -> None:
        if what == ("piece", b"out", 2 * PIECE):
            remote.silent.add("a-0")

    remote.before = cut
    assert row(world, remote, here).silent
    logs = world.session().state.task_logs
    assert (logs.size(attempt, "out"), logs.is_incomplete(attempt)) == (2 * PIECE, True)
    remote.before, remote.silent = lambda _: None, set()
    assert row(world, remote, here).log_bytes == PIECE
    assert (logs.is_incomplete(attempt), logs.written_at(attempt, "out")) == (
        False,
        world.session().clock.now(),
    )


def test_a_log_that_a_second_pull_restarts_is_complete(
    world: World, remote: RemoteFiles, rank0: Token, here: Path
) -> None:
    said = os.urandom(2 * PIECE + 1)
    remote.put(rank0, "out", said)
    attempt = AttemptId(TaskId(JobId("train"), 0), 0)

    def forget(what: tuple[object, ...]) -> None:
        if what == ("piece", b"out", PIECE):
            remote.before = lambda _: None
            world.session().state.task_logs.forget(attempt, "out")

    remote.before = forget
    assert not row(world, remote, here).problems
    assert kept(world, "out") == said


def test_an_output_directory_that_became_a_link_is_told(
    world: World, remote: RemoteFiles, rank0: Token, here: Path
) -> None:
    remote.put(rank0, "out", b"said")
    remote.linked.add(rank0)
    (problem,) = row(world, remote, here).problems
    assert "is a link" in problem
    assert kept(world, "out") == b"said"


# Which attempts, and what is missing


def test_all_ranks_and_one_connection_to_each_host(
    world: World, remote: RemoteFiles, rank0: Token, here: Path
) -> None:
    rank1 = world.lab.attempt("train", 1).token
    remote.put(rank0, "output/x", b"0")
    remote.put(rank1, "output/x", b"1")
    found = pulled(world, remote, here, "train")
    assert [str(each.attempt) for each in found.attempts] == [
        "train/task-0/attempt-0",
        "train/task-1/attempt-0",
    ]
    assert tree(here.parents[2]) == {"train/task-0/attempt-0/x": b"0", "train/task-1/attempt-0/x": b"1"}
    assert [each.attempt.task.index for each in pulled(world, remote, here, "train", ranks=[1]).attempts] == [
        1
    ]


def test_a_silent_worker_is_named_and_the_others_are_fetched(
    world: World, remote: RemoteFiles, rank0: Token, here: Path
) -> None:
    remote.put(world.lab.attempt("train", 1).token, "output/x", b"1")
    remote.silent.add("a-0")
    first, second = pulled(world, remote, here, "train").attempts
    assert (first.silent, first.worker, first.problems) == (True, "a-0", ["connect: no route"])
    assert (second.silent, second.files) == (False, 1)


def test_what_is_gone_from_its_worker_is_missing(
    world: World, remote: RemoteFiles, rank0: Token, here: Path
) -> None:
    remote.gone.add(rank0)
    assert row(world, remote, here).problems == ["its files were removed from worker a-0"]


def test_every_attempt_is_fetched_unless_one_is_named(tmp_path: Path, remote: RemoteFiles) -> None:
    lab = Lab().worker("w").job("flaky", max_retries_failure=1).schedule().reports("flaky/* running")
    lab.reports("flaky/* exited 1").schedule().reports("flaky/* running")
    world = World(lab, tmp_path / "state")
    here = tmp_path / "here/flaky/task-0/attempt-0"
    for number in (0, 1):
        remote.put(lab.attempt("flaky", 0, number).token, "output/x", b"%d" % number)
    pulled(world, remote, here, "flaky")
    assert tree(here.parent) == {"attempt-0/x": b"0", "attempt-1/x": b"1"}
    for what, options in [("flaky", {"number": 1}), ("flaky/task-0/attempt-1", {})]:
        found = pulled(world, remote, here, what, **options)
        assert [each.attempt.number for each in found.attempts] == [1]


def test_every_attempt_of_a_job_that_is_named_almost_like_an_attempt_is_fetched(
    tmp_path: Path, remote: RemoteFiles
) -> None:
    lab = Lab().worker("w").job("train", cpu=0.5).schedule().reports("train/* running")
    Inside(lab).submit(name="attempt-a", max_retries_failure=1)
    lab.schedule().reports("train/attempt-a/* running").reports("train/attempt-a/* exited 1").schedule()
    lab.reports("train/attempt-a/* running")
    found = pulled(World(lab, tmp_path / "state"), remote, tmp_path / "x/y/z", "train/attempt-a")
    assert [each.attempt.number for each in found.attempts] == [0, 1]


def test_a_list_that_is_cut_is_asked_for_alone(tmp_path: Path, remote: RemoteFiles) -> None:
    lab = Lab().worker("w").job("many", replicas=2, cpu=1).schedule().reports("many/* running")
    world = World(lab, tmp_path / "state")
    for index in (0, 1):
        for number in range(5):
            remote.put(lab.attempt("many", index).token, f"output/{number}", b"x")
    remote.room = 4
    found = pulled(world, remote, tmp_path / "here/many/task-0/attempt-0", "many")
    assert [(each.files, each.problems) for each in found.attempts] == [
        (4, ["too many files: only 4 were listed"])
    ] * 2
    remote.room = 8
    found = pulled(world, remote, tmp_path / "here/many/task-0/attempt-0", "many")
    assert [(each.files, each.unchanged, each.problems) for each in found.attempts] == [(1, 4, [])] * 2


def test_a_job_that_is_not_there_is_named(world: World, remote: RemoteFiles, here: Path) -> None:
    with pytest.raises(NotFoundError, match="no job or task 'trian'"):
        pulled(world, remote, here, "trian")


def test_without_files_on_a_worker_no_connection_is_prepared(tmp_path: Path) -> None:
    session = World(Lab().slice("a", "v4-16").job("train", tpu="v4-16"), tmp_path / "state").session()
    session.make_runner = lambda _: pytest.fail("a runner was made")
    assert pull(session, "train", tmp_path).attempts == ()


def test_it_says_how_far_it_is(world: World, remote: RemoteFiles, rank0: Token, here: Path) -> None:
    onlooker = Onlooker()
    told: list[ProgressState] = []
    session = session_with(world, remote)
    session.progress = onlooker
    remote.put(rank0, "output/x", b"x" * (8 * PIECE))
    remote.before = lambda what: told.append(onlooker.sees("pulling"))
    pull(session, "train/task-0", here.parents[2])
    assert told[-1] == ("pulling", 7 * PIECE, 0, "bytes")
    assert told == sorted(told)
