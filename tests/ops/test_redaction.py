"""Text for strangers: the same host has the same pseudonym everywhere, and no secret is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from iris_cli.ops.checks.bundle import bundle
from iris_cli.ops.checks.redaction import Redactor


@pytest.fixture
def redactor() -> Redactor:
    made = Redactor()
    made.know_hosts(["10.0.0.1:2222", "bastion", "v4a-w-0", "cpu0.example.org", "db"])
    made.know_users(["me", "ubuntu"])
    made.know_secrets(["hunter2", "first line\n  second line\n", "abc", ""])
    made.know_path("/work/acme/proj/", "<config>")
    return made


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("connect to 10.0.0.1:2222: timed out", "connect to host-1:2222: timed out"),
        ("Bastion, bastion; rebastioned", "host-2, host-2; rehost-2ed"),
        ("db dbx a-db me, home", "host-5 dbx a-db user-1, home"),
        ("10.0.0.10 and 10.0.0.1", "host-6 and host-1"),
        ("ssh me@v4a-w-0 true", "ssh user-1@host-3 true"),
        ("alice@gate: alice is not bob", "user-3@host-6: user-3 is not bob"),
        ("fe80::1%eth0 and 2001:db8::5", "host-6 and host-7"),
        ("Gate.example.org. said no; gate.example.org", "host-6. said no; host-6"),
        ("cpu0.example.org:22", "host-4:22"),
        ("-i /home/carol/.ssh/id, carol", "-i /home/user-3/.ssh/id, user-3"),
        ("pass=hunter2hunter2 second line", "pass=<secret><secret> <secret>"),
        ("abc stays: too short to tell", "abc stays: too short to tell"),
        ("see https://hooks.example.org/T0/B1?x=1, then", "see <url> then"),
        ("hf_abcdEFGH1234567890xyz", "token-1"),
        ("/work/acme/proj/state/events.jsonl:3", "<config>/state/events.jsonl:3"),
        ("2026-11-21T12:00:00.000Z 12:30:45 12:30", "2026-11-21T12:00:00.000Z 12:30:45 12:30"),
        ("train.py iris_cli.core 0.1.0 v4-16 us-west4-a", "train.py iris_cli.core 0.1.0 v4-16 us-west4-a"),
        ("localhost 127.0.0.1 iris status", "localhost 127.0.0.1 iris status"),
    ],
)
def test_what_is_left_of_a_text(redactor: Redactor, text: str, shown: str) -> None:
    assert redactor.text(text) == shown
    assert redactor.text(text) == shown, "pseudonyms stay"
    assert redactor.text(shown) == shown, "and are not redacted again"


def test_the_rest_of_a_very_long_line_is_cut_off(redactor: Redactor) -> None:
    assert redactor.text("a" * 30_000 + "\nnext") == "a" * 20_000 + "<cut>\nnext"


@pytest.mark.parametrize("name", ["susan", "al", "1234567", "auto", "10.0.0.7", "susan@corp.example"])
def test_a_user_in_cluster_yaml_is_hidden_whatever_the_name_looks_like(name: str, tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(f'cluster: {{name: lab}}\nssh: {{user: "{name}"}}\n')
    (lines,) = (part.lines for part in bundle(file, None, [], None) if part.name == "cluster.yaml")
    (line,) = (line for line in lines if "user:" in line)
    assert line.strip().startswith("user: user-")
    assert name not in line
