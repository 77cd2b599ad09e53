"""The recipes give what the page says that they give: run as they stand there, on the scene that stands above each.

DuckDB and pandas are not among what the tests need: those recipes only name columns that others here use.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.render.stage import Stages

PAGE = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text(encoding="utf-8")
RECIPES = re.findall(r"<!-- scene: (\w+) -->\n```console\n\$ iris (.*?) \| (.*?)\n(.*?)```", PAGE, re.DOTALL)
(TABLE,) = (code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "csv" in code)


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Stages:
    return Stages(tmp_path_factory.mktemp("scenes"))


def test_there_are_recipes_and_none_is_left_out() -> None:
    assert len(RECIPES) == PAGE.count("$ iris ") > 5


@pytest.mark.parametrize(("scene", "line", "then", "shown"), RECIPES)
def test_a_recipe_gives_the_output_that_the_page_shows(
    scene: str, line: str, then: str, shown: str, stages: Stages, tmp_path: Path
) -> None:
    if then.startswith("jq") and shutil.which("jq") is None:
        pytest.skip("there is no jq here")
    (tmp_path / "held.py").write_text(TABLE)
    with stages.stage(scene) as stage:
        said, code = stage.typed(line, told=False)
    assert code == 0
    command = re.sub(r"^python3\b", lambda _: sys.executable, then)
    ran = subprocess.run(
        ["/bin/sh", "-c", command], input=said, capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (ran.stdout, ran.stderr) == (shown, "")
