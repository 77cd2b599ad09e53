"""A loop outlives the login that started it, or the operator is told that it does not."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris_cli.ops.loop import start
from iris_cli.ops.loop.start import logout_kills_processes, scope_of

WORDS = ("systemd-run", "--user", "--scope", "--quiet", "--collect", "--")


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """A user who lingers, with a service manager that runs scopes."""
    (tmp_path / "linger").mkdir()
    (tmp_path / "linger" / "ann").touch()
    monkeypatch.setattr(start, "_LINGER_DIRECTORY", tmp_path / "linger")
    tool(tmp_path, "systemd-run", "exit 0")
    tool(tmp_path, "loginctl", "echo KillUserProcesses=yes")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "systemd").mkdir()
    with socket.socket(socket.AF_UNIX) as manager:
        monkeypatch.chdir(tmp_path)
        manager.bind("systemd/private")
        yield {"USER": "ann", "XDG_RUNTIME_DIR": str(tmp_path), "PATH": f"{tmp_path}:/usr/bin:/bin"}


def tool(directory: Path, name: str, text: str) -> None:
    (directory / name).write_text(f"#!/bin/sh\n{text}\n")
    (directory / name).chmod(0o755)


def test_where_lingering_is_on_it_runs_in_a_scope_of_its_own(environ: dict[str, str]) -> None:
    assert scope_of(environ) == WORDS
    assert not logout_kills_processes(environ)


@pytest.mark.parametrize("lack", ["lingering", "manager", "name", "tool that works"])
def test_where_anything_lacks_it_runs_without_and_that_is_said(
    lack: str, environ: dict[str, str], tmp_path: Path
) -> None:
    if lack == "lingering":
        (tmp_path / "linger" / "ann").unlink()
    elif lack == "manager":
        environ["XDG_RUNTIME_DIR"] = str(tmp_path / "elsewhere")
    elif lack == "name":
        environ["USER"] = "../ann"
    else:
        tool(tmp_path, "systemd-run", "exit 1")
    assert scope_of(environ) == ()
    assert logout_kills_processes(environ)


def test_a_login_manager_that_kills_nothing_is_no_news(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "linger" / "ann").unlink()
    tool(tmp_path, "loginctl", "echo KillUserProcesses=no")
    assert not logout_kills_processes(environ)
    tool(tmp_path, "loginctl", "echo no bus >&2; exit 1")
    assert not logout_kills_processes(environ)
