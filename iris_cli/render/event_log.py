"""Print the event log: its faults, its history, and its events as JSON Lines."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

from msgspec import Struct, structs

from iris_cli.core.units import count, format_memory
from iris_cli.journal.log.archive import Compacted
from iris_cli.journal.log.position import Fault
from iris_cli.journal.log.verify import SalvageReport, VerifyReport
from iris_cli.ops.event_rows import Row
from iris_cli.ops.views.history import History
from iris_cli.render import layout, tables
from iris_cli.render.console import Output


class Sound(Struct, frozen=True):
    """The position up to which the log is valid. `byte` counts from 0."""

    file: str
    line: int
    byte: int
    seq: int


class VerdictDocument(Struct, frozen=True, kw_only=True):
    """The result of `iris log verify`. `cluster`, `cluster_id` and `format` are null if the header can't be read."""

    log: Path
    ok: bool
    cluster: str | None
    cluster_id: str | None
    format: int | None
    records: int
    segments: int
    sound_until: Sound
    findings: Sequence[Fault]
    unfinished: Fault | None


class AcceptedDocument(Struct, frozen=True):
    """The result of `iris log salvage --accept-loss`. `seq` is the last transaction of the log."""

    messages: Sequence[str]
    seq: int


class CompactedDocument(Struct, frozen=True):
    """The result of `iris log compact`. All fields but `compacted` are null if there was nothing to move."""

    compacted: bool
    segment: str | None = None
    first: int | None = None
    last: int | None = None
    bytes_before: int | None = None
    bytes_archived: int | None = None
    bytes_after: int | None = None


def show_verdict(output: Output, log: Path, verdict: VerifyReport) -> None:
    """Print every fault of the log with its file. If there is none, print that all transactions are valid."""
    header, sound = verdict.header, verdict.sound_until
    if output.as_json:
        output.document(
            VerdictDocument(
                log=log,
                ok=verdict.ok,
                cluster=header.cluster_name if header else None,
                cluster_id=header.cluster_id if header else None,
                format=header.format if header else None,
                records=verdict.records,
                segments=verdict.segments,
                sound_until=Sound(verdict.sound_in, sound.line, sound.offset, sound.seq),
                findings=verdict.findings,
                unfinished=verdict.unfinished,
            )
        )
        return
    for fault in verdict.findings:
        output.line(f"{log.parent / fault.file}: {fault}")
    if verdict.unfinished is not None:
        aside = ": the next command that writes moves it aside" if verdict.ok else ""
        output.message(f"{log}: {verdict.unfinished}{aside}")
    if verdict.ok:
        archive = f" and {count(verdict.segments, 'archived segment')}" if verdict.segments else ""
        cluster = f" (cluster {header.cluster_name})" if header else ""
        records = count(verdict.records, "transaction")
        output.done(f"{log}{archive}: {records}, all valid{cluster}")
    else:
        valid = count(sound.seq, "transaction")
        output.line(
            f"{log}: {valid} valid before the damage, {verdict.records - sound.seq} readable after it"
        )


def dropped_words(lost: int) -> str:
    """Return the words for `lost` dropped lines: the damaged line, and all lines after it."""
    if not lost:
        return "nothing"
    return "the damaged line" + (f" and {lost - 1} after it" if lost > 1 else "")


def show_salvage(output: Output, report: SalvageReport) -> None:
    """Print the number of transactions kept and dropped, and the paths of the old files."""
    if output.as_json:
        output.document(report)
    elif not report.findings:
        output.done("the log is valid; nothing changed")
    else:
        output.failed(f"kept {count(report.kept, 'transaction')}; dropped {dropped_words(report.lost)}")
        if report.old_log is not None:
            output.done(f"old log: {report.old_log}")
        for segment in report.old_segments:
            output.done(f"old segment: {segment}")


def show_compacted(output: Output, done: Compacted | None) -> None:
    """Print the transactions moved to the archive, and the sizes of log and archive."""
    if done is None:
        if output.as_json:
            output.document(CompactedDocument(compacted=False))
        else:
            output.done("nothing to move to the archive")
        return
    file, first, last = done.segment.file, done.segment.first, done.segment.last
    if output.as_json:
        sizes = (done.bytes_before, done.bytes_archived, done.bytes_after)
        output.document(CompactedDocument(True, file, first, last, *sizes))
    else:
        before, archived = map(format_memory, (done.bytes_before, done.bytes_archived))
        output.done(f"moved transactions {first}-{last} to {file}")
        output.done(f"{before} of log compressed to {archived}")


def show_accepted(output: Output, messages: Sequence[str], seq: int) -> None:
    """Print the accepted loss and the next sequence number. `seq`: the last transaction."""
    if output.as_json:
        output.document(AcceptedDocument(messages, seq))
        return
    for message in messages:
        output.failed(message)
    output.done(f"next transaction: seq {seq + 1}")


def show_history(output: Output, history: History) -> None:
    """Print one line per event, the newest last."""
    names = (entry.text for entry in history.entries)
    output.view(history, history.messages, names, lambda: _history(history, output.width))


def _history(history: History, width: int) -> Iterator[layout.Text | layout.Table]:
    yield from (tables.text(message, "bold red") for message in history.messages)
    if history.archived:
        words = f"events before seq {history.archived + 1} are in the archive: add --all"
        yield tables.text(words, "dim")
    if history.earlier:
        what = count(history.earlier, f"earlier {'event' if history.subject else 'transaction'}")
        yield tables.text(f"{what} not shown: --limit 0 shows all events", "dim")
    if not history.entries:
        yield tables.text("no events yet", "dim")
        return
    rows = ((tables.clock_time(each.at), str(each.seq), each.text, each.actor) for each in history.entries)
    only = ("TIME (UTC)", "WHAT") if width < tables.NARROW else ()
    yield tables.table(("TIME (UTC)", "SEQ", "WHAT", "BY"), rows, only=only)


def show_rows(output: Output, rows: Iterable[Row]) -> None:
    """Print each event as one line of JSON, as soon as its row arrives."""
    encode = json.JSONEncoder(separators=(",", ":")).encode
    printed = 0
    # On a terminal the printed lines show the progress.
    progress = nullcontext if sys.stdout.isatty() else output.progress
    with progress(lambda: ("exporting", printed, 0, "event")):
        for printed, row in enumerate(rows, 1):  # noqa: B007 - the progress line reads it
            # the encoder does not escape DEL
            output.line(encode(structs.asdict(row)).replace("\x7f", "\\u007f"))
