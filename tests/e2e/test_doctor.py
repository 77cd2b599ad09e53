"""The check-up finds each fault of a real site where it is, and what it says to type mends it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from iris_cli.cli.app import run
from iris_cli.ops.cluster_handle import this_program
from tests.support.desk import ShiftedClock
from tests.support.pasted import paste, put_iris
from tests.support.sshd import SshHost, SshLab, write_key

pytestmark = pytest.mark.ssh

CRONTAB = """#!/bin/sh
case "$*" in
-l) cat "$HOME/crontab" 2>/dev/null || { echo "no crontab for me" >&2; exit 1; } ;;
-) cat >"$HOME/crontab" ;;
esac
"""
FULL = """#!/bin/sh
[ ! -e "$HOME/is-full" ] || { echo head; echo "/dev/sda1 1000000 1000000 0 100% /"; exit; }
exec REAL "$@"
"""
LATE = """#!/bin/sh
[ "$*" != +%s ] || [ ! -e "$HOME/is-late" ] || { echo $(($(REAL +%s) - 3600)); exit; }
exec REAL "$@"
"""


@dataclass
class Home:
    """An operator's home with a sound cluster of two hosts in it, and what is to be put back afterwards."""

    path: Path
    hosts: list[SshHost]
    capsys: pytest.CaptureFixture[str]
    monkeypatch: pytest.MonkeyPatch
    undo: list[Callable[[], object]] = field(default_factory=list)
    clock: ShiftedClock = field(default_factory=ShiftedClock)

    @property
    def lab(self) -> Path:
        return self.path / "lab"

    @property
    def key(self) -> Path:
        return self.path / ".ssh" / "id_ed25519"

    def doctor(self, *words: str) -> tuple[int, list[str]]:
        """Its exit code, and the lines that are not fine."""
        self.capsys.readouterr()
        code = run(["doctor", *words], self.clock)
        return code, [line for line in self.capsys.readouterr().out.splitlines() if line[:4] != "ok  "]

    def write_config(self, *more: str, user: str = "", address: str = "127.0.0.1") -> None:
        """The hosts as workers a and b, by names of ~/.ssh/config."""
        text = [
            "cluster: {name: lab}",
            "limits: {connect_timeout: 1m, dispatch_timeout: 1m}",
            "ssh: {key: ~/.ssh/id_ed25519}",
        ]
        text += ["workers:", "  - {id: a, host: host-a}", "  - {id: b, host: host-b}", *more]
        (self.lab / "cluster.yaml").write_text("".join(f"{line}\n" for line in text))
        config = []
        for name, host in zip("ab", self.hosts, strict=True):
            config += [f"Host host-{name}", f"  HostName {address}", f"  Port {host.port}"]
            config += [f"  User {user}"] if user and name == "b" else []
        (self.path / ".ssh" / "config").write_text("".join(f"{line}\n" for line in config))


@dataclass
class Servers:
    """Two hosts, and what a state directory is like whose workers they are, once that was made."""

    hosts: list[SshHost]
    state: Path

    def settle(self, state: Path) -> None:
        """Have them probed, or what that led to before."""
        if self.state.exists():
            shutil.copytree(self.state, state)
            return
        assert run(["worker", "probe", "--accept-key", "--yes"]) == 0
        shutil.copytree(state, self.state)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    directory = tmp_path_factory.mktemp("doctor")
    tools = directory / "tools"
    tools.mkdir()
    for name, text in (("df", FULL), ("date", LATE)):
        real = shutil.which(name)
        assert real is not None
        (tools / name).write_text(text.replace("REAL", real))
        (tools / name).chmod(0o755)
    lab = SshLab(directory)
    try:
        yield Servers(lab(2, env={"PATH": f"{tools}:{os.environ['PATH']}"}), directory / "sound")
    finally:
        lab.stop()


@pytest.fixture
def home(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Home]:
    for name in (
        "SSH_AUTH_SOCK",
        "XDG_CONFIG_HOME",
        "EDITOR",
        *(each for each in os.environ if each[:5] == "IRIS_"),
    ):
        monkeypatch.delenv(name, raising=False)
    path = servers.state.with_name("home")  # the same for all: the log names the key in it
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    tools = path / "bin"
    put_iris(tools)
    (tools / "crontab").write_text(CRONTAB)
    (tools / "crontab").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(path))
    monkeypatch.setattr(sys, "argv", ["python3 -m iris_cli"])  # as whoever pastes a line calls it
    (path / ".ssh").mkdir(mode=0o700)
    (path / "lab").mkdir()
    monkeypatch.chdir(path / "lab")
    made = Home(path, servers.hosts, capsys, monkeypatch)
    for suffix in ("", ".pub"):
        client = Path(f"{servers.hosts[0].client_key}{suffix}")
        Path(f"{made.key}{suffix}").write_bytes(client.read_bytes())
    made.key.chmod(0o600)
    made.write_config()
    servers.settle(made.lab / "state")
    yield made
    for each in reversed(made.undo):
        each()


def test_a_healthy_site_is_reported_in_few_lines(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run(["doctor"]) == 0
    said = capsys.readouterr()
    assert [line.split(":")[0] for line in said.out.splitlines()] == [
        *("ok    config", "ok    keys", "ok    each of the workers a, b", "ok    log", "ok    cycles")
    ]
    assert said.err == "no problems found\n"


def test_a_checkup_creates_nothing_on_hosts_without_a_probe(home: Home) -> None:
    home.lab.joinpath("state", "events.jsonl").unlink()
    home.lab.joinpath("state", "HEAD").unlink()
    assert home.doctor() == (0, [])
    for host in home.hosts:
        (cluster,) = host.home.joinpath(".iris").iterdir()  # the one that was probed when all was well
        assert len(cluster.name) == 32
    assert not (home.lab / "state" / "events.jsonl").exists()


# Each fault: how it comes about, what is found, what is typed then, and what is left to find after that.


def no_key(home: Home) -> None:
    kept = home.key.read_bytes()
    home.key.unlink()
    home.undo.append(lambda: home.key.write_bytes(kept))


def open_key(home: Home) -> None:
    home.key.chmod(0o644)


def locked_key(home: Home) -> None:
    home.key.unlink()
    write_key(home.key, passphrase="secret")


def unknown_host(home: Home) -> None:
    known = home.lab / "state" / "known_hosts"
    known.write_text(
        "".join(line for line in known.read_text().splitlines(True) if not line.startswith("b "))
    )


def changed_host(home: Home) -> None:
    known = home.lab / "state" / "known_hosts"
    one = known.read_text().splitlines()[0].split()
    known.write_text("".join(f"{name} {one[1]} {one[2]}\n" for name in "ab"))


def host_down(home: Home) -> None:
    home.hosts[1].stop()
    home.undo.append(home.hosts[1].start)


def no_such_user(home: Home) -> None:
    home.write_config(user="nobody-here")


def late_host(home: Home) -> None:
    if os.path.basename(os.path.realpath("/bin/sh")) == "bash":
        pytest.skip("the shell here knows the time without asking a program")
    flag(home, "is-late")


def late_operator(home: Home) -> None:
    home.clock.ahead = -7200.0


def full_disk(home: Home) -> None:
    flag(home, "is-full")


def flag(home: Home, name: str) -> None:
    path = home.hosts[1].home / name
    path.touch()
    home.undo.append(path.unlink)


def damaged_log(home: Home) -> None:
    log = home.lab / "state" / "events.jsonl"
    data = bytearray(log.read_bytes())
    data[data.index(b"\n") + 40] ^= 1
    log.write_bytes(data)


def open_state(home: Home) -> None:
    (home.lab / "state").chmod(0o755)


def misspelt_config(home: Home) -> None:
    home.write_config("slces: []")


def no_config(home: Home) -> None:
    (home.lab / "cluster.yaml").unlink()


def no_cron(home: Home) -> None:
    """A job waits, and the last cycle was long ago."""
    run(["schedule", "--once", "--quiet"])
    run(["launch", "--no-schedule", "--quiet", "--", "true"])
    forget_cycles(home)


def forget_cycles(home: Home) -> None:
    (home.lab / "state" / "heartbeat.json").write_text('{"at": 1000000000.0}')


def dead_cron(home: Home) -> None:
    run(["cron", "install", "--every", "5m"])
    (home.lab / "state" / "cron.log").write_text("error: the disk is full\n")
    forget_cycles(home)


def cron_of_a_gone_program(home: Home) -> None:
    run(["cron", "install", "--every", "5m"])
    crontab = home.path / "crontab"
    crontab.write_text(crontab.read_text().replace(this_program()[0], "/opt/old/bin/iris"))
    run(["schedule", "--once", "--quiet"])


def cron_of_another_program(home: Home) -> None:
    cron_of_a_gone_program(home)
    crontab = home.path / "crontab"
    crontab.write_text(crontab.read_text().replace("/opt/old/bin/iris", "/bin/true"))


@pytest.mark.parametrize(
    ("fault", "code", "found", "fix"),
    [
        (
            misspelt_config,
            3,
            "fail  config: {lab}/cluster.yaml:7: slces: unknown key",
            "${EDITOR:-vi} +7 {lab}/cluster.yaml",
        ),
        (
            no_config,
            3,
            "fail  config: no cluster.yaml",
            "create one: iris cluster import or iris init",
        ),
        (no_key, 1, "fail  keys: no such key file: {key}", "ssh-keygen -t ed25519 -f {key}"),
        (open_key, 1, "fail  keys: the key {key} is readable by others", "chmod 600 {key}"),
        (locked_key, 1, "fail  keys: the key {key} has a passphrase", "ssh-add {key}"),
        (
            unknown_host,
            7,
            "fail  worker b: host key: no host key on record",
            "iris worker probe --accept-key",
        ),
        (
            changed_host,
            7,
            "fail  worker b: host key: shows",
            "iris worker probe b --accept-key",
        ),
        (host_down, 7, "fail  worker b: no answer (connect: ", "ssh -v -p {port} "),
        (
            no_such_user,
            7,
            "fail  worker b: authentication: rejected user 'nobody-here'",
            "append the",
        ),
        (
            late_host,
            0,
            "warn  worker b: clock is 1h",
            "ssh -i {key} host-b sudo timedatectl set-ntp true",
        ),
        (
            late_operator,
            0,
            "warn  clock: this machine's clock is ",
            "sudo timedatectl set-ntp true",
        ),
        (full_disk, 0, "warn  worker b: only 0B of disk free", "iris gc "),
        (open_state, 10, "fail  state: {lab}/state is open to other users", "chmod 700 {lab}/state"),
        (
            damaged_log,
            6,
            "fail  log: line 2 ",
            "cp -a {lab}/state {lab}/state.copy; iris log verify; iris log salvage",
        ),
        (
            no_cron,
            0,
            "warn  cycles: no cycles are running, the last cycle was ",
            "iris loop start, or iris cron install",
        ),
        (
            dead_cron,
            0,
            "warn  cycles: the crontab should run cycles, but the last cycle was",
            "systemctl status cron crond",
        ),
        (
            cron_of_a_gone_program,
            1,
            "fail  cron: the crontab calls /opt/old/bin/iris, which",
            "iris cron install --every 5m",
        ),
        (
            cron_of_another_program,
            0,
            "warn  cron: the crontab calls /bin/true",
            "iris cron install --every 5m",
        ),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_each_fault_is_reported_with_its_place_and_a_fix(
    home: Home, fault: Callable[[Home], None], code: int, found: str, fix: str
) -> None:
    fault(home)
    places = {"{lab}": str(home.lab), "{key}": str(home.key), "{port}": str(home.hosts[1].port)}
    for name, place in places.items():
        found, fix = found.replace(name, place), fix.replace(name, place)
    said, (line, advice) = home.doctor()  # that, and nothing else
    assert line.startswith(found)
    assert advice.startswith(f"      fix: {fix}")
    assert said == code


@pytest.mark.parametrize(
    ("fault", "answers"),
    [(open_key, []), (unknown_host, ["y"]), (changed_host, ["y"]), (cron_of_a_gone_program, [])],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_printed_fix_repairs_the_fault(
    home: Home, fault: Callable[[Home], None], answers: list[str]
) -> None:
    fault(home)
    _, (_, advice) = home.doctor()
    paste(advice.partition("fix: ")[2], home.lab, *answers)
    assert home.doctor() == (0, [])
