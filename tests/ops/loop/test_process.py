"""The loop as a process: alone, quiet, one for each state directory, and gone when it should be."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import pytest

import iris_cli
from iris_cli.clock import SystemClock
from iris_cli.errors import NotWritableError
from iris_cli.journal.files import runners
from iris_cli.journal.files.runners import LOOP, Runner, read_loop_order
from iris_cli.ops.loop import start
from tests.house.rules import ROOT
from tests.support.json_output import checked
from tests.support.operator import CONFIG, Operator
from tests.support.strays import parents
from tests.support.waiting import until


def children() -> set[int]:
    """The children of this process, ended ones that nobody has waited for included."""
    return {child for child, parent in parents() if parent == os.getpid()}


def status_of(pid: int) -> dict[str, str]:
    lines = Path("/proc", str(pid), "status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_the_loop_inherits_only_the_environment_of_its_starter_and_has_no_terminal(
    operator: Operator,
) -> None:
    operator.env["MARK"] = "of this shell"
    open_here = os.open(operator.directory / "cluster.yaml", os.O_RDONLY)
    os.set_inheritable(open_here, True)
    assert operator.spawn()
    os.close(open_here)
    pid = operator.pid()
    operator.has_run_a_cycle()
    stat_fields = Path("/proc", str(pid), "stat").read_text().rpartition(") ")[2].split()
    session, terminal, nice = int(stat_fields[3]), int(stat_fields[4]), int(stat_fields[16])
    assert session != os.getsid(0)
    assert (terminal, nice) == (0, 10)
    files = {each.name: os.readlink(each) for each in Path("/proc", str(pid), "fd").iterdir()}
    log = str(operator.directory / "state" / "loop.log")
    assert [files[name] for name in ("0", "1", "2")] == [os.devnull, log, log]
    assert str(operator.directory / "cluster.yaml") not in files.values()
    assert b"MARK=of this shell\0" in Path("/proc", str(pid), "environ").read_bytes()
    assert stat.S_IMODE(os.stat(log).st_mode) == 0o600
    assert status_of(pid)["Umask"] == "0077"


def test_many_shells_that_start_a_loop_at_once_start_one_which_is_no_child_and_once_killed_another_can_start(
    operator: Operator,
) -> None:
    before = children()
    started: list[bool] = []
    gate = threading.Barrier(8)

    def run() -> None:
        gate.wait()
        started.append(operator.spawn())

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(started) == [False] * 7 + [True]  # it holds its lock from the first moment
    operator.has_run_a_cycle()
    assert operator.log.count("runs cycles") == 1
    assert operator.iris("loop", "run").returncode == 0
    assert "another loop runs already" in operator.log
    assert children() <= before
    os.kill(operator.pid(), signal.SIGKILL)
    until(lambda: operator.loop is None)
    assert children() <= before
    assert operator.spawn()


def test_a_loop_started_with_an_invalid_configuration_waits_until_it_is_valid(
    operator: Operator,
) -> None:
    config = operator.directory / "cluster.yaml"
    program = start.loop_program(operator.place())
    config.write_text(CONFIG + "loop: of\n")
    with subprocess.Popen(program, cwd=operator.directory, env=operator.environ()) as begun:
        try:
            until(lambda: "no cycle could be run: " in operator.log)
            config.write_text(CONFIG)
            operator.has_run_a_cycle()
            assert operator.pid() == begun.pid
        finally:
            begun.kill()


def test_a_loop_waiting_for_a_valid_configuration_ends_when_its_state_directory_is_deleted(
    operator: Operator,
) -> None:
    (operator.directory / "cluster.yaml").write_text(CONFIG + "loop: of\n")
    program = start.loop_program(operator.place())
    with subprocess.Popen(program, cwd=operator.directory, env=operator.environ()) as begun:
        until(lambda: "no cycle could be run: " in operator.log)
        shutil.rmtree(operator.directory / "state")
        assert begun.wait() == 0


def test_a_start_puts_one_with_the_environment_of_its_shell_in_the_place_of_another_and_a_stop_holds(
    operator: Operator,
) -> None:
    operator.env["MARK"] = "old"
    assert operator.spawn()
    first = operator.pid()
    operator.env["MARK"] = "new"
    done = operator.iris("loop", "start")
    second = operator.pid()
    assert f"background loop running (pid {second})" in done.stdout
    assert second != first
    assert b"MARK=new\0" in Path("/proc", str(second), "environ").read_bytes()
    until(lambda: not Path("/proc", str(first)).exists())
    # Before that it may end without a word: Python itself is still starting.
    until(lambda: f"runs cycles, pid {second}\n" in operator.log)
    done = operator.iris("loop", "stop")
    assert done.stdout == f"stopped the background loop (pid {second}); to start it again: iris loop start\n"
    assert operator.loop is None
    # `loop stop` writes its order, then sends the signal: the loop may see either first.
    assert operator.log.splitlines()[-1].endswith(("ended by a signal", "ended: stopped"))
    assert read_loop_order(operator.state.path).stopped
    done = operator.iris("loop", "start")
    assert done.returncode == 0, done
    assert operator.pid() != second
    assert not read_loop_order(operator.state.path).stopped


def test_a_loop_that_is_suspended_is_replaced_too(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert operator.spawn()
    first = operator.pid()
    os.kill(first, signal.SIGSTOP)
    monkeypatch.setattr(start, "_STOP_TIMEOUT", 0.2)
    assert start.start(operator.place(), operator.environ()).pid != first


def test_a_process_that_reuses_the_pid_of_a_loop_is_not_killed(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    bystander = subprocess.Popen(["sleep", "600"])
    held = operator.state.runners.hold(LOOP, "iris loop", interval=1.0, since=0.0)
    assert held is not None
    held.write(Runner(kind=LOOP, pid=bystander.pid, actor=operator.state.actor, started="7"))
    monkeypatch.setattr(start, "_STOP_TIMEOUT", 0.1)
    monkeypatch.setattr(start, "_KILL_TIMEOUT", 0.1)
    with pytest.raises(Exception, match="did not stop"):
        start.stop(operator.state, SystemClock())
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()
    held.release()


def test_a_start_in_a_directory_that_can_not_be_written_fails_with_words(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(runners, "write_loop_order", read_only)
    with pytest.raises(NotWritableError, match=r"loop\.json can't be written: Read-only"):
        start.start(operator.place(), operator.environ())


def test_a_loop_that_can_not_begin_tells_where_to_read_why(operator: Operator) -> None:
    operator.env["PYTHONPATH"] = "/nowhere"
    operator.env["PYTHONHOME"] = "/nowhere"
    with pytest.raises(Exception, match="the background loop ended at once"):
        start.start(operator.place(), operator.environ())
    assert "Fatal Python error" in operator.log or "No module" in operator.log


def test_it_is_shown_and_stopped_also_while_the_configuration_is_invalid(operator: Operator) -> None:
    assert operator.spawn()
    operator.has_run_a_cycle()
    for text in ("cluster: {", CONFIG + "loop: of\n"):
        (operator.directory / "cluster.yaml").write_text(text)
        done = operator.iris("loop", "show")
        first, second, *log = done.stdout.splitlines()
        assert first.startswith(f"cycles: background loop (pid {operator.pid()}), last "), done
        assert second.startswith(f"{operator.directory}/cluster.yaml:")
        assert log[0] == "hint: iris config validate"
        assert any("runs cycles, pid" in line for line in log)
        [document] = checked("iris loop show", operator.iris("loop", "show", "--json").stdout)
        assert (document["loop"], document["cycles"]["pid"]) == (None, operator.pid())
        assert second == f"{document['invalid']}; the loop places nothing until this is corrected"
    done = operator.iris("loop", "stop")
    assert done.stdout.startswith("stopped the background loop"), done
    assert operator.loop is None


def test_without_a_loop_it_is_shown_that_no_cycle_runs_while_the_configuration_is_invalid(
    operator: Operator,
) -> None:
    operator.iris("schedule", "--once", "--lock-timeout", "0")  # as cron, which is believed for some minutes
    (operator.directory / "cluster.yaml").write_text(CONFIG + "loop: of\n")
    done = operator.iris("loop", "show")
    first, second, *_ = done.stdout.splitlines()
    assert first.startswith("no cycles are running ("), done
    assert first.endswith(" ago): iris config validate")
    assert second.endswith("; no cycle runs until this is corrected"), done
    [document] = checked("iris loop show", operator.iris("loop", "show", "--json").stdout)
    assert (document["cycles"]["by"], document["cycles"]["next"]) == (None, None)
    assert document["cycles"]["fix"] == "iris config validate"


def test_with_nothing_to_do_a_start_only_takes_back_a_stop(operator: Operator) -> None:
    operator.iris("loop", "stop")
    operator.iris("cancel", "job")
    done = operator.iris("loop", "start")
    assert done.stdout == "nothing to do: no pending or running jobs\n"
    assert not read_loop_order(operator.state.path).stopped
    assert operator.loop is None


@pytest.mark.parametrize(("verb", "may_start"), [("start", True), ("stop", False)])
def test_an_order_may_be_the_first_command_of_a_cluster(
    verb: str, may_start: bool, operator: Operator
) -> None:
    shutil.rmtree(operator.directory / "state")
    assert operator.iris("loop", verb).returncode == 0
    assert read_loop_order(operator.state.path).stopped is not may_start
    assert operator.iris("log", "verify").returncode == 0


def test_loop_off_refuses_a_start(operator: Operator) -> None:
    (operator.directory / "cluster.yaml").write_text(CONFIG + "loop: off\n")
    done = operator.iris("loop", "start")
    assert done.returncode == 2
    assert "says loop: off" in done.stderr


def test_the_log_is_rotated(operator: Operator) -> None:
    log = operator.directory / "state" / "loop.log"
    log.write_text("x" * (300 << 10))
    log.chmod(0o600)
    assert operator.spawn()
    until(lambda: log.with_name("loop.log.1").exists())
    until(lambda: log.exists() and log.stat().st_size < 1000)

    def open_files() -> set[str]:
        links = set()
        for each in Path("/proc", str(operator.pid()), "fd").iterdir():
            with suppress(FileNotFoundError):  # the loop has closed this file
                links.add(os.readlink(each))
        return links

    # The new file has its name before the loop writes to it.
    until(lambda: str(log) in open_files() and f"{log}.1" not in open_files(), open_files)


# Another version


def install(package: Path, version: str) -> None:
    draft = package / "__init__.py.new"
    draft.write_text(f'"""iris."""\n\n__version__ = "{version}"\n')
    draft.replace(package / "__init__.py")


def test_it_becomes_the_version_that_is_installed_under_it_once_that_can_run_without_a_moment_without_a_loop(
    operator: Operator, tmp_path: Path
) -> None:
    """Also where the package was away for a while. It is installed for the loop alone, with its compiled modules."""
    installed = tmp_path / "site" / "iris_cli"
    shutil.copytree(Path(iris_cli.__file__).parent, installed, ignore=shutil.ignore_patterns("*.pyc.*"))
    operator.package = installed.parent
    assert operator.spawn()
    operator.has_run_a_cycle()
    pid = operator.pid()
    installed.rename(installed.with_name("away"))
    beats = beat(operator)
    until(lambda: beat(operator) > beats + 2, lambda: operator.log)
    installed.with_name("away").rename(installed)

    def has_become(version: str) -> bool:
        assert operator.loop is not None
        return f"iris {version} runs cycles" in operator.log

    (installed / "ops" / "cycle" / "cycle.py").write_text("this is half of a file (")
    install(installed, "9.9.9")
    beats = beat(operator)
    until(lambda: beat(operator) > beats + 3, lambda: operator.log)
    assert not has_become("9.9.9")
    shutil.copy(ROOT / "iris_cli" / "ops" / "cycle" / "cycle.py", installed / "ops" / "cycle" / "cycle.py")
    install(installed, "9.9.10")
    until(lambda: has_become("9.9.10"))
    assert operator.pid() == pid


def beat(operator: Operator) -> float:
    """The time of the last cycle."""
    return float((operator.state.read_heartbeat() or {})["at"])
