"""Hosts without a command that the library needs: it is reported with the package that has it."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from iris_cli.core.messages.observations import ProbeReport, RemoteState
from tests.remote.conftest import MakeHost
from tests.support.local_transport import REQUIRED, only_tools
from tests.support.worker_host import WorkerHost


@pytest.mark.parametrize(
    ("missing", "packages"),
    [
        (["od"], "coreutils"),
        (["stat"], "coreutils"),
        (["awk", "chmod", "xargs"], "coreutils, findutils, gawk"),
        (["date", "mkdir"], "coreutils"),  # needed for the answer's clock
        (["base64"], "coreutils"),  # needed for encoding the answer
    ],
)
def test_a_missing_command_is_named_and_nothing_is_made(
    make_host: MakeHost, tmp_path: Path, missing: list[str], packages: str
) -> None:
    tools = only_tools("dash", tmp_path / "tools", [name for name in REQUIRED if name not in missing])
    host = make_host(env={"PATH": str(tools)})
    words = f"refused: missing commands: {', '.join(missing)}; install {packages} on the worker, or busybox"
    for make in (True, False):
        report = host.runner.probe(host.target, make=make)
        assert isinstance(report, ProbeReport), report
        assert report.warnings == (words,)
    assert list(host.transport.home.iterdir()) == []


def test_the_page_on_set_up_lists_the_commands_that_a_probe_asks_for() -> None:
    page = (Path(__file__).parents[2] / "docs/set-up.md").read_text().replace("\n", " ")
    library = (resources.files("iris_cli") / "remote/shell/commands.sh").read_text("utf-8")
    asked = " ".join(name for name in REQUIRED if name != "base64")
    assert f"`{asked}`" in page
    assert f"lacks {asked} " in " ".join(library.replace("\\\n", " ").split())


def test_a_probe_of_a_worker_that_has_lost_a_command_keeps_its_incarnation(
    host: WorkerHost, tmp_path: Path
) -> None:
    tools = only_tools("dash", tmp_path / "few", [name for name in REQUIRED if name != "awk"])
    incarnation = host.incarnation
    host.transport.env["PATH"] = str(tools)
    report = host.probe()
    assert (report.incarnation, len(report.warnings)) == (incarnation, 1)
    assert report.disk_free > 0


@pytest.mark.parametrize("missing", ["ln", "mkdir", "od", "stat", "awk", "base64"])
def test_a_launch_on_a_host_that_has_lost_a_command_names_it_and_never_starts(
    host: WorkerHost, tmp_path: Path, missing: str
) -> None:
    """Without base64 no texts can be sent."""
    before = host.transport.env["PATH"]
    few = only_tools("dash", tmp_path / "few", [name for name in REQUIRED if name != missing])
    host.transport.env["PATH"] = str(few)
    request = host.request("touch", str(tmp_path / "ran"))
    (report,) = host.prepare(request, go=True)
    assert (report.state, report.cause) == (RemoteState.NOSTART, "commands")
    assert report.log_tail == (f"iris: not started: missing: {missing}\n" if missing != "base64" else "")

    host.transport.env["PATH"] = before
    (report,) = host.prepare(request, go=True)
    assert report.state is RemoteState.STOPPED
    assert not (tmp_path / "ran").exists()
