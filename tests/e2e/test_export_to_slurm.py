"""`iris export --to sbatch` on a real Slurm: the same environment and the same exit codes as `iris launch` gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.support.site import Site
from tests.support.slurm import Slurm
from tests.support.sshd import SshHost
from tests.support.waiting import until

pytestmark = pytest.mark.ssh

_SHOW = 'env -0 >"$RESULTS/$IRIS_TASK_INDEX.$IRIS_ATTEMPT"\n'
"""Each attempt of each rank writes down its environment."""

_BY_PLACE = frozenset(
    (
        *("IRIS_WORKER_ID", "IRIS_WORKER_ATTRIBUTES", "IRIS_HOSTS", "IRIS_COORDINATOR_ADDRESS"),
        *("IRIS_TASK_DIR", "IRIS_WORKDIR", "IRIS_OUTPUT_DIR", "IRIS_PORT_HTTP", "MASTER_ADDR", "MASTER_PORT"),
    )
)
"""Variables that say where a task is: both have them, with other values."""

_OF_IRIS = frozenset({"IRIS_ATTEMPT_TOKEN"})
"""The marker by which iris finds the processes of an attempt; Slurm has its own ways."""

Environment = dict[str, str]


class Desk:
    """An operator who has three hosts of their own, and an account on a Slurm."""

    def __init__(self, site: Site, slurm: Slurm) -> None:
        self.site, self.slurm = site, slurm
        self.directory = site.directory

    def write(self, name: str, script: str, *lines: str) -> None:
        """A job file, with the lines beside its script."""
        body = "".join(f"  {line}\n" for line in (_SHOW + script).splitlines())
        text = "\n".join((f"name: {name}", *lines, f"script: |\n{body}"))
        (self.directory / f"{name}.yaml").write_text(text)

    def submit(self, name: str, *options: str, env: Mapping[str, str] | None = None) -> str:
        """Export the job file and submit the script; the id of the job in Slurm."""
        script = self.directory / f"{name}.sbatch"
        given = ("--env", f"RESULTS={self.results(name, 'slurm')}")
        self._with_results(name, given[1])
        self.site.iris("export", f"{name}-slurm.yaml", "--to", "sbatch", "--out", str(script))
        return self.slurm.submit(script, *options, cwd=self.directory, env=env)

    def launch(self, name: str, code: int, env: Mapping[str, str] | None = None) -> None:
        """Launch the job file with iris and wait for its end."""
        results = f"RESULTS={self.results(name, 'iris')}"
        self.site.iris("launch", f"{name}.yaml", "--env", results, "--wait", code=code, env=env)

    def results(self, name: str, where: str) -> Path:
        path = self.directory / "results" / where / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def seen(self, name: str, where: str) -> dict[str, Environment]:
        """The environment of every attempt, by `TASK.ATTEMPT`."""
        return {path.name: _read(path) for path in sorted(self.results(name, where).iterdir())}

    def codes(self, name: str) -> list[int | None]:
        """The exit codes of the last attempts in iris."""
        return [task["attempts"][-1]["exit_code"] for task in self.site.job(name)["tasks"]]

    def _with_results(self, name: str, variable: str) -> None:
        key, _, value = variable.partition("=")
        text = (self.directory / f"{name}.yaml").read_text()
        before, mark, after = text.partition("env: {")
        assert mark, "a job file of these tests has an env"
        (self.directory / f"{name}-slurm.yaml").write_text(f"{before}{mark}{key}: {value}, {after}")


def _read(path: Path) -> Environment:
    pairs = (each.partition("=") for each in path.read_text().split("\0") if each)
    return {name: value for name, _, value in pairs}


@pytest.fixture
def desk(ssh_lab: Callable[..., list[SshHost]], slurm: Slurm, tmp_path: Path) -> Desk:
    hosts = ssh_lab(3)
    site = Site(tmp_path, hosts)
    site.write_config({}, tpu="v4-8")
    workers = "".join(
        f"  - {{id: w{number}, host: {host.address}, port: {host.port}, attributes: {{rack: r1}}}}\n"
        for number, host in enumerate(hosts)
    )
    config = tmp_path / "cluster.yaml"
    config.write_text(config.read_text().replace("slices:\n", f"workers:\n{workers}"))
    return Desk(site, slurm)


def assert_same(ours: dict[str, Environment], theirs: dict[str, Environment], *own: str) -> None:
    """Every rank has the same variables of iris and of the job; those that say where it is, with values."""
    assert ours.keys() == theirs.keys()
    for rank, env in ours.items():
        expected = {name: value for name, value in env.items() if name.startswith("IRIS_") or name in own}
        found = {
            name: value for name, value in theirs[rank].items() if name.startswith("IRIS_") or name in own
        }
        assert found.keys() == expected.keys() - _OF_IRIS
        assert {name: found[name] for name in found.keys() - _BY_PLACE} == {
            name: expected[name] for name in found.keys() - _BY_PLACE
        }
        assert all(found[name] for name in found.keys() & _BY_PLACE)


_GANG = ("replicas: 3", "coscheduling: {group_by: rack}")


def test_each_rank_of_a_gang_finds_what_it_finds_under_iris_and_the_first_that_fails_stops_the_others(
    desk: Desk,
) -> None:
    """The exit code of that rank is that of the job."""
    odd = '"it\'s $(id) $HOME `id` \\\\ \\e[31m é\\n#SBATCH --nodes=9\\r"'
    desk.write(
        "gang",
        '[ "$SET_UP" = "" ] && [ -f set-up ] || exit 9',
        *_GANG,
        f"env: {{ODD: {odd}, RANK: mine, code: '7', UID: '5'}}",
        "secrets: [TOKEN]",
        "ports: [http]",
        "env_preset: torchrun",
        "setup: 'SET_UP=1; : >set-up'",
        "labels: {team: a}",
    )
    secret = {"TOKEN": "a b,c='\"$x"}
    job = desk.submit("gang", env=secret)
    desk.launch("gang", 0, env=secret)
    [ended] = desk.slurm.ended(job)
    assert (ended["JobState"], ended["ExitCode"]) == ("COMPLETED", "0:0")
    theirs = desk.seen("gang", "slurm")
    presets = ("MASTER_ADDR", "MASTER_PORT", "RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_RANK")
    assert_same(desk.seen("gang", "iris"), theirs, *presets, "ODD", "TOKEN", "code", "UID")
    assert len(theirs) == 3
    assert {env["IRIS_HOSTS"] for env in theirs.values()} == {"n0,n1,n2"}
    assert [env["IRIS_WORKER_ID"] for env in theirs.values()] == ["n0", "n1", "n2"]
    assert {env["IRIS_COORDINATOR_ADDRESS"].split(":")[0] for env in theirs.values()} == {"n0"}
    assert all(Path(env["IRIS_OUTPUT_DIR"]).is_dir() for env in theirs.values())

    script = '[ "$IRIS_TASK_INDEX" != 0 ] || exit 7\nexec sleep 600'
    desk.write("cascade", script, *_GANG, "env: {A: b}")
    with desk.slurm.paused("n2"):  # its rank starts after srun has ended the others
        cascade = desk.submit("cascade")
        said = desk.directory / f"slurm-{cascade}.out"
        until(lambda: said.exists() and "Terminating" in said.read_text())
    desk.launch("cascade", 1)
    assert desk.codes("cascade")[0] == 7
    [ended] = desk.slurm.ended(cascade)
    assert (ended["JobState"], ended["ExitCode"]) == ("FAILED", "7:0")


def test_the_tasks_of_an_array_have_what_iris_gives_them_and_failures_are_tried_again_as_often(
    desk: Desk,
) -> None:
    """Indexes, lines and exit codes; a job that is no array is tried again, too."""
    (desk.directory / "lines.txt").write_text("zero\none\nit's $(id) \x1b[1m\nthree\n")
    desk.write(
        "sweep",
        '[ "$IRIS_ARRAY_INDEX" != 3 ] || exit 5',
        "array: 0,2-3",
        "each_line: lines.txt",
        "env: {A: b}",
        "max_retries_failure: 1",
    )
    desk.write("again", 'exit "$((4 - IRIS_ATTEMPT))"', "env: {A: b}", "max_retries_failure: 1")
    job, again = desk.submit("sweep"), desk.submit("again")
    desk.launch("sweep", 1)
    desk.launch("again", 1)
    ended = {each["ArrayTaskId"]: each["ExitCode"] for each in desk.slurm.ended(job)}
    assert_same(desk.seen("sweep", "iris"), desk.seen("sweep", "slurm"), "A")
    assert desk.codes("sweep") == [0, 0, 5]
    assert ended == {"0": "0:0", "2": "0:0", "3": "5:0"}
    assert list(desk.seen("sweep", "slurm")) == ["0.0", "1.0", "2.0", "2.1"]

    [alone] = desk.slurm.ended(again)
    assert (alone["JobState"], alone["ExitCode"], alone["Restarts"]) == ("FAILED", "3:0", "1")
    assert desk.codes("again") == [3]
    assert list(desk.seen("again", "slurm")) == ["0.0", "0.1"]
    assert_same(desk.seen("again", "iris"), desk.seen("again", "slurm"), "A")


@pytest.mark.soak
def test_a_job_that_waits_for_another_is_not_run_without_it(desk: Desk) -> None:
    desk.write("first", "exit 0", "env: {A: b}")
    desk.write("second", "exit 0", "env: {A: b}", "after: [first]")
    alone = desk.submit("second")
    [ended] = desk.slurm.ended(alone)
    assert (ended["ExitCode"], desk.seen("second", "slurm")) == ("2:0", {})
    first = desk.submit("first")
    second = desk.submit("second", f"--dependency=afterok:{first}")
    desk.launch("first", 0)
    desk.launch("second", 0)
    [ended] = desk.slurm.ended(second)
    assert ended["JobState"] == "COMPLETED"
    assert_same(desk.seen("second", "iris"), desk.seen("second", "slurm"), "A")


@pytest.mark.soak
def test_a_signal_comes_before_the_time_limit_and_what_reaches_that_is_not_tried_again(desk: Desk) -> None:
    limit = ("timeout: 1m", "signal: USR1@59s", "max_retries_failure: 3", "grace: 1s", "env: {A: b}")
    desk.write("warned", 'trap "exit 0" USR1\nwhile :; do sleep 0.1; done', *limit)
    desk.write("late", 'trap "" USR1\nwhile :; do sleep 1; done', *limit)
    warned, late = desk.submit("warned"), desk.submit("late")
    desk.launch("warned", 0)
    desk.launch("late", 1)
    [ended] = desk.slurm.ended(warned)
    assert (ended["JobState"], ended["ExitCode"], ended["Restarts"]) == ("COMPLETED", "0:0", "0")
    [ended] = desk.slurm.ended(late)
    assert (ended["JobState"], ended["Restarts"]) == ("TIMEOUT", "0")
    assert [len(task["attempts"]) for task in desk.site.job("late")["tasks"]] == [1]


@pytest.mark.soak
def test_a_cancelled_job_is_not_tried_again(desk: Desk) -> None:
    desk.write("doomed", "exec sleep 600", *_GANG, "env: {A: b}", "max_retries_failure: 3")
    job = desk.submit("doomed")
    desk.site.until(lambda: len(desk.seen("doomed", "slurm")) == 3, cycles=False)
    desk.slurm.run("scancel", job)
    [ended] = desk.slurm.ended(job)
    assert (ended["JobState"], ended["Restarts"]) == ("CANCELLED", "0")


@pytest.mark.soak
def test_one_failed_task_cancels_the_others_where_the_job_says_so(desk: Desk) -> None:
    script = '[ "$IRIS_TASK_INDEX" != 1 ] || exit 6\nexec sleep 600'
    desk.write("fast", script, "env: {A: b}", "array: 0-2", "keep_going: false", "cpu: 2")
    job = desk.submit("fast")
    ended = {each["ArrayTaskId"]: each["JobState"] for each in desk.slurm.ended(job)}
    assert ended == {"0": "CANCELLED", "1": "FAILED", "2": "CANCELLED"}
    assert desk.seen("fast", "slurm")["1.0"]["SLURM_CPUS_PER_TASK"] == "2"
