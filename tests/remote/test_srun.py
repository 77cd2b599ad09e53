"""Workers that are nodes of a real Slurm job: every call is a step of its own, and no task depends on one."""

from __future__ import annotations

import os
import random
import secrets
import select
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from iris_cli.core import Connection
from iris_cli.core.ids import Token, WorkerId
from iris_cli.core.messages.observations import RemoteState, Silence, SilenceKind
from iris_cli.remote.command_calls import CommandRequest
from iris_cli.remote.output_calls import LogPiece, OutputCalls
from iris_cli.remote.srun import FIND_SLURM, SrunTransport
from iris_cli.remote.ssh import SshTransport
from iris_cli.remote.task_runner import LaunchRequest, Shipment, TaskRunner
from iris_cli.remote.transport import NoAnswer, Script, Target
from tests.support.allocation import NODE, Allocate, Allocation, SrunWorker
from tests.support.archives import archive, ordinary, shipment
from tests.support.waiting import LIMITS, PATIENCE, until
from tests.support.worker_host import is_alive, kill, marked, pids_in

TAR = archive(ordinary)


@pytest.fixture(scope="module")
def worker(shared_allocation: Allocation) -> SrunWorker:
    return shared_allocation.worker()


def command() -> CommandRequest:
    return CommandRequest(token=new_token(), argv=("echo", "said"), env={})


def new_token() -> Token:
    return Token(secrets.token_hex(16))


def start(worker: SrunWorker, request: LaunchRequest, shipped: Shipment) -> None:
    """Start a task with a workspace, however far earlier calls have got.

    On a loaded machine Slurm may fail a step before it has run anything: iris repeats such a call in the next cycle.
    """
    at, token = worker.target, request.token
    bound = {"boot_id": worker.boot_id, "incarnation": worker.incarnation}

    def is_done() -> bool:
        answer = worker.runner.prepare(at, [request], go=False, **bound)
        if isinstance(answer, Silence):
            assert not answer.sent, answer
            return False
        if answer.attempts[0].state is RemoteState.ABSENT:  # the workspace is missing
            worker.ship(shipped, token)
        if answer.attempts[0].state in {RemoteState.ABSENT, RemoteState.PREPARING}:
            return False
        return not isinstance(worker.runner.go(at, [token], **bound), Silence)

    until(is_done)


def test_each_call_reaches_the_node(worker: SrunWorker) -> None:
    token = worker.running("sh", "-c", "trap 'echo term; exit' TERM; echo out; while :; do sleep 0.1; done")
    until(lambda: worker.output(token) == b"out\n")
    assert worker.state(token) is RemoteState.RUNNING
    ran = worker.runner.commands.run(worker.target, command())
    assert not isinstance(ran, Silence)
    assert (ran.exit_code, ran.output) == (0, b"said\n")
    assert worker.stopped(token, grace=1000).state is RemoteState.STOPPED
    assert worker.output(token) == b"out\nterm\n"
    saved = worker.launch("sh", "-c", 'echo result >"$IRIS_OUTPUT_DIR/file"')
    worker.wait(saved)
    files = OutputCalls(worker.runner)
    piece = files.piece(worker.target, saved, b"output/file", 0, 100)
    assert not isinstance(piece, Silence)
    assert piece.data == b"result\n"
    assert worker.usage(saved).keys() == {saved}
    until(lambda: worker.reaped(saved, token) == {saved, token})


@pytest.mark.soak
def test_all_nodes_are_workers_of_their_own(allocate: Allocate) -> None:
    allocation = allocate()
    workers = [allocation.worker(f"n{number}") for number in range(4)]
    assert len({worker.incarnation for worker in workers}) == 4
    for worker in workers:
        token = worker.launch("sh", "-c", "echo $IRIS_TASK_DIR")
        worker.wait(token)
        assert worker.output(token).decode().startswith(f"{allocation.remote_dir}/c1/{worker.node}/")


def test_a_call_that_is_left_at_its_deadline_leaves_no_step(worker: SrunWorker, tmp_path: Path) -> None:
    allocation = worker.allocation
    script = f"echo $$ >{tmp_path}/pid; exec sleep 1000"
    for limit in LIMITS:
        with pytest.raises(NoAnswer) as caught:
            allocation.transport.run(
                worker.target, Script(text=script.encode(), connect_timeout=limit, timeout=limit)
            )
        if caught.value.sent:
            break
    assert caught.value.kind is SilenceKind.TIMEOUT
    until(lambda: not allocation.is_called())
    assert not any(map(is_alive, pids_in(tmp_path / "pid")))
    assert worker.ended("true").exit_code == 0


# Lost clients


@pytest.fixture
def clients(tmp_path: Path) -> Path:
    """A directory for the front of PATH, in which `srun` writes its process id down."""
    directory = tmp_path / "clients"
    directory.mkdir()
    real = shutil.which("srun")
    (directory / "srun").write_text(f'#!/bin/sh\necho $$ >>{directory}/pids\nexec {real} "$@"\n')
    (directory / "srun").chmod(0o700)
    return directory


@contextmanager
def killing(clients: Path, after: float) -> Iterator[None]:
    """Send SIGKILL to the first client that is started, after these seconds."""
    (clients / "pids").write_text("")

    def hit() -> None:
        until(lambda: pids_in(clients / "pids") or over.is_set())
        over.wait(after)
        for pid in pids_in(clients / "pids"):
            kill(pid)

    over = threading.Event()
    thread = threading.Thread(target=hit)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(PATIENCE)


@pytest.mark.parametrize("count", [1, pytest.param(40, marks=pytest.mark.soak)])
def test_a_call_whose_client_is_killed_is_no_answer_and_is_repeated_without_harm(
    worker: SrunWorker, clients: Path, tmp_path: Path, count: int
) -> None:
    environ = worker.allocation.slurm.environ
    transport = SrunTransport(worker.allocation.over_ssh, {**environ, "PATH": f"{clients}:{environ['PATH']}"})
    cut = TaskRunner(transport, "c1", connect_timeout=PATIENCE, timeout=PATIENCE)
    chance, shipped, silences = random.Random(4), shipment(TAR), 0
    for number in range(count):
        starts = tmp_path / f"starts-{number}"
        task = ("sh", "-c", f"echo started >>{starts}; exec sleep 1000")
        request = worker.request(*task, workspace=shipped.hash)
        for call in launches(cut, worker, request, shipped):
            silences += lost(call, clients, chance)
        start(worker, request, shipped)
        worker.wait(request.token, {RemoteState.RUNNING})
        for call in calls_about(cut, worker, request.token):
            silences += lost(call, clients, chance)
        worker.stopped(request.token, grace=0.5)
        assert starts.read_text() == "started\n"
        assert not marked(request.token)
    assert silences > count  # else it shows little
    until(lambda: not worker.allocation.is_called())


Call = Callable[[], object]


def launches(cut: TaskRunner, worker: SrunWorker, request: LaunchRequest, shipped: Shipment) -> list[Call]:
    at, token = worker.target, request.token
    bound = {"boot_id": worker.boot_id, "incarnation": worker.incarnation}
    return [
        lambda: cut.probe(at),
        lambda: cut.prepare(at, [request], go=True, **bound),
        lambda: cut.ship(at, shipped, [token], **bound),
        lambda: cut.prepare(at, [request], go=True, **bound),
        lambda: cut.go(at, [token], **bound),
    ]


def calls_about(cut: TaskRunner, worker: SrunWorker, token: Token) -> list[Call]:
    at = worker.target
    return [
        lambda: cut.poll(at, [token]),
        lambda: cut.pieces(at, [LogPiece(token=token, stream="out", offset=0, limit=100)]),
        lambda: cut.commands.run(at, command()),
        lambda: cut.stacks.read(at, [token]),
        lambda: OutputCalls(cut).list_files(at, [token]),
        lambda: cut.stop(at, [(token, 0.5)]),
        lambda: cut.stop(at, [(token, 0.5)]),
        lambda: cut.reap(at, [token]),
    ]


def lost(call: Call, clients: Path, chance: random.Random) -> bool:
    """Kill the client of a call at any time; return whether there was no answer."""
    with killing(clients, chance.uniform(0.0, 0.3)):
        answer = call()
    if not isinstance(answer, Silence):
        return False
    kinds = {(SilenceKind.PROTOCOL, "answer"), (SilenceKind.UNREACHABLE, "srun")}
    assert (answer.kind, answer.step) in kinds, answer
    return True


LAUNCH = """
import os, sys
from pathlib import Path
from iris_cli.core import Connection
from iris_cli.core.ids import Token, WorkerId
from iris_cli.remote.srun import SrunTransport
from iris_cli.remote.ssh import SshTransport
from iris_cli.remote.task_runner import LaunchRequest, TaskRunner
from iris_cli.remote.transport import Target
job, node, remote_dir, boot, incarnation = sys.argv[1:]
connection = Connection(host="127.0.0.1", allocation=job, node=node, remote_dir=remote_dir)
def launch(token, starts):
    transport = SrunTransport(SshTransport(Path("known_hosts")), os.environ)
    runner = TaskRunner(transport, "c1", connect_timeout=600, timeout=600)
    request = LaunchRequest(token=Token(token), argv=("sh", "-c", f"echo started >>{starts}"), env={})
    print(os.getpid(), flush=True)
    target = Target(worker=WorkerId(node), connection=connection)
    runner.prepare(target, [request], boot_id=boot, incarnation=incarnation, go=True)
for line in sys.stdin:
    if os.fork() == 0:
        launch(*line.split())
        os._exit(0)
    os.wait()
    print("over", flush=True)
"""
"""Launches for each line of its input, in a process forked for that."""


@pytest.mark.parametrize("count", [2, pytest.param(20, marks=pytest.mark.soak)])
def test_a_launch_by_a_process_that_is_killed_happens_once(
    worker: SrunWorker, tmp_path: Path, count: int
) -> None:
    chance = random.Random(20)
    allocation = worker.allocation
    place = (allocation.job, worker.node, allocation.remote_dir, worker.boot_id, worker.incarnation)
    with subprocess.Popen(
        [sys.executable, "-c", LAUNCH, *place],
        env=allocation.slurm.environ,
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as launcher:
        assert launcher.stdin is not None
        assert launcher.stdout is not None
        for number in range(count):
            starts = tmp_path / f"starts-{number}"
            request = worker.request("sh", "-c", f"echo started >>{starts}")
            print(request.token, starts, file=launcher.stdin, flush=True)
            pid = int(launcher.stdout.readline())
            select.select([launcher.stdout], [], [], chance.uniform(0.0, 0.4))
            kill(pid)
            assert launcher.stdout.readline() == "over\n"
            worker.prepare(request, go=True)
            worker.go(request.token)
            assert worker.wait(request.token).exit_code == 0
            assert starts.read_text() == "started\n"
        launcher.stdin.close()
    until(lambda: not allocation.is_called())


# Slurm's own troubles


def test_a_holder_step_that_is_cancelled_is_started_again_and_nothing_runs_twice(
    worker: SrunWorker, tmp_path: Path
) -> None:
    allocation = worker.allocation
    starts = tmp_path / "starts"
    running = worker.running("sh", "-c", f"echo started >>{starts}; exec sleep 1000")
    before = allocation.holder_pid()
    (step,) = (step for step, node in allocation.steps("iris-holder").items() if node == NODE)
    allocation.slurm.run("scancel", step)
    until(lambda: not is_alive(before))
    request = worker.request("sh", "-c", f"echo started >>{starts}.2")
    until(lambda: worker.prepare(request, go=True)[0].state is not RemoteState.PREPARED)
    assert worker.wait(request.token).exit_code == 0
    assert allocation.holder_pid() != before
    # Here it survives its step; with control groups it would be LOST.
    assert worker.state(running) in {RemoteState.RUNNING, RemoteState.LOST}
    worker.stopped(running, grace=0.1)
    assert starts.read_text() == (tmp_path / "starts.2").read_text() == "started\n"
    assert not marked(running)


def test_a_controller_that_hangs_is_silence_and_loses_nothing(worker: SrunWorker) -> None:
    allocation = worker.allocation
    token = worker.running("sleep", "1000")
    soon = TaskRunner(allocation.transport, "c1", connect_timeout=0.5, timeout=0.5)
    controller = int((allocation.slurm.directory / "slurmctld.pid").read_text())
    os.kill(controller, signal.SIGSTOP)
    try:
        answer = soon.poll(worker.target, [token])
        assert isinstance(answer, Silence)
        assert (answer.kind, answer.step, answer.sent) == (SilenceKind.UNREACHABLE, "srun", False)
        request = worker.request("true")
        bound = {"boot_id": worker.boot_id, "incarnation": worker.incarnation}
        answer = soon.prepare(worker.target, [request], go=True, **bound)
        assert isinstance(answer, Silence)
        assert not answer.sent
        assert not worker.attempt_dir(request.token).exists()
        assert marked(token)
    finally:
        os.kill(controller, signal.SIGCONT)
    assert worker.state(token) is RemoteState.RUNNING
    assert worker.state(request.token) is RemoteState.ABSENT
    assert worker.stopped(token).state is RemoteState.STOPPED


def test_the_end_of_the_allocation_is_silence(allocate: Allocate) -> None:
    allocation = allocate(1)
    worker = allocation.worker()
    token = worker.running("sh", "-c", "trap '' TERM; sleep 1000")
    allocation.slurm.run("scancel", allocation.job)
    allocation.slurm.ended(allocation.job)
    answer = worker.runner.poll(worker.target, [token])
    assert isinstance(answer, Silence)
    assert (answer.kind, answer.step, answer.sent) == (SilenceKind.UNREACHABLE, "srun", False)
    assert allocation.job in answer.detail


def test_a_node_that_is_not_in_the_allocation_is_silence(shared_allocation: Allocation) -> None:
    allocation = shared_allocation
    assert allocation.slurm.jobs(allocation.job)[0]["NodeList"] == NODE
    runner = TaskRunner(allocation.transport, "c1", connect_timeout=PATIENCE, timeout=PATIENCE)
    answer = runner.poll(allocation.target("n0"), [new_token()])
    assert isinstance(answer, Silence)
    assert (answer.kind, answer.step, answer.sent) == (SilenceKind.UNREACHABLE, "srun", False)


def test_without_slurm_the_error_names_the_command(tmp_path: Path, ssh: SshTransport) -> None:
    transport = SrunTransport(ssh, {"PATH": str(tmp_path)})
    connection = Connection(host="h", allocation="1", node="n1")
    with pytest.raises(NoAnswer, match="srun") as caught:
        transport.run(
            Target(worker=WorkerId("w"), connection=connection),
            Script(text=b"", connect_timeout=PATIENCE, timeout=PATIENCE),
        )
    assert (caught.value.kind, caught.value.sent) == (SilenceKind.LOCAL, False)
    assert caught.value.hint == "Slurm's commands must be on the PATH of this machine"


def test_a_login_host_without_a_profile(tmp_path: Path) -> None:
    """In a POSIX shell, reading a missing file with `.` ends the shell."""
    script = FIND_SLURM.replace("/etc/profile", str(tmp_path / "none")) + "echo continues\n"
    for shell in ("dash", "bash"):
        found = shutil.which(shell)
        if found is not None:
            ran = subprocess.run(
                [found, "-c", script], env={"PATH": "/nowhere"}, capture_output=True, text=True, check=False
            )
            assert ran.stdout == "continues\n", shell
