"""What docs/client.md shows is what happens."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from iris_cli.client.records import ANSWER_TIMEOUT
from iris_cli.client.request_channel import UnansweredError
from iris_cli.core.constraint_syntax import format_constraint, parse_constraint
from iris_cli.core.lifecycle.children import PACKED_SIZE_FACTOR, inherited_constraints
from iris_cli.core.messages.requests import MAX_REQUEST_BYTES, MAX_WAITS
from iris_cli.core.model.cluster import MAX_ENDPOINT_CHANGES
from iris_cli.core.model.limits import Limits
from tests.support.desk import Desk
from tests.support.site import Site

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/client.md").read_text("utf-8")
EXAMPLES = re.findall(r"```(python|sh)\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)


def paths() -> str:
    return f"{ROOT}:{os.pathsep.join(path for path in sys.path if path)}"


def ended(desk: Desk, job: str) -> Callable[[], bool]:
    return lambda: desk.state(job).terminal


@pytest.mark.ssh
def test_the_examples_print_what_the_page_says(
    slice_of_one: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [host], desk = slice_of_one.hosts, Desk(slice_of_one)
    monkeypatch.chdir(slice_of_one.directory)
    monkeypatch.setenv("HOME", str(slice_of_one.directory))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    (_, outside, printed), (_, parts, pulled), (_, cross, crossed), (_, nightly, said) = EXAMPLES
    for program, words in ((outside, printed), (parts, pulled)):
        exec(program, {"__name__": "__main__"})
        assert capsys.readouterr() == (words, "")
    desk.launch("cross", sys.executable, "-c", cross, env={"PYTHONPATH": paths()})
    desk.launch("nightly", "sh", "-c", nightly)
    for job, words in (("cross", crossed), ("nightly", said)):
        desk.until(ended(desk, job))
        (out,) = host.home.glob(f".iris/*/*/a/{desk.attempt(job).token}/out")
        assert out.read_text() == words, out.with_name("err").read_text()


def test_the_table_of_inherited_constraints_is_true() -> None:
    rows = re.findall(r"^\| (`region.*?) \| (.*?) \| (.*?) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 5
    for parent, said, result in rows:
        has = [parse_constraint(text) for text in re.findall("`(.*?)`", parent)]
        texts = None if said == "`None`" else re.findall(r"`([^\[\]`]+)`", said)
        child = None if texts is None else [parse_constraint(text) for text in texts]
        found = [format_constraint(each) for each in inherited_constraints(has, child)]
        assert found == re.findall(r"`([^\[\]`]+)`", result)


def test_the_limits_are_these() -> None:
    limits = Limits()
    told = re.findall(r"^\| .* \| (.*) \|$", PAGE.partition("## Limits")[2], re.MULTILINE)[1:]
    assert told == [
        f"{MAX_REQUEST_BYTES >> 10} KiB",
        f"`limits.workspace_size`, {limits.workspace_size >> 30} GiB, for one; four times that for all",
        f"`limits.max_children`, {limits.max_children}",
        f"`limits.max_job_depth`, {limits.max_job_depth}",
        f"`limits.max_endpoints`, {limits.max_endpoints}, and {MAX_ENDPOINT_CHANGES} changes",
        f"{MAX_WAITS}",
    ]
    assert PACKED_SIZE_FACTOR == 4
    assert ANSWER_TIMEOUT == 300
    assert int(UnansweredError("").exit_code) == 7
