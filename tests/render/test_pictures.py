"""The text and the JSON that every command prints. A change here is a change of the product: read the diff."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import partial

import pytest

from iris_cli.render.console import Output
from iris_cli.render.layout import clean_line
from tests.render.pictures import COLOURED, PICTURES
from tests.render.pictures.picture import Picture
from tests.render.snapshots import check
from tests.render.stage import Stage, Stages
from tests.support.json_output import checked, command_of


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Stages:
    return Stages(tmp_path_factory.mktemp("scenes"))


def transcript(stages: Stages, picture: Picture, width: int) -> str:
    """The command lines and what each of them prints."""
    with stages.stage(picture.scene) as stage:
        picture.prepare(stage)
        stage.answers = list(picture.answers)
        if picture.show is not None:
            return f"$ {picture.line}\n{stage.shown(partial(picture.show, Output()), width)}"
        return "\n".join(typed(stage, line, width) for line in picture.lines)


def typed(stage: Stage, line: str, width: int) -> str:
    text, code = stage.typed(line.removeprefix("iris").lstrip(), width)
    return f"$ {clean_line(line)}\n{text}exit {code}\n"


@pytest.mark.parametrize("name", PICTURES)
def test_commands_print_the_recorded_text(name: str, stages: Stages) -> None:
    widths = PICTURES[name].widths
    shown = {width: transcript(stages, PICTURES[name], width) for width in widths}
    assert not any(
        unicodedata.category(each) in ("Cc", "Cf", "Cs") for each in "".join(shown.values()) if each != "\n"
    )
    headed = (f"{'=' * 20} {width} columns\n{text}" for width, text in shown.items())
    check(f"commands/{name}.txt", "\n".join(headed if len(widths) > 1 else shown.values()))


def documents(stages: Stages, picture: Picture) -> Iterator[tuple[str, str]]:
    """Each command of a picture that prints a JSON document, and the text of the document."""
    with stages.stage(picture.scene) as stage:
        picture.prepare(stage)
        for line in picture.lines:
            if picture.show is not None:
                text = stage.shown(partial(picture.show, Output(as_json=True)), told=False)
            else:
                text, _ = stage.typed(f"--json {line.removeprefix('iris').lstrip()}", told=False)
            if text:  # an error has no result
                yield command_of(line), text


@pytest.mark.parametrize("name", [name for name, picture in PICTURES.items() if picture.as_json])
def test_json_documents_are_as_the_schema_has_them(name: str, stages: Stages) -> None:
    for command, text in documents(stages, PICTURES[name]):
        assert len(checked(command, text)) == 1


def test_rows_of_the_log_are_as_the_schema_has_them(stages: Stages) -> None:
    with stages.stage("failed_gang") as stage:
        text, _ = stage.typed("log export", told=False)
    assert len(checked("iris log export", text)) > 10


@pytest.mark.parametrize("name", COLOURED)
def test_terminals_get_the_recorded_colours(name: str, stages: Stages) -> None:
    """Each escape as `{31;1}`, `{}` ends it."""
    picture, line = COLOURED[name]
    with stages.stage(PICTURES[picture].scene) as stage:
        PICTURES[picture].prepare(stage)
        text, _ = stage.typed(line.removeprefix("iris "), colour=True)
    assert "\x1b[" in text
    plain = re.sub(r"\x1b\[([0-9;]*)m", lambda found: f"{{{found[1].removeprefix('0')}}}", text)
    assert "\x1b" not in plain
    check(f"colours/{name}.txt", plain)
