"""`iris demo` from start to end: the hosts, the steps of the tour, and the clean-up."""

import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from msgspec import Struct

from iris_cli.core.model.cluster import Cluster
from iris_cli.demo.cluster import SLICES, TPU, LocalCluster
from iris_cli.demo.processes import demo_home
from iris_cli.errors import IrisError
from iris_cli.ops.cluster_handle import ClusterHandle, this_program
from iris_cli.ops.loop.start import SWITCH, end_loop, own_loops, record_order, running_loop
from iris_cli.render.console import Output

DEFAULT_DIRECTORY = Path(".iris-demo")
"""Default directory of a kept cluster."""

_HELLO = 'echo "rank $IRIS_TASK_INDEX of $IRIS_NUM_TASKS on $IRIS_WORKER_ID"; sleep 1'
_UNTIL_GO = "until [ -e {go} ]; do sleep 1; done; "
_DOOMED = _UNTIL_GO + 'if [ $IRIS_TASK_INDEX = 2 ]; then echo "loss is NaN" >&2; exit 3; fi; sleep 600'
_BUSY = _UNTIL_GO + 'sleep 3; echo "done"'
_SIDE = 'echo "evaluating on the CPU of $IRIS_WORKER_ID"; sleep 2'

# Each step: the text to print before the command, and the command.
_TOUR: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Two slices of four hosts. The first cycle probes them.", ("schedule", "--once")),
    ("", ("workers",)),
    (
        "A gang: one task on every VM of one slice, started together.",
        ("launch", "--wait", "--name", "hello", "--tpu", TPU, "--", "sh", "-c", _HELLO),
    ),
    ("", ("logs", "hello")),
    ("", ("status",)),
    (
        "Another gang. Its rank 2 fails as soon as the file `go` exists.",
        ("launch", "--name", "doomed", "--tpu", TPU, "--grace", "2s", "--", "sh", "-c", _DOOMED),
    ),
    (
        "A third gang takes the other slice,",
        ("launch", "--name", "busy", "--tpu", TPU, "--", "sh", "-c", _BUSY),
    ),
    ("a CPU job runs beside them,", ("launch", "--name", "side", "--cpu", "0.5", "--", "sh", "-c", _SIDE)),
    (
        "and a fourth gang is pending. Why?",
        ("launch", "--name", "patient", "--tpu", TPU, "--", "sh", "-c", _HELLO),
    ),
    ("", ("why", "patient")),
    (
        "Who places it when a slice is free? The background loop, started by the first launch.",
        ("loop", "show"),
    ),
    (
        "Rank 2 of doomed fails; the loop stops its siblings and places patient on their slice.",
        ("watch", "--until-idle", "--interval", "0.5"),
    ),
    ("Which rank failed, and why?", ("status", "doomed")),
    ("The loop ends with the last job.", ("loop", "show")),
    ("", ("status",)),
)

_TIMEOUT = 60.0  # seconds for the loop to notice that no job is open, on a busy machine
_POLL_INTERVAL = 0.1


def run(output: Output, directory: Path | None, *, keep: bool) -> None:
    """Run the tour on a new cluster in `directory`. Raises IrisError.

    `keep`: leave the cluster running. Without `directory`, use DEFAULT_DIRECTORY if `keep`, otherwise a temporary one.
    """
    had_state_dir = forget_other_clusters()
    if keep or directory is not None:
        _show(output, (directory or DEFAULT_DIRECTORY).absolute(), keep=keep, had_state_dir=had_state_dir)
    else:
        with demo_home() as root:
            _show(output, root, keep=False, had_state_dir=had_state_dir)


def stop(output: Output, directory: Path) -> int:
    """End the jobs and hosts of a kept cluster. Return the number of hosts. Raises IrisError."""
    forget_other_clusters()
    kept = LocalCluster(directory.absolute())
    kept.check()  # BEFORE jobs end, because the directory may belong to another cluster
    try:
        Tour(output, kept.config).end()
    finally:
        ended = kept.stop()
    return ended


def forget_other_clusters() -> bool:
    """Remove the variables of iris from the environment. Return whether one of them named a state directory.

    A demo needs its own log. In the log of another cluster, it would record the workers of that cluster as removed.
    """
    had_state_dir = "IRIS_STATE_DIR" in os.environ
    for name in [each for each in os.environ if each.startswith("IRIS_")]:
        if name != SWITCH:
            del os.environ[name]
    return had_state_dir


def _show(output: Output, root: Path, *, keep: bool, had_state_dir: bool) -> None:
    cluster = LocalCluster(root, keep=keep)
    tour = Tour(output, cluster.config)
    cluster.claim()  # claim first, because another demo may use the directory
    with nullcontext() if keep else own_loops(cluster.root / "owner"):
        try:
            cluster.start(SLICES)
            _play(tour, cluster.root / "go")
        finally:
            if not keep:
                try:
                    tour.end()
                finally:
                    cluster.close()
    if keep and not output.as_json:
        _print_next_steps(output, cluster, had_state_dir)


def _play(tour: "Tour", go: Path) -> None:
    """Run the steps of the tour. The tasks wait for the file `go`, which is created while `iris watch` runs."""
    has_loop = os.environ.get(SWITCH, "").lower() != "off"
    for words, template in _TOUR:
        command = tuple(word.replace("{go}", shlex.quote(str(go))) for word in template)
        if "--until-idle" in command:
            # `iris watch` must start before the tasks end. So create `go` after twice the time of the last command.
            timer = threading.Timer(2 * tour.last_duration, go.touch)
            timer.daemon = True
            timer.start()
            command = command if has_loop else (*command, "--schedule")
        elif command == ("loop", "show"):
            if not has_loop:
                continue
            if go.exists():
                tour.wait_for_loop_end()
        tour.step(words, command)
    if tour.output.as_json:
        tour.output.document(TourDocument(tour.steps))


def _print_next_steps(output: Output, cluster: LocalCluster, had_state_dir: bool) -> None:
    # In a clone the command is in .venv, which is not in PATH.
    program = "iris" if shutil.which("iris") else shlex.join(this_program())
    lines = (
        "",
        "The cluster is still running. Try:",
        *(["  unset IRIS_STATE_DIR"] if had_state_dir else []),
        f"  export IRIS_CONFIG={shlex.quote(str(cluster.config))}",
        f"  {program} launch --tpu {TPU} --wait -- sh -c 'hostname; echo $IRIS_TASK_INDEX'",
        f"  {program} status",
        f"Stop it with:  {program} demo --stop --dir {shlex.quote(str(cluster.root))}",
    )
    for line in lines:
        output.done(line)


# The steps of a tour. JSON output is a single document at the end.


class TourStep(Struct, frozen=True):
    """A command of the demo and its output."""

    command: Sequence[str]
    output: str


class TourDocument(Struct, frozen=True):
    """The result of `iris demo`."""

    steps: Sequence[TourStep]


class EndedDocument(Struct, frozen=True):
    """The result of `iris demo --stop`: the number of hosts that were stopped."""

    ended_hosts: int


class Tour:
    """Runs iris commands on the cluster that the file `config` describes."""

    def __init__(self, output: Output, config: Path) -> None:
        self.output = output
        self.config = config
        self._handle = ClusterHandle(config_path=config)
        self.steps: list[TourStep] = []
        self.last_duration = 0.0
        """The run time of the last command, in seconds."""

    def step(self, words: str, command: tuple[str, ...]) -> None:
        """Print an explanation and a command, and run it. Raises IrisError if it fails."""
        self.announce(words, command)
        result = self.run(command, capture=self.output.as_json)
        if result.returncode:
            raise IrisError(f"the demo's command ended with {result.returncode}", hint="please report this")
        self.steps.append(TourStep(("iris", *command), result.stdout))

    def announce(self, words: str, command: tuple[str, ...] = ()) -> None:
        """Print an explanation and the next command."""
        output = self.output
        if output.as_json:
            return
        if words:
            output.line()
            output.line(f"# {words}")
        if command:
            output.line(f"$ iris {shlex.join(command)}")
        output.flush()

    def run(self, command: tuple[str, ...], *, capture: bool) -> subprocess.CompletedProcess[str]:
        """Run an iris command, without a check of its exit code. `capture`: return the output, don't print it."""
        began = self._handle.clock.monotonic()
        result = subprocess.run(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", "iris_cli", "--config", str(self.config), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if capture else None,
            stderr=subprocess.STDOUT if capture else None,
            text=True,
            check=False,
        )
        self.last_duration = self._handle.clock.monotonic() - began
        return result

    @property
    def cluster(self) -> Cluster:
        """The current state of the cluster in the log."""
        return self._handle.session("iris demo").view()

    def wait_for_loop_end(self) -> None:
        """Wait until the background loop has ended. It ends when no job is open."""
        clock, state = self._handle.clock, self._handle.state
        until = clock.monotonic() + _TIMEOUT
        while running_loop(state) is not None and clock.monotonic() < until:
            clock.sleep(_POLL_INTERVAL)

    def end(self) -> None:
        """Cancel the jobs and end the background loop. Raises IrisError."""
        if not self.config.is_file():
            return
        try:
            cluster = self.cluster
            live = [job.id for job in cluster.open_jobs() if cluster.live_attempts_of(job.id)]
            if live:  # otherwise running tasks would outlive their hosts
                words = ("--quiet", "cancel", "--wait", "--reason", "the demo ends", *live)
                self.run(words, capture=self.output.as_json)
        finally:
            if running_loop(self._handle.state) is not None:
                record_order(self._handle.state, self._handle.clock, stopped=True, command="iris demo")
                end_loop(self._handle.state, self._handle.clock)
