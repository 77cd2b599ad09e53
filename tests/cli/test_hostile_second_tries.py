"""What users and workers wrote comes back clean from `launch --again` and `retry`: no escapes, no markup."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from iris_cli.cli import app
from iris_cli.errors import ExitCode
from tests.render.scenes import session_of
from tests.support.lab import Lab

HOSTILE = (
    "\x1b[31mred\x1b[0m \x1b]8;;http://evil\x07link\x9b2J\x08\x0c\x85\u202e\u2028\x7f [/] [bold]x[/bold]"
)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """`over` has failed with hostile words in its command, labels, set-up and output; `open` runs with the same."""
    fields: dict[str, Any] = {
        "command": (f"./{HOSTILE}", HOSTILE),
        "labels": {"note": HOSTILE},
        "setup": HOSTILE,
        "env": {"NOTE": HOSTILE},
        "force": True,
    }
    lab = Lab().worker("w").job("over", **fields).job("open", **fields).schedule()
    lab.reports("over/* running", "open/* running").reports("over/* exited 1")
    session_of(lab, tmp_path / "state")
    path = tmp_path / "cluster.yaml"
    path.write_text("cluster: {name: lab}\nworkers: []\n")
    return path


def said(config: Path, capsys: pytest.CaptureFixture[str], code: int, *words: str) -> str:
    """The whole output of a command. Nothing in it moves a cursor or hides text, and markup stays as it was written."""
    assert app.run(["--config", str(config), *words]) == code
    out, err = capsys.readouterr()
    odd = {each for each in out + err if unicodedata.category(each) in ("Cc", "Cf", "Zl", "Zp", "Cs")} - {
        "\n"
    }
    assert odd == set(), (words, out, err)
    return out + err


@pytest.mark.parametrize(
    ("command", "subject"), [(("launch", "--again"), HOSTILE), (("retry",), f"over/task-0{HOSTILE}")]
)
def test_a_hostile_name_is_no_job_and_is_shown_clean(
    config: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...], subject: str
) -> None:
    shown = said(config, capsys, ExitCode.NOT_FOUND, *command, subject)
    assert "[bold]x[/bold]" in shown


def test_a_job_with_hostile_words_is_launched_again_with_the_same_words(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said(config, capsys, ExitCode.OK, "launch", "--again", "over", "--dry-run")
    said(
        config,
        capsys,
        ExitCode.OK,
        "launch",
        "--again",
        "over",
        "--no-schedule",
        "--label",
        f"more={HOSTILE}",
    )
    for view in (("status",), ("status", "over"), ("status", "over-2"), ("report",), ("why", "over-2")):
        said(config, capsys, ExitCode.OK, *view)
    jobs = [
        event["job"]
        for line in (config.parent / "state" / "events.jsonl").read_text().splitlines()
        for event in json.loads(line)["events"]
        if event["type"] == "JobSubmitted"
    ]
    first, again = (next(job for job in jobs if job["id"] == name) for name in ("over", "over-2"))
    assert [again[field] for field in ("command", "setup", "env")] == [
        first[field] for field in ("command", "setup", "env")
    ]
    assert again["labels"] == {"more": HOSTILE, **first["labels"]}


def test_a_retry_of_a_job_with_hostile_words_is_shown_clean(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "retrying open" in said(config, capsys, ExitCode.OK, "retry", "open")
    assert "over has ended" in said(config, capsys, ExitCode.USAGE, "retry", "over")
    said(config, capsys, ExitCode.OK, "history", "open")
    said(config, capsys, ExitCode.OK, "status", "open")
