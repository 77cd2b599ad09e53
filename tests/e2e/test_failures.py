"""Failures that really happen on real hosts: the card names the task, its exit, the cause and what to type next.

What was measured about the very attempt is marked as proven, anything else as a guess.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path

import pytest

from iris_cli.cli.app import run
from iris_cli.core.model.job import JobState
from iris_cli.core.model.task import AttemptState
from iris_cli.ops.views.failure import FailureCard
from iris_cli.ops.views.why import why
from tests.e2e.failing import (
    ENDLESS,
    FAILURES,
    NOT_FOR_MEMORY,
    PROGRAM,
    UNRESOLVED,
    Failure,
    deaths,
    python,
)
from tests.e2e.test_jax_gang import can_unshare
from tests.faults.conftest import use_home_of
from tests.support.desk import Desk
from tests.support.machines import Machine, MachineLab, why_no_machines
from tests.support.oom import limited_group, no_recent_kills
from tests.support.site import Site
from tests.support.sshd import SshHost, SshLab
from tests.support.terminal import OF_ANOTHER_TERMINAL
from tests.support.waiting import until

pytestmark = pytest.mark.ssh


@pytest.fixture
def site(ssh_lab: SshLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    (tmp_path / "operator").mkdir()
    site = Site(tmp_path / "operator", ssh_lab(2), {"TOKEN": "wrong-token-of-lab"})
    settle(site, monkeypatch)
    monkeypatch.setenv("TOKEN", "wrong-token-of-lab")
    describe(site, {"pair-0": "pair", "pair-1": "pair"})
    return site


def settle(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process one in which the operator types."""
    use_home_of(site, monkeypatch)
    monkeypatch.chdir(site.directory)
    for name in OF_ANOTHER_TERMINAL:
        monkeypatch.delenv(name, raising=False)


def describe(site: Site, lots: Mapping[str, str]) -> None:
    """Write the configuration: workers, in the order of the hosts, with a lot each."""
    site.write_config({}, tpu="")
    config = site.directory / "cluster.yaml"
    lines = [config.read_text().partition("slices:")[0] + "defaults: {memory: 1MiB}\nworkers:"]
    for (worker, lot), host in zip(lots.items(), site.hosts, strict=True):
        lines += [f"  - {{id: {worker}, host: 127.0.0.1, port: {host.port}, attributes: {{lot: {lot}}}}}"]
    config.write_text("\n".join(lines) + "\n")


def submit(site: Site, name: str, row: Failure) -> None:
    place = () if "-c" in row.options else ("-c", "lot=pair")
    small = ("--cpu", "0.01", "--grace", "1s", "-e", f"PIDS={site.directory}")
    iris("launch", "--no-schedule", "--name", name, *small, *place, *row.options, "--", *row.command)


def iris(*words: str) -> str:
    """Run a command in this process, as there are many; return what it prints."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(words)
    assert code == 0, (words, out.getvalue(), err.getvalue())
    return out.getvalue()


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
        shown = iris("why", name)
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
    headline = row.failed if card.cause.startswith("exit ") else row.failed.removeprefix("failed: ")
    missing += [text for text in (headline, row.says, cause, f"\nnext: {command}\n") if text not in shown]
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


def test_the_cards_of_twenty_failures_are_right(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for file, text in (
        ("train.py", PROGRAM),
        ("plain.sh", "true\n"),
        (".irisignore", "/*\n!/train.py\n!/plain.sh\n"),
    ):
        (site.directory / file).write_text(text)
    rows = FAILURES | ({"name": UNRESOLVED} if can_unshare() else {})
    assert len(rows) >= 19
    desk = Desk(site)
    ends = {"kill-kill": signal.SIGKILL, "kill-term": signal.SIGTERM, "kill-segv": signal.SIGSEGV}
    with no_recent_kills():
        for name, row in rows.items():
            submit(site, name, row)
        desk.until(lambda: running(desk, *ends))
        for job, number in ends.items():
            os.kill(pids(site, job)[0], number)
        desk.until(lambda: all_failed(desk))
    assert wrong(desk, rows) == []
    monkeypatch.setenv("DATA_OF_LAB", "/data")  # tasks don't inherit it: --secret reads it
    for row in rows.values():
        if row.next.startswith("iris launch"):
            iris(*shlex.split(row.next)[1:], "--dry-run")
    assert "1 failed, 1 stopped with it" in site.iris("why", "rank").out

    (site.directory / "train.py").write_text(PROGRAM.replace("raise ValueError", "print"))
    site.iris(*shlex.split(rows["error"].next)[1:], "--name", "mended")
    desk.until(lambda: desk.state("mended") is JobState.SUCCEEDED)
    assert site.iris("logs", "mended").out == "loss is nan at step 7\n"
    assert "next: iris status mended" in site.iris("why", "error").out


@pytest.mark.soak
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
        settle(site, monkeypatch)
        describe(site, {"machine": "machine", "far": "far", "witness": "near"})
        yield Hosts(site, machine, far)
    finally:
        lab.stop()


def test_a_full_disk_a_reboot_and_a_lost_host_are_told_apart(hosts: Hosts) -> None:
    site, full = hosts.site, hosts.machine.small_disk
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
            ENDLESS,
            "failed: host machine was rebooted",
            "host-rebooted",
            "iris exec machine -- last -x -n 5",
            options=("-c", "lot=machine", *once),
        ),
        "wrapper": Failure(
            ENDLESS,
            "failed: the attempt vanished: no process, no exit record",
            "attempt-vanished",
            "iris exec far -- sh -c 'dmesg | grep -i -A1 oom'",
            options=("-c", "lot=far", *once),
        ),
        "lost": Failure(
            ENDLESS,
            "failed: host far was silent for over 10m",
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
