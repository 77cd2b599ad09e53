"""A first cluster.yaml: what is written reads back as what was said."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import IO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_cli.cli.app import run
from iris_cli.config.load import load_cluster_config
from iris_cli.config.yaml_text import NewHost, NewSlice
from iris_cli.errors import ExitCode, UsageError
from iris_cli.ops.setup.init import NewCluster, compose, guess_login, read_host, read_slice

SLICE = "v5a=v5e-16:10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An operator's empty home, and a directory to work in."""
    (tmp_path / "lab").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("getpass.getuser", lambda: "me")
    for name in ("IRIS_CONFIG", "IRIS_STATE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path / "lab")
    return tmp_path


def test_hosts_and_slices_are_written_so_that_they_load(home: Path) -> None:
    assert run(["init", "--slice", SLICE, "--host", "you@cpu0.example.org", "--host", "10.0.0.9:2222"]) == 0
    config = load_cluster_config(home / "lab" / "cluster.yaml")
    assert config.name == "lab"
    assert [(host.worker, host.connection.host, host.connection.user) for host in config.hosts] == [
        *((f"v5a-{index}", f"10.0.0.{index + 1}", "me") for index in range(4)),
        ("cpu0.example.org", "cpu0.example.org", "you"),
        ("10.0.0.9-2222", "10.0.0.9", "me"),
    ]
    assert {host.connection.port for host in config.hosts} == {0, 2222}


def test_the_files_are_the_operators_alone(home: Path) -> None:
    run(["init", "--host", "a"])
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for path in (home / "lab").rglob("*")
        if path.name in ("cluster.yaml", "state", "events.jsonl")
    }
    assert modes == {"cluster.yaml": 0o600, "state": 0o700, "events.jsonl": 0o600}


def test_a_user_without_a_name_is_logged_by_number(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs under any number that it was given."""

    def unknown_user() -> str:
        raise KeyError(f"getpwuid(): uid not found: {os.getuid()}")

    monkeypatch.setattr("getpass.getuser", unknown_user)
    monkeypatch.setattr("pwd.getpwuid", lambda _: unknown_user())
    for name in ("LOGNAME", "USER"):
        monkeypatch.delenv(name, raising=False)
    assert run(["init", "--host", "a"]) == 0
    assert "# user: me " in (home / "lab" / "cluster.yaml").read_text()
    assert run(["launch", "--no-schedule", "--", "true"]) == 0
    log = (home / "lab" / "state" / "events.jsonl").read_text().splitlines()
    assert {json.loads(line)["actor"].partition("@")[0] for line in log} == {str(os.getuid())}


def test_without_any_host_the_file_shows_how_they_are_written(home: Path) -> None:
    assert run(["init"]) == 0
    text = (home / "lab" / "cluster.yaml").read_text()
    assert load_cluster_config(home / "lab" / "cluster.yaml").hosts == ()
    samples = [line.removeprefix("# ") for line in text.splitlines()]
    start = next(index for index, line in enumerate(samples) if line.startswith("slices:"))
    end = next(index for index, line in enumerate(samples) if line.startswith("replace_lost:"))
    sample = home / "sample.yaml"
    sample.write_text("cluster: {name: x}\n" + "\n".join(samples[start:end]) + "\n")
    assert len(load_cluster_config(sample).hosts) == 5


def test_every_other_comment_is_a_line_that_could_be_used(home: Path) -> None:
    run(["init"])
    text = (home / "lab" / "cluster.yaml").read_text()
    for line in (
        "  # port: 22",
        "  # proxy_jump: bastion",
        "# replace_lost:",
        "# remote_dir:",
        "# defaults:",
    ):
        assert line in text
        text = text.replace(line, line.replace("# ", "", 1))
    (home / "used.yaml").write_text(text)
    config = load_cluster_config(home / "used.yaml")
    assert (config.ssh.port, config.ssh.proxy_jump) == (22, "bastion")


def test_existing_files_are_never_overwritten(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["init", "--host", "a"])
    before = (home / "lab" / "cluster.yaml").read_bytes()
    assert run(["init", "--host", "b"]) == 2
    assert "--force" in capsys.readouterr().err
    assert (home / "lab" / "cluster.yaml").read_bytes() == before


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_a_full_disk_leaves_no_partial_file(
    home: Path, monkeypatch: pytest.MonkeyPatch, force: list[str]
) -> None:
    def full(fd: int, *how: str, **more: str) -> IO[str]:
        os.close(fd)
        return open("/dev/full", *how, **more)  # type: ignore[call-overload,no-any-return]  # as it was called

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdopen", full)
        assert run(["init", "--host", "a", *force]) == ExitCode.NOT_WRITABLE
    assert list((home / "lab").iterdir()) == []
    assert run(["init", "--host", "a", *force]) == 0


def test_force_writes_a_new_one_and_keeps_the_state(home: Path) -> None:
    run(["init", "--host", "a"])
    log = (home / "lab" / "state" / "events.jsonl").read_bytes()
    assert run(["init", "--host", "b", "--force"]) == 0
    assert [host.worker for host in load_cluster_config(home / "lab" / "cluster.yaml").hosts] == ["b"]
    assert (home / "lab" / "state" / "events.jsonl").read_bytes() == log
    assert sorted(path.name for path in (home / "lab").iterdir()) == ["cluster.yaml", "state"]


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_the_log_of_another_cluster_leaves_the_file_as_it_was(home: Path, force: list[str]) -> None:
    run(["init", "--host", "a"])
    path = home / "lab" / "cluster.yaml"
    before = path.read_bytes() if force else None
    if not force:
        path.unlink()
    assert run(["init", "--name", "other", "--host", "b", *force]) == ExitCode.CONFIG
    assert (path.read_bytes() if path.exists() else None) == before


def test_a_state_directory_that_exists_is_not_said_to_be_created(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["init", "--host", "a"])
    assert f"created {home}/lab/state" in capsys.readouterr().out
    run(["init", "--host", "b", "--force"])
    assert f"{home}/lab/state is unchanged" in capsys.readouterr().out


def test_a_symbolic_link_is_not_followed(home: Path) -> None:
    (home / "lab" / "cluster.yaml").symlink_to(home / "elsewhere")
    assert run(["init", "--host", "a"]) == 2
    assert not (home / "elsewhere").exists()


def test_an_invalid_configuration_is_not_written(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init", "--slice", "a=v4-32:h1", "--host", "h1"]) == 3
    error = capsys.readouterr().err
    assert "has 4 hosts, not 1" in error
    assert "/iris-init-" not in error
    assert list((home / "lab").iterdir()) == []


def test_the_config_goes_where_it_is_asked_for(home: Path) -> None:
    assert run(["init", "--host", "a", "--config", "other.yaml", "--state-dir", str(home / "s")]) == 0
    assert (home / "lab" / "other.yaml").is_file()
    assert (home / "s" / "events.jsonl").is_file()


def test_json_says_what_was_made_and_what_is_next(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["init", "--json", "--name", "big", "--host", "a"])
    made = json.loads(capsys.readouterr().out)
    assert (made["schema_version"], made["cluster"], made["workers"]) == (1, "big", 1)
    assert made["config"] == str(home / "lab" / "cluster.yaml")
    assert made["next"][0] == "iris doctor"


@pytest.mark.parametrize(
    "text", ["", "=v4-8:a", "a", "a=v4-8", "a=v4-8:", "a=v4-8:b,,c", "a=nonsense:b", "a b=v4-8:c"]
)
def test_a_slice_that_can_not_be_read_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        read_slice(text)


@pytest.mark.parametrize("text", ["", "@", "me@", "@host", "a b@host", "-", "bash:", "me@host:"])
def test_a_host_that_can_not_be_read_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        read_host(text)


NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)


@given(name=NAMES, worker=NAMES, slice_name=NAMES, user=st.sampled_from(["", "me", "on", "017", "null"]))
def test_every_name_reads_back_as_itself(
    tmp_path_factory: pytest.TempPathFactory, name: str, worker: str, slice_name: str, user: str
) -> None:
    path = tmp_path_factory.mktemp("names") / "cluster.yaml"
    slices = (NewSlice(name=slice_name, type="v5litepod-8", hosts=("slice-host",)),)
    hosts = (NewHost(worker=worker, host="single-host", user=user),)
    path.write_text(compose(NewCluster(name=name, hosts=hosts, slices=slices)))
    config = load_cluster_config(path) if worker != f"{slice_name}-0" else None
    if config is not None:
        assert config.name == name
        assert [host.worker for host in config.hosts] == [f"{slice_name}-0", worker]
        assert config.hosts[1].connection.user == user


def touch(path: Path, text: str = "") -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def test_the_first_existing_key_is_used(home: Path) -> None:
    assert guess_login(["h"], home) == ("me", "")
    touch(home / ".ssh" / "id_rsa")
    assert guess_login(["h"], home) == ("me", "~/.ssh/id_rsa")
    touch(home / ".ssh" / "google_compute_engine")
    assert guess_login(["h"], home) == ("me", "~/.ssh/google_compute_engine")


@pytest.mark.parametrize(
    ("text", "guess"),
    [
        ("Host other\n  User you\n", ("me", "~/.ssh/id_ed25519")),
        ("Host v5a-*\n  User you\n", ("", "~/.ssh/id_ed25519")),
        ("Host v5a-*\n  IdentityFile ~/.ssh/tpu\n", ("me", "")),
        ("Host *\n  Port nonsense\n", ("", "")),
    ],
)
def test_what_the_ssh_configuration_says_is_left_to_it(home: Path, text: str, guess: tuple[str, str]) -> None:
    touch(home / ".ssh" / "id_ed25519")
    touch(home / ".ssh" / "config", text)
    assert guess_login(["v5a-w-[0-3]"], home) == guess


NODE = """{"name": "projects/p1/locations/us-a/nodes/n", "state": "READY", "acceleratorType": "v4-8",
 "networkEndpoints": [{"ipAddress": "10.0.0.1"}]}"""


def test_what_could_be_imported_is_found_and_not_asked_for(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(home / ".ssh" / "config", "Host a b\n  User me\nHost *\n")
    (home / "lab" / "my tpus.json").write_text(f"[{NODE}]")
    (home / "lab" / "other.json").write_text("{")
    (home / "lab" / "binary.json").write_bytes(b"\xff\0")
    touch(home / "bin" / "gcloud")
    (home / "bin" / "gcloud").chmod(0o755)
    monkeypatch.setenv("PATH", str(home / "bin"))
    for name in ("CLOUDSDK_CONFIG", "CLOUDSDK_ACTIVE_CONFIG_NAME", "CLOUDSDK_COMPUTE_ZONE"):
        monkeypatch.delenv(name, raising=False)
    (home / ".config" / "gcloud").mkdir(parents=True)
    touch(home / ".config" / "gcloud" / "active_config", "work\n")
    touch(home / ".config" / "gcloud" / "configurations" / "config_work", "[compute]\nzone = us-west4-a\n")
    assert run(["init"]) == 0
    assert capsys.readouterr().out.splitlines()[2:] == [
        "found a list of 1 TPU slice: iris cluster import --from 'my tpus.json'",
        "found gcloud: gcloud compute tpus tpu-vm list --zone us-west4-a --format json"
        " | iris cluster import --from -",
        "found an SSH configuration with 2 hosts: iris cluster import --from ssh-config",
        "next: iris cluster import --from 'my tpus.json', then iris doctor",
    ]


def test_where_hosts_are_named_nothing_else_is_offered(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    touch(home / ".ssh" / "config", "Host a b\n")
    run(["init", "--host", "c"])
    assert "import" not in capsys.readouterr().out


def test_without_a_key_the_command_that_creates_one_is_shown(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    run(["init", "--host", "c"])
    assert "ssh-keygen -t ed25519" in capsys.readouterr().err
    touch(home / ".ssh" / "id_ed25519")
    run(["init", "--host", "c", "--force"])
    assert "ssh-keygen" not in capsys.readouterr().err
