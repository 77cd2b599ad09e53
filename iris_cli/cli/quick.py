"""The commands that are run again and again: by cron, in a prompt, by scripts that submit job after job.

The library that reads command lines takes longer to load than they take to run. So a plain line is read here, and
whatever isn't plain is left to the library, which knows the errors, the help and the completion.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iris_cli.cli.context import Context
from iris_cli.clock import SYSTEM_CLOCK, Clock
from iris_cli.errors import (
    ConfigError,
    ExitCode,
    LockedError,
    LogReplacedError,
    NotWritableError,
    UsageError,
)
from iris_cli.render.console import Output

if TYPE_CHECKING:
    from iris_cli.ops.session import Session

_GLOBAL = {
    "--json": "as_json",
    "--quiet": "quiet",
    "-q": "quiet",
    "--no-color": "no_color",
    "--verbose": "verbose",
    "-v": "verbose",
    "--config": "config",
    "--state-dir": "state_dir",
    "--lock-timeout": "lock_timeout",
}
_CRON = 60.0  # seconds between two cycles of cron, where its line says nothing else
_VALUES: dict[str, Callable[[str], Any]] = {"config": Path, "state_dir": Path, "lock_timeout": float}


def understood(words: Sequence[str], clock: Clock = SYSTEM_CLOCK) -> Callable[[], int] | None:
    """What a plain line means, global options first. None for any other line. Raises UsageError."""
    rest = iter(words)
    given, command = _global_options(rest)
    given["clock"] = clock
    arguments = list(rest)
    if command is None:
        return lambda: next_steps(context_of(**given))
    if command == "schedule":
        return _schedule(given, arguments)
    jobs = [word for word in arguments if word != "--all"]
    if command == "status" and not any(word.startswith("-") for word in jobs) and len(jobs) < 2:
        return lambda: status(context_of(**given), *jobs, everything="--all" in arguments)
    return None


def _global_options(words: Iterator[str]) -> tuple[dict[str, Any], str | None]:
    """The options before the first word that is none, and that word.

    It is None where there is no such word, and empty if something isn't plain. Raises UsageError for an option that
    has no value, or an empty one: a path of no letters would be the directory that one happens to be in.
    """
    given: dict[str, Any] = {}
    for word in words:
        name = _GLOBAL.get(word, "")
        if not name:
            return given, word
        value = next(words, "") if name in _VALUES else ""
        if name in _VALUES and not value:
            raise UsageError(f"{word} needs a value", hint="iris --help")
        if value.startswith("-") or not _is_fine(name, value):
            return given, ""
        given[name] = _VALUES[name](value) if value else True
    return given, None


def _schedule(given: dict[str, Any], arguments: Sequence[str]) -> Callable[[], int] | None:
    """The cycles of cron, and those without options."""
    rest, cron = list(arguments), None
    if "--cron" in rest:
        place = rest.index("--cron")
        text = "".join(rest[place + 1 : place + 2])
        if not _is_written_as(float, text):
            return None
        cron = float(text)
        del rest[place : place + 2]
    if not set(rest) <= {"--once", "--autoscale"}:
        return None
    scale = "--autoscale" in rest
    return lambda: schedule(context_of(**given), once="--once" in rest, scale=scale, cron=cron)


def _is_written_as(kind: type, value: str) -> bool:
    """Whether it is beyond doubt what a number says; anything is a text."""
    digits = value.replace(".", "", 1) if kind is float else value
    return kind not in (int, float) or (len(digits) < 10 and digits.isascii() and digits.isdecimal())


def _is_fine(name: str, value: str) -> bool:
    return name != "lock_timeout" or value.replace(".", "", 1).isdecimal()


def context_of(
    *,
    config: Path | None = None,
    state_dir: Path | None = None,
    lock_timeout: float | None = None,
    as_json: bool = False,
    quiet: bool = False,
    no_color: bool = False,
    verbose: bool = False,
    clock: Clock = SYSTEM_CLOCK,
) -> Context:
    """What the global options mean."""
    return Context(
        config_path=config,
        state_path=state_dir,
        lock_timeout=lock_timeout,
        clock=clock,
        verbose=verbose,
        output=Output(as_json=as_json, quiet=quiet, color=not no_color),
    )


def schedule(
    iris: Context,
    *,
    once: bool = False,
    interval: float | None = None,
    scale: bool = False,
    cron: float | None = None,
) -> int:
    """One cycle, or one every so many seconds; `scale`: a pass of the autoscaler before each.

    `cron`: it is run by cron every so many seconds. A crontab that an older iris wrote does not say so, but waits for
    nobody.
    """
    from iris_cli.ops import compaction, cycle
    from iris_cli.ops.loop.running import running
    from iris_cli.render import cycles

    every = _only_one(once=once, interval=interval)
    iris.starts_loop = False
    session = iris.session("iris schedule")
    if once and (cron or iris.lock_timeout == 0):
        session.runs_as, session.recorded = "cron", lambda: {"interval": cron or _CRON}

    def one() -> None:
        wanted = scale or session.config.scales
        scaling = _pass(iris, session, in_cycle=True) if wanted else None
        cycles.show(iris.output, session.cluster, cycle.run(session), scaling)
        if (done := compaction.when_large(session)) is not None:
            iris.output.message(compaction.words(done))

    if every is None:
        return _again_and_again(iris, session, one, None)
    with running(session, "command", interval=every):
        return _again_and_again(iris, session, one, every)


def _only_one(*, once: bool, interval: float | None) -> float | None:
    """Once, or every so many seconds: not both."""
    if once and interval is not None:
        raise UsageError("--once ends after one, --interval goes on", hint="leave one of them out")
    return interval


def _again_and_again(
    iris: Context, session: Session, act: Callable[[], object], interval: float | None
) -> int:
    """Act once, or every `interval` seconds. With --lock-timeout 0 it is no failure that others hold the lock.

    But it is one if what was asked of workers can't be written down: who has had the lock once waits for it again. Who
    goes on and on then tries again later, as `iris watch` does: a disk that is full for a while ends no schedule. Only
    what keeps it from its very beginning does.
    """
    from iris_cli.ops.kept_config import change_teller

    tell_of_change = change_teller(session)
    has_worked, told = False, ""
    while True:
        try:
            act()
            has_worked, told = True, ""
        except (LockedError, NotWritableError, LogReplacedError) as error:
            busy = isinstance(error, LockedError) and iris.lock_timeout == 0 and not session.begun
            if not busy and (interval is None or not (has_worked or session.begun)):
                raise
            # Of cron no hint: the other one does the work.
            words = f"busy: {error.message}" if busy else "; ".join(filter(None, (error.message, error.hint)))
            if words != told:
                (iris.output.message if busy else iris.output.warning)(words)
            told = words
        if interval is None:
            return ExitCode.OK
        iris.output.flush()
        session.clock.sleep(interval)
        tell_of_change()


def autoscale(iris: Context, *, once: bool = False, interval: float | None = None) -> int:
    """One pass of the autoscaler, or one every so many seconds."""
    every = _only_one(once=once, interval=interval)
    session = iris.session("iris autoscale")
    return _again_and_again(iris, session, lambda: _pass(iris, session), every)


def _pass(iris: Context, session: Session, *, in_cycle: bool = False) -> dict[str, object] | None:
    """One pass of the autoscaler. `in_cycle`: before a cycle, which probes new slices, and shows this in its JSON."""
    from iris_cli.ops import autoscale as operation
    from iris_cli.ops.scale_status import scaling_rows
    from iris_cli.render import scaling as render

    done = operation.run(session, probe=not in_cycle)
    if done.objection is not None and not in_cycle:
        raise ConfigError(str(done.objection), hint=render.way_out(done.objection))
    rows = scaling_rows(session.cluster, done.plan, session.clock.now())
    if in_cycle and iris.output.as_json:
        return render.pass_document(done, rows)
    render.show_pass(iris.output, done, rows)
    return None


def next_steps(iris: Context) -> int:
    """Say what to do next here."""
    iris.starts_loop = False
    from iris_cli.ops.next_steps import next_steps as look
    from iris_cli.render.next_steps import show

    show(iris.output, look(iris, os.environ, Path.home()))
    return ExitCode.OK


def status(
    iris: Context,
    job: str | None = None,
    *,
    at: str | None = None,
    watch: bool = False,
    labels: Sequence[str] = (),
    states: Sequence[str] = (),
    everything: bool = False,
) -> int:
    """Show the cluster and its jobs, or one job."""
    iris.starts_loop = False
    if iris.is_inside:
        from iris_cli.cli import inside

        return inside.status(iris, job)
    from iris_cli.ops.status import cluster_status
    from iris_cli.render import status as render

    if job is not None and (labels or states):
        raise UsageError(
            "--label and --state choose among all jobs", hint=f"leave them out: iris status {job}"
        )
    session = iris.session("iris status")

    def show() -> None:
        if job is not None:
            from iris_cli.ops.job_status import job_status

            render.show_job(iris.output, job_status(session, job, at=at), everything=everything)
        else:
            ended = None if everything else render.ended_jobs(iris.output)
            found = cluster_status(session, at=at, labels=labels, states=states, ended=ended)
            chosen = bool(labels or states)
            render.show_cluster(iris.output, found, everything=everything, chosen=chosen)

    if not watch:
        show()
        return ExitCode.OK
    from iris_cli.cli import watching

    return watching.status(iris, session, job, at=at, labels=labels, states=states, everything=everything)
