"""Every file below `valid/` loads; every file below `invalid/` has its problems beside it, all of them.

A line of an `.expected` file is `line: path: message (hint)`; `...` in it stands for any text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from iris_cli.config.job_file import load_job_file
from iris_cli.config.job_script import load_job_script
from iris_cli.config.load import load_cluster_config
from iris_cli.errors import ConfigError

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "cluster.example.yaml"


def files(pattern: str) -> list[Path]:
    found = sorted(HERE.glob(pattern))
    assert found, f"nothing matches {pattern}"
    return found


def problems_of(path: Path) -> list[str]:
    load: Callable[[Path], object] = load_job_file if path.parent.name == "job" else load_cluster_config
    if path.suffix == ".sh":
        load = load_job_script
    with pytest.raises(ConfigError) as refused:
        load(path)
    assert str(path) in refused.value.message
    return [problem.removeprefix(f"{path}:") for problem in refused.value.problems]


def pattern_of(expected: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, expected.split("..."))))


@pytest.mark.parametrize("path", [EXAMPLE, *files("valid/cluster/*.yaml")], ids=lambda path: path.name)
def test_a_valid_cluster_file_loads_without_a_warning(path: Path) -> None:
    assert load_cluster_config(path).warnings == ()


@pytest.mark.parametrize("path", files("valid/job/*.yaml"), ids=lambda path: path.name)
def test_a_valid_job_file_loads(path: Path) -> None:
    assert load_job_file(path).command


@pytest.mark.parametrize(
    "path",
    [*files("invalid/*/*.yaml"), *files("invalid/job/*.sh")],
    ids=lambda path: f"{path.parent.name}/{path.name}",
)
def test_an_invalid_file_is_refused_with_all_its_problems(path: Path) -> None:
    found = problems_of(path)
    expected = path.with_suffix(".expected").read_text().splitlines()
    missing = [line for line in expected if not any(pattern_of(line).fullmatch(problem) for problem in found)]
    surplus = [
        problem for problem in found if not any(pattern_of(line).fullmatch(problem) for line in expected)
    ]
    assert (missing, surplus) == ([], [])
    assert len(found) == len(expected)
    assert found == sorted(found, key=lambda problem: int(problem.partition(":")[0]))


def test_every_expectation_belongs_to_a_file() -> None:
    tested = {path.with_suffix("") for path in (*files("invalid/*/*.yaml"), *files("invalid/job/*.sh"))}
    assert {path.with_suffix("") for path in files("invalid/*/*.expected")} == tested
