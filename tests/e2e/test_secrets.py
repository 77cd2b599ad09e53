"""A secret is in the environment of its task, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.site import Site

pytestmark = pytest.mark.ssh

CANARY = "canary-b5f0c2"
IN_A_FILE = "canary-9e41d7"


def files_below(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def test_a_secret_reaches_its_task_and_no_file_no_argv_and_no_output(slice_of_one: Site) -> None:
    site = slice_of_one
    seen = site.directory / "seen"
    key = site.directory / "the key"
    key.write_text(f"{IN_A_FILE}\n")
    key.chmod(0o600)
    # The task looks for its secrets in every command line that it can read.
    search = """awk 'index($0, ENVIRON["TOKEN"]) || index($0, ENVIRON["KEY"]) { n++ } END { print n + 0 }'"""
    lengths = f'[ "${{#TOKEN}} ${{#KEY}}" = "{len(CANARY)} {len(IN_A_FILE)}" ]'
    script = f"cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | {search} >{seen}; {lengths}"
    ran = site.iris(
        "launch",
        "--wait",
        "--cpu",
        "0.1",
        "--secret",
        "TOKEN",
        "--secret",
        "KEY=@the key",
        "--",
        "sh",
        "-c",
        script,
        env={"TOKEN": CANARY},
    )
    said = ran.out + ran.err + "".join(site.iris(*words).out for words in (("history",), ("status", "sh-1")))
    assert CANARY not in said
    assert IN_A_FILE not in said
    assert seen.read_text() == "0\n"
    key.unlink()
    for path in [*files_below(site.state), *(file for host in site.hosts for file in files_below(host.home))]:
        assert CANARY.encode() not in path.read_bytes(), path
        assert IN_A_FILE.encode() not in path.read_bytes(), path


def test_a_job_whose_secret_cannot_be_had_waits_and_says_so(slice_of_one: Site) -> None:
    site = slice_of_one
    site.iris("launch", "--name", "job", "--cpu", "0.1", "--force", "--secret", "NOWHERE", "--", "true")
    assert "NOWHERE" in site.iris("why", "job").out
    assert not any(event["type"] == "TaskAssigned" for event in site.events())
    site.iris("wait", "job", env={"NOWHERE": "here"})
