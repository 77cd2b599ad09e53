"""`iris status --watch` and `iris watch` in a real terminal: resized, interrupted, stopped and continued, in a pipe."""

from __future__ import annotations

import itertools
import json
import os
import re
import select
import shutil
import signal
import sys
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from rich.console import Console
from rich.live import Live
from rich.text import Text

from iris_cli.cli.context import Context
from iris_cli.cli.cycles import follow
from iris_cli.journal.log.file_store import FileStore
from iris_cli.ops.loop.foreground import Step, follow_log
from iris_cli.render.console import Output
from iris_cli.render.watch import screen as watched
from iris_cli.render.watch.live import LiveScreen
from tests.render.scenes import busy, many_tasks, session_of
from tests.support.forked import Forked
from tests.support.lab import Lab
from tests.support.operator import Operator
from tests.support.terminal import IRIS, Screen, Terminal
from tests.support.waiting import PATIENCE


def cluster(directory: Path, lab: Lab) -> Path:
    """A cluster whose log is that of the lab, with nobody to ask: its hosts are not there."""
    by_this_clock = lab.now - time.time()
    session_of(lab, directory / "state", cycle_ago=by_this_clock + 38.0)
    path = directory / "cluster.yaml"
    path.write_text("cluster: {name: lab}\nworkers: [{id: cpu-0, host: nowhere.invalid}]\n")
    return path


def watching(config: Path, *words: str, **given: object) -> Terminal:
    command = [*IRIS, "--config", str(config), *(words or ("status", "--watch"))]
    return Terminal(command, **given)  # type: ignore[arg-type]  # columns, lines and env


def shows(*words: str) -> Callable[[Screen], bool]:
    return lambda screen: screen.second is not None and all(word in screen.text for word in words)


def append(directory: Path, lab: Lab, before: int) -> None:
    """Somebody else writes what the lab has decided since then."""
    store = FileStore(directory / "state")
    store.load()
    for transaction in lab.log[before:]:
        store.append(transaction.seq - 1, transaction.events, at=transaction.at, actor="cron@host")


def test_the_screen_of_a_test_shows_a_character_that_is_read_in_two_pieces() -> None:
    program = (
        "import os, signal\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n"
        "os.write(1, b'one \\xe2\\x80')\n"
        "signal.sigwait([signal.SIGUSR1])\n"
        "os.write(1, b'\\xa6 end')\n"
    )
    with Terminal([sys.executable, "-c", program]) as terminal:
        terminal.until(lambda screen: "one" in screen.text)
        terminal.process.send_signal(signal.SIGUSR1)
        assert terminal.end() == 0
        assert terminal.screen.shown == ["one … end"]


def test_500_tasks_stand_on_one_screen_and_ctrl_c_leaves_it_behind(tmp_path: Path) -> None:
    with watching(cluster(tmp_path, many_tasks()), columns=120, lines=24) as terminal:
        terminal.until(shows("308 pending, 160 running", "task-77", "killed by SIGSEGV"))
        assert len(terminal.screen.shown) <= 24
        assert not terminal.screen.cursor_shown
        terminal.type("\x03")
        assert terminal.end() == 130
        screen = terminal.screen
        assert screen.second is None
        assert screen.cursor_shown
        assert screen.scrolled == 0
        left = [line for line in screen.shown if line]
        assert left[0].startswith("lab  40 workers")
        assert left[-1].startswith("stopped watching; sweep running; cycles: cron every 1m, last ")


def test_it_follows_the_size_of_its_window(tmp_path: Path) -> None:
    with watching(cluster(tmp_path, busy()), columns=100, lines=30) as terminal:
        terminal.until(shows("WHERE / WHY", "v5litepod-16"))
        for columns, lines, sign in (
            (20, 5, "2 more jobs: 2 runn…"),
            (400, 60, "(worker v5b-2: suspect)"),
            (60, 12, "no worker satisfies pool=large"),
            (100, 30, "WHERE / WHY"),
        ):
            terminal.resize(columns, lines)
            terminal.until(lambda screen, sign=sign: shows(sign)(screen) and not screen.scrolled)  # type: ignore[misc]  # the default binds it
        terminal.type("\x03")
        assert terminal.end() == 130


def test_what_others_write_appears_with_its_time(tmp_path: Path) -> None:
    lab = busy()
    with watching(cluster(tmp_path, lab)) as terminal:
        terminal.until(shows("train"))
        before = len(lab.log)
        lab.job("newest", cpu=1.0).schedule()
        append(tmp_path, lab, before)
        terminal.until(shows("job newest submitted: 1 task"))
        terminal.until(shows("newest"))
        terminal.type("\x03")
        terminal.end()


def test_what_is_first_seen_by_the_first_look_is_news_of_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, shown = busy(), list[Step]()
    session, before = session_of(lab, tmp_path / "state"), len(lab.log)

    def look(_: object) -> None:
        lab.job("newest", cpu=1.0)
        append(tmp_path, lab, before)
        session.view()

    def show(_: object, step: Step) -> None:
        shown.append(step)
        raise KeyboardInterrupt

    monkeypatch.setattr(watched.Screen, "look", look)
    monkeypatch.setattr(watched.Screen, "show", show)
    path = tmp_path / "cluster.yaml"
    path.write_text("cluster: {name: lab}\nworkers: []\n")
    follow(Context(config_path=path), session, follow_log(session, every=2.0))
    assert [entry.text for entry in shown[0].entries] == ["job newest submitted: 1 task"]


def test_what_is_typed_is_neither_shown_nor_left_to_the_shell(tmp_path: Path) -> None:
    with watching(cluster(tmp_path, busy())) as terminal:
        terminal.until(shows("train"))
        terminal.type("rm -rf nothing\n")
        frames = terminal.screen.frames
        terminal.until(lambda screen: screen.frames > frames)
        terminal.type("\x03")
        terminal.end()
        assert b"nothing" not in terminal.raw


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash, for its job control")
def test_ctrl_z_gives_the_terminal_back_and_fg_brings_the_screen_again(tmp_path: Path) -> None:
    config = cluster(tmp_path, busy())
    quiet = {"PS1": "$ ", "HOME": str(tmp_path), "HISTFILE": ""}
    with Terminal(["bash", "--norc", "--noprofile", "--noediting", "-i"], env=quiet) as terminal:
        terminal.type(f"{' '.join(IRIS)} --config {config} status --watch\n")
        terminal.until(shows("train", "WHERE / WHY"))
        terminal.type("\x1a")
        terminal.until(lambda screen: screen.second is None and "Stopped" in screen.text)
        assert terminal.screen.cursor_shown
        terminal.type("echo still $((40 + 2))\n")
        terminal.until(lambda screen: "still 42" in screen.text, "the shell")
        terminal.type("fg\n")
        terminal.until(shows("train", "WHERE / WHY"))
        terminal.type("\x03")
        terminal.until(lambda screen: screen.second is None and "stopped watching" in screen.text)
        terminal.type("exit\n")
        terminal.end()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash, for its job control")
def test_in_the_background_it_leaves_the_terminal_alone(tmp_path: Path) -> None:
    lab = busy()
    config = cluster(tmp_path, lab)
    quiet = {"PS1": "$ ", "HOME": str(tmp_path), "HISTFILE": ""}
    with Terminal(["bash", "--norc", "--noprofile", "--noediting", "-i"], env=quiet) as terminal:
        terminal.type(f"{' '.join(IRIS)} --config {config} status --watch &\n")
        jobs = itertools.count()

        def has_said(screen: Screen) -> bool:
            before = len(lab.log)
            lab.job(f"new-{next(jobs)}", cpu=1.0)
            append(tmp_path, lab, before)
            return "job new-" in screen.text

        terminal.until(has_said, "a line")
        assert b"\x1b[?1049h" not in terminal.raw
        terminal.type("kill %1; wait; exit\n")
        terminal.end()


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGHUP,
        *(pytest.param(each, marks=pytest.mark.soak) for each in (signal.SIGTERM, signal.SIGQUIT)),
    ],
)
def test_a_signal_gives_the_terminal_back(tmp_path: Path, number: signal.Signals) -> None:
    with watching(cluster(tmp_path, busy())) as terminal:
        terminal.until(shows("train"))
        assert not terminal.echoes()
        terminal.process.send_signal(number)
        assert terminal.end() == 130
        assert terminal.screen.second is None
        assert terminal.screen.cursor_shown
        assert terminal.echoes()


def test_a_terminal_that_ctrl_s_holds_is_given_back_too(tmp_path: Path) -> None:
    with watching(cluster(tmp_path, busy())) as terminal:
        terminal.until(shows("train"))
        terminal.hold()
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.end() == 130
        assert terminal.screen.second is None
        assert terminal.echoes()


def test_ctrl_c_again_while_the_terminal_is_given_back_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = os.openpty()
    stop = Live.stop

    def impatiently(live: Live) -> None:
        signal.raise_signal(signal.SIGINT)
        stop(live)

    monkeypatch.setattr(Live, "stop", impatiently)
    with open(ours, "rb", buffering=0) as window, open(theirs, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        before, written = termios.tcgetattr(theirs), b""
        screen = LiveScreen(Console(file=stdout, force_terminal=True), lambda *_: [Text("a frame")])
        with suppress(KeyboardInterrupt), screen:
            screen.update()
            while b"a frame" not in written:
                written += window.read(1 << 16)
        assert termios.tcgetattr(theirs) == before
        os.write(theirs, b"the end")  # a terminal hands on what was written in pieces
        while b"the end" not in written:
            written += window.read(1 << 16)
        assert b"\x1b[?1049l" in written


def test_it_ends_with_its_terminal(tmp_path: Path) -> None:
    with watching(cluster(tmp_path, busy())) as terminal:
        terminal.until(shows("train"))
        terminal.hang_up()
        assert terminal.process.wait(PATIENCE) != 0


def test_a_wait_shows_its_progress_and_ctrl_c_leaves_one_line(tmp_path: Path) -> None:
    with watching(cluster(tmp_path, busy()), "wait", "train", "prep", columns=200) as terminal:
        for words in ("waiting for train, prep  ━", "1 of 7 tasks"):
            terminal.until(lambda screen, words=words: words in screen.text, words)  # type: ignore[misc]  # the default binds it
        terminal.type("\x03")
        assert terminal.end() == 130
        *clock, last = [line for line in terminal.screen.shown if line]
        assert last.startswith("stopped waiting; train, prep continue")
        assert all(line.startswith("the clock of this machine") for line in clock)  # that of the lab is ahead


def test_a_screen_without_colours_has_none(tmp_path: Path) -> None:
    with watching(cluster(tmp_path, busy()), env={"NO_COLOR": "1"}) as terminal:
        terminal.until(shows("train", "suspect"))
        terminal.type("\x03")
        terminal.end()
        assert b"\x1b[3" not in terminal.raw.replace(b"\x1b[3J", b"")


@pytest.mark.parametrize(
    ("loop", "said"),
    [
        ("off", "no cycles are running: iris loop start, or iris cron install\n"),
        ("auto", "background loop started (pid PID): iris loop show\n"),
    ],
)
def test_after_one_step_it_says_who_runs_the_next_cycles(operator: Operator, loop: str, said: str) -> None:
    operator.env["IRIS_LOOP"] = loop
    ended = operator.iris("watch", "--once")
    assert ended.returncode == 0
    assert re.sub("pid [0-9]+", "pid PID", ended.stderr).endswith(said), ended.stderr


def test_a_dumb_terminal_gets_lines(tmp_path: Path) -> None:
    lab = busy()
    with watching(cluster(tmp_path, lab), "status", "--watch", "newest", env={"TERM": "dumb"}) as terminal:
        assert terminal.end() == 4
    assert b"\x1b" not in terminal.raw


def test_in_a_pipe_there_is_a_line_for_each_change(tmp_path: Path) -> None:
    lab = busy()
    command = ["--config", str(cluster(tmp_path, lab)), "status", "--watch"]
    processes = [
        Forked([*command, *words], cwd=tmp_path, env=os.environ, text=True) for words in ((), ("--json",))
    ]
    try:
        silent = [process.stdout for process in processes if process.stdout is not None]
        deadline = time.monotonic() + PATIENCE
        for number in itertools.count():  # of what was before it looked nothing is said
            before = len(lab.log)
            lab.job(f"new-{number}", cpu=1.0)
            append(tmp_path, lab, before)
            said = select.select(silent, [], [], 0.5)[0]
            silent = [pipe for pipe in silent if pipe not in said]
            if not silent:
                break
            assert time.monotonic() < deadline, "it said nothing"
    finally:
        for process in processes:
            process.send_signal(signal.SIGINT)
        (lines, err), (documents, _) = (process.communicate(timeout=PATIENCE) for process in processes)
    assert lines[19:].startswith("  job new-")
    assert json.loads(documents.splitlines()[0])["text"].startswith("job new-")
    assert [process.returncode for process in processes] == [130, 130]
    assert err.startswith("stopped watching; ")


@pytest.mark.parametrize("as_json", [False, True], ids=["lines", "json"])
def test_in_a_pipe_a_log_that_is_damaged_meanwhile_is_told_of_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    session = session_of(busy(), tmp_path / "state")
    log = tmp_path / "state" / "events.jsonl"
    whole = log.read_bytes()
    broken = whole[:-200]
    said = []
    with watched.Screen(
        Output(as_json=as_json), session, lambda: pytest.fail("there is no screen")
    ) as screen:
        for text in (whole, broken, broken, whole, broken):
            log.write_bytes(text)
            session.view()
            screen.show(Step((), idle=False))
            said.append(capsys.readouterr())
    assert [each.out for each in said] == [""] * 5
    assert ["iris log salvage" in each.err for each in said] == [False, True, False, False, True]
