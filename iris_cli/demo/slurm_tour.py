"""`iris demo --slurm`: gangs inside allocations of a real Slurm that runs on this machine."""

import os
import shlex
import site
import subprocess
from collections.abc import Callable
from pathlib import Path

from iris_cli.clock import SYSTEM_CLOCK
from iris_cli.core import TPU_NAME_ATTRIBUTE_KEY, Cluster, JobId, JobState, SliceState
from iris_cli.demo.local_slurm import URGENT, LocalSlurm, why_no_slurm
from iris_cli.demo.processes import await_host, configure_host, demo_home, end_processes, make_key, spawn_host
from iris_cli.demo.run import Tour, TourDocument, TourStep, forget_other_clusters
from iris_cli.errors import IrisError
from iris_cli.ops.loop.start import SWITCH
from iris_cli.render.console import Output

NODES = 4
_CONFIG = """\
cluster: {name: demo}
ssh: {key: id_ed25519, known_hosts: accept-new}
scale_groups:
  - {name: pool, slice_template: {provider: slurm, nodes: 4, preemptible: true}}
limits: {settle_seconds: 2s, backoff_first: 1s, scale_backoff_first: 1s}
"""
_GANG = ("--group-by", TPU_NAME_ATTRIBUTE_KEY, "--replicas", str(NODES), "--grace", "2s")
_HELLO = 'echo "rank $IRIS_TASK_INDEX of $IRIS_NUM_TASKS on $IRIS_WORKER_ID"; sleep 1'
_DOOMED = 'if [ $IRIS_TASK_INDEX = 2 ]; then sleep 1; echo "loss is NaN" >&2; exit 3; fi; sleep 600'
_LONG = 'echo "attempt $IRIS_ATTEMPT on $IRIS_WORKER_ID"; [ "$IRIS_ATTEMPT" -gt {last} ] || sleep 600'
_MAX_CYCLES = 200
_PAUSE = 0.5  # seconds between two cycles


def run(output: Output) -> None:
    """Run the tour. Raises IrisError, for example if this machine can't run a local Slurm cluster."""
    if why := why_no_slurm():
        raise IrisError(f"the demo can't start Slurm: {why}")
    forget_other_clusters()
    with demo_home() as root:
        slurm = LocalSlurm(root / "slurm", NODES)
        slurm.directory.mkdir()
        hosts = [spawn_host() for _ in range(NODES)]
        try:
            _set_up(root, hosts)
            os.environ.update(slurm.environ)
            slurm.start()
            tour = _SlurmTour(output, root / "cluster.yaml", slurm)
            try:
                tour.play()
            finally:
                tour.end()
        finally:
            slurm.stop()
            for host in hosts:
                with host:
                    host.kill()
            end_processes(root)


def _set_up(root: Path, hosts: list[subprocess.Popen[str]]) -> None:
    """Start an SSH server per node, write `cluster.yaml` and an SSH configuration, set environment variables."""
    public = make_key(root / "id_ed25519")
    home = root / "home"
    (home / ".ssh").mkdir(mode=0o700, parents=True)
    for number, process in enumerate(hosts):
        configure_host(process, root / "hosts" / f"n{number}", metadata={}, client_key=public, stay=False)
    ports = [await_host(process)["port"] for process in hosts]
    nodes = (f"Host n{number}\n  HostName 127.0.0.1\n  Port {port}\n" for number, port in enumerate(ports))
    (home / ".ssh" / "config").write_text("".join(nodes), encoding="utf-8")
    (root / "cluster.yaml").write_text(_CONFIG, encoding="utf-8")
    # HOME is for ssh. Python must still find the packages of the user.
    os.environ.setdefault("PYTHONUSERBASE", site.getuserbase())
    os.environ["HOME"] = str(home)
    os.environ[SWITCH] = "off"  # the tour runs the cycles itself, to show each state


class _SlurmTour(Tour):
    """Runs iris commands and Slurm's commands, and runs cycles between them."""

    def __init__(self, output: Output, config: Path, slurm: LocalSlurm) -> None:
        super().__init__(output, config)
        self._slurm = slurm

    def play(self) -> None:
        """Run the steps. Raises IrisError."""
        self.announce("cluster.yaml: a group of allocations with four nodes.")
        self._print(self.config.read_text(encoding="utf-8"))
        self._slurm_step("A real Slurm with four nodes, all of them this machine.", ("sinfo",))
        self._launch(
            "A gang of four. Each pass of the autoscaler reads and submits Slurm jobs.", "hello", _HELLO
        )
        self.step("", ("autoscale", "--dry-run"))
        self._run_cycles_until("hello", JobState.SUCCEEDED)
        self.step("", ("logs", "hello"))
        self._slurm_step("iris keeps the allocation for the next job.", ("squeue",))
        self._launch("Another gang. Its rank 2 fails.", "doomed", _DOOMED)
        self._run_cycles_until("doomed", JobState.FAILED)
        self.step("Which rank failed, and why?", ("status", "doomed"))
        self._launch("A long gang,", "long", _LONG.format(last=1))
        self._run_cycles_until("long", JobState.RUNNING)
        job = self._slurm.run("squeue", "--noheader", "--format=%i").strip()
        self._slurm_step("and a user who cancels its allocation.", ("scancel", job))
        self._run_cycles_until("long", JobState.RUNNING, attempt=1)
        words = "iris stopped what had survived, submitted another allocation, and started the gang again."
        self.step(words, ("history", "long"))
        options = (f"--partition={URGENT}", "--nodes=4", "--exclusive")
        urgent = ("sbatch", "--job-name=urgent", *options, "--output=/dev/null", "--wrap=sleep 15")
        self._slurm_step("An urgent job preempts that allocation.", urgent)
        self._run_cycles(_is_queued)
        self.step("The gang waits for the next allocation. Slurm says why it is pending.", ("why", "long"))
        self._run_cycles_until("long", JobState.SUCCEEDED)
        self.step("When the nodes are free again, the gang runs in a third allocation.", ("status",))
        if self.output.as_json:
            self.output.document(TourDocument(self.steps))

    def _launch(self, words: str, name: str, script: str) -> None:
        self.step(words, ("launch", "--no-schedule", "--name", name, *_GANG, "--", "sh", "-c", script))

    def _slurm_step(self, words: str, command: tuple[str, ...]) -> None:
        text = self._slurm.run(*command)
        self.steps.append(TourStep(command, text))
        self.announce(words)
        self._print(f"$ {shlex.join(command)}\n{text}")

    def _print(self, text: str) -> None:
        if not self.output.as_json:
            for line in text.splitlines():
                self.output.line(line)
            self.output.flush()

    def _run_cycles_until(self, job: str, state: JobState, attempt: int = 0) -> None:
        """Run cycles until the job is in this state, and has at least this attempt. Raises IrisError."""
        job_id = JobId(job)

        def is_reached(cluster: Cluster) -> bool:
            last_attempt = max(len(task.attempts) for task in cluster.tasks_of(job_id)) - 1
            return cluster.job_state(job_id) is state and last_attempt >= attempt

        self._run_cycles(is_reached)

    def _run_cycles(self, is_reached: Callable[[Cluster], bool]) -> None:
        self.announce("", ("schedule", "--interval", "1", "--autoscale"))
        for _ in range(_MAX_CYCLES):
            self.run(("--quiet", "schedule", "--once", "--autoscale"), capture=True)
            if is_reached(self.cluster):
                return
            SYSTEM_CLOCK.sleep(_PAUSE)
        raise IrisError(f"nothing happened in {_MAX_CYCLES} cycles", hint="please report this")


def _is_queued(cluster: Cluster) -> bool:
    """Return whether Slurm keeps an allocation pending and gives a reason."""
    return any(each.state is SliceState.CREATING and each.remark for each in cluster.slices.values())
