"""What becomes of a command whose output nobody reads, or that was started without a terminal's three streams."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from bench.cluster_files import ClusterFiles

PRINTING = ["status", "status --json", "schedule --once", "history", "workers --json"]


@pytest.fixture
def idle(tmp_path: Path) -> ClusterFiles:
    return ClusterFiles.make(tmp_path, 8)


@pytest.mark.parametrize("line", PRINTING)
def test_a_reader_that_has_gone_is_no_failure(line: str, idle: ClusterFiles) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            idle.iris(*line.split()),
            env=idle.environment,
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("line", ["status", "schedule --once --json"])
def test_a_stream_that_is_closed_goes_nowhere(closed: str, line: str, idle: ClusterFiles) -> None:
    words = ["sh", "-c", f'"$@" {closed}', "sh", *idle.iris(*line.split())]
    done = subprocess.run(words, env=idle.environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert bool(done.stdout) is (">&-" not in closed.replace("2>&-", ""))


def test_no_file_gets_the_number_of_a_stream_that_is_closed(idle: ClusterFiles) -> None:
    """What a library or a child process prints would end up in that file: in the log, say."""
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *traced(idle, "schedule", "--once")],
        env=idle.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "True")


def traced(files: ClusterFiles, *words: str) -> list[str]:
    """The command, which says at its end on stderr what number 1 is."""
    python, _, _, *line = files.iris(*words)
    program = (
        "import atexit, os, sys; from iris_cli.cli.app import main\n"
        "nowhere = os.stat(os.devnull)\n"
        "atexit.register(lambda: sys.stderr.write(str(os.path.samestat(os.fstat(1), nowhere))))\n"
        "main()"
    )
    return [python, "-c", program, *line]
