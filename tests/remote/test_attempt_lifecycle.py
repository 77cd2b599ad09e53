"""An attempt on a worker: prepare, start, poll, end."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from iris_cli.core.ids import WorkerId
from iris_cli.core.messages.observations import AttemptReport, RemoteState, WorkerReport
from iris_cli.core.model.task import TaskState
from tests.remote.conftest import MakeHost
from tests.support.lab import Lab
from tests.support.waiting import PATIENCE, until
from tests.support.worker_host import WorkerHost, is_alive, kill, marked, pids_in


def states(reports: Sequence[AttemptReport]) -> list[RemoteState]:
    return [report.state for report in reports]


def ends(reports: Sequence[AttemptReport]) -> list[tuple[RemoteState, int | None, str]]:
    return [(report.state, report.exit_code, report.cause) for report in reports]


COUNT_TO_TWO = ("sh", "-c", 'echo $$ >>"$0"; sleep 1000 & echo $! >>"$0"; wait')


def test_the_exit_code_is_reported_as_it_is(dash_host: WorkerHost) -> None:
    codes = [0, 1, 3, 77, 126, 255]
    reports = dash_host.all_ended(*(dash_host.request("sh", "-c", f"exit {code}") for code in codes))
    assert ends(reports) == [(RemoteState.EXITED, code, "") for code in codes]


@pytest.mark.two_shells
def test_an_attempt_runs_and_ends_in_every_shell(host: WorkerHost) -> None:
    report = host.ended("sh", "-c", "echo to out; echo to err >&2; exit 3")
    assert (report.state, report.exit_code) == (RemoteState.EXITED, 3)
    assert report.log_tail == "to out\nto err\n"
    assert report.output_bytes == len("to out\nto err\n")
    assert report.started_ago is not None
    assert report.ended_ago is not None
    assert 0 <= report.ended_ago <= report.started_ago < PATIENCE


def test_a_signal_that_ends_the_command_is_reported_with_its_exit_code(host: WorkerHost) -> None:
    codes = {"TERM": 143, "KILL": 137, "SEGV": 139}
    reports = host.all_ended(*(host.request("sh", "-c", f"kill -s {name} $$") for name in codes))
    assert ends(reports) == [(RemoteState.EXITED, code, "signal") for code in codes.values()]


def test_an_exit_code_above_128_does_not_mean_a_signal(host: WorkerHost) -> None:
    """It may be the command's own exit code, or that of a program ended by a signal."""
    scripts = ["exit 137", "sh -c 'kill -s KILL $$'; exit $?", 'echo Killed >"$IRIS_TASK_DIR/err"; exit 137']
    reports = host.all_ended(*(host.request("sh", "-c", script) for script in scripts))
    assert ends(reports) == [(RemoteState.EXITED, 137, "")] * 3


def test_a_command_runs_and_ends_without_a_file_for_the_shells_report(host: WorkerHost) -> None:
    requests = [host.request("sh", "-c", "kill -s KILL $$") for _ in range(3)]
    host.prepare(*requests)
    removed, directory, pipe = files = [host.attempt_dir(each.token) / "signal" for each in requests]
    for file in files:
        file.unlink()
    directory.mkdir()
    os.mkfifo(pipe)
    tokens = [each.token for each in requests]
    host.go(*tokens)
    assert ends(host.wait_for_all(tokens)) == [(RemoteState.EXITED, 137, "")] * 3
    assert not removed.exists()


def test_a_missing_program_exits_with_127_and_a_message(host: WorkerHost) -> None:
    report = host.ended("no-such-program-anywhere")
    assert (report.state, report.exit_code) == (RemoteState.EXITED, 127)
    assert "no-such-program-anywhere" in report.log_tail


def test_a_prepared_attempt_waits_for_go(host: WorkerHost, tmp_path: Path) -> None:
    request = host.request("touch", str(tmp_path / "ran"))
    (report,) = host.prepare(request)
    assert report.state is RemoteState.PREPARED
    assert host.state(request.token) is RemoteState.PREPARED
    assert not marked(request.token)
    (secrets,) = host.attempt_dir(request.token).glob("env.*")
    assert secrets.stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "ran").exists()

    host.go(request.token)
    assert host.wait(request.token).state is RemoteState.EXITED
    assert (tmp_path / "ran").exists()


def test_a_token_that_was_never_seen_is_absent_and_go_does_nothing_to_it(host: WorkerHost) -> None:
    request = host.request("true")
    assert host.state(request.token) is RemoteState.ABSENT
    (report,) = host.go(request.token)
    assert report.state is RemoteState.ABSENT
    assert not host.attempt_dir(request.token).exists()


def test_the_environment_file_is_empty_once_the_command_runs(host: WorkerHost) -> None:
    token = host.running("sleep", "1000", env={"SECRET": "canary"})
    assert not host.secrets(token)
    host.stopped(token)
    holders = [path for path in host.root.rglob("*") if path.is_file() and b"canary" in path.read_bytes()]
    assert holders == []


def test_the_worker_reports_when_the_command_began(host: WorkerHost) -> None:
    token = host.running("sleep", "1000")
    (report,) = host.poll(token)
    assert report.state is RemoteState.RUNNING
    assert report.started_ago is not None
    assert report.ended_ago is None
    assert report.log_tail == ""


def test_one_poll_tells_of_all_attempts_in_any_state(host: WorkerHost) -> None:
    running = host.running("sleep", "1000")
    ended = host.launch("true")
    host.wait(ended)
    prepared = host.request("true")
    host.prepare(prepared)
    absent = host.request("true")
    states = {each.token: each.state for each in host.poll(running, ended, prepared.token, absent.token)}
    assert states == {
        running: RemoteState.RUNNING,
        ended: RemoteState.EXITED,
        prepared.token: RemoteState.PREPARED,
        absent.token: RemoteState.ABSENT,
    }


def test_processes_of_a_task_end_with_it(host: WorkerHost, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    report = host.ended(
        "sh", "-c", 'sleep 1000 & echo $! >>"$0"; setsid sleep 1000 & echo $! >>"$0"', str(pids)
    )
    assert report.state is RemoteState.EXITED
    assert len(pids_in(pids)) == 2
    assert not any(is_alive(pid) for pid in pids_in(pids))


def test_a_task_that_signals_its_whole_group_still_gets_its_exit_recorded(host: WorkerHost) -> None:
    report = host.ended("sh", "-c", "trap 'exit 9' TERM; kill -s TERM 0; sleep 1000")
    assert (report.state, report.exit_code) == (RemoteState.EXITED, 9)


def test_a_wrapper_that_was_killed_leaves_an_orphan_and_the_orphans_end_leaves_nothing(
    host: WorkerHost, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    token = host.running(*COUNT_TO_TWO, str(pids))
    until(lambda: len(pids_in(pids)) == 2)
    kill(host.wrapper(token))
    assert host.wait(token, {RemoteState.ORPHANED}).state is RemoteState.ORPHANED
    for pid in marked(token):
        kill(pid)
    report = host.wait(token, {RemoteState.LOST})
    assert report.exit_code is None


def test_everything_killed_at_once_is_lost_never_success(host: WorkerHost) -> None:
    token = host.running("sleep", "1000")
    wrapper = host.wrapper(token)
    os.kill(wrapper, signal.SIGSTOP)  # otherwise it would record the end of its task
    for pid in [*marked(token) - {wrapper}, wrapper]:
        kill(pid)
    assert host.wait(token, {RemoteState.LOST}).state is RemoteState.LOST


def test_a_foreign_exit_record_is_ignored(dash_host: WorkerHost) -> None:
    token = dash_host.launch("true")
    dash_host.wait(token)
    record = dash_host.attempt_dir(token) / "x.0"
    for name in ("x.00", "x.256", "x.-1", "x.0.better", "x.", "x.nostart.mood", "x.zero"):
        record = record.rename(record.with_name(name))
        assert dash_host.state(token) is RemoteState.LOST, name
    record.rename(record.with_name("x.0"))
    assert dash_host.state(token) is RemoteState.EXITED


def test_a_pid_file_that_was_edited_is_a_dead_wrappers(dash_host: WorkerHost) -> None:
    texts = ("0 0 {boot}", "-1 5 {boot}", "9" * 20 + " 1 {boot}", "", "x", "1 2", "1 2 {boot} 3")
    tokens = dash_host.all_running(len(texts))
    for token, text in zip(tokens, texts, strict=True):
        (dash_host.attempt_dir(token) / "pid").write_text(text.format(boot=dash_host.boot_id))
    assert states(dash_host.poll(*tokens)) == [RemoteState.ORPHANED] * len(texts)
    most_harmful = tokens[:3]
    dash_host.runner.stop(dash_host.target, [(token, 5.0) for token in most_harmful])
    stopped = dash_host.wait_for_all(
        most_harmful, {RemoteState.STOPPED, RemoteState.EXITED, RemoteState.NOSTART}
    )
    assert states(stopped) == [RemoteState.STOPPED] * 3
    assert not any(map(marked, most_harmful))
    assert all(map(marked, tokens[3:]))


def test_odd_names_in_one_attempt_do_not_silence_the_worker(dash_host: WorkerHost) -> None:
    odd, healthy = dash_host.all_running(2)
    names = "end.08.1", "begin.099", "launch.x", "end.5", "stop.run.08.09.x", "stop.stuck.", "end.7.999"
    for name in names:
        file = dash_host.attempt_dir(odd) / name
        file.touch()
        assert dash_host.poll(odd, healthy)[1].state is RemoteState.RUNNING, name
        file.unlink()


def test_two_ends_contradict_each_other(dash_host: WorkerHost) -> None:
    token = dash_host.launch("true")
    dash_host.wait(token)
    (dash_host.attempt_dir(token) / "x.1").touch()
    assert dash_host.state(token) is RemoteState.LOST


def test_a_pipe_or_a_link_in_place_of_the_output_does_not_block(dash_host: WorkerHost) -> None:
    token = dash_host.launch("sh", "-c", "rm ../out ../err; mkfifo ../out; ln -s /etc/passwd ../err")
    report = dash_host.wait(token)
    assert (report.state, report.exit_code, report.log_tail) == (RemoteState.EXITED, 0, "")
    assert dash_host.output(token, "out") == b""
    assert dash_host.output(token, "err") == b""


def test_the_end_of_both_outputs_is_reported_and_stderr_comes_last(host: WorkerHost) -> None:
    report = host.ended(
        "sh", "-c", "i=0; while [ $i -lt 2000 ]; do echo out $i; echo err $i >&2; i=$((i + 1)); done; exit 1"
    )
    assert report.log_tail.endswith("err 1999\n")
    assert "out 1999\n" in report.log_tail
    assert 3500 < len(report.log_tail) <= 4096
    assert report.output_bytes == len("".join(f"out {i}\nerr {i}\n" for i in range(2000)))


def test_a_text_that_grows_while_it_is_reported_keeps_its_beginning(
    dash_host: WorkerHost, tmp_path: Path
) -> None:
    """A wrapper may still be writing why it does not start. Here `stat` appends to the text."""
    slow = tmp_path / "slow" / "stat"
    slow.parent.mkdir()
    add = 'for file; do case $file in */err) [ ! -s "$file" ] || printf more >>"$file" ;; esac; done'
    slow.write_text(f'#!/bin/sh\n{shutil.which("stat")} "$@"\n{add}\n')
    slow.chmod(0o755)
    dash_host.transport.env["PATH"] = f"{slow.parent}:{dash_host.transport.env['PATH']}"
    assert dash_host.ended("sh", "-c", "echo first >&2").log_tail.startswith("first\nmore")


def test_the_time_since_the_last_output_of_a_running_task_is_reported(
    host: WorkerHost, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    wait = f'until [ -e "{gate}" ]; do sleep 0.1; done'
    old = "touch -d '1 hour ago' \"$IRIS_TASK_DIR/err\""
    scripts = {"silent": wait, "talks": f"echo x; {wait}", "lies": f"echo x >&2; {old}; : >ready; {wait}"}
    requests = [host.request("sh", "-c", script) for script in scripts.values()]
    host.prepare(*requests, go=True)
    tokens = [each.token for each in requests]
    reports = dict(zip(scripts, host.wait_for_all(tokens, {RemoteState.RUNNING}), strict=True))
    for report in reports.values():
        assert report.last_output_ago is not None
        assert report.started_ago is not None
        assert 0 <= report.last_output_ago <= report.started_ago < PATIENCE
    assert reports["silent"].last_output_ago == reports["silent"].started_ago
    gate.touch()
    assert [each.last_output_ago for each in host.wait_for_all(tokens)] == [None] * 3


def test_quiet_stderr_leaves_the_room_to_stdout(host: WorkerHost) -> None:
    report = host.ended("sh", "-c", "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i + 1)); done")
    assert len(report.log_tail) == 4096


def test_another_boot_or_incarnation_is_refused_and_nothing_is_done(host: WorkerHost) -> None:
    request = host.request("true")
    for boot_id, incarnation in [("other-boot", host.incarnation), (host.boot_id, "0" * 32), ("", "")]:
        answer = host.runner.prepare(
            host.target, [request], boot_id=boot_id, incarnation=incarnation, go=True
        )
        assert isinstance(answer, WorkerReport)
        assert answer.attempts == ()
        assert (answer.boot_id, answer.incarnation) == (host.boot_id, host.incarnation)
    assert not host.attempt_dir(request.token).exists()
    host.prepare(request)
    answer = host.runner.go(host.target, [request.token], boot_id="other-boot", incarnation=host.incarnation)
    assert isinstance(answer, WorkerReport)
    assert answer.attempts == ()
    assert host.state(request.token) is RemoteState.PREPARED


def test_an_attempt_of_an_older_boot_is_lost_unless_its_end_was_recorded(dash_host: WorkerHost) -> None:
    running = dash_host.running("sleep", "1000")
    ended = dash_host.launch("sh", "-c", "exit 4")
    dash_host.wait(ended)
    prepared = dash_host.request("true")
    dash_host.prepare(prepared)
    os.kill(dash_host.wrapper(running), signal.SIGSTOP)  # a reboot ends it before it can record anything
    for pid in marked(running):
        kill(pid)
    for token, name in [(running, "pid"), (ended, "pid"), (prepared.token, "run")]:
        path = dash_host.attempt_dir(token) / name
        path.write_text(path.read_text().replace(dash_host.boot_id, "an-older-boot", 1))
    report = {each.token: each for each in dash_host.poll(running, ended, prepared.token)}
    assert report[running].state is RemoteState.LOST
    assert report[prepared.token].state is RemoteState.LOST
    assert (report[ended].state, report[ended].exit_code) == (RemoteState.EXITED, 4)
    assert report[ended].ended_ago is None
    dash_host.go(prepared.token)
    assert not marked(prepared.token)


TOLD = "trap 'exit {code}' TERM; kill -s TERM 0; sleep 1000"


def test_an_end_after_the_wrappers_stop_does_not_count_in_another_boot(
    host: WorkerHost,
) -> None:
    after_a_reboot = {
        "exit 0": RemoteState.EXITED,
        "exit 4": RemoteState.EXITED,
        TOLD.format(code=0): RemoteState.LOST,  # it may have saved its work because of the shutdown
        TOLD.format(code=9): RemoteState.LOST,
        "kill -s USR1 0": RemoteState.EXITED,
    }
    reports = host.all_ended(*(host.request("sh", "-c", program) for program in after_a_reboot))
    assert states(reports) == [RemoteState.EXITED] * 5
    tokens = [report.token for report in reports]
    for token in tokens:
        path = host.attempt_dir(token) / "pid"
        path.write_text(path.read_text().replace(host.boot_id, "an-older-boot", 1))
    assert states(host.poll(*tokens)) == list(after_a_reboot.values())


def test_a_success_during_a_shutdown_does_not_count_with_a_simultaneous_stop(host: WorkerHost) -> None:
    token = host.launch("sh", "-c", TOLD.format(code=0))
    assert host.wait(token).state is RemoteState.EXITED
    directory = host.attempt_dir(token)
    (directory / "stop.idle").rename(directory / "stop.done")
    assert host.state(token) is RemoteState.EXITED
    path = directory / "pid"
    path.write_text(path.read_text().replace(host.boot_id, "an-older-boot", 1))
    assert host.state(token) is RemoteState.STOPPED


def test_a_success_before_a_reboot_is_read_from_the_disk_of_the_worker(host: WorkerHost) -> None:
    # Processes have this token as their marker: no other test on this machine may use it now.
    lab = Lab(first_token=secrets.randbits(120)).worker("w0").job("train").schedule()
    request = replace(host.request("true"), token=lab.attempt("train").token)
    host.prepare(request, go=True)
    host.wait(request.token)
    path = host.attempt_dir(request.token) / "pid"
    path.write_text(path.read_text().replace(host.boot_id, "boot-1", 1))
    facts = lab.hosts[WorkerId("w0")].facts
    answer = host.runner.poll(host.target, [request.token])
    assert isinstance(answer, WorkerReport)
    assert answer.boot_id != facts.boot_id == "boot-1"
    lab.answers(replace(answer, incarnation=facts.incarnation))
    assert lab.task("train").state is TaskState.SUCCEEDED


def test_a_worker_that_was_never_probed_knows_no_attempt(make_host: MakeHost) -> None:
    fresh = make_host()
    request = fresh.request("true")
    answer = fresh.runner.poll(fresh.target, [request.token])
    assert isinstance(answer, WorkerReport)
    assert answer.incarnation == ""
    assert [report.state for report in answer.attempts] == [RemoteState.ABSENT]
    assert list(fresh.transport.home.iterdir()) == []
