"""Stories that re-run. `IRIS_REWRITE=1 pytest tests/scenarios` writes what happens now: read the diff."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.script import Script

STORIES = sorted(Path(__file__).parent.glob("*.txt"))


def rerun(text: str) -> str:
    """The transcript with the output that its commands give now. Comments and blank lines stay."""
    script = Script()
    blocks = []
    for block in text.strip().split("\n\n"):
        comments = [line for line in block.splitlines() if line.startswith("#")]
        rest = [line for line in block.splitlines() if not line.startswith("#")]
        if rest:
            rest = [rest[0], "----", *script.run(rest[0])]
        blocks.append("\n".join([*comments, *rest]))
    return "\n\n".join(blocks) + "\n"


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.stem)
def test_a_scenario_gives_its_recorded_events(story: Path) -> None:
    told = story.read_text()
    happened = rerun(told)
    if os.environ.get("IRIS_REWRITE"):
        story.write_text(happened)
    else:
        assert happened == told


def test_there_is_a_story_to_every_file_and_each_begins_with_its_moral() -> None:
    assert len(STORIES) >= 35
    assert [story.name for story in STORIES if not story.read_text().startswith("# ")] == []


def test_a_story_that_goes_another_way_is_noticed() -> None:
    told = "add-worker w\n----\nWorkerRegistered w\nnothing else"
    assert (
        rerun(told)
        == "add-worker w\n----\nWorkerRegistered w\nWorkerUpdated w\nWorkerConditionChanged w healthy\n"
    )
