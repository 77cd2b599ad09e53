"""`iris log ...`: verify, repair, compact and export the event log."""

from typing import TYPE_CHECKING, Annotated

from iris_cli.cli.command_types import Context, flag, option
from iris_cli.errors import ExitCode, LogDamagedError

if TYPE_CHECKING:
    from iris_cli.journal.log.verify import VerifyReport

HELP = "Check, repair, compact and export the event log."
EXAMPLES = """
iris log verify
iris log export > events.jsonl
"""
COMMANDS = {
    "verify": """
iris log verify  # exits with 6 if the log is damaged
iris log verify --json
""",
    "salvage": """
iris log salvage  # show what would be lost
iris log salvage --yes  # truncate the log before the damage
iris log salvage --accept-loss  # if the last lines are missing
""",
    "compact": """
iris log compact
iris log compact --lock-timeout 60  # wait up to a minute for the lock
""",
    "export": """
iris log export > events.jsonl
iris log export | jq -r 'select(.type == "TaskEnded") | [.at, .task, .event.state] | @tsv'
duckdb -c "SELECT type, count(*) FROM read_json_auto('events.jsonl') GROUP BY type"
""",
}


def verify(iris: Context) -> int:
    """Verify the whole log; exits with 6 if it is damaged.

    Takes no lock, changes nothing.
    """
    from iris_cli.journal.layout import LOG
    from iris_cli.ops.checks.log_checks import verify_with_progress
    from iris_cli.render.event_log import show_verdict

    directory = iris.state_path_in_use
    verdict = verify_with_progress(directory, iris.progress)
    show_verdict(iris.output, directory / LOG, verdict)
    return ExitCode.OK if verdict.ok else ExitCode.LOG_DAMAGED


def salvage(
    iris: Context,
    yes: Annotated[bool, flag("--yes", "Truncate the log before the damage.")] = False,
    accept_loss: Annotated[bool, flag("--accept-loss", "Accept a log that lost its last lines.")] = False,
) -> int:
    """Truncate a damaged log before the damage. The old log is kept; without --yes only prints what would be lost."""
    from iris_cli.journal.log.position import FaultKind
    from iris_cli.journal.log.verify import SalvageReport
    from iris_cli.ops.checks.log_checks import verify_with_progress
    from iris_cli.ops.workers.workers import require_probes
    from iris_cli.render.event_log import show_accepted, show_salvage

    directory = iris.state_path_in_use
    verdict = verify_with_progress(directory, iris.progress)  # raises NotFoundError without a log
    state = iris.state_of(None)
    damage = state.read().damage
    if damage is None and verdict.ok:
        kept = verdict.sound_until.seq
        show_salvage(iris.output, SalvageReport(kept=kept, lost=0, findings=(), old_log=None))
        return ExitCode.OK
    if damage is None:
        return _truncate(iris, verdict, yes=yes)  # every line is valid, but an event is impossible
    if any(fault.kind is FaultKind.NEWER for fault in verdict.findings):
        raise damage.error()
    if damage.forgivable:
        if not accept_loss:
            raise LogDamagedError(
                damage.what,
                hint="restore a newer copy of the state directory, or accept the loss: iris log salvage --accept-loss",
            )
        if not verdict.sound_until.seq:
            return _truncate(iris, verdict, yes=True)
        with state.locked("iris log salvage", accept_loss=True) as writer:
            require_probes(writer, iris.clock.now())
            show_accepted(iris.output, writer.messages, writer.seq)
        return ExitCode.OK
    return _truncate(iris, verdict, yes=yes)


def compact(iris: Context) -> None:
    """Move the lines of the log to its archive.

    Nothing is lost; other writers wait. `iris schedule` compacts a log of more than 64 MB.
    """
    from iris_cli.journal.state_dir import LOCK_TIMEOUT
    from iris_cli.ops.cycle import compaction
    from iris_cli.render.event_log import show_compacted

    timeout = LOCK_TIMEOUT if iris.lock_timeout is None else iris.lock_timeout
    with iris.progress(lambda: ("moving the log to its archive", 0, 0, "")):
        done, messages = compaction.compact(iris.state_of(None), "iris log compact", timeout)
    iris.output.warnings(messages)
    show_compacted(iris.output, done)


def export(
    iris: Context,
    after: Annotated[
        int, option("SEQ", "Only events after this sequence number.", min=0, show_default=True)
    ] = 0,
) -> None:
    """Print every event of archive and log as JSON Lines.

    For jq, DuckDB or pandas. Each line has seq, index, at, actor, type, event (the fields in the log), and job, task,
    attempt and worker (null if the event names none).
    """
    from iris_cli.ops.event_rows import rows
    from iris_cli.render.event_log import show_rows

    show_rows(iris.output, rows(iris.state_of(None), after))


def _truncate(iris: Context, verdict: "VerifyReport", *, yes: bool) -> int:
    from iris_cli.core import count
    from iris_cli.journal.layout import LOG
    from iris_cli.journal.log.verify import salvage as truncate
    from iris_cli.ops.workers.workers import require_probes
    from iris_cli.render.event_log import dropped_words, show_salvage, show_verdict

    directory = iris.state_path_in_use
    if not yes:
        show_verdict(iris.output, directory / LOG, verdict)
        from iris_cli.ops.checks.log_checks import ONLY_HISTORY, is_only_history_lost

        kept = verdict.sound_until.seq
        keeps_state = is_only_history_lost(iris.state_of(None), verdict)
        lost = verdict.last - kept
        raise LogDamagedError(
            f"nothing changed: salvage would keep {count(kept, 'transaction')} and drop {dropped_words(lost)}",
            hint=f"not recommended: {ONLY_HISTORY}"
            if keeps_state
            else "copy the state directory, then: iris log salvage --yes",
        )
    report = truncate(directory, now=iris.clock.now(), actor=iris.actor, replayed=True)
    show_salvage(iris.output, report)
    if report.kept:  # otherwise no log is left
        with iris.state_of(None).locked("iris log salvage") as writer:
            require_probes(writer, iris.clock.now())
    return ExitCode.OK
