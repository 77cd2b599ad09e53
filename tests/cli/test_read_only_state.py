"""Commands that wait or look on, on a state directory that can't be written: no cycle can run, and they say why."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.forked import Forked, Process
from tests.support.json_output import checked
from tests.support.mounts import on_a_small_disk, remount
from tests.support.operator import Operator
from tests.support.terminal import IRIS, Terminal
from tests.support.waiting import PATIENCE

NOBODY = 65534
PROMISES = (
    "continue",
    "running; ",
    "next cycle",
    "later cycle",
    "every cycle",
    "tried again",
    "loop started",
)
_CAPABILITIES = (1, 2)  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH: with them root may write anywhere
_DROP = 24  # PR_CAPBSET_DROP
_LIBC = ctypes.CDLL(None, use_errno=True)

LINES = ["wait job", "wait job --json", "logs job --follow", "watch", "watch --json"]


LOOPS = ["auto", pytest.param("off", marks=pytest.mark.soak)]
"""Whether commands may start the loop: by default they may, because then they could promise one."""


@pytest.fixture(params=LOOPS)
def ann(operator: Operator, request: pytest.FixtureRequest) -> Operator:
    """The operator with an open job, in a shell in which commands may start the loop, or may not."""
    operator.env["IRIS_LOOP"] = request.param
    return operator


def _obey_permissions() -> None:
    """Let the program that starts next be subject to permissions, if root runs it."""
    if os.geteuid() == 0:
        for capability in _CAPABILITIES:
            if _LIBC.prctl(_DROP, capability, 0, 0, 0) != 0:
                raise OSError(ctypes.get_errno(), "prctl")


def begin(ann: Operator, line: str, *, obeying: bool) -> Process:
    """Start a command in a session of its own: a forked one, unless it has to obey permissions."""
    if not obeying:
        return Forked(line.split(), cwd=ann.directory, env=ann.environ(), text=True, session=True)
    return subprocess.Popen(
        [*IRIS, *line.split()],
        cwd=ann.directory,
        env=ann.environ(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=_obey_permissions,
    )


def left(ann: Operator, line: str, *, obeying: bool) -> tuple[str, list[str]]:
    """What a command printed that was left by Ctrl-C after it had said that it runs no cycle."""
    with begin(ann, line, obeying=obeying) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        said = [next(each.rstrip() for each in process.stderr if each.startswith("no cycle could be run: "))]
        process.send_signal(signal.SIGINT)
        out, rest = process.stdout.read(), process.stderr.read()  # both are short
        assert process.wait(PATIENCE) == 130, rest
    return out, [*said, *rest.splitlines()]


def seen(ann: Operator, *, obeying: bool) -> str:
    """The last line of `iris status --watch` in a terminal that was left by Ctrl-C."""
    limits = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    words = [*IRIS, "--config", str(ann.directory / "cluster.yaml"), "status", "--watch"]
    with Terminal(
        [*(limits if obeying and os.geteuid() == 0 else []), *words], columns=400, env=ann.environ()
    ) as terminal:
        terminal.until(lambda screen: screen.second is not None and "job" in screen.text)
        terminal.type("\x03")
        assert terminal.end() == 130
        return [line for line in terminal.screen.shown if line][-1]


def check(ann: Operator, why: str, *, obeying: bool) -> None:
    """Every command of these names the reason, promises nothing, and ends as it would."""
    for line in LINES:
        out, said = left(ann, line, obeying=obeying)
        holds(out, said, why)
    with begin(ann, "wait job --timeout 0.1s --json", obeying=obeying) as process:
        out, text = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, text
    holds(out, text.splitlines(), why)
    [waited] = checked("iris wait", out)
    assert (waited["timed_out"], waited["cycles"]["next"]) == (True, None)
    assert waited["cycles"]["fix"] in text
    for line in ("status", "loop show"):
        with begin(ann, f"{line} --json", obeying=obeying) as process:
            out, _ = process.communicate(timeout=PATIENCE)
        [document] = checked(f"iris {line}", out)
        assert document["cycles"]["fix"] == waited["cycles"]["fix"]
    with begin(ann, "watch --once", obeying=obeying) as process:
        out, text = process.communicate(timeout=PATIENCE)
    assert process.returncode == 10, text
    assert [line.partition(" ")[0] for line in text.splitlines()] == ["error:", "hint:"]
    assert not [words for words in PROMISES if words in text + out], text + out
    last = seen(ann, obeying=obeying)
    assert last.startswith("stopped watching; job pending; ")
    assert why in last
    assert ann.loop is None


def holds(out: str, said: list[str], why: str) -> None:
    text = "\n".join(said)
    assert sum(line.startswith("no cycle could be run: ") for line in said) == 1, text
    assert sum(why in line for line in said) == 1, text
    assert not [words for words in PROMISES if words in text + out], text + out
    assert not [words for words in ("internal error", "Traceback", "could not be started") if words in text]


def test_on_a_read_only_disk_nobody_is_promised_a_cycle(ann: Operator, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()

    def attempt() -> None:
        there = Operator(disk / "lab", env=ann.env)
        shutil.copytree(ann.directory / "state", there.directory / "state")
        shutil.copy(ann.directory / "cluster.yaml", there.directory)
        remount(disk, "ro")
        check(
            there,
            "state can't be written: Read-only file system, no cycle can run: mount that file system read-write",
            obeying=False,
        )

    on_a_small_disk(disk, attempt, size="16m")


def test_in_a_directory_that_its_user_may_not_write_nobody_is_promised_a_cycle(ann: Operator) -> None:
    state, why = ann.directory / "state", "no cycles are running: "
    state.chmod(0o500)
    try:
        for line in ("wait job", "watch --json"):
            holds(*left(ann, line, obeying=True), why)
        assert why in seen(ann, obeying=True)
    finally:
        state.chmod(0o700)


@pytest.mark.soak  # the same words as where the user may not write
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a directory to another user")
def test_in_the_directory_of_another_user_nobody_is_promised_a_cycle(ann: Operator) -> None:
    state = ann.directory / "state"
    for path in (state, *state.iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)
        os.chown(path, NOBODY, NOBODY)
    why = f"no cycles are running: {state} belongs to another user (uid {NOBODY}): run iris as that user"
    check(ann, why, obeying=True)
