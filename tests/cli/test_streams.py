"""What becomes of a command whose output nobody reads, or that was started without a terminal's three streams."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from bench.cluster_files import ClusterFiles
from iris_cli.cli import app
from tests.support.forked import Forked
from tests.support.terminal import IRIS

SAFETY_NET = 120.0  # seconds

FULL = "error: the output could not be written: No space left on device\n"


@pytest.fixture
def idle(tmp_path: Path) -> ClusterFiles:
    return ClusterFiles.make(tmp_path, 8)


@pytest.mark.parametrize("line", ["status", "schedule --once --json"])
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


def test_a_ctrl_c_at_any_moment_of_a_write_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes at each call and each return in turn, until it comes after the write."""
    for moment in count(1):
        path = tmp_path / str(moment)
        left = iter(range(moment))

        def interrupt(*_: object, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                sys.setprofile(None)
                raise KeyboardInterrupt

        with path.open("w") as file, monkeypatch.context() as patched:
            patched.setattr(sys, "stderr", file)
            patched.setattr(sys, "stdout", file)
            app.open_streams()
            messages = sys.stderr
            interrupted = False
            try:
                sys.setprofile(interrupt)
                messages.write("sure? ")
                messages.flush()
                sys.setprofile(None)
            except KeyboardInterrupt:
                interrupted = True
            messages.write("\n")
            messages.flush()
        assert path.read_text() in (["sure? \n", "\n"] if interrupted else ["sure? \n"])
        if not interrupted:
            assert moment > 4, "it came within the calls"
            return


@pytest.fixture
def full() -> Iterator[int]:
    """A file on a disk without space."""
    try:
        number = os.open("/dev/full", os.O_WRONLY)
    except OSError:
        pytest.skip("there is no /dev/full here")
    try:
        with pytest.raises(OSError, match="No space left"):
            os.write(number, b"x")
        yield number
    finally:
        os.close(number)


def ran(
    files: ClusterFiles, line: str, stdout: int = subprocess.PIPE, stderr: int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    words = files.iris(*line.split())[len(IRIS) :]
    with Forked(
        words, cwd=files.directory, env=files.environment, stdout=stdout, stderr=stderr, text=True
    ) as process:
        out, err = process.communicate(SAFETY_NET)
    return subprocess.CompletedProcess(words, process.wait(), out, err)


def error_in(line: str) -> str:
    """Return the error in a line of stderr, whether it is a document or a sentence."""
    return f"error: {json.loads(line)['error']['message']}\n" if line.startswith("{") else line


@pytest.mark.parametrize("line", ["status", "history --json", "--help"])
def test_a_result_that_cannot_be_written_is_told_in_one_line(
    line: str, full: int, idle: ClusterFiles
) -> None:
    done = ran(idle, line, stdout=full)
    assert (done.returncode, error_in(done.stderr)) == (1, FULL)


def test_what_a_command_found_out_is_its_exit_code_where_it_cannot_be_written(
    full: int, idle: ClusterFiles
) -> None:
    log = idle.directory / "state" / "events.jsonl"
    log.write_bytes(log.read_bytes().replace(b"WorkerUpdated", b"WorkerUpdatex", 1))
    done = ran(idle, "log verify", stdout=full)
    assert (done.returncode, done.stderr.endswith(FULL)) == (6, True)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_characters_that_the_encoding_lacks_are_printed_as_escapes(encoding: str, idle: ClusterFiles) -> None:
    submitted = subprocess.run(
        idle.iris("launch", "--no-schedule", "--name", "job", "--cpu", "1", "--", "echo", "日本\n"),
        env=idle.environment,
        check=False,
    )
    assert submitted.returncode == 0
    shown = subprocess.run(
        idle.iris("status", "job"),
        env={**idle.environment, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=False,
    )
    assert (shown.returncode, shown.stderr) == (0, b"")
    assert rb"\u65e5\u672c\u23ce" in shown.stdout


def test_messages_that_cannot_be_written_change_nothing(full: int, idle: ClusterFiles) -> None:
    done = ran(idle, "status", stderr=full)
    assert (done.returncode, done.stdout) == (0, ran(idle, "status").stdout)
    assert ran(idle, "wait nothing", stderr=full).returncode == 4
    assert ran(idle, "status", stdout=full, stderr=full).returncode == 1


def test_a_job_whose_id_nobody_can_read_is_submitted_and_placed(full: int, idle: ClusterFiles) -> None:
    """Its host doesn't exist, so that all it comes to is an attempt."""
    done = ran(idle, "launch --cpu 1 --json -- true", stdout=full)
    assert (done.returncode, error_in(done.stderr.splitlines(keepends=True)[-1])) == (1, FULL)
    events = [event["type"] for event in json.loads(ran(idle, "history --json").stdout)["entries"]]
    assert "TaskAssigned" in events


def test_a_pipe_that_does_not_wait_is_waited_for(idle: ClusterFiles) -> None:
    """Whoever shares it with us, another program in a script, may have made it such a one."""
    read, write = os.pipe()
    with open(read, "rb") as reader, open(write, "wb") as writer:
        os.set_blocking(write, False)
        filler = bytes(1 << 20)
        filled = os.write(write, filler)
        process = subprocess.Popen(
            idle.iris("history", "--json"),
            env=idle.environment,
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            writer.close()
            received = reader.read()
            _, said = process.communicate(timeout=SAFETY_NET)
        finally:
            process.kill()
            process.wait()
    assert (process.returncode, said) == (0, "")
    assert json.loads(received[filled:])["entries"]


@pytest.mark.parametrize(
    ("closed", "line"),
    [
        ("2>&-", "status"),
        ("<&- >&- 2>&-", "status"),
        pytest.param(">&-", "schedule --once --json", marks=pytest.mark.soak),
    ],
)
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
