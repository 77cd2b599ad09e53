"""`iris cron`: one line in the crontab, or one timer, and nothing of anybody else's is touched."""

from __future__ import annotations

import errno
import json
import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from iris_cli.cli.app import run
from iris_cli.errors import ExitCode, UsageError
from iris_cli.files import Disk
from iris_cli.ops.loop.cron import CronEntry, crontab_line, time_fields, unit_files

OTHERS = "# mine\nMAILTO=me@example.org\n\n0 5 * * 1 tar czf /backups/home.tgz ~ # 100\\%\n"

CRONTAB = """#!/bin/sh
# A crontab that keeps its lines in a file, and is as strict as the real one about how it is called.
case "$*" in
-l) cat "$HOME/crontab" 2>/dev/null || { echo "no crontab for me" >&2; exit 1; } ;;
-) cat >"$HOME/crontab" ;;
*) echo "usage error" >&2; exit 1 ;;
esac
"""
SYSTEMCTL = """#!/bin/sh
echo "$*" >>"$HOME/systemctl"
[ "$2" != is-active ] || echo active
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An operator's home with tools of its own on the PATH, and a cluster in a directory with an odd name."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, text in (
        ("crontab", CRONTAB),
        ("systemctl", SYSTEMCTL),
        ("loginctl", "#!/bin/sh\necho Linger=no\n"),
    ):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("IRIS_CONFIG", "IRIS_STATE_DIR", "IRIS_TASK_DIR", "XDG_CONFIG_HOME", "SSH_AUTH_SOCK"):
        monkeypatch.delenv(name, raising=False)
    lab = tmp_path / "my 100% lab's"
    lab.mkdir()
    (lab / "cluster.yaml").write_text("cluster: {name: lab}\n")
    monkeypatch.chdir(lab)
    return tmp_path


def crontab(home: Path) -> str:
    path = home / "crontab"
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize(
    ("seconds", "fields"),
    [
        (60, "* * * * *"),
        (120, "*/2 * * * *"),
        (900, "*/15 * * * *"),
        (1800, "*/30 * * * *"),
        (3600, "0 * * * *"),
        (7200, "0 */2 * * *"),
        (43200, "0 */12 * * *"),
        (86400, "0 0 * * *"),
    ],
)
def test_intervals_become_cron_schedules(seconds: float, fields: str) -> None:
    assert time_fields(seconds) == fields


@pytest.mark.parametrize("seconds", [0, 1, 30, 90, 420, 2700, 5400, 18000, 172800])
def test_intervals_that_cron_cannot_express_are_rejected(seconds: float) -> None:
    with pytest.raises(UsageError):
        time_fields(seconds)


def test_it_is_installed_once_and_again_changes_only_its_own_line(home: Path) -> None:
    (home / "crontab").write_text(OTHERS)
    assert run(["cron", "install"]) == 0
    first = crontab(home)
    assert first.startswith(OTHERS)
    assert len(first.splitlines()) == len(OTHERS.splitlines()) + 3
    assert run(["cron", "install"]) == 0
    assert crontab(home) == first
    (home / "crontab").write_text(first + "@daily true\n")
    assert run(["cron", "install", "--every", "5m", "--autoscale"]) == 0
    assert (
        crontab(home)
        == first.replace("\n* * * * * ", "\n*/5 * * * * ").replace(
            "--lock-timeout 0 --cron 60 ", "--lock-timeout 0 --cron 300 --autoscale "
        )
        + "@daily true\n"
    )
    assert run(["cron", "remove"]) == 0
    assert crontab(home) == OTHERS + "@daily true\n"
    assert run(["cron", "remove"]) == 0
    assert crontab(home) == OTHERS + "@daily true\n"


def test_without_cron_the_timer_is_removed_all_the_same(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "bin" / "crontab").unlink()
    monkeypatch.setenv("PATH", str(home / "bin"))
    for tool in ("systemctl", "loginctl"):
        (home / "bin" / tool).write_text('#!/bin/sh\n[ "$2" != is-active ] || echo active\n')
    assert run(["cron", "install", "--systemd"]) == 0
    capsys.readouterr()
    assert run(["cron", "remove"]) == 0
    assert "the timer of systemd" in capsys.readouterr().out
    assert run(["cron", "remove"]) == 0


def test_two_clusters_are_told_apart(home: Path) -> None:
    (home / "other.yaml").write_text("cluster: {name: other}\n")
    run(["cron", "install"])
    mine = crontab(home)
    run(["cron", "install", "--config", str(home / "other.yaml"), "--state-dir", str(home / "s")])
    assert crontab(home).startswith(mine)
    assert "other.yaml" in crontab(home)
    run(["cron", "remove", "--config", str(home / "other.yaml")])
    assert crontab(home) == mine


def test_a_block_of_which_the_end_is_missing_is_left_alone(home: Path) -> None:
    run(["cron", "install"])
    damaged = "".join(crontab(home).splitlines(keepends=True)[:-1]) + OTHERS
    (home / "crontab").write_text(damaged)
    run(["cron", "install"])
    once = crontab(home)
    assert once.startswith(damaged)
    run(["cron", "install"])
    assert crontab(home) == once
    run(["cron", "remove"])
    assert crontab(home) == damaged


def cron_command(home: Path) -> str:
    """What cron would give to the shell."""
    (found,) = [each for each in crontab(home).splitlines() if "schedule --once" in each]
    return found.split(None, 5)[5].replace("\\%", "%")


def test_the_line_works_as_cron_runs_it(home: Path) -> None:
    """Elsewhere, with next to no environment, without a terminal."""
    run(["cron", "install"])
    command = cron_command(home)
    environ = {"HOME": str(home), "LOGNAME": "me", "PATH": "/usr/bin:/bin", "SHELL": "/bin/sh"}
    environ["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd="/",
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    log = Path.cwd() / "state" / "cron.log"
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), log.read_text()
    heartbeat = json.loads((Path.cwd() / "state" / "heartbeat.json").read_text())
    assert list(heartbeat["runners"]) == ["cron"]
    assert heartbeat["runners"]["cron"]["interval"] == 60


def test_the_line_of_an_older_iris_is_crons_too(home: Path) -> None:
    assert run(["schedule", "--once", "--lock-timeout", "0"]) == 0
    assert run(["schedule", "--once"]) == 0
    runners = json.loads((Path.cwd() / "state" / "heartbeat.json").read_text())["runners"]
    assert {kind: said.get("interval") for kind, said in runners.items()} == {"cron": 60, "command": None}


def test_cron_that_was_removed_is_not_waited_for(home: Path) -> None:
    run(["cron", "install"])
    run(["schedule", "--once", "--lock-timeout", "0", "--cron", "60"])
    assert run(["cron", "remove"]) == 0
    assert json.loads((Path.cwd() / "state" / "heartbeat.json").read_text())["runners"] == {}


def test_output_is_kept_small(home: Path) -> None:
    entry = CronEntry(cluster="lab", config=Path.cwd() / "c.yaml", state=Path.cwd(), program=("echo",))
    command = crontab_line(entry).split(None, 5)[5].replace("\\%", "%")

    def once() -> None:
        subprocess.run(["/bin/sh", "-c", command], check=True)

    once()
    first = entry.log.read_text()
    assert "schedule --once" in first
    once()
    assert entry.log.read_text() == first * 2
    entry.log.write_bytes(b"x" * 300_000)
    once()
    assert entry.log.read_text() == first
    assert (Path.cwd() / "cron.log.1").stat().st_size == 300_000


def test_every_name_in_the_line_is_absolute_and_quoted(home: Path) -> None:
    run(["cron", "install"])
    line_of_ours = next(each for each in crontab(home).splitlines() if "schedule" in each)
    assert line_of_ours.count("%") == line_of_ours.count("\\%")  # a bare one ends the command
    words = shlex.split(cron_command(home).partition("2>/dev/null; ")[2])
    assert words[words.index("--config") + 1] == str(Path.cwd() / "cluster.yaml")
    assert words[words.index("--state-dir") + 1] == str(Path.cwd() / "state")
    assert Path(words[0]).is_absolute()
    assert words[0] == sys.executable or Path(words[0]).name == "iris"


def test_show_says_what_is_there_when_it_ran_and_what_it_said(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cron", "show"]) == 0
    assert "not installed: iris cron install" in capsys.readouterr().out
    run(["cron", "install"])
    run(["schedule", "--once"])
    assert run(["cron", "show"]) == 0
    assert "last cycle of cron: never\n" in capsys.readouterr().out  # that cycle was not cron's
    run(["schedule", "--once", "--lock-timeout", "0", "--cron", "3600"])
    (Path.cwd() / "state" / "cron.log").write_text("old\n" * 10 + "busy: \x1b[31m\n")
    capsys.readouterr()
    assert run(["cron", "show"]) == 0
    said = capsys.readouterr().out
    assert all(each in said for each in ("crontab: * * * * * ", "last cycle of cron: 0", "  busy: \\x1b[31m"))
    path = Path.cwd() / "state" / "heartbeat.json"
    heartbeat = json.loads(path.read_text())
    heartbeat["runners"]["cron"]["at"] -= 7200  # an hourly cron is late after three hours
    path.write_text(json.dumps(heartbeat))
    assert run(["cron", "show", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["crontab"][:9], shown["output"][-1][:4], shown["stale"]) == ("* * * * *", "busy", False)


def test_a_long_last_line_is_shown_too(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["cron", "install"])
    run(["schedule", "--once"])
    said = "no answer from " + ", ".join(f"worker-{number}" for number in range(600))
    (Path.cwd() / "state" / "cron.log").write_text(f"old\n{said}\n")
    capsys.readouterr()
    assert run(["cron", "show", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["output"] == ["old", said]


def test_without_a_crontab_it_says_what_else_there_is(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(home))
    assert run(["cron", "install"]) == 1
    said = capsys.readouterr().err
    assert "crontab is not installed" in said
    assert "--systemd" in said
    assert run(["cron", "show"]) == 0


def test_a_crontab_that_refuses_changes_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "bin" / "crontab").write_text(
        "#!/bin/sh\necho 'you are not allowed to use this program' >&2\nexit 1\n"
    )
    assert run(["cron", "install"]) == 1
    assert "you are not allowed" in capsys.readouterr().err


def test_keys_that_only_an_agent_holds_are_reported(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", str(home / "agent"))
    Path("cluster.yaml").write_text("cluster: {name: lab}\nworkers:\n  - {id: w, host: h}\n")
    run(["cron", "install"])
    assert "cron has no SSH agent" in capsys.readouterr().err
    assert os.environ["SSH_AUTH_SOCK"] == str(home / "agent")


GOOGLE = """cluster: {name: lab}
scale_groups:
  - name: west
    slice_template: {provider: %s, project: p, zone: us-west4-a, type: v5litepod-16, runtime: r}
"""
VALUE = "/home/me/key-of-the-lab.json"


@pytest.mark.parametrize(
    ("words", "provider", "said"),
    [
        (
            ["--autoscale"],
            "gcp",
            "cron has no GOOGLE_APPLICATION_CREDENTIALS; to set it for cron: "
            "crontab -e, above the lines of iris: GOOGLE_APPLICATION_CREDENTIALS=...",
        ),
        (["--autoscale", "--systemd"], "gcp", ".service, below [Service]: Environment=GOOGLE_APPLICATION_"),
        ([], "gcp", ""),
        (["--autoscale"], "manual", ""),
    ],
)
def test_variables_that_googles_client_needs_and_only_this_shell_has_are_said(
    words: list[str],
    provider: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", VALUE)
    text = GOOGLE % provider
    Path("cluster.yaml").write_text(text if provider == "gcp" else text.replace(", runtime: r", ""))
    assert run(["cron", "install", *words]) == 0
    told = capsys.readouterr().err
    assert said in told
    assert ("GOOGLE_" in told) is bool(said)
    assert VALUE not in told


# A timer of systemd


def test_a_timer_takes_the_place_of_the_line(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["cron", "install"])
    assert run(["cron", "install", "--systemd", "--every", "30s"]) == 0
    assert "loginctl enable-linger" in capsys.readouterr().err
    assert crontab(home) == ""
    directory = home / ".config" / "systemd" / "user"
    names = sorted(path.name for path in directory.iterdir())
    assert [Path(name).suffix for name in names] == [".service", ".timer"]
    timer = (directory / names[1]).read_text()
    assert "OnUnitActiveSec=30s" in timer
    assert (home / "systemctl").read_text().splitlines() == [
        "--user daemon-reload",
        f"--user enable --now {names[1]}",
    ]
    run(["cron", "show"])
    assert f"systemd: {names[1]} (active)" in capsys.readouterr().out
    assert run(["cron", "install"]) == 0
    assert list(directory.iterdir()) == []
    assert "schedule --once" in crontab(home)


class _ReadOnlyDisk(Disk):
    def rename(self, source: Path, target: Path) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def test_the_state_directory_is_no_way_out_for_units_that_cannot_be_written(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("iris_cli.ops.loop.cron.DISK", _ReadOnlyDisk())
    assert run(["cron", "install", "--systemd"]) != 0
    said = capsys.readouterr().err
    directory = home / ".config" / "systemd" / "user"
    assert f"{directory} can't be written: Read-only file system" in said
    assert "--state-dir" not in said
    assert list(directory.iterdir()) == []


def test_a_timer_that_did_not_start_is_not_installed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "bin" / "systemctl").write_text("#!/bin/sh\necho no bus >&2\nexit 1\n")
    assert run(["cron", "install", "--systemd"]) == ExitCode.FAILED
    assert run(["cron", "show"]) == 0
    assert "not installed" in capsys.readouterr().out
    assert list((home / ".config" / "systemd" / "user").iterdir()) == []


def test_without_cron_no_cycle_is_late(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cron", "show"]) == 0
    assert "late" not in capsys.readouterr().out


def test_a_user_without_a_name_gets_a_timer(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unknown_user(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.delenv("LOGNAME", raising=False)
    monkeypatch.delenv("USER", raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown_user)
    assert run(["cron", "install", "--systemd"]) == 0
    assert "loginctl enable-linger" in capsys.readouterr().err
    assert list((home / ".config" / "systemd" / "user").iterdir())


def test_a_unit_says_exactly_these_words(home: Path) -> None:
    entry = CronEntry(
        cluster="a%b", config=Path('/x y/$HOME "q" \\ %h.yaml'), state=Path("/s"), program=("/bin/iris",)
    )
    service = next(text for name, text in unit_files(entry).items() if name.endswith(".service"))
    assert '"--config" "/x y/$$HOME \\"q\\" \\\\ %%h.yaml"' in service
    assert "cycle of a%%b" in service


def test_the_state_directory_is_made_for_the_operator_alone(home: Path) -> None:
    run(["cron", "install"])
    assert stat.S_IMODE((Path.cwd() / "state").stat().st_mode) == 0o700
