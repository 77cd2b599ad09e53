"""`iris gc`: what ended attempts left is measured, then removed; of what lives, or may, nothing is."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from iris_cli.core.messages.observations import SilenceKind
from iris_cli.core.model.job import Workspace
from iris_cli.errors import LockedError, NotWritableError, WorkspaceGoneError
from iris_cli.journal.files.unneeded import find_unneeded_files
from iris_cli.journal.files.workspaces import Workspaces
from iris_cli.ops.files import gc
from iris_cli.ops.jobs.change import cancel
from iris_cli.ops.workspace.pack import list_directory, tar_chunks
from tests.support.fake_runner import SIZE, Host, Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Two workers: on one a task has ended and another runs, on the other two have ended."""
    site = Site(tmp_path, "w", "v")
    for name in ("a", "b", "c", "d"):
        site.launch(name)
        site.cycle()
    for host in site.hosts.values():
        for entry in host.tokens.values():
            if entry.name != "d/task-0":
                host.exits(entry.name.removesuffix("/task-0"))
    site.cycle(15)
    return site


def host_of(site: Site, job: str) -> Host:
    return site.hosts[site.attempt(job).worker]


def reaped(site: Site) -> dict[str, bool]:
    return {job: site.attempt(job).reaped_at is not None for job in "abcd"}


def test_what_is_found_is_told_by_worker_and_nothing_is_changed(site: Site) -> None:
    found = gc.find(site.session())
    assert found.bytes == 3 * SIZE
    assert {each.task.job for row in found.workers for each in row.sizes} == {"a", "b", "c"}
    assert not any(reaped(site).values())
    assert not any(host.reaped for host in site.hosts.values())


def test_what_was_found_is_removed_and_what_runs_stays(site: Site) -> None:
    session = site.session()
    done = gc.remove(session, gc.find(session))
    assert reaped(site) == {"a": True, "b": True, "c": True, "d": False}
    assert sum(row.bytes_removed for row in done.workers) == 3 * SIZE
    assert site.attempt("d").token not in host_of(site, "d").reaped
    assert host_of(site, "d").running == ["d/task-0"]
    again = gc.find(site.session())
    assert (again.workers, again.can_remove) == ((), False)


def test_while_others_hold_the_lock_nothing_is_removed_that_would_have_to_be_written_down(site: Site) -> None:
    session = site.session()
    session.lock_timeout = 0.0
    found = gc.find(session)
    with site.session().state.locked("iris log salvage", 0), pytest.raises(LockedError):
        gc.remove(session, found)
    assert not any(host.reaped for host in site.hosts.values())


def test_more_than_one_call_can_take_are_all_removed(tmp_path: Path) -> None:
    site = Site(tmp_path, "w")
    site.launch("many", replicas=70, cpu=0.01, memory=1)
    site.cycle()
    for number in range(70):
        site.hosts["w"].exits(f"many/task-{number}")
    site.cycle(15)
    session = site.session()
    done = gc.remove(session, gc.find(session))
    assert len(done.workers[0].removed) == 70
    assert site.hosts["w"].calls.count("reap") == 3


def test_a_worker_that_does_not_answer_is_told_and_hinders_no_other(site: Site) -> None:
    silent = host_of(site, "a")
    silent.silence = SilenceKind.UNREACHABLE
    session = site.session()
    found = gc.find(session)
    (row,) = [row for row in found.workers if row.silent]
    assert row.worker == silent.name
    assert row.problem.startswith("no answer")
    gc.remove(session, found)
    gone = {job for job, is_gone in reaped(site).items() if is_gone}
    assert gone == {job for job in "abc" if host_of(site, job) is not silent}


def test_a_worker_that_answers_but_rejects_the_key_is_not_called_silent(site: Site) -> None:
    host_of(site, "a").silence = SilenceKind.AUTH
    (row,) = [row for row in gc.find(site.session()).workers if row.silent]
    assert row.problem.startswith("authentication: ")


def test_a_worker_that_falls_silent_meanwhile_is_told_too(site: Site) -> None:
    session = site.session()
    found = gc.find(session)
    silent = host_of(site, "a")
    silent.silence, silent.sent = SilenceKind.TIMEOUT, True
    done = gc.remove(session, found)
    assert [row.worker for row in done.workers if row.silent] == [silent.name]


def test_what_takes_longer_is_told_and_asked_for_once(site: Site) -> None:
    busy = site.attempt("a").token
    host_of(site, "a").busy_files.add(busy)
    session = site.session()
    done = gc.remove(session, gc.find(session))
    assert [str(each) for row in done.workers for each in row.left] == ["a/task-0/attempt-0"]
    assert not reaped(site)["a"]
    host_of(site, "a").busy_files.clear()
    session = site.session()
    gc.remove(session, gc.find(session))
    assert reaped(site)["a"]


def test_a_machine_that_is_not_the_one_in_the_log_is_left_alone(site: Site) -> None:
    host = host_of(site, "a")
    host.incarnation = "another"
    session = site.session()
    found = gc.find(session)
    gc.remove(session, found)
    assert not host.reaped
    assert any("rebooted or re-created" in row.problem for row in found.workers)


def test_a_worker_that_was_re_created_between_the_two_looks_tells_nothing_of_the_old_one(site: Site) -> None:
    session = site.session()
    found = gc.find(session)
    host_of(site, "a").incarnation = "another"
    gc.remove(session, found)
    assert not reaped(site)["a"]


def test_while_something_is_being_stopped_nothing_is_removed_there(site: Site) -> None:
    host = host_of(site, "d")
    session = site.session()
    found = gc.find(session)
    host.unkillable = True
    cancel(site.session(), ["d"])
    done = gc.remove(session, found)
    problems = {row.worker: row.problem for row in done.workers}
    assert "starting or stopping" in problems[site.attempt("d").worker]


def test_what_ended_lately_is_kept_if_asked_for(site: Site) -> None:
    assert gc.find(site.session(), older_than=3600.0).workers == ()
    site.cycle(3600)
    assert gc.find(site.session(), older_than=3600.0).bytes == 3 * SIZE


def test_files_that_nobody_reads_go_from_the_state_directory_and_only_they(
    site: Site, tmp_path: Path
) -> None:
    session = site.session()
    state = session.state.path
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("mine")
    (state / "torn-20261120T140309.120Z").write_bytes(b"x" * 5000)
    (state / "events.jsonl.damaged-20261120T140309.120Z").write_bytes(b"x" * 5000)
    (state / "archive").mkdir(mode=0o700)
    (state / "archive/events-000000000001-000000000002.jsonl.gz.old-20261120T140309.120Z").touch()
    (state / "logs/train").mkdir(parents=True)
    (state / "logs/train/0.out").write_text("hello")
    (state / "logs/link").symlink_to(precious)
    (state / "torn-link").symlink_to(precious / "file")
    keep = {"events.jsonl", "HEAD", "lock", "lock.json", "heartbeat.json", "heartbeat.lock"}
    keep |= {"archive", "logs", "torn-link"}
    late = site.clock.now() - 10
    for path in state.rglob("*"):
        os.utime(path, (late, late), follow_symlinks=False)
    found = gc.find(session)
    assert {each.path.name for each in found.files} == {
        "torn-20261120T140309.120Z",
        "events.jsonl.damaged-20261120T140309.120Z",
        "events-000000000001-000000000002.jsonl.gz.old-20261120T140309.120Z",
        "train",
        "link",
    }
    assert sum(each.bytes for each in found.files) >= 10_000
    done = gc.remove(session, found)
    assert all(each.removed for each in done.files)
    assert {path.name for path in state.iterdir()} <= keep
    assert all(each.removed for each in gc.remove(session, found).files)  # though somebody else was first
    assert list((state / "logs").iterdir()) == list((state / "archive").iterdir()) == []
    assert (precious / "file").read_text() == "mine"


def test_files_of_a_full_disk_go_before_anything_is_recorded(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = site.session()
    torn = session.state.path / "torn-20261120T140309.120Z"
    torn.write_bytes(b"x" * 5000)
    os.utime(torn, (site.clock.now() - 10,) * 2)

    def write_record(*_: object) -> None:
        assert not torn.exists()
        raise NotWritableError("no space left")

    found = gc.find(session)
    monkeypatch.setattr("iris_cli.ops.files.gc.observe.record_answers", write_record)
    with pytest.raises(NotWritableError):
        gc.remove(session, found)
    assert not torn.exists()


def test_what_somebody_else_removes_meanwhile_is_no_longer_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torn-1").write_text("x")
    (tmp_path / "logs" / "there").mkdir(parents=True)
    listed = os.listdir
    names = {str(tmp_path): ["torn-1", "torn-gone"], str(tmp_path / "logs"): ["there", "gone"]}
    monkeypatch.setattr(os, "listdir", lambda path: names.get(str(path)) or listed(path))
    assert [each.path.name for each in find_unneeded_files(tmp_path, 1e12)] == ["torn-1", "there"]


# Packed workspaces


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "work/run.py").write_text("print()")
    return tmp_path / "work"


def packed(site: Site) -> tuple[str, ...]:
    return site.session().state.workspaces.names()


def removed(site: Site, older_than: float = 0.0) -> list[str]:
    session = site.session()
    done = gc.remove(session, gc.find(session, older_than))
    return [each.packed for each in done.files if each.removed]


def test_a_packed_workspace_goes_when_no_open_job_needs_it(tmp_path: Path, work: Path) -> None:
    site = Site(tmp_path, "w")
    for name in ("first", "second"):
        site.launch(name, workdir=str(work))
    (workspace,) = packed(site)
    cancel(site.session(), ["first"])
    site.cycle()
    assert removed(site) == []
    cancel(site.session(), ["second"])
    site.cycle()
    found = gc.find(site.session())
    assert [(each.what, each.packed) for each in found.files] == [("unused packed workspaces", workspace)]
    assert found.bytes > 0
    assert removed(site, older_than=1e9) == []
    assert removed(site) == [workspace]
    assert packed(site) == ()


def test_one_that_a_job_was_launched_with_since_it_was_found_stays(tmp_path: Path, work: Path) -> None:
    site = Site(tmp_path, "w")
    site.launch("first", workdir=str(work))
    cancel(site.session(), ["first"])
    site.cycle()
    session = site.session()
    found = gc.find(session)
    site.launch("second", workdir=str(work))
    assert [each.problem for each in gc.remove(session, found).files] == ["a job needs it now"]
    assert len(packed(site)) == 1


def test_a_workspace_repacked_after_the_search_is_kept(tmp_path: Path, work: Path) -> None:
    """Whoever packs it is about to submit a job."""
    site = Site(tmp_path, "w")
    site.launch("first", workdir=str(work))
    cancel(site.session(), ["first"])
    site.cycle()
    session = site.session()
    file = next(session.state.workspaces.path.iterdir())
    os.utime(file, (1, 1))
    found = gc.find(session)
    session.state.workspaces.put([b"".join(tar_chunks(list_directory(work, 1 << 20)))])
    assert [each.problem for each in gc.remove(session, found).files] == ["it has changed"]
    assert len(packed(site)) == 1


def test_what_was_begun_to_be_packed_goes_a_day_later(tmp_path: Path, work: Path) -> None:
    site = Site(tmp_path, "w")
    site.launch("first", workdir=str(work))
    part = site.session().state.workspaces.path / "0123.part"
    part.touch()
    for age, names in ((3600.0, []), (90_000.0, ["0123.part"])):
        os.utime(part, (site.clock.now() - age,) * 2)
        assert [each.path.name for each in gc.find(site.session()).files] == names


def test_the_lines_of_an_array_go_with_its_job(tmp_path: Path) -> None:
    site = Site(tmp_path, "w")
    site.launch("all", command=("echo", "{}"), each_line=("a", "b"))
    assert removed(site) == []
    cancel(site.session(), ["all"])
    site.cycle()
    assert len(removed(site)) == 1
    assert site.session().state.lines.names() == ()


def test_a_job_whose_workspace_was_removed_before_it_was_submitted_is_refused(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, "w")
    put = Workspaces.put

    def then_removed(store: Workspaces, chunks: Iterable[bytes]) -> tuple[str, int]:
        found = put(store, chunks)
        store.remove(found[0])
        return found

    monkeypatch.setattr(Workspaces, "put", then_removed)
    with pytest.raises(WorkspaceGoneError, match="was removed"):
        site.launch("first", workdir=str(work))
    assert not site.session().view().jobs


@pytest.fixture
def shipped(tmp_path: Path) -> Site:
    """Two workers that have a workspace; on one of them a task uses it still."""
    site = Site(tmp_path, "w", "v")
    site.cycle()
    found, size = site.session().state.workspaces.put([b"tar"])
    for name in ("over", "lives"):
        site.launch(name, cpu=4.0, workspace=Workspace(hash=found, size=size))
    site.cycle()
    host_of(site, "over").exits("over")
    site.cycle(15)
    return site


def test_workspaces_that_nobody_uses_are_told_and_removed(shipped: Site) -> None:
    session = shipped.session()
    found = gc.find(session, 3600.0)
    assert [(row.worker, row.caches) for row in found.workers] == [(host_of(shipped, "over").name, SIZE)]
    done = gc.remove(session, found, 3600.0)
    assert [row.caches_removed for row in done.workers] == [SIZE]
    assert host_of(shipped, "over").workspaces == set()
    assert host_of(shipped, "lives").workspaces != set()
    assert set(host_of(shipped, "over").cache_ages) == {3600.0}


def test_where_no_job_ever_had_a_workspace_nobody_is_asked_for_it(site: Site) -> None:
    session = site.session()
    gc.remove(session, gc.find(session))
    assert not any("caches" in host.calls for host in site.hosts.values())


def test_what_has_outlived_its_last_attempt_goes_with_that(shipped: Site) -> None:
    over, lives = host_of(shipped, "over"), host_of(shipped, "lives")
    shipped.cycle(shipped.limits.reap_after + 1)
    shipped.cycle(15)
    assert (over.workspaces, len(lives.workspaces)) == (set(), 1)
    assert over.cache_ages == [shipped.limits.reap_after]
    assert lives.cache_ages == []


def test_drafts_that_each_writer_has_of_its_own_go_after_a_day(tmp_path: Path) -> None:
    drafts = ["heartbeat.json77.tmp", "loop.json77.tmp"]
    for name in ("heartbeat.json", "other.tmp", *drafts):
        (tmp_path / name).write_text("{")
        os.utime(tmp_path / name, (100_000.0, 100_000.0))
    assert find_unneeded_files(tmp_path, 186_399.0) == ()
    assert [each.path.name for each in find_unneeded_files(tmp_path, 186_400.0)] == drafts
