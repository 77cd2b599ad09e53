"""A copy of a state directory has the same owner: it may not delete what its original has made since, or works with."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from iris_cli.core.events.events import SliceRequested
from iris_cli.core.model.slice import slice_name
from iris_cli.journal import access
from iris_cli.ops import autoscale
from tests.ops.test_autoscale import LOCAL, Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """With one slice that is ready, and works for a job."""
    made = Site(tmp_path / "state")
    made.launch("train")
    made.autoscale()
    made.boots(made.only())
    made.autoscale()
    return made


def copy_of(site: Site, directory: Path) -> Site:
    """The same cluster, in a copy of its state directory."""
    shutil.copytree(site.directory, directory)
    made = Site(directory)
    made.clock, made.hosts, made.books = site.clock, site.hosts, site.books
    return made


def adopt(site: Site) -> None:
    found, silent = autoscale.find_owner_conflict(site.session())
    assert silent == {}
    assert found is not None
    autoscale.adopt(site.session(), found.unknown)


def another(site: Site) -> str:
    """One more slice, for another job; its name."""
    before = set(site.states)
    site.launch("eval", constraints=())
    site.autoscale()
    (name,) = set(site.states) - before
    return name


def objection(site: Site) -> str:
    """What speaks against a pass, which then must have done nothing at all."""
    before, log = list(site.books.slices.items()), (site.directory / "events.jsonl").read_bytes()
    done = site.autoscale()
    assert list(site.books.slices.items()) == before
    assert (site.directory / "events.jsonl").read_bytes() == log
    assert (done.created, done.deleted) == ([], {})
    return str(done.conflict or "")


def test_a_copy_deletes_nothing_and_the_original_goes_on(site: Site, tmp_path: Path) -> None:
    copy = copy_of(site, tmp_path / "copy")
    name = another(site)
    site.clock.sleep(10_000)  # to the copy all is idle, or unknown
    assert objection(copy) == (
        f"slices are managed from laptop:{site.directory}; this state directory was copied or moved"
    )
    assert site.autoscale().conflict is None
    assert name in site.books.slices


def test_a_directory_that_only_has_another_name_goes_on(site: Site, tmp_path: Path) -> None:
    os.rename(site.directory, tmp_path / "elsewhere")
    site.directory = tmp_path / "elsewhere"
    assert site.autoscale().conflict is None


def test_the_same_directory_on_another_machine_is_another_one(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image of the whole disk, say."""
    (tmp_path / "machine-id").write_text("0123456789abcdef0123456789abcdef\n")
    monkeypatch.setattr(access, "_MACHINE_IDS", (str(tmp_path / "machine-id"),))
    assert "managed from" in objection(site)


@pytest.mark.parametrize("text", [None, "", "uninitialized\n", "\xff"])
def test_a_machine_without_a_name_of_its_own_is_told_by_the_directory_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    path = tmp_path / "machine-id"
    if text is not None:
        path.write_text(text, encoding="latin-1")
    monkeypatch.setattr(access, "_MACHINE_IDS", (str(path),))
    found = access.slice_owner_of(tmp_path, host="laptop", shared=False)
    assert found.place == f":{tmp_path.stat().st_ino}"


def test_on_a_network_file_system_the_machine_does_not_count(tmp_path: Path) -> None:
    assert access.slice_owner_of(tmp_path, host="laptop", shared=True).place == f":{tmp_path.stat().st_ino}"


def test_a_copy_looks_after_slices_once_the_operator_says_so(site: Site, tmp_path: Path) -> None:
    copy = copy_of(site, tmp_path / "copy")
    adopt(copy)
    assert copy.autoscale().conflict is None
    site.clock.sleep(10_000)
    assert "managed from" in objection(copy_of(copy, tmp_path / "third"))


def test_a_log_that_was_put_back_in_its_own_place_deletes_nothing_that_it_does_not_know(
    site: Site, tmp_path: Path
) -> None:
    shutil.copytree(site.directory, tmp_path / "backup")
    name = another(site)
    for path in (tmp_path / "backup").iterdir():
        shutil.copyfile(path, site.directory / path.name)
    assert objection(site) == (
        f"this log lacks 1 slice of this cluster ({name}); it is an old copy, or another copy is in use"
    )
    adopt(site)
    assert site.autoscale().deleted == {name: "not in the log"}
    assert name not in site.books.slices
    site.autoscale()
    fresh = another(site)
    assert (fresh.rpartition("-")[0], int(fresh.rpartition("-")[2])) == (
        name.rpartition("-")[0],
        int(name.rpartition("-")[2]) + 1,
    )


def test_a_copy_from_before_the_first_slice_deletes_none_either(tmp_path: Path) -> None:
    site = Site(tmp_path / "state")
    site.launch("train")
    copy = copy_of(site, tmp_path / "copy")
    site.autoscale()
    assert f"this log lacks 1 slice of this cluster ({site.only()})" in objection(copy)


def test_a_request_that_was_heard_after_it_was_given_up_is_still_deleted(site: Site) -> None:
    """The log has counted it, so it is nobody else's."""
    name = another(site)
    late = site.books.slices[name]
    site.books.slices.pop(name)
    for _ in range(3):
        site.autoscale()
    assert name not in site.states
    site.books.slices[name] = late
    assert site.autoscale().deleted == {name: "not in the log"}


def test_a_log_from_before_there_were_such_things_is_claimed_by_the_next_pass(tmp_path: Path) -> None:
    site = Site(tmp_path / "older")
    site.launch("train")
    session = site.session_now()
    name = slice_name("west", session.cluster_id, 1)
    with session.transaction() as draft:
        draft.record(SliceRequested(slice=name, group="west", template=LOCAL))
    assert site.autoscale().conflict is None
    assert "managed from" in objection(copy_of(site, tmp_path / "copy"))
