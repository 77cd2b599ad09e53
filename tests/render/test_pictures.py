"""What every command prints, letter for letter, at three widths and as JSON. A change here is one of the product."""

from __future__ import annotations

import json
import re
import unicodedata
from functools import partial
from itertools import groupby

import pytest

from iris_cli.render.clean import clean_line
from iris_cli.render.console import Output
from tests.render.pictures import PICTURES
from tests.render.pictures.picture import Picture
from tests.render.snapshots import WIDTHS, check
from tests.render.stage import Stages

COLOURED = (
    *("hostile-status", "hostile-job", "hostile-worker", "status-all", "status-groups", "status-damaged"),
    *("why-task", "worker-show-silent", "history-all", "report", "launch-dry-run"),
)


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Stages:
    return Stages(tmp_path_factory.mktemp("scenes"))


def typed(stages: Stages, picture: Picture, width: int, *, as_json: bool = False) -> str:
    with stages.stage(picture.scene) as stage:
        picture.prepare(stage)
        stage.answers = [] if as_json else list(picture.answers)
        if picture.show is not None:
            return stage.shown(partial(picture.show, Output(as_json=as_json)), width, told=not as_json)
        words = picture.line.removeprefix("iris ")
        text, code = stage.typed(f"--json {words}" if as_json else words, width, told=not as_json)
        return text if as_json else f"{text}exit {code}\n"


@pytest.mark.parametrize("name", PICTURES)
def test_a_person_sees_this(name: str, stages: Stages) -> None:
    picture = PICTURES[name]
    narrow, middle, wide = WIDTHS
    texts = {width: typed(stages, picture, width) for width in (narrow, wide)}
    if texts[narrow] != texts[wide]:  # else the width does not matter
        texts[middle] = typed(stages, picture, middle)
    seen = [(texts.get(width, texts[wide]), width) for width in WIDTHS]
    shown = [f"$ {clean_line(picture.line)}\n"]
    for text, group in groupby(seen, key=lambda pair: pair[0]):
        shown.append(f"{'=' * 20} {', '.join(str(width) for _, width in group)} columns\n{text}")
    assert not any(
        unicodedata.category(each) in ("Cc", "Cf", "Cs") for each in "".join(shown[1:]) if each != "\n"
    )
    check(f"commands/{name}.txt", "".join(shown))


@pytest.mark.parametrize("name", [name for name, picture in PICTURES.items() if picture.as_json])
def test_a_program_reads_this(name: str, stages: Stages) -> None:
    shown = typed(stages, PICTURES[name], 100, as_json=True)
    if shown:  # an error has no result
        assert json.loads(shown)["schema_version"] == 1
        check(f"commands/{name}.json", shown)


@pytest.mark.parametrize("name", COLOURED)
def test_on_a_terminal_it_has_these_colours(name: str, stages: Stages) -> None:
    """Each escape as `{31;1}`, `{}` ends it."""
    picture = PICTURES[name]
    with stages.stage(picture.scene) as stage:
        picture.prepare(stage)
        text, _ = stage.typed(picture.line.removeprefix("iris "), colour=True)
    assert "\x1b[" in text
    plain = re.sub(r"\x1b\[([0-9;]*)m", lambda found: f"{{{found[1].removeprefix('0')}}}", text)
    assert "\x1b" not in plain
    check(f"colours/{name}.txt", plain)
