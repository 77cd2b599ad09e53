"""Hosts from SSH configurations and lists, and what is no source."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from iris_cli.capacity.provider import ProviderError
from iris_cli.config.load import load_cluster_config
from iris_cli.core.messages.cloud import Refusal
from iris_cli.ops.setup.cluster_import import source
from tests.cli.cluster_import.conftest import Import

SSH_CONFIG = """\
Include more
Host bastion
  HostName 198.51.100.7
Host *.lab tpu-*
  ProxyJump bastion
Host tpu-1 tpu-one
  HostName 10.0.0.1
Host github.com
  User git
Host "db" # the data base
  HostName 10.0.0.2
  Port 2222
Host broken
  Port nonsense
"""


@pytest.fixture
def ssh_config(lab: Path) -> Path:
    directory = lab.parent / ".ssh"
    directory.mkdir()
    (directory / "more").write_text("Host extra\n  HostName 10.0.0.3\n")
    (directory / "config").write_text(SSH_CONFIG)
    return directory / "config"


@pytest.mark.usefixtures("ssh_config")
def test_hosts_of_an_ssh_configuration(lab: Path, cluster_import: Import) -> None:
    said = cluster_import("--from", "ssh-config", "--yes")
    hosts = load_cluster_config(lab / "cluster.yaml").hosts
    assert [(each.worker, each.connection.host, each.connection.port) for each in hosts] == [
        ("extra", "extra", 0),
        ("tpu-1", "tpu-1", 0),
        ("db", "db", 0),
    ]
    assert {each.connection.proxy_jump for each in hosts} == {""}
    for word in (
        "bastion: it is a jump host, for example of tpu-1",
        "tpu-one: same host as tpu-1",
        "github.com: the user git",
        "broken: 'nonsense' is not a port",
    ):
        assert f"skipped {word}" in said.err


def test_some_hosts_of_an_ssh_configuration_that_is_named(
    lab: Path, cluster_import: Import, ssh_config: Path
) -> None:
    cluster_import("--from", str(ssh_config), "d*", "extra", "--yes")
    assert [each.worker for each in load_cluster_config(lab / "cluster.yaml").hosts] == ["extra", "db"]
    said = cluster_import("--from", "ssh-config", "nobody")
    assert said.code == 2
    assert "available: extra, tpu-1, db" in said.err


def test_a_host_or_a_slice_that_is_listed_twice_is_imported_once_and_said(
    lab: Path, cluster_import: Import
) -> None:
    said = cluster_import("b", "me@b:22", "b", "b:23", "v5a=v5e-8:h1", "v5a=v5e-8:h2", "--yes")
    hosts = load_cluster_config(lab / "cluster.yaml").hosts
    assert [(each.worker, each.connection.host) for each in hosts] == [
        ("v5a-0", "h1"),
        ("b", "b"),
        ("b-23", "b"),
    ]
    assert said.err.count("skipped b: the list has this host twice") == 1
    assert "skipped b-22: the list has this host twice" in said.err
    assert "skipped v5a: another v5a already exists" in said.err


def test_a_slice_without_a_zone_never_gets_half_a_name(lab: Path, cluster_import: Import) -> None:
    (lab / "cluster.yaml").write_text("cluster: {name: lab}\nworkers: [{id: v5a, host: cpu0}]\n")
    said = cluster_import("v5a=v5e-8:h1")
    assert "skipped v5a: another v5a already exists" in said.err
    assert "nothing to import" in said.err + said.out


LIST = """\
# our hosts
cpu-[0-2]   me@gpu0.example.org:2222
v4a=v4-32:v4a-w-[0-3]  # a slice
10.0.0.9
"""


def test_a_list_of_hosts_with_ranges(
    lab: Path, cluster_import: Import, monkeypatch: pytest.MonkeyPatch
) -> None:
    (lab / "hosts").write_text(LIST)
    cluster_import("--from", "hosts", "--yes")
    first = (lab / "cluster.yaml").read_bytes()
    hosts = load_cluster_config(lab / "cluster.yaml").hosts
    assert [(each.worker, each.connection.host, each.slice) for each in hosts] == [
        *((f"v4a-{number}", f"v4a-w-{number}", "v4a") for number in range(4)),
        *((f"cpu-{number}", f"cpu-{number}", None) for number in range(3)),
        ("gpu0.example.org-2222", "gpu0.example.org", None),
        ("10.0.0.9", "10.0.0.9", None),
    ]
    (lab / "cluster.yaml").unlink()
    words = [word for line in LIST.splitlines() for word in line.partition("#")[0].split()]
    assert cluster_import(*words, "--yes").code == 0
    assert (lab / "cluster.yaml").read_bytes() == first
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(LIST.encode())))
    assert "already has all 6" in cluster_import("--from", "-").out


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a\nb c[3-1]\n", "line 2: the range [3-1] runs backwards"),
        ("h[0-99999]\n", "more than 10000 hosts"),
        ("v4a=v4-32\n", "is not a slice\nhint: write NAME=TYPE:HOST"),
        ("a: {b: c}\n", "is not a host"),
        ("# nothing\n", "it has no hosts"),
        ("\x00\x01\n", "is not a host"),
        (" \n", "hosts is empty"),
        ("cpu0\nsh: gcloud: Permission denied\n", "line 2: 'sh:' is not a host"),
    ],
)
def test_lists_that_can_not_be_read_are_refused_with_their_line(
    lab: Path, cluster_import: Import, text: str, why: str
) -> None:
    (lab / "hosts").write_text(text)
    said = cluster_import("--from", "hosts", "--yes")
    assert said.code == 2
    assert why in said.err
    assert not (lab / "cluster.yaml").exists()


NOT_LOGGED_IN = """\
ERROR: (gcloud.compute.tpus.tpu-vm.list) You do not currently have an active account selected.
Please run:

  $ gcloud auth login
"""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            NOT_LOGGED_IN,
            "this is a message, not a list: ERROR: (gcloud.compute.tpus.tpu-vm.list) You do not",
        ),
        ("\nERROR: Host key\nHost key verification failed.\n", "this is a message, not a list"),
        ("WARNING: a newer version is there\n[]\n", "this is a message, not a list: WARNING: a newer"),
        ("Your active configuration is: [default]\n[]\n", "this is a message, not a list"),
        ("Listed 0 items.\n", "this is a message, not a list: Listed 0 items."),
        ("-bash: gcloud: command not found\n", "this is a message, not a list: -bash: gcloud"),
        ("zsh: command not found: gcloud\n", "this is a message, not a list: zsh: command"),
        ("NAME  ZONE           ACCELERATOR_TYPE\nv4a   us-central2-b  v4-32\n", "this is a table"),
    ],
)
@pytest.mark.parametrize("piped", [True, False], ids=["a pipe", "a file"])
def test_what_a_program_says_where_its_list_should_be_is_no_list_of_hosts(
    lab: Path, cluster_import: Import, monkeypatch: pytest.MonkeyPatch, text: str, why: str, piped: bool
) -> None:
    (lab / "tpus").write_text(text)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    said = cluster_import("--from", "-" if piped else "tpus", "--yes")
    assert (said.code, said.out) == (2, "")
    assert f"error: {'standard input' if piped else 'tpus'}: {why}" in said.err
    assert "hint: " in said.err
    assert not (lab / "cluster.yaml").exists()


def test_where_google_can_not_be_asked_it_says_what_to_type(
    cluster_import: Import, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(project: str, zone: str, _clock: object) -> list[object]:
        raise ProviderError(Refusal.DENIED, f"no credentials for {project} {zone}")

    monkeypatch.setattr("iris_cli.capacity.opening.list_nodes", refused)
    said = cluster_import("--from", "gcp", "--zone", "us-west4-a", "--project", "p")
    assert (said.code, said.err.splitlines()[0]) == (2, "error: no credentials for p us-west4-a")
    assert "gcloud compute tpus tpu-vm list --zone us-west4-a --project p --format json | iris" in said.err


def test_sources_that_are_not_there_are_refused(
    lab: Path, cluster_import: Import, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cluster_import("--from", "nowhere.json").code == 2
    assert cluster_import("--from", "ssh-config").code == 2
    (lab / "latin").write_bytes(b"\xe4")
    assert "not UTF-8" in cluster_import("--from", "latin").err
    monkeypatch.setattr(source, "MAX_SOURCE", 10)
    assert "larger than" in cluster_import("--from", "one_slice.json").err
