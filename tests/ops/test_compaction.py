"""A log that has grown large is compacted at the end of a cycle; nobody waits for that, and nothing fails over it."""

from __future__ import annotations

from pathlib import Path

import pytest

from iris_cli.cli import app
from iris_cli.core.events.events import LogCompacted
from iris_cli.journal.log.verify import verify
from iris_cli.ops.cycle import compaction
from tests.support.fake_runner import Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(tmp_path, "w")
    site.launch("train")
    site.cycle()
    return site


def test_a_large_log_is_compacted_and_the_session_goes_on(site: Site) -> None:
    session = site.session()
    before = session.view()
    done = compaction.compact_if_large(session, limit=100)
    assert done is not None
    assert done.segment.last == before.seq
    assert session.view().seq == before.seq + 1
    assert session.view().jobs == before.jobs
    site.hosts["w"].exits("train")
    site.cycle(15)
    assert verify(session.state.path).ok
    whole = list(session.state.read_history(archive=True))
    assert [each.seq for each in whole] == list(range(1, len(whole) + 1))
    assert sum(isinstance(each.events[0], LogCompacted) for each in whole) == 1


def test_a_small_log_stays_as_it_is(site: Site) -> None:
    session = site.session()
    session.view()
    assert compaction.compact_if_large(session) is None
    assert not (session.state.path / "archive").exists()


def test_compaction_does_not_wait_for_the_lock(site: Site) -> None:
    session = site.session()
    session.view()
    told: list[str] = []
    session.tell = told.append
    with site.session().state.locked("iris launch"):
        assert compaction.compact_if_large(session, limit=100) is None
    assert told == []
    assert compaction.compact_if_large(session, limit=100) is not None


@pytest.mark.parametrize("spoil", ["damage", "mode"])
def test_what_keeps_it_from_that_is_told_and_no_error(site: Site, spoil: str) -> None:
    session = site.session()
    session.view()
    told: list[str] = []
    session.tell = told.append
    log = session.state.path / "events.jsonl"
    if spoil == "damage":
        log.write_bytes(b"x" + log.read_bytes()[1:])
    else:
        log.chmod(0o644)
    assert compaction.compact_if_large(session, limit=100) is None
    assert len(told) == 1
    assert told[0].startswith("the log was not compacted: ")


def test_the_schedule_command_compacts_when_its_cycle_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cluster.yaml").write_text("cluster: {name: lab}\n")
    iris = ["--config", str(tmp_path / "cluster.yaml")]
    assert app.run([*iris, "launch", "--no-schedule", "--name", "train", "--", "true"]) == 0
    monkeypatch.setattr(compaction, "LARGE_LOG", 100)
    assert app.run([*iris, "schedule", "--once"]) == 0
    assert "moved to archive/events-" in capsys.readouterr().err
    assert app.run([*iris, "log", "verify"]) == 0
