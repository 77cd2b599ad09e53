"""The time of the first `go`, and signs of life of a slow start."""

from __future__ import annotations

import shutil
from pathlib import Path

from iris_cli.core.ids import Token
from iris_cli.core.messages.observations import RemoteState
from iris_cli.remote.transport import Script
from tests.support.waiting import until
from tests.support.worker_host import WorkerHost


def notes(host: WorkerHost, token: Token) -> list[str]:
    return sorted(path.name for path in host.attempt_dir(token).glob("go.*"))


def hang(host: WorkerHost, token: Token) -> str:
    """Let its wrapper exit before its first step, as if killed at once. Return the original text."""
    run = host.attempt_dir(token) / "run"
    text = run.read_text()
    run.write_text(text.partition("\n")[0] + "\nexit 0\n")
    return text


def test_a_worker_reports_the_age_of_the_first_go_of_an_attempt_that_does_not_start(host: WorkerHost) -> None:
    request = host.request("true")
    host.prepare(request)
    text = hang(host, request.token)
    (waiting,) = host.poll(request.token)
    assert (waiting.state, waiting.started_ago) == (RemoteState.PREPARED, None)

    (told,) = host.go(request.token)
    assert told.state is RemoteState.PREPARED
    assert told.started_ago is not None
    (first,) = notes(host, request.token)
    (later,) = host.poll(request.token)
    assert later.started_ago is not None
    assert later.started_ago >= told.started_ago

    (host.attempt_dir(request.token) / "run").write_text(text)
    host.go(request.token)
    assert host.wait(request.token).state is RemoteState.EXITED
    assert notes(host, request.token) == [first]


def test_the_earliest_recorded_go_counts(host: WorkerHost) -> None:
    """Two callers sent `go` at the same time; and names are not sorted as numbers."""
    request = host.request("true")
    host.prepare(request)
    for name in ("go.1000", "go.999", "go.x", "go."):
        (host.attempt_dir(request.token) / name).touch()
    (report,) = host.poll(request.token)
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    assert report.started_ago is not None
    assert abs(report.started_ago - (uptime - 9.99)) < 60


def test_a_starting_wrapper_gives_a_sign_of_life_every_two_seconds_at_most(host: WorkerHost) -> None:
    """Only the function of the library: a really slow host would take too long."""
    host.prepare(request := host.request("true"))
    (library,) = host.attempt_dir(request.token).glob("run.*")
    place = host.directory / "steps"
    place.mkdir()
    (place / "launch.7").touch()
    source = library.read_text().rpartition("\nmask=")[0]
    steps = "renewed_at=7; renew_launch; now; renewed_at=$now; renew_launch; echo *; renewed_at=; renew_launch; echo *"
    script = f"cd {place}\n{source}\n{steps}\n"
    output = host.transport.run(host.target, Script(text=script.encode(), connect_timeout=1, timeout=1))
    first, second = output.stdout.decode().split()
    assert first == second != "launch.7"
    assert output.stderr == b""


def test_a_start_that_waits_long_gives_signs_of_life(
    dash_host: WorkerHost,
) -> None:
    """It waits up to twenty seconds for the watchdog of its lease, which never starts in this test."""
    host = dash_host
    tools_sh = host.tools / "sh"
    shell = shutil.which(tools_sh.readlink())
    tools_sh.unlink()
    tools_sh.write_text(f'#!{shell}\ncase "$*" in *"/run lease "*) exit 0 ;; esac\nexec {shell} "$@"\n')
    tools_sh.chmod(0o755)
    token = host.launch("true", lease=600.0)
    (first,) = host.attempt_dir(token).glob("launch.[0-9]*")
    assert host.state(token) is RemoteState.LAUNCHING
    until(lambda: not first.exists())
    (report,) = host.poll(token)
    assert report.state is RemoteState.LAUNCHING
