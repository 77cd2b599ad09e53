"""`iris run` in a real terminal, on real hosts: the program has the chips, and is gone with its terminal."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from iris_cli.errors import ExitCode
from tests.e2e.test_gang_over_ssh import alive
from tests.support.json_output import check_run
from tests.support.relay import Relay, relay
from tests.support.site import Site
from tests.support.sshd import SshHost
from tests.support.terminal import Screen, Terminal
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.ssh

CHIPS = ("--tpu", "v4-8")


class Desk(Site):
    """One worker with chips, behind a network that can be cut."""

    network: Relay

    @property
    def pid(self) -> int:
        """Of the program, once it runs."""
        return int((self.directory / "pid").read_text())

    def stubborn(self) -> str:
        """A program that leaves neither when its terminal goes nor on SIGTERM."""
        return f"trap '' HUP TERM; echo $$ >{self.directory}/pid; echo here; while :; do sleep 1; done"

    def run(self, *words: str, **given: int) -> Terminal:
        return self.terminal("run", *CHIPS, "--grace", "1s", *words, **given)

    def has_ended(self, job: str) -> bool:
        shown = self.job(job)
        return (shown["state"], shown["tasks"][0]["attempts"][-1]["state"]) == ("KILLED", "ENDED")

    def chips_are_free(self) -> bool:
        """Whether another job gets them."""
        self.iris("launch", "--wait", *CHIPS, "--name", "next", "--", "true")
        return True


@pytest.fixture
def desk(ssh_lab: Callable[..., list[SshHost]], tmp_path: Path) -> Iterator[Desk]:
    [host] = ssh_lab(1)
    directory = tmp_path / "operator"
    directory.mkdir()
    site = Desk(directory, [host], {"IRIS_LOOP": "off"})
    with relay(host.port) as site.network:
        site.write_config({"chips": [host]}, tpu="v4-8")
        config = directory / "cluster.yaml"
        config.write_text(config.read_text().replace(f":{host.port}\n", f":{site.network.port}\n"))
        known = host.known_hosts_line.replace(f":{host.port} ", f":{site.network.port} ")
        (directory / ".ssh" / "known_hosts").write_text(f"{known}\n")
        yield site


def test_the_program_has_the_terminal_and_its_exit_code_is_that_of_the_command(desk: Desk) -> None:
    script = "tty; stty size; echo $IRIS_TASK_ID $TERM; read answer; stty size; echo got $answer; exit 42"
    with desk.run("--secret", "KEY", "--", "sh", "-c", script, columns=90, lines=20) as terminal:
        terminal.until(lambda screen: "no KEY" in screen.text or "set in this shell" in screen.text)
        assert terminal.end() == ExitCode.NOT_RUN  # a secret that is not set
    with desk.run("--", "sh", "-c", script, columns=90, lines=20) as terminal:
        terminal.until(lambda screen: "sh-1/task-0 xterm-256color" in screen.text)
        assert "20 90" in terminal.screen.text
        assert "/dev/pts/" in terminal.screen.text
        until(lambda: desk.job("sh-1")["state"] == "RUNNING")  # its next poll tells that
        terminal.resize(100, 40)
        until(lambda: "40 100" in desk.iris("exec", "sh-1", "--", "stty", "-F", pts(terminal), "size").out)
        terminal.type("yes\n")
        assert terminal.end() == 42
        assert "got yes" in terminal.screen.text
        assert "40 100" in terminal.screen.text
        assert terminal.screen.shown[-1] == "" or "sh-1: FAILED exit 42" in terminal.screen.text
    attempt = desk.job("sh-1")["tasks"][0]["attempts"][-1]
    assert (attempt["state"], attempt["exit_code"]) == ("ENDED", 42)
    assert desk.chips_are_free()


def pts(terminal: Terminal) -> str:
    """The name of the terminal on the worker, as the program has printed it."""
    return next(line for line in terminal.screen.shown if line.startswith("/dev/pts/"))


# `print` would raise an error in the handler of a signal that arrives during a `print`.
WAITS = (
    "import os, signal, time; signal.signal(signal.SIGCONT, lambda *_: os.write(1, b'again-%d\\n' % 2));"
    " os.write(1, b'one-%d\\n' % 2); time.sleep(600)"
)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on this machine")
def test_ctrl_c_and_ctrl_z_go_to_the_program_and_a_shell_has_job_control(desk: Desk) -> None:
    env = ("-e", "PS1=at> ", "-e", "TERM=dumb")
    with desk.run(*env, "--", "bash", "--norc", "--noprofile", "-i") as terminal:
        terminal.until(lambda screen: "at>" in screen.text)
        terminal.type("stty -echo; bind 'set enable-bracketed-paste off'\n")
        # A shell that starts programs in a loop would miss a Ctrl-Z now and then: dash waits in vfork for its stopped
        # child, and does not stop.
        terminal.type(f'{sys.executable} -c "{WAITS}"\n')
        terminal.until(lambda screen: "one-2" in screen.text)
        terminal.type("\x1a")
        terminal.until(lambda screen: "Stopped" in screen.text and at_prompt(screen))
        terminal.type("fg\n")  # bash names the program before it gives it the terminal
        terminal.until(lambda screen: "again-2" in screen.text)
        terminal.type("\x03")
        terminal.until(at_prompt)  # Ctrl-C drops what is typed before the shell asks again
        terminal.type("echo after=$?\n")
        terminal.until(lambda screen: "after=130" in screen.text)
        terminal.type("kill -TERM $$; kill -9 $$\n")
        assert terminal.end() == 128 + signal.SIGKILL, terminal.screen.text
    assert desk.job("bash-1")["state"] == "FAILED"


def at_prompt(screen: Screen) -> bool:
    return screen.text.rstrip().endswith("at>")


@pytest.mark.soak
def test_a_program_that_handles_ctrl_c_goes_on_and_success_is_success(desk: Desk) -> None:
    script = "trap 'echo caught; exit 0' INT; echo ready; while :; do sleep 0.1; done"
    with desk.run("--", "sh", "-c", script) as terminal:
        terminal.until(lambda screen: "ready" in screen.text)
        terminal.type("\x03")
        assert terminal.end() == 0
        assert "caught" in terminal.screen.text
        assert terminal.echoes()
    assert desk.job("sh-1")["state"] == "SUCCEEDED"


def test_a_cut_connection_or_a_killed_client_leaves_no_program_and_frees_the_chips(desk: Desk) -> None:
    check_that_a_cut_connection_ends_the_program(desk)
    check_that_a_killed_client_leaves_no_program(desk)
    assert desk.chips_are_free()


def check_that_a_cut_connection_ends_the_program(desk: Desk) -> None:
    with desk.run("--", "sh", "-c", desk.stubborn()) as terminal:
        terminal.until(lambda screen: "here" in screen.text)
        program = desk.pid
        desk.network.drop()
        assert terminal.end() == ExitCode.NOT_RUN
        # On a busy machine the host may not confirm the stop in time; then the command says that it is under way.
        assert "sh-1: KILLED" in terminal.screen.text or "stopping sh-1" in terminal.screen.text
    desk.until(lambda: desk.has_ended("sh-1"))
    assert not alive(program)


def check_that_a_killed_client_leaves_no_program(desk: Desk) -> None:
    """It gets the chips of the one whose connection was cut."""
    with desk.run("--name", "killed", "--", "sh", "-c", desk.stubborn()) as terminal:
        terminal.until(lambda screen: "here" in screen.text)
        program = desk.pid
        terminal.process.send_signal(signal.SIGKILL)
        terminal.process.wait(PATIENCE)
        assert alive(program)
        desk.until(lambda: desk.has_ended("killed"))
        assert not alive(program)
    assert "its terminal is gone" in desk.iris("history", "killed").out


@pytest.mark.soak
def test_a_closed_window_ends_the_job(desk: Desk) -> None:
    with desk.run("--", "sh", "-c", desk.stubborn()) as terminal:
        terminal.until(lambda screen: "here" in screen.text)
        program = desk.pid
        terminal.hang_up()
        assert terminal.process.wait(PATIENCE) == ExitCode.INTERRUPTED
    desk.until(lambda: desk.has_ended("sh-1"))
    assert not alive(program)
    assert not list((desk.state / "run").iterdir())


def test_it_waits_for_its_turn_and_ctrl_c_or_a_killed_client_takes_it_out_of_the_queue(desk: Desk) -> None:
    desk.iris("launch", *CHIPS, "--name", "busy", "--", "sleep", "600")
    desk.until(lambda: desk.job("busy")["state"] == "RUNNING")
    with desk.run("--name", "mine", "--", "sh") as terminal:
        terminal.until(lambda screen: "mine pending: " in screen.text)
        assert desk.job("mine")["state"] == "PENDING"
        terminal.type("\x03")
        assert terminal.end() == ExitCode.INTERRUPTED
    assert desk.job("mine")["state"] == "KILLED"
    with desk.run("--name", "other", "--", "sh") as terminal:
        terminal.until(lambda screen: "other pending: " in screen.text)
        terminal.process.send_signal(signal.SIGKILL)
        terminal.process.wait(PATIENCE)
    assert desk.job("other")["state"] == "PENDING"
    desk.iris("schedule", "--once")
    assert desk.job("other")["state"] == "KILLED"
    with desk.run("--name", "third", "--", "sh", "-c", "exit 7") as terminal:
        terminal.until(lambda screen: "third pending: " in screen.text)
        desk.iris("cancel", "busy")
        assert terminal.end() == 7


@pytest.mark.soak
def test_a_retry_is_refused_and_its_screens_propose_what_works(desk: Desk) -> None:
    """A retry would start the program again under the hands of its user."""
    with desk.run("--name", "mine", "--", "sh", "-c", "echo here; read answer; exit 3") as terminal:
        terminal.until(lambda screen: "here" in screen.text)
        desk.until(lambda: desk.job("mine")["state"] == "RUNNING")
        for subject in ("mine", "mine/task-0"):
            refused = desk.iris("retry", subject, code=ExitCode.USAGE)
            assert refused.err.splitlines() == [
                "error: mine is an interactive job, which has no retries",
                "hint: iris cancel mine",
            ]
        assert "hint: iris why mine" in desk.iris("launch", "--again", "mine", code=ExitCode.USAGE).err
        assert desk.iris("logs", "mine").err == "mine/task-0: no output: it is on the terminal of iris run\n"
        assert desk.job("mine")["next"] == "iris history mine"
        terminal.type("\n")
        assert terminal.end() == 3
    assert "mine: FAILED exit 3" in terminal.screen.shown
    for command in ("retry", "hold"):
        ended = desk.iris(command, "mine", code=ExitCode.USAGE)
        assert "hint: iris run [OPTIONS] -- COMMAND ..." in ended.err
    assert "launch --again" not in desk.iris("status", "mine").out


@pytest.mark.soak
def test_an_end_that_the_exit_code_does_not_explain_is_explained(desk: Desk) -> None:
    with desk.run("--name", "slow", "--timeout", "1s", "--", "sleep", "600") as terminal:
        assert terminal.end() == 128 + signal.SIGTERM
        assert "slow: FAILED: exceeded its time limit" in terminal.screen.text
    with desk.run("--name", "unset", "--setup", "echo no pip; exit 3", "--", "sh") as terminal:
        assert terminal.end() == ExitCode.NOT_RUN
        assert "unset: FAILED: setup failed" in terminal.screen.text
    with desk.run("--name", "none", "--", "no-such-program") as terminal:
        assert terminal.end() == 127
        assert "no-such-program: not found" in terminal.screen.text


@pytest.mark.soak
def test_a_machine_that_is_gone_leaves_no_program(desk: Desk) -> None:
    """Its connections stay open on the worker, which hears nothing any more: the lease ends the program."""
    with desk.run("--lease", "2s", "--", "sh", "-c", desk.stubborn()) as terminal:
        terminal.until(lambda screen: "here" in screen.text)
        program = desk.pid
        desk.network.freeze()
        terminal.process.send_signal(signal.SIGKILL)
        terminal.process.wait(PATIENCE)
        until(lambda: not alive(program))
        assert desk.job("sh-1")["state"] in ("PENDING", "RUNNING")  # the log knows no end
        desk.network.thaw()
        desk.until(lambda: desk.has_ended("sh-1"))
        assert desk.chips_are_free()


def test_only_its_client_starts_an_interactive_job(desk: Desk) -> None:
    """Cycles of others set it up and leave it there."""
    gate = desk.directory / "gate"
    setup = f"while [ ! -e {gate} ]; do sleep 0.1; done"
    with desk.run("--setup", setup, "--", "sh", "-c", desk.stubborn()) as terminal:
        terminal.until(lambda screen: "sh-1 submitted" in screen.text)
        desk.until(lambda: desk.job("sh-1")["tasks"][0]["state"] == "ASSIGNED")
        terminal.process.send_signal(signal.SIGSTOP)
        gate.touch()
        for _ in range(3):
            desk.iris("schedule", "--once")
        assert desk.job("sh-1")["tasks"][0]["state"] == "ASSIGNED"
        assert not (desk.directory / "pid").exists()
        terminal.process.send_signal(signal.SIGCONT)
        terminal.until(lambda screen: "here" in screen.text)
        assert alive(desk.pid)
        desk.iris("cancel", "sh-1")
        assert terminal.end() == ExitCode.NOT_RUN
    assert not alive(desk.pid)


def test_a_refused_run_is_explained_and_json_has_the_end(desk: Desk) -> None:
    refused = desk.iris("run", *CHIPS, "--", "sh", code=ExitCode.NOT_RUN)
    assert refused.err.splitlines() == [
        "error: iris run needs a terminal",
        "hint: without a terminal: iris launch --follow -- COMMAND ...",
    ]
    assert not (desk.state / "events.jsonl").exists()
    with desk.terminal("run", "--tpu", "v4-16", "--force", "--", "sh") as terminal:
        assert terminal.end() == ExitCode.NOT_RUN
        assert "error: a terminal shows one task, and this job has 2" in terminal.screen.text
    with desk.run("--json", "--", "true") as terminal:
        assert terminal.end() == 0
        text = terminal.screen.text
        document = text[text.index("{") :]
        check_run(["--json", "run", *CHIPS, "--", "true"], document, "")
        assert json.loads(document)["exit_code"] == 0
