"""With --json every command prints one JSON document, alone on stdout, whatever else it has to say."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support.site import Site
from tests.support.sshd import SshHost

pytestmark = pytest.mark.ssh


@pytest.fixture
def site(ssh_lab: Callable[..., Sequence[SshHost]], tmp_path: Path) -> Site:
    hosts = ssh_lab(1)
    made = Site(tmp_path, hosts)
    made.write_config({"one": hosts}, tpu="v5litepod-4")
    made.iris("launch", "--wait", "--name", "done", "--cpu", "0.1", "--", "echo", "said")
    made.iris("launch", "--no-schedule", "--name", "waits", "--cpu", "0.1", "--", "true")
    return made


def test_every_command_speaks_json(site: Site) -> None:
    check_that_a_followed_launch_speaks_json_lines_to_its_end(site)
    for words in (
        ("status",),
        ("status", "done"),
        ("why", "waits"),
        ("why", "one-0"),
        ("history",),
        ("workers",),
        ("worker", "show", "one-0"),
        ("worker", "probe", "one-0"),
        ("worker", "drain", "one-0"),
        ("worker", "uncordon", "one-0"),
        ("worker", "unwedge", "one-0"),
        ("worker", "taint", "one-0", "broken"),
        ("worker", "taint", "one-0", "broken", "--remove"),
        ("logs", "done"),
        ("wait", "done"),
        ("schedule", "--dry-run"),
        ("launch", "--dry-run", "--", "true"),
        ("launch", "--wait", "--cpu", "0.1", "--", "true"),
        ("schedule", "--once"),
        ("cancel", "waits"),
        ("config", "validate"),
        ("doctor",),
        ("log", "verify"),
        ("worker", "forget", "one-0"),
    ):
        assert site.iris("--json", *words).json(), words


def check_that_a_followed_launch_speaks_json_lines_to_its_end(site: Site) -> None:
    said = site.iris(
        "launch", "--json", "--follow", "--name", "talks", "--cpu", "0.1", "--", "echo", "hi"
    ).out
    line, end = (json.loads(each) for each in said.splitlines())
    assert (line["text"], end["jobs"][0]["state"]) == ("hi", "SUCCEEDED")
