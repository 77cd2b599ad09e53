"""The text and the JSON fields that every command prints. A change here is a change of the product: read the diff."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from iris_cli.render.clean import clean_line
from iris_cli.render.console import Output
from tests.render.pictures import COLOURED, PICTURES
from tests.render.pictures.picture import Picture
from tests.render.shapes import Shape
from tests.render.snapshots import check
from tests.render.stage import Stage, Stages

GROUPS = ("worker", "cluster", "config", "cron", "log", "loop")
"""Commands that have commands of their own."""


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


def documents(stages: Stages, picture: Picture) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each command of a picture that prints a JSON document, and the document."""
    with stages.stage(picture.scene) as stage:
        picture.prepare(stage)
        for line in picture.lines:
            if picture.show is not None:
                text = stage.shown(partial(picture.show, Output(as_json=True)), told=False)
            else:
                text, _ = stage.typed(f"--json {line.removeprefix('iris').lstrip()}", told=False)
            if text:  # an error has no result
                yield command_of(line), json.loads(text)


def command_of(line: str) -> str:
    """`iris worker drain cpu-0` -> `iris worker drain`."""
    words = line.split()
    return " ".join(words[: 3 if words[1:2] and words[1] in GROUPS else 2])


def test_json_documents_have_the_recorded_fields(stages: Stages) -> None:
    """One list of fields for each set of fields that a command prints at the top of a document."""
    shapes: dict[tuple[str, tuple[str, ...]], Shape] = defaultdict(Shape)
    for picture in PICTURES.values():
        for command, document in documents(stages, picture) if picture.as_json else ():
            assert document["schema_version"] == 1
            shapes[command, tuple(sorted(document))].add(document)
    recorded = (
        "".join(f"{line}\n" for line in (f"{command} --json", *shape.lines("  ")))
        for (command, _), shape in sorted(shapes.items(), key=lambda item: item[0])
    )
    check("json_fields.txt", "\n".join(recorded))


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
