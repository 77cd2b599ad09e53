"""Who is the client of a job on a terminal: a lock that goes with its process, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from iris_cli.journal.files.runners import Clients

HOLDER = """
import sys, time
from pathlib import Path
from iris_cli.journal.files.runners import Clients
held = Clients(Path(sys.argv[1])).hold()
print(held.name, flush=True)
time.sleep(1000)
"""


def test_a_client_is_there_until_it_leaves_or_is_killed(tmp_path: Path) -> None:
    clients = Clients(tmp_path)
    held = clients.hold()
    assert not clients.is_gone(held.name)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        name = other.stdout.readline().strip()
        assert not clients.is_gone(name)
        other.send_signal(signal.SIGSTOP)  # a client that does nothing is a client
        assert not clients.is_gone(name)
        other.kill()
        other.wait()
    assert clients.is_gone(name)
    assert (tmp_path / "run" / name).exists()
    third = clients.hold()
    assert sorted(os.listdir(tmp_path / "run")) == sorted([held.name, third.name])
    third.release()
    held.release()
    assert os.listdir(tmp_path / "run") == []
    assert clients.is_gone(held.name)


def test_nothing_is_known_of_a_client_whose_file_can_not_be_opened(tmp_path: Path) -> None:
    clients = Clients(tmp_path)
    clients.hold().release()
    (tmp_path / "run" / "loop").symlink_to("loop")  # never followed
    assert not clients.is_gone("loop")
    assert clients.is_gone("nobody")
    with pytest.raises(OSError, match="run"):
        Clients(tmp_path / "missing").hold()
