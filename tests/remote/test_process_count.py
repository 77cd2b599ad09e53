"""The number of processes that a task costs its worker. Each takes about a millisecond of CPU time."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from iris_cli.core.messages.observations import RemoteState
from tests.remote.conftest import ProbedHost
from tests.support.process_count import ProcessCount, skip_unless_processes_can_be_counted
from tests.support.worker_host import WorkerHost, marked

MOST = 9
"""Without pauses and searches: a slow machine needs more of both, as each search except four follows a pause."""
FULL_SCAN = 5
"""A full scan, besides its search. It is needed if another process's `stat` contains the wrapper's pid by chance."""


def test_a_task_from_its_launch_to_its_reported_end_takes_few_processes(
    probed_host: ProbedHost, tmp_path: Path, host_shell: str
) -> None:
    skip_unless_processes_can_be_counted()
    (tmp_path / "count").mkdir()
    count = ProcessCount(host_shell, tmp_path / "count")
    host = probed_host(tools=count.tools)
    count.clear()
    token = host.launch("true")
    (report,) = host.poll(token)
    assert (report.state, report.exit_code) == (RemoteState.EXITED, 0)
    pauses, searches = count.programs("sleep"), count.programs("grep")
    scans = count.programs("xargs")
    assert 1 < searches - scans <= 4 + pauses
    assert 5 < count.forks - pauses - searches - FULL_SCAN * scans <= MOST


def test_a_host_with_more_processes_than_a_command_line_can_hold_is_searched_in_parts(
    probed_host: ProbedHost, host_shell: str
) -> None:
    host = probed_host(host_shell)
    tool, grep = host.tools / "grep", shutil.which("grep")
    tool.unlink(missing_ok=True)
    limit = '[ $# -lt 30 ] || [ "$(cat /proc/$PPID/comm)" = xargs ] || exit 126'
    tool.write_text(f'#!{shutil.which("dash")}\n{limit}\nexec {grep} "$@"\n')
    tool.chmod(0o755)
    assert host.ended("sh", "-c", "exit 3").exit_code == 3
    token = host.running("sh", "-c", "setsid sleep 1000 & sleep 1000")
    assert host.stopped(token, grace=0).state is RemoteState.STOPPED
    assert not marked(token)


def test_a_process_that_only_names_the_number_of_a_wrapper_is_left_alone(
    dash_host: WorkerHost, tmp_path: Path
) -> None:
    """The number in its environment is not a marker, and does not make it a child."""
    host = dash_host
    gate = tmp_path / "gate"
    token = host.running("sh", "-c", 'while [ ! -e "$0" ]; do :; done', str(gate))
    number = f" {host.wrapper(token)} "
    bystander = subprocess.Popen(["sleep", "1000"], env={"PATH": "/bin:/usr/bin", "NUMBERS": number * 3})
    try:
        gate.touch()
        assert host.wait(token).exit_code == 0
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
