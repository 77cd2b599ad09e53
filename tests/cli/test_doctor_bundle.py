"""`iris doctor --bundle`: what a bug report needs, in a private file that names no host, no user and no secret."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path

import pytest

from iris_cli.errors import ExitCode
from iris_cli.ops.checks.bundle import Part, write_bundle
from tests.support.site import Site

SECRETS = (
    *("s3cr3t-of-the-shell", "s3cr3t-of-a-file", "s3cr3t-of-a-job", "s3cr3t-of-a-host", "s3cr3t-of-all"),
    *(
        "s3cr3t-of-the-command",
        "s3cr3t-of-a-label",
        "s3cr3t-of-the-setup",
        "s3cr3t-of-notify",
        "s3cr3t-webhook",
    ),
    *("s3cr3t-of-the-output", "s3cr3t-attribute", "my-secret-project", "s3cr3t-line-one", "s3cr3t-line-two"),
    *(
        "s3cr3t-assigned",
        "s3cr3t-bearer",
        "s3cr3t-header",
        "s3cr3t-in-json",
        "s3cr3t-option",
        "quoted-s3cr3t",
    ),
)
TOLD = """\
retry with DB_PASSWORD="two words s3cr3t-assigned"; Authorization: Bearer s3cr3t-bearer
{"x-api-key": "s3cr3t-header", "Token":"s3cr3t-in-json"} from curl --api-key s3cr3t-option
{"value": "\\"quoted-s3cr3t\\""}
"""
"""Lines with secrets that iris does not know, and one as JSON writes it."""
HOSTS = (
    *("tpu-host-0.corp.example", "tpu-host-1.corp.example", "203.0.113.77", "gatekeeper", "2001:db8::77"),
    *("hidden-behind-an-alias.corp.example", "198.51.100.23", "operators-laptop", "buildbox"),
)
USERS = ("susan-operator", "jumpuser", "workeruser")

CONFIG = """\
cluster: {name: lab}
ssh: {user: workeruser, proxy_jump: jumpuser@gatekeeper, key: ~/.ssh/id}
slices:
  - {name: a, type: v4-16, hosts: [tpu-host-0.corp.example, tpu-host-1.corp.example], env: {KEY: s3cr3t-of-a-host}}
workers:
  - {id: w-203.0.113.77, host: 203.0.113.77, attributes: {pool: s3cr3t-attribute}}
  - {id: v6, host: "2001:db8::77"}
  - {id: aliased, host: buildbox}
scale_groups:
  - name: g
    max_slices: 1
    slice_template: {provider: gcp, project: my-secret-project, zone: us-west4-a, type: v4-8, runtime: r}
notify: {webhook: "https://hooks.corp.example/s3cr3t-webhook", command: [sh, -c, "post s3cr3t-of-notify"]}
limits: {connect_timeout: 500ms}
defaults: {env: {ALL: s3cr3t-of-all}}
"""
SSH = "Host buildbox\n  HostName hidden-behind-an-alias.corp.example\n  User jumpuser\n"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    home = tmp_path / "susan-operator"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/config").write_text(SSH)
    (home / "cluster.yaml").write_text(CONFIG)
    (home / "token").write_text("s3cr3t-of-a-file")
    (home / "token").chmod(0o600)
    made = Site(
        home, [], env={"SHELL_SECRET": "s3cr3t-of-the-shell", "LOGNAME": "susan-operator", "IRIS_LOOP": "off"}
    )
    made.iris(
        *("launch", "--no-schedule", "--name", "train", "--force", "-e", "PASSWORD=s3cr3t-of-a-job"),
        *("--secret", "SHELL_SECRET", "--secret", "FILE=@token", "--label", "who=s3cr3t-of-a-label"),
        *("-e", 'QUOTED="quoted-s3cr3t"'),
        *("-e", "LINES=s3cr3t-line-one\ns3cr3t-line-two"),
        *(
            "--setup",
            "login s3cr3t-of-the-setup",
            "--",
            "sh",
            "-c",
            "echo s3cr3t-of-the-command 198.51.100.23",
        ),
    )
    made.iris(
        "cancel", "train", "--reason", "asked 198.51.100.23 as jumpuser with s3cr3t-of-a-job, s3cr3t-line-two"
    )
    log = made.state / "loop.log"
    log.write_text(
        "2026-11-21 tpu-host-0.corp.example: no answer to workeruser; s3cr3t-of-the-shell\n" * 3 + TOLD
    )
    return made


def plant_an_end(site: Site) -> None:
    """A line of the log as a worker's report leaves it. It need not be a valid one: bundles are for faults, too."""
    end = {
        "type": "AttemptEnded",
        "task": "train/task-0",
        "end": {
            "reason": "error",
            "error": "operators-laptop and TPU-HOST-1.corp.example refused susan-operator: s3cr3t-of-a-host",
            "log_tail": "s3cr3t-of-the-output",
            "facts": [{"kind": "memory", "proven": True, "text": "killed on gatekeeper"}],
        },
        "new_field": "s3cr3t-of-the-output",
    }
    line = {
        "seq": 99,
        "at": "2026-11-21T12:00:00.000Z",
        "actor": "susan-operator@operators-laptop iris schedule",
    }
    with (site.state / "events.jsonl").open("a") as log:
        log.write(json.dumps({**line, "events": [end]}) + "\n")
        log.write("s3cr3t-of-the-output is no JSON\n")


def bundle_of(site: Site, *words: str) -> str:
    site.iris("doctor", "--offline", "--bundle", "report.txt", "--yes", *words)
    return (site.directory / "report.txt").read_text()


def test_no_secret_no_host_and_no_user_is_in_it(site: Site) -> None:
    plant_an_end(site)
    text = bundle_of(site)
    for word in (*SECRETS, *HOSTS, *USERS, os.uname().nodename, str(site.directory)):
        assert word.lower() not in text.lower(), word
    assert stat.S_IMODE((site.directory / "report.txt").stat().st_mode) == 0o600


def test_what_a_report_needs_is_in_it(site: Site) -> None:
    plant_an_end(site)
    text = bundle_of(site)
    assert re.findall("^=== ([^:]*):", text, re.MULTILINE) == [
        "versions",
        "cluster.yaml",
        "doctor",
        "events",
        "loop.log",
    ]
    assert "\nmsgspec " in text
    assert "\n    type: v4-16\n" in text
    assert "\n  connect_timeout: 500ms\n" in text
    assert "\nwarn  log: line 4" in text
    assert '"type":"JobSubmitted"' in text
    assert '"env":{"PASSWORD":"<15 characters>"' in text
    assert '"reason":"asked host-' in text


def test_the_same_host_has_the_same_name_in_all_parts(site: Site) -> None:
    plant_an_end(site)
    text = bundle_of(site)
    (of_loop,) = set(re.findall(r"2026-11-21 (host-\d+): no answer to (user-\d+)", text))
    hosts = re.search(r"hosts:\n +- (\S+)\n +- (\S+)\n", text)
    user = re.search(r"  user: (\S+)", text)
    said = re.search(r'"error":"(host-\d+) and (host-\d+) refused (user-\d+): <secret>"', text)
    assert hosts is not None
    assert user is not None
    assert said is not None
    assert of_loop == (hosts[1], user[1])
    assert said[2] == hosts[2]
    assert f'"actor":"{said[3]}@{said[1]} iris schedule"' in text


def test_the_list_of_contents_is_shown_and_without_consent_nothing_is_written(site: Site) -> None:
    refused = site.iris("doctor", "--offline", "--bundle", "report.txt", code=ExitCode.USAGE)
    said = refused.err.splitlines()
    at = said.index("contents of report.txt, without secrets, names of hosts and names of users:")
    assert [line.split()[0] for line in said[at + 1 : at + 6]] == [
        "versions",
        "cluster.yaml",
        "doctor",
        "events",
        "loop.log",
    ]
    assert said[-1] == "error: not a terminal: pass --yes to write"
    assert not (site.directory / "report.txt").exists()


def test_at_a_terminal_the_list_comes_before_the_question(site: Site) -> None:
    with site.terminal("doctor", "--offline", "--bundle", "report.txt", columns=150, lines=60) as shown:
        shown.until(lambda screen: "Write report.txt? [y/N]:" in screen.text, "the question")
        assert "  loop.log " in shown.screen.text
        assert not (site.directory / "report.txt").exists()
        shown.type("y\r")
        assert shown.end() == ExitCode.OK
    assert (site.directory / "report.txt").stat().st_size > 1000


@pytest.mark.parametrize("there", ["file", "link", "directory"])
def test_nothing_that_is_there_is_overwritten(site: Site, there: str) -> None:
    path, other = site.directory / "report.txt", site.directory / "other"
    if there == "directory":
        path.mkdir()
    elif there == "link":
        path.symlink_to(other)
    else:
        path.write_text("mine")
    refused = site.iris("doctor", "--offline", "--bundle", "report.txt", "--yes", code=ExitCode.USAGE)
    assert refused.err.splitlines()[0] == "error: report.txt exists already"
    assert not other.exists()
    assert there != "file" or path.read_text() == "mine"


def test_json_names_the_parts(site: Site) -> None:
    found = site.iris("--json", "doctor", "--offline", "--bundle", "report.txt", "--yes").json()
    parts = found["bundle"]["parts"]
    assert [each["name"] for each in parts] == ["versions", "cluster.yaml", "doctor", "events", "loop.log"]
    assert found["bundle"]["file"] == "report.txt"
    assert all(each["size"] for each in parts)


def test_the_size_is_that_of_the_written_bytes(tmp_path: Path) -> None:
    """A name in the log may have bytes that are no UTF-8 text."""
    part = Part(name="events", about="the log", lines=("me@laptop", "\udcff@laptop"))
    write_bundle(tmp_path / "report.txt", [part])
    assert (tmp_path / "report.txt").read_bytes().endswith(b"\n\\udcff@laptop\n")
    assert part.size == len(b"me@laptop\n\\udcff@laptop\n")


@pytest.mark.parametrize(
    "config",
    [
        "slices: [{hosts: [tpu-host-0.corp.example], password: s3cr3t-of-all}]\nport: s3cr3t-of-all\n",
        "a: [",
        None,
    ],
    ids=["invalid", "no YAML", "none"],
)
def test_a_broken_set_up_is_what_it_is_for(site: Site, config: str | None) -> None:
    path = site.directory / "cluster.yaml"
    if config is None:
        path.unlink()
    else:
        path.write_text(config)
    text = bundle_of(site, *(("--state-dir", "state") if config is None else ()))
    assert "\nfail  config: " in text
    for word in ("tpu-host-0", "s3cr3t-of-all", str(site.directory)):
        assert word not in text, word
