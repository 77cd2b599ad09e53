"""How the findings of a check-up look."""

from __future__ import annotations

import json

import pytest

from iris_cli.ops.checks.findings import failure, success, warning
from iris_cli.render import checks
from iris_cli.render.console import Output

FINDINGS = [
    success("config", "2 workers"),
    success("worker a-0", "answers"),
    success("worker a-1", "answers"),
    warning("worker a-2", "its clock \x1b[2J is wrong"),
    failure("log", "line 3 [/] is damaged", "iris log salvage " + "x" * 300),
]


def test_each_finding_has_its_weight_and_equal_ones_are_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert checks.show_checks(Output(), FINDINGS) == FINDINGS
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [
        "ok    config: 2 workers",
        "ok    each of the workers a-[0-1]: answers",
        "warn  worker a-2: its clock \\x1b[2J is wrong",
        "fail  log: line 3 [/] is damaged",
        f"      fix: iris log salvage {'x' * 300}",
    ]
    assert captured.err == "1 failed, 1 warning, 2 ok\n"


def test_quietly_only_what_is_wrong_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    checks.show_checks(Output(quiet=True), FINDINGS[:4])
    assert capsys.readouterr() == ("warn  worker a-2: its clock \\x1b[2J is wrong\n", "")


def test_json_has_every_finding(capsys: pytest.CaptureFixture[str]) -> None:
    checks.show_checks(Output(as_json=True), FINDINGS)
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], len(found["findings"])) == (False, 5)
    assert found["findings"][4]["fix"].startswith("iris log salvage")
