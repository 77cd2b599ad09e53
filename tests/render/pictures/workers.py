"""Workers: what they say when they are asked, and what is said when they are drained, forgotten, cleared."""

from __future__ import annotations

from iris_cli.core.ids import Token
from iris_cli.core.messages.observations import ChipHolder, RemoteState, SilenceKind
from iris_cli.core.messages.stacks import KernelThread
from iris_cli.remote.command_calls import CommandEnd
from iris_cli.remote.stack_calls import Program, Programs
from tests.render.pictures.picture import Picture
from tests.render.stage import Stage
from tests.support.fake_runner import Entry


def _holders(stage: Stage) -> None:
    """A process of nobody's holds chips; an attempt is there that the log never saw."""
    host = stage.hosts.hosts["v5b-0"]
    host.holders.append(
        ChipHolder(
            boot_id=host.boot_id,
            pid=4711,
            start=99,
            devices=("/dev/accel0", "/dev/accel1"),
            command="python3 leftover.py",
        )
    )
    host.tokens[Token("f" * 32)] = Entry(RemoteState.RUNNING, name="lost/task-0")


def _stuck(stage: Stage) -> None:
    _holders(stage)
    stage.hosts.hosts["v5b-0"].unkillable = True


def _other_machine(stage: Stage) -> None:
    host = stage.hosts.hosts["cpu-0"]
    host.boot_id, host.incarnation = "boot-7", "cpu-0-life-2"


def _untrusting(stage: Stage) -> None:
    stage.hosts.hosts["cpu-0"].silence = SilenceKind.AUTH


def _answers(stage: Stage) -> None:
    """Two ranks say the same, one something else, one nothing in time."""
    same = CommandEnd(exit_code=0, output=b"Filesystem  Use%\n/dev/sda1    41%\n")
    full = CommandEnd(exit_code=1, output=b"df: /mnt: Input/output error\n")
    late = CommandEnd(exit_code=None, output=b"", timed_out=True)
    stage.hosts.ran |= {"v5a-0": same, "v5a-1": same, "v5a-2": full, "v5a-3": late}


def _stacks(stage: Stage) -> None:
    """Three ranks wait for each other, rank 2 reads a file."""
    waits = 'Thread 7 (active): "MainThread"\n    psum (jax/lax.py:88)\n    step (train.py:41)\n'
    reads = 'Thread 7 (active): "MainThread"\n    read (data/files.py:3)\n    step (train.py:39)\n'
    for rank in range(4):
        token = stage.hosts.attempt(f"train/task-{rank}")
        dump = reads if rank == 2 else waits
        program = Program(pid=7, state="S", how="spy", command="python3 train.py", dump=dump)
        programs = (
            (program,)
            if rank != 3
            else (Program(pid=7, state="S", how="silent", command="python3 train.py"),)
        )
        stage.hosts.stacked[token] = Programs(
            token=token, state=RemoteState.RUNNING, count=1, programs=programs
        )


def _without_stacks(stage: Stage) -> None:
    """No worker has py-spy: three ranks spin in a collective, rank 2 waits for its data."""
    waits = [
        KernelThread(id=8, name="x", state="S", wait_channel="futex_wait", cpu_seconds=1.5, cpu=0.0),
        KernelThread(id=9, name="x", state="S", wait_channel="futex_wait", cpu_seconds=0.2, cpu=0.0),
    ]
    spins = KernelThread(id=7, name="python3", state="R", wait_channel="", cpu_seconds=812.4, cpu=0.99)
    for rank in range(4):
        token = stage.hosts.attempt(f"train/task-{rank}")
        threads = tuple(waits if rank == 2 else [spins, *waits])
        program = Program(pid=7, state="S", how="silent", command="python3 train.py", threads=threads)
        stage.hosts.stacked[token] = Programs(
            token=token, state=RemoteState.RUNNING, count=1, programs=(program,)
        )


PICTURES = {
    "worker-probe": Picture(line="iris worker probe cpu-0 v5b-2"),
    "worker-probe-refused": Picture(line="iris worker probe cpu-0", prepare=_untrusting),
    "worker-probe-key": Picture(
        line="iris worker probe --accept-key cpu-0",
        then=(
            "iris worker probe --accept-key cpu-0",
            "iris worker probe --accept-key gpu-0",
            "iris worker probe --accept-key --yes cpu-0",
        ),
        prepare=_other_machine,
        answers=("n", "y", "y"),
    ),
    "worker-drain": Picture(
        line="iris worker drain cpu-0 cpu-1 --reason 'new disk'",
        then=(
            "iris worker uncordon cpu-1 cpu-0",
            "iris worker taint cpu-0 flaky",
            "iris worker taint cpu-0 flaky --remove",
        ),
    ),
    "worker-forget": Picture(
        line="iris worker forget v5a-0",
        then=("iris worker forget --dead v5a-0 --reason 'disk failed'", "iris worker forget cpu-1"),
    ),
    "worker-unwedge-nothing": Picture(line="iris worker unwedge cpu-0", then=("iris worker unwedge v5b-2",)),
    "worker-unwedge": Picture(
        line="iris worker unwedge v5b-0",
        then=("iris worker unwedge v5b-0",),
        prepare=_holders,
        answers=("n", "y"),
    ),
    "worker-unwedge-fails": Picture(line="iris worker unwedge --yes v5b-0", prepare=_stuck),
    "exec": Picture(
        line="iris exec train -- df -h /mnt",
        then=("iris exec v5a-0 -- df -h /mnt", "iris exec v5b-2 -- df -h"),
        prepare=_answers,
    ),
    "stacks": Picture(line="iris stacks train", prepare=_stacks),
    "stacks-none": Picture(line="iris stacks train", prepare=_without_stacks),
    "ssh": Picture(line="iris ssh --print prep/task-1", then=("iris ssh --print train",)),
    "forward": Picture(
        line="iris forward train 6006",
        then=("iris forward prep/task-1 tensorboard", "iris forward prep/task-1 70000"),
    ),
}
