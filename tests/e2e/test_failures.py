"""Failures that really happen on real hosts: the card names the task, its exit, the cause and what to type next.

What was measured about the very attempt is marked as proven, anything else as a guess.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from iris_cli.core.model.job import JobState
from iris_cli.core.model.task import AttemptState
from iris_cli.ops.views.failure import FailureCard
from iris_cli.ops.views.why import why
from tests.e2e.test_jax_gang import can_unshare
from tests.faults.conftest import use_home_of
from tests.support.desk import Desk
from tests.support.machines import Machine, MachineLab, why_no_machines
from tests.support.oom import HUNGRY, inside, limited_group
from tests.support.site import Site
from tests.support.sshd import SshHost, SshLab
from tests.support.waiting import until

pytestmark = pytest.mark.ssh


@dataclass(frozen=True)
class Failure:
    """A command that fails, and its card: who failed and how, the name of the known cause, a line, the next command.

    `proven` and `guessed` are facts of the worker, a piece of each text by its kind.
    """

    command: Sequence[str]
    failed: str
    known: str | None
    next: str
    says: str = ""
    options: Sequence[str] = ()
    proven: Mapping[str, str] | None = None
    guessed: Mapping[str, str] | None = None


def python(program: str) -> tuple[str, ...]:
    return ("python3", "-c", program)


def shell(script: str) -> tuple[str, ...]:
    return ("sh", "-c", script)


# The test kills it: a file is renamed to `<job>.pid` once the processes in it are those to kill.
ENDLESS = (
    'echo $$ $PPID >"$0/$IRIS_JOB_ID.new"; mv "$0/$IRIS_JOB_ID.new" "$0/$IRIS_JOB_ID.pid"; exec sleep 600'
)
GANG = ("--replicas", "2", "--group-by", "lot")
AS_IT_WAS_SHIPPED = ("--workdir", ".")
PROGRAM = 'def step(n):\n    raise ValueError(f"loss is nan at step {n}")\n\nstep(7)\n'
WRONG_SECRET = """
import http.server, os, threading, urllib.request
class Server(http.server.BaseHTTPRequestHandler):
    def do_GET(self): self.send_error(200 if self.headers["Token"] == "right" else 401)
    def log_message(self, *_): pass
server = http.server.HTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
request = urllib.request.Request(f"http://127.0.0.1:{server.server_port}/", headers={"Token": os.environ["TOKEN"]})
urllib.request.urlopen(request)
"""
TAKEN_PORT = "import socket as s; a = s.create_server(('127.0.0.1', 0)); s.create_server(a.getsockname())"
NO_MORE_FILES = (
    "import os, resource as r; r.setrlimit(r.RLIMIT_NOFILE, (16, 16)); [os.dup(0) for _ in range(99)]"
)
NO_MORE_MEMORY = "import resource as r; r.setrlimit(r.RLIMIT_AS, (1 << 28, 1 << 28)); bytearray(1 << 30)"
# Files alone resolve names in it, so that no query leaves the machine.
UNRESOLVED_RANK_1 = """
[ "$IRIS_TASK_INDEX" = 1 ] || exec sleep 600
echo 'hosts: files' >nsswitch
exec unshare --map-root-user --uts --mount sh -c \
  'mount --bind nsswitch /etc/nsswitch.conf && hostname no-such-name && exec "$@"' sh "$@"
"""
OWN_ADDRESS = python("import socket; socket.getaddrinfo(socket.gethostname(), 80)")
FAULTHANDLER = "iris launch --again {} --env PYTHONFAULTHANDLER=1"
NOT_FOR_MEMORY = {"killed": "not out of memory"}


def failures(place: Path) -> dict[str, Failure]:
    """All that fail by themselves or are killed, by the name of the job. `place` is where the pids are written."""
    killed = (*shell(ENDLESS), str(place))
    rows = {
        "error": Failure(
            ("python3", "train.py"),
            "failed: exit 1",
            None,
            "iris launch --again error --workdir .",
            '  File "train.py", line 2, in step',
            AS_IT_WAS_SHIPPED,
        ),
        "module": Failure(
            python("import no_such_module"),
            "failed: exit 1",
            "python-module",
            "iris launch --again module --workdir .",
            "No module named 'no_such_module'",
        ),
        "program": Failure(
            ("no-such-program",),
            "failed: exit 127",
            "exit-not-found",
            "iris exec {worker} -- sh -c 'echo $PATH'",
            "no-such-program",
            ("--force",),
        ),
        "script": Failure(
            shell("./train.sh"),
            "failed: exit 127",
            "script-missing",
            "iris launch --again script --workdir .",
            "./train.sh",
        ),
        "x-bit": Failure(
            ("./plain.sh",),
            "failed: exit 126",
            "exit-not-executable",
            "iris ssh x-bit/task-0",
            "Permission denied",
            AS_IT_WAS_SHIPPED,
        ),
        "rank": Failure(
            shell("[ $IRIS_TASK_INDEX = 1 ] || exec sleep 600; echo loss is nan; exit 3"),
            "rank 1 failed first: exit 3",
            None,
            "iris ssh rank/task-1",
            "loss is nan",
            GANG,
        ),
        "own-137": Failure(
            shell("exit 137"),
            "failed: exit 137",
            "exit-above-128",
            "iris ssh own-137/task-0",
            proven=NOT_FOR_MEMORY,
        ),
        "own-139": Failure(
            shell("exit 139"), "failed: exit 139", "exit-crashed", FAULTHANDLER.format("own-139")
        ),
        "kill-kill": Failure(
            killed, "failed: killed by SIGKILL", None, "iris ssh kill-kill/task-0", proven=NOT_FOR_MEMORY
        ),
        "kill-term": Failure(killed, "failed: killed by SIGTERM", "exit-terminated", "iris history {worker}"),
        "kill-segv": Failure(
            killed, "failed: killed by SIGSEGV", "exit-segfault", FAULTHANDLER.format("kill-segv")
        ),
        "abort": Failure(
            python("import os; os.abort()"),
            "failed: killed by SIGABRT",
            "exit-abort",
            FAULTHANDLER.format("abort"),
        ),
        "setup": Failure(
            ("true",),
            "failed: its setup failed, exit 4",
            None,
            "iris ssh setup/task-0",
            "no wheel",
            ("--setup", "echo no wheel >&2; exit 4"),
        ),
        "limit": Failure(
            shell("echo step 1; exec sleep 600"),
            "failed: ran longer than its time limit: 1s",
            "time-limit",
            "iris launch --again limit --timeout 2s",
            "step 1",
            ("--timeout", "1s"),
        ),
        "variable": Failure(
            python("import os; os.environ['DATA_OF_LAB']"),
            "failed: exit 1",
            "variable-missing",
            "iris launch --again variable --workdir .",
            "KeyError: 'DATA_OF_LAB'",
        ),
        "secret": Failure(
            python(WRONG_SECRET),
            "failed: exit 1",
            "credentials-refused",
            "iris launch --again secret",
            "HTTP Error 401",
            ("--secret", "TOKEN"),
        ),
        "port": Failure(
            python(TAKEN_PORT),
            "failed: exit 1",
            "port-taken",
            "iris exec {worker} -- ss -ltnp",
            "Address already in use",
        ),
        "files": Failure(
            python(NO_MORE_FILES),
            "failed: exit 1",
            "open-files",
            "iris launch --again files --workdir .",
            "Too many open files",
        ),
        "memory": Failure(
            python(NO_MORE_MEMORY),
            "failed: exit 1",
            "memory",
            "iris exec {worker} -- free -h",
            "MemoryError",
        ),
    }
    if can_unshare():
        rows["name"] = Failure(
            (*shell(UNRESOLVED_RANK_1), "sh", *OWN_ADDRESS),
            "rank 1 failed first: exit 1",
            "name-resolution",
            "iris exec {worker} -- cat /etc/resolv.conf",
            "socket.gaierror",
            GANG,
        )
    return rows


@pytest.fixture
def site(ssh_lab: SshLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    (tmp_path / "operator").mkdir()
    site = Site(tmp_path / "operator", ssh_lab(2), {"TOKEN": "wrong-token-of-lab"})
    use_home_of(site, monkeypatch)
    monkeypatch.setenv("TOKEN", "wrong-token-of-lab")
    describe(site, {"pair-0": "pair", "pair-1": "pair"})
    return site


def describe(site: Site, lots: Mapping[str, str]) -> None:
    """Write the configuration: workers, in the order of the hosts, with a lot each."""
    site.write_config({}, tpu="")
    config = site.directory / "cluster.yaml"
    lines = [config.read_text().partition("slices:")[0] + "workers:"]
    for (worker, lot), host in zip(lots.items(), site.hosts, strict=True):
        lines += [f"  - {{id: {worker}, host: 127.0.0.1, port: {host.port}, attributes: {{lot: {lot}}}}}"]
    config.write_text("\n".join(lines) + "\n")


def submit(site: Site, name: str, row: Failure) -> None:
    place = () if "-c" in row.options else ("-c", "lot=pair")
    small = ("--cpu", "0.01", "--memory", "1MiB", "--grace", "1s")
    site.iris("launch", "--no-schedule", "--name", name, *small, *place, *row.options, "--", *row.command)


def pids(site: Site, job: str) -> list[int]:
    """The processes of an endless job: its own, and the one above it."""
    file = site.directory / f"{job}.pid"
    until(file.exists)
    return [int(word) for word in file.read_text().split()]


def running(desk: Desk, *jobs: str) -> bool:
    return all(desk.attempts(job) and desk.attempt(job).state is AttemptState.RUNNING for job in jobs)


def all_failed(desk: Desk, *but: str) -> bool:
    cluster = desk.cluster
    return all(cluster.job_state(job) is JobState.FAILED for job in cluster.jobs if job not in but)


@cache
def kernel_log() -> bool:
    return subprocess.run(["dmesg"], capture_output=True).returncode == 0


def wrong(desk: Desk, rows: Mapping[str, Failure]) -> list[str]:
    """The differences between the cards and what they should say."""
    with desk.invocation() as session:
        cards = {name: why(session, name).failure for name in rows}
    found = []
    for name, row in rows.items():
        card = cards[name]
        assert card is not None, name
        shown = desk.site.iris("why", name).out
        found += [f"{name}: {line}" for line in (*_wrong_words(card, row, shown), *_wrong_facts(card, row))]
    return found


def _wrong_words(card: FailureCard, row: Failure, shown: str) -> Iterator[str]:
    known = card.known.name if card.known is not None else None
    command = row.next.replace("{worker}", card.worker or "")
    found = (f"{card.headline}: {card.cause}", known, card.next)
    if found != (row.failed, row.known, command):
        yield f"{found} is not {(row.failed, row.known, command)}"
    lines = shown.splitlines()
    labels = [("proven  " if fact.proven else "a guess", fact.text) for fact in card.facts]
    missing = [
        text for label, text in labels if not any(each.startswith(label) and text in each for each in lines)
    ]
    cause = f"known cause: {card.known.cause}" if card.known is not None else ""
    missing += [text for text in (row.failed, row.says, cause, f"\nnext: {command}\n") if text not in shown]
    if missing:
        yield f"{missing} are not in {shown}"


def _wrong_facts(card: FailureCard, row: Failure) -> Iterator[str]:
    """Other tests may be running, whose processes the same kernel kills: their lines may be guesses here."""
    guessed = {str(fact.kind): fact.text for fact in card.facts if not fact.proven}
    of_others = "memory" not in (row.guessed or {}) and guessed.pop("memory", "").startswith(
        "kernel: Memory cgroup"
    )
    proven = {str(fact.kind): fact.text for fact in card.facts if fact.proven}
    if not kernel_log() or (row.proven is NOT_FOR_MEMORY and of_others):
        return
    for wanted, found in ((row.proven or {}, proven), (row.guessed or {}, guessed)):
        if wanted.keys() != found.keys() or not all(text in found[kind] for kind, text in wanted.items()):
            yield f"the facts {card.facts} are not {row.proven} and {row.guessed}"


def test_the_cards_of_twenty_failures_are_right(site: Site) -> None:
    for file, text in (
        ("train.py", PROGRAM),
        ("plain.sh", "true\n"),
        (".irisignore", "/*\n!/train.py\n!/plain.sh\n"),
    ):
        (site.directory / file).write_text(text)
    rows = failures(site.directory)
    assert len(rows) >= 19
    for name, row in rows.items():
        submit(site, name, row)
    desk = Desk(site)
    ends = {"kill-kill": signal.SIGKILL, "kill-term": signal.SIGTERM, "kill-segv": signal.SIGSEGV}
    desk.until(lambda: running(desk, *ends))
    for job, number in ends.items():
        os.kill(pids(site, job)[0], number)
    desk.until(lambda: all_failed(desk))
    assert wrong(desk, rows) == []
    for row in rows.values():
        if row.next.startswith("iris launch"):
            site.iris(*shlex.split(row.next)[1:], "--dry-run")
    assert "1 failed, 1 stopped with it" in site.iris("why", "rank").out

    (site.directory / "train.py").write_text(PROGRAM.replace("raise ValueError", "print"))
    site.iris(*shlex.split(rows["error"].next)[1:], "--name", "mended")
    desk.until(lambda: desk.state("mended") is JobState.SUCCEEDED)
    assert site.iris("logs", "mended").out == "loss is nan at step 7\n"
    assert "next: iris status mended" in site.iris("why", "error").out


CRASH = "import ctypes; ctypes.string_at(0)"
# The name of a process, in the words of the kernel and with the beginning of an escape sequence.
FORGED = f"open('/proc/self/comm', 'w').write('x[7]: trap \\x1b['); {CRASH}"
OOM_KILL = {"memory": "kernel: Memory cgroup out of memory: Killed process"}


def deaths(group: Path) -> dict[str, Failure]:
    """Processes that the kernel kills or that crash. `group` is a control group with little memory."""
    hungry = inside(group, *HUNGRY)
    return {
        "oom": Failure(
            hungry,
            "failed: ran out of memory, exit 137",
            "out-of-memory",
            "iris exec {worker} -- free -h",
            proven=OOM_KILL,
        ),
        "oom-child": Failure(
            (*shell('"$@"; exit $?'), "sh", *hungry),
            "failed: exit 137",
            "exit-above-128",
            "iris ssh oom-child/task-0",
            guessed=OOM_KILL,
        ),
        "crash": Failure(
            (*shell('[ $IRIS_TASK_INDEX = 1 ] || exec sleep 600; exec "$@"'), "sh", *python(CRASH)),
            "rank 1 failed first: killed by SIGSEGV",
            "exit-segfault",
            FAULTHANDLER.format("crash"),
            options=GANG,
            proven={"crash": "]: segfault at 0 ip "},
        ),
        "crash-child": Failure(
            (*shell('"$@"; exit $?'), "sh", *python(CRASH)),
            "failed: exit 139",
            "exit-crashed",
            FAULTHANDLER.format("crash-child"),
            guessed={"crash": "]: segfault at 0 ip "},
        ),
        "forged": Failure(
            python(FORGED),
            "failed: killed by SIGSEGV",
            "exit-segfault",
            FAULTHANDLER.format("forged"),
            guessed={"crash": "kernel: x[7]: trap "},
        ),
    }


def test_what_the_kernel_says_of_the_command_is_proven_and_anything_else_a_guess(site: Site) -> None:
    if not kernel_log():
        pytest.skip("the kernel log can't be read")
    with limited_group("cards") as group:
        rows = deaths(group)
        for name, row in rows.items():
            submit(site, name, row)
        desk = Desk(site)
        desk.until(lambda: all_failed(desk))
    assert wrong(desk, rows) == []
    for words in (("status", "forged"), ("why", "forged"), ("why", "forged", "--json"), ("report",)):
        assert "\x1b" not in site.iris(*words).out


@dataclass
class Hosts:
    """A machine that boots, a host that is cut off, and what knows them."""

    site: Site
    machine: Machine
    far: SshHost


@pytest.fixture
def hosts(
    shared_lab: SshLab, ssh_lab: SshLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Hosts]:
    if why := why_no_machines():
        pytest.skip(f"no host can boot here: {why}")
    for place in ("operator", "machines"):
        (tmp_path / place).mkdir()
    lab = MachineLab(tmp_path / "machines", shared_lab.client_key)
    try:
        (machine,), (far, witness) = (
            lab(1),
            ssh_lab(2),
        )  # if half of all hosts were silent, we would be cut off
        assert isinstance(machine, Machine)
        site = Site(tmp_path / "operator", [machine, far, witness])
        use_home_of(site, monkeypatch)
        describe(site, {"machine": "machine", "far": "far", "witness": "near"})
        yield Hosts(site, machine, far)
    finally:
        lab.stop()


def test_a_full_disk_a_reboot_and_a_lost_host_are_told_apart(hosts: Hosts) -> None:
    site, full = hosts.site, hosts.machine.small_disk
    killed = (*shell(ENDLESS), str(site.directory))
    once = ("--max-retries-preemption", "0")
    rows = {
        "disk": Failure(
            python(f"file = open('{full}/file', 'wb', 0)\nwhile True: file.write(bytes(4096))"),
            "failed: exit 1",
            "disk-full",
            "iris exec machine -- df -h",
            "No space left on device",
            ("-c", "lot=machine"),
            proven={"disk": f"{full} has no space left (256 KiB in total) as the task ended"},
        ),
        "reboot": Failure(
            killed,
            "failed: its worker failed: the host was rebooted (machine)",
            "host-rebooted",
            "iris exec machine -- last -x -n 5",
            options=("-c", "lot=machine", *once),
        ),
        "wrapper": Failure(
            killed,
            "failed: its worker failed: the attempt vanished: no process, no exit record",
            "attempt-vanished",
            "iris exec far -- sh -c 'dmesg | grep -i -A1 oom'",
            options=("-c", "lot=far", *once),
        ),
        "lost": Failure(
            killed,
            "failed: its worker failed: the host was silent for 10m: presumed gone (far)",
            None,
            "iris history far",
            options=("-c", "lot=far", *once, "--replace-lost", "always"),
        ),
    }
    for name, row in rows.items():
        submit(site, name, row)
    desk = Desk(site)
    desk.until(lambda: running(desk, "reboot", "wrapper", "lost"))
    task, wrapper = pids(site, "wrapper")
    pids(site, "lost")
    os.kill(wrapper, signal.SIGKILL)
    os.kill(task, signal.SIGKILL)
    desk.until(lambda: all_failed(desk, "reboot", "lost"))
    hosts.machine.reboot()
    desk.until(lambda: all_failed(desk, "lost"))
    hosts.far.stop()
    desk.until(lambda: all_failed(desk), every=299.0)
    assert wrong(desk, rows) == []
